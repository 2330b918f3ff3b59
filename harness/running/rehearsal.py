"""A run without Ray: made-up trials in this process, told to the units in the order in which Tune would tell them.

`harness check` runs a method through it in a second or two; what the units write is what a real run writes.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ray import tune
from ray.tune.experiment import Experiment, Trial
from ray.tune.schedulers import TrialScheduler

from harness.methods.base import FINISHED, METRIC, TIME
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
from harness.running.side_by_side import SharedCallback, SharedScheduler, SharedSearch, SideBySide
from harness.running.unit import UnitRun
from harness.running.worker import PAYLOAD
from harness.spaces import SearchSpace

Value = Callable[[int, int], float]
"""The validation log-likelihood of a depth after some epochs."""


def unimodal(depth: int, epoch: int) -> float:
    """Best at depth 6; deeper networks learn more slowly; no two depths tie."""
    return -0.2 - 0.01 * (depth - 6.2) ** 2 - (1 + depth) / (10 + epoch)


def rehearse(units: Sequence[UnitRun], value: Value = unimodal, *, slots: int = 1, max_steps: int | None = None) -> int:
    """Runs the units until they are over, or until the driver "is killed" after `max_steps` of Tune's events.

    Trials keep no checkpoint: one that a killed driver left open starts anew, and its reports repeat themselves.
    Returns the number of steps taken.
    """
    together = SideBySide(units, slots, 0, None, None, _write_result)
    search, scheduler = SharedSearch(together), SharedScheduler(together)
    callback = SharedCallback(together, refresh=lambda: None)
    running: list[tuple[Trial, Iterator[dict[str, Any]]]] = []
    last: dict[str, dict[str, Any]] = {}
    steps = 0
    with tempfile.TemporaryDirectory() as folder:
        search.add_configurations([_experiment(folder)])
        while not search.is_finished() and steps != max_steps:
            while len(running) < slots and (trial := search.next_trial()):
                scheduler.on_trial_add(None, trial)
                callback.on_trial_start(0, [], trial)
                running.append(
                    (trial, made_up_reports(trial.config, together.unit_of(trial.trial_id).plan.space, value))
                )
            if not running:
                if search.is_finished():
                    break
                raise RuntimeError("nothing runs and nothing is proposed, yet the search has not ended")
            steps += 1
            trial, reports = running.pop(0)
            if (result := next(reports, None)) is not None:
                decision = scheduler.on_trial_result(None, trial, result)
                if decision != TrialScheduler.STOP:
                    search.on_trial_result(trial.trial_id, result)
                    running.append((trial, reports))
                callback.on_trial_result(0, [], trial, result)
                last[trial.trial_id] = result
                if decision != TrialScheduler.STOP or steps == max_steps:  # or killed before the stop was carried out
                    continue
            scheduler.on_trial_complete(None, trial, last[trial.trial_id])
            search.on_trial_complete(trial.trial_id, result=last[trial.trial_id])
            callback.on_trial_complete(0, [], trial)
    return steps


def _write_result(unit: UnitRun) -> None:
    unit.complete()


def _experiment(folder: str) -> Experiment:
    tune.register_trainable("harness-rehearsal", _never_called)
    return Experiment("rehearsal", run="harness-rehearsal", storage_path=folder)


def _never_called(config: dict[str, Any]) -> None:
    raise AssertionError("a rehearsal trains nothing")


def made_up_reports(config: dict[str, Any], space: SearchSpace, value: Value) -> Iterator[dict[str, Any]]:
    """What a worker would report for this task."""
    if config["task"] == "final":
        yield {FINISHED: True, PAYLOAD: {"final": _evaluation(value(config["depth"], config["epochs"]))}}
        return
    training = space.training
    cap = config["epochs"] if config["task"] == "refit" else training.max_epochs
    yield {TIME: 0, FINISHED: False, PAYLOAD: {"facts": _facts()}}
    for epoch in [*range(training.report_every, cap, training.report_every), cap]:
        stop_reason: StopReason | None = "cap" if epoch == cap else None
        progress = made_up_progress(
            config["learns_depth"], config["depth"], epoch, value(config["depth"], epoch), stop_reason
        )
        payload = {"progress": progress.model_dump_json()}
        measured = value(config["depth"], epoch)
        yield {TIME: epoch, FINISHED: stop_reason is not None, METRIC: measured, PAYLOAD: payload}


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


def _evaluation(value: float) -> str:
    return FinalEvaluation(chosen=_measures(value), reliability=(), n_test=1, split_hash="made up").model_dump_json()


def _facts() -> dict[str, Any]:
    return {
        "host": "made up",
        "worker_start": (0.0, 0.0),
        "resumed_from": Cost().model_dump_json(),
        "split_hash": "made up",
        "n_train": 1,
        "n_val": 1,
        "environment": MADE_UP.model_dump(),
    }


MADE_UP = Environment(
    harness="", code="", python="", torch="", ray=None, machine="made up", device="made up", threads=1
)
