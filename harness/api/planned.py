"""A run that was planned and not started: what `harness.run` and `harness run` start, and `--dry-run` forecasts."""

import importlib
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.api.mlflow import conclude
from harness.api.results import Results, Space, check_reference, finished_seeds, load, methods_in
from harness.backends import check_ray_version
from harness.options import RunOptions
from harness.running.inputs import methods_of, space_of
from harness.schema.settings import SearchSpace
from harness.tracking.background import Destination

if TYPE_CHECKING:
    from harness.running.forecast import Forecast
    from harness.running.run import Warn
    from harness.running.side_by_side import Show
    from harness.running.unit import RunningUnit


def import_ray_quietly() -> None:
    """In a notebook, Ray and the tqdm that it imports ask for ipywidgets, which nothing here uses."""
    check_ray_version()  # before it is imported: another may lack what is imported of it
    logging.getLogger("ray.widgets").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")
        importlib.import_module("harness.running.runner")


@dataclass(frozen=True)
class PlannedRun:
    """Units ready to start. So far nothing was started and nothing written."""

    space: SearchSpace
    units: Sequence["RunningUnit"]
    options: RunOptions
    tracked_to: "Destination"

    def forecast(self) -> "Forecast":
        from harness.running.forecast import forecast

        return forecast(self.units, self.options.data_dir, self.options.address)

    def start(self, show: "Show | None" = None, warn: "Warn" = lambda warning: None) -> Results:
        """Runs what is not complete yet; `warn` hears at once what `warnings` holds at the end."""
        results = self._run(show, warn)
        if results.tracked and results.finished and not results.interrupted:
            conclude(results, self.tracked_to)
        return results

    def _run(self, show: "Show | None", warn: "Warn") -> Results:
        from harness.backends.storage import Storage, is_uri
        from harness.running.mirror import send_looks
        from harness.running.run import run_and_tell
        from harness.running.store import note_looks

        told: list[str] = []

        def keep(warning: str) -> None:
            told.append(warning)
            warn(warning)

        options = self.options
        seeds = list(dict.fromkeys(unit.plan.seed for unit in self.units))
        before = 0 if options.fresh else len(finished_seeds(options.out, self.space.name))
        for look in options.looks or (len(seeds),):
            units = [unit for unit in self.units if unit.plan.seed in seeds[:look]]
            tracker = self.tracked_to.tracker(options.address is not None, needed_next="harness.reporting.html")
            outcome, tracked = run_and_tell(units, options, tracker, show, keep)
            options = options.model_copy(update={"fresh": False})  # the next look builds on this one
            results = replace(
                load(self.space, options.out, None, outcome.units),
                failures=outcome.failures,
                unfinished=outcome.unfinished,
                interrupted=outcome.interrupted,
                tracked=tracked,
                warnings=tuple(told),
            )
            if outcome.interrupted or outcome.failures or outcome.unfinished or not results.finished:
                return results
            seen = [unit for unit in results.units if unit.plan.seed in seeds[:look]]  # a run before may have gone on
            if options.looks and replace(results, units=tuple(seen)).comparison.is_decided:
                return results
        if not options.looks:
            seen_at = len(finished_seeds(options.out, self.space.name))
            results = replace(results, looks=note_looks(options.out, self.space.name, before, seen_at))
            if options.storage and is_uri(options.storage):
                send_looks(Storage(options.storage), options.out, self.space.name)
        return results


def plan_run(space: Space, options: RunOptions) -> PlannedRun:
    """Checks what is asked for, and starts nothing."""
    options = options.placed()
    wanted = space_of(space, options.set, options.trials, options.epochs)
    import_ray_quietly()
    loaded = methods_of(options.methods)
    check_reference(options.reference, [*loaded, *methods_in(options.out / wanted.name)])
    from harness.running.runner import make_units

    units = make_units([wanted], loaded, options.seeds, options)
    tracked_to = Destination.of(options)
    tracked_to.check_names(wanted.name)
    return PlannedRun(wanted, units, options, tracked_to)
