"""A whole run: the cluster is asked first, units run side by side, and a listener hears of each that is complete."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from harness.cluster.doctor import doctor
from harness.errors import UserError
from harness.options import RunOptions
from harness.running.runner import RunOutcome, run_units, show_nothing
from harness.running.side_by_side import Show, SideBySide
from harness.running.unit import RunningUnit
from harness.schema.records import Unit

Warn = Callable[[str], None]


class Listener(Protocol):
    """Whoever wants to know what became of units, MLflow for example. It starts nothing, and a run waits for nothing
    of it but its end.
    """

    def import_ahead(self) -> None:
        """Called while workers start, before the first trial is timed."""

    def begin(self) -> None:
        """Called, more than once, when no trial is timed any more."""

    def put(self, unit: Unit) -> None:
        """A unit is complete, by this run or an earlier one."""

    def close(self) -> str | None:
        """Nothing more comes. A sentence where something could not be done, else None."""


def run_and_tell(
    units: Sequence[RunningUnit], options: RunOptions, listener: Listener, show: Show | None, warn: Warn
) -> tuple[RunOutcome, bool]:
    """The outcome, and whether the listener could do its work. `warn` is told at once of what does not stop the run."""

    @contextmanager
    def show_later(together: SideBySide) -> Iterator[Callable[[], None]]:
        def look() -> None:
            refresh()
            if together.has_searched:
                listener.begin()

        listener.import_ahead()
        with (show or show_nothing)(together) as refresh:
            yield look

    try:
        if options.address:
            _check_cluster(options.address, options, warn)
        outcome = run_units(units, options, listener.put, show_later, warn)
    finally:  # whatever ends the run: the listener has heard of the units that are complete
        warning = listener.close()
    if warning:
        warn(warning)
    return outcome, warning is None


def _check_cluster(address: str, options: RunOptions, warn: Warn) -> None:
    """Every node is asked first whether it can do what the run will want of it."""
    resources = options.gpus_per_trial, options.cpus_per_trial
    for each in doctor(address, options.storage, options.tracking_uri, *resources):
        if each.name == "resources":
            continue  # the run waits for a machine that has them
        if not each.ok and each.fatal:
            raise UserError(f"{each.name}: {each.detail}; {each.remedy}")
        if not each.ok:
            warn(f"{each.name}: {each.detail}; {each.remedy}")
