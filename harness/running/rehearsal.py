"""A run without Ray: made-up trials in this process, told to the units in the order in which Tune would tell them.

`harness check` runs a method through it in a second or two; what the units write is what a real run writes.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ray import tune
from ray.tune.experiment import Experiment, Trial

from harness.records import (
    Cost,
    CurvePoint,
    Environment,
    FinalEvaluation,
    Measures,
    Posterior,
    Progress,
    StopReason,
)
from harness.running.messages import AnyTask, Facts, FinalTask, RefitTask, Report, received_task
from harness.running.search import STOP
from harness.running.side_by_side import SharedCallback, SharedScheduler, SharedSearch, SideBySide
from harness.running.unit import RunningUnit

Value = Callable[[int, int], float]
"""The validation log-likelihood of a depth after some epochs."""


def unimodal(depth: int, epoch: int) -> float:
    """Best at depth 6; deeper networks learn more slowly; no two depths tie."""
    return -0.2 - 0.01 * (depth - 6.2) ** 2 - (1 + depth) / (10 + epoch)


def rehearse(
    units: Sequence[RunningUnit], value: Value = unimodal, *, slots: int = 1, max_steps: int | None = None
) -> int:
    """Runs the units until they are over, or until the driver "is killed" after `max_steps` of Tune's events.

    Trials keep no checkpoint: one that a killed driver left open starts anew, and its reports repeat themselves.
    Returns the number of steps taken.
    """
    together = SideBySide(units, slots, 0, None, None, _write_result)
    search, scheduler = SharedSearch(together), SharedScheduler(together)
    callback = SharedCallback(together, refresh=lambda: None)
    running: list[tuple[Trial, Iterator[Report]]] = []
    steps = 0
    with tempfile.TemporaryDirectory() as folder:
        search.add_configurations([_experiment(folder)])
        while not search.is_finished() and steps != max_steps:
            while len(running) < slots and (trial := search.next_trial()):
                callback.on_trial_start(0, [], trial)
                running.append((trial, made_up_reports(received_task(trial.config), value)))
            if not running:
                if search.is_finished():
                    break
                raise RuntimeError("nothing runs and nothing is proposed, yet the search has not ended")
            steps += 1
            trial, reports = running.pop(0)
            if (report := next(reports, None)) is not None:
                decision = scheduler.on_trial_result(None, trial, report.to_tune())
                if decision != STOP:
                    running.append((trial, reports))
                if decision != STOP or steps == max_steps:  # or killed before the stop was carried out
                    continue
            callback.on_trial_complete(0, [], trial)
    return steps


def _write_result(unit: RunningUnit) -> None:
    unit.complete()


def _experiment(folder: str) -> Experiment:
    tune.register_trainable("harness-rehearsal", _never_called)
    return Experiment("rehearsal", run="harness-rehearsal", storage_path=folder)


def _never_called(config: dict[str, Any]) -> None:
    raise AssertionError("a rehearsal trains nothing")


def made_up_reports(task: AnyTask, value: Value) -> Iterator[Report]:
    """What a worker would report for this task."""
    config, training = task.config, task.config.training
    if isinstance(task, FinalTask):
        yield Report(final=_evaluation(value(config.depth, task.epochs)))
        return
    cap = task.epochs if isinstance(task, RefitTask) else training.max_epochs
    yield Report(facts=_FACTS)
    for epoch in [*range(training.report_every, cap, training.report_every), cap]:
        stop_reason: StopReason | None = "cap" if epoch == cap else None
        measured = value(config.depth, epoch)
        yield Report(progress=made_up_progress(config.learns_depth, config.depth, epoch, measured, stop_reason))


def made_up_progress(
    learns_depth: bool, depth: int, epoch: int, value: float, stop_reason: StopReason | None = None
) -> Progress:
    point = CurvePoint(
        epoch=epoch, device_seconds=float(epoch), train_objective=value, val_log_likelihood=value, val_accuracy=0.5
    )
    posterior = None
    if learns_depth:
        q = tuple(1 / (depth + 1) for _ in range(depth + 1))
        posterior = Posterior(q=q, rule="argmax", d_opt=0, d_opt_by_rule={"argmax": 0})
    return Progress(
        epoch=epoch,
        stop_reason=stop_reason,
        best_epoch=epoch,
        train_objective=value,
        val=_measures(value),
        posterior=posterior,
        depth_changed_late=None,
        cost=Cost(epochs=epoch),
        point=point,
    )


def _measures(value: float) -> Measures:
    return Measures(accuracy=0.5, log_likelihood=value, ece=0.1, brier=0.2)


def _evaluation(value: float) -> FinalEvaluation:
    return FinalEvaluation(chosen=_measures(value), reliability=(), n_test=1, split_hash="made up")


MADE_UP = Environment(
    harness="", code="", python="", torch="", ray=None, machine="made up", device="made up", threads=1
)
_FACTS = Facts(
    host="made up",
    worker_start=(0.0, 0.0),
    resumed_from=Cost(),
    split_hash="made up",
    n_train=1,
    n_val=1,
    environment=MADE_UP,
)
