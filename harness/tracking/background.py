"""Writes units to MLflow in a thread of the parent process, so that no trial waits for a database."""

import contextlib
import importlib
import queue
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.schema.records import Unit
from harness.tracking.address import Experiment, check_uri, sqlite_file
from harness.tracking.ours import Names

if TYPE_CHECKING:
    from harness.options import RunOptions
    from harness.tracking.writer import Tracker

OUR_NAMES = Names()


def default_uri(out: Path) -> str:
    """A sqlite file beside the results."""
    return f"sqlite:///{(out / 'mlflow.db').resolve()}"


@dataclass(frozen=True)
class Destination:
    """Where MLflow is: the address that was given, else a sqlite file in `folder`."""

    given: str | None
    folder: Path
    experiment: Experiment | None = None  # one that takes the units of all spaces
    names: Names = OUR_NAMES

    @classmethod
    def of(cls, options: "RunOptions", experiment: Experiment | None = None) -> "Destination":
        return cls(options.tracking_uri, options.out, experiment, Names(options.experiment, options.model_name))

    def __post_init__(self) -> None:
        check_uri(self.uri)  # before anything starts

    @property
    def uri(self) -> str:
        return self.given or default_uri(self.folder)

    def tracker(self, at_once: bool, out: Path | None = None, needed_next: str | None = None) -> "BackgroundTracker":
        """`out`: where the results are, unless in `folder`."""
        return BackgroundTracker(self.uri, out or self.folder, at_once, self.experiment, needed_next, self.names)

    def check_names(self, space: str) -> None:
        """Before a run, where a name was asked for: whose it is must not be found out after it."""
        if self.names != OUR_NAMES and ((database := sqlite_file(self.uri)) is None or database.exists()):
            self.writer().check_names(space)

    def writer(self) -> "Tracker":
        """For whoever writes now, and waits."""
        from harness.tracking.writer import Tracker

        return Tracker(self.uri, self.experiment, self.names)


class BackgroundTracker:
    """`put` a complete unit and go on; `close` waits until everything is written.

    With `at_once` units are written while others still run: right on a cluster, where trials run elsewhere. On one
    machine the writing would take processor time from the trials that are being timed, so it waits for `begin`, else
    for `close`.
    """

    def __init__(
        self,
        uri: str,
        out: Path,
        at_once: bool,
        experiment: Experiment | None = None,
        needed_next: str | None = None,
        names: Names = OUR_NAMES,
    ) -> None:
        """`experiment`: one that takes the units of all spaces. `needed_next`: a module, by whoever started the run."""
        self._uri, self._out = check_uri(uri), out  # checked here: the thread has nobody to tell
        self._experiment, self._names = experiment, names
        self._needed_next = needed_next
        self.warning: str | None = None
        self._units: queue.Queue[Unit | None] = queue.Queue()
        self._thread = threading.Thread(target=self._write, name="tracking", daemon=True)
        self._opens_ahead = False  # of the first unit; nothing is written for a run that may still be refused
        if at_once:
            self._thread.start()

    def begin(self) -> None:
        """From here on units are written as they come; what they and the run's end would wait for is made ready."""
        if self._thread.ident is None:
            self._opens_ahead = True
            self._thread.start()

    def import_ahead(self) -> None:
        """MLflow, which takes a second: while workers start, and before the first trial is timed."""
        _import("harness.tracking.writer")

    def put(self, unit: Unit) -> None:
        self._units.put(unit)

    def close(self) -> str | None:
        """A sentence when MLflow could not be written, else None."""
        self._units.put(None)
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join()
        return self.warning

    def _write(self) -> None:
        from harness.tracking.models import model_in
        from harness.tracking.writer import Tracker

        tracker = Tracker(self._uri, self._experiment, self._names)
        model = None if self._experiment else model_in(self._out)  # a study's networks are there to be read, not used
        if self._opens_ahead:
            tracker.open()
            if self._needed_next:
                _import(self._needed_next)
        while (unit := self._units.get()) is not None:
            tracker.write_unit(unit, model)
            self.warning = tracker.warning


def _import(module: str) -> None:
    with contextlib.suppress(Exception):  # whoever needs it meets the error again, and tells it
        importlib.import_module(module)
