"""A run whose units are written to MLflow as they become complete."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.cluster.doctor import doctor
from harness.errors import UserError
from harness.running.runner import RunOptions, RunOutcome, run_units, show_nothing
from harness.running.side_by_side import Show, SideBySide
from harness.running.unit import RunningUnit
from harness.tracking.address import Experiment, check_uri
from harness.tracking.background import BackgroundTracker, default_uri

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Destination:
    """Where MLflow is: the address that was given, else a sqlite file in `folder`."""

    given: str | None
    folder: Path
    experiment: Experiment | None = None  # one that takes the units of all spaces

    def __post_init__(self) -> None:
        check_uri(self.uri)  # before anything starts

    @property
    def uri(self) -> str:
        return self.given or default_uri(self.folder)


def run_tracked(
    units: Sequence[RunningUnit],
    options: RunOptions,
    to: Destination,
    show: Show | None,
    warn: Warn,
    needed_next: str | None = None,
) -> tuple[RunOutcome, bool]:
    """The outcome, and whether MLflow was written. `warn` is told at once of what does not stop the run.

    `needed_next` is a module that is imported when no trial is timed any more.
    """
    if options.address:
        _check_cluster(options.address, options, to.given, warn)
    tracker = BackgroundTracker(to.uri, options.out, options.address is not None, to.experiment, needed_next)

    @contextmanager
    def show_later(together: SideBySide) -> Iterator[Callable[[], None]]:
        def look() -> None:
            refresh()
            if together.has_searched:
                tracker.begin()

        tracker.import_ahead()
        with (show or show_nothing)(together) as refresh:
            yield look

    try:
        outcome = run_units(units, options, tracker.put, show_later, warn)
    finally:  # whatever ends the run: units that are complete are written, and the thread ends
        warning = tracker.close()
    if warning:
        warn(warning)
    return outcome, warning is None


def _check_cluster(address: str, options: RunOptions, tracking_uri: str | None, warn: Warn) -> None:
    """Every node is asked first whether it can do what the run will want of it."""
    for each in doctor(address, options.storage, tracking_uri, options.gpus_per_trial, options.cpus_per_trial):
        if each.name == "resources":
            continue  # the run waits for a machine that has them
        if not each.ok and each.fatal:
            raise UserError(f"{each.name}: {each.detail}; {each.remedy}")
        if not each.ok:
            warn(f"{each.name}: {each.detail}; {each.remedy}")
