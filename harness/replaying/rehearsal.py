"""A run without Ray: trials whose reports are made up, on the simulated clock of a replay.

`harness check` runs a method through it in a second or two; what the units write is what a real run writes.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence

from harness.running.messages import AnyTask, Facts, FinalTask, RefitTask, Report, RetrainTask
from harness.running.replay import Course, simulate, unused_experiment
from harness.running.side_by_side import SideBySide
from harness.running.unit import RunningUnit
from harness.schema.records import (
    Cost,
    CurvePoint,
    Environment,
    FinalEvaluation,
    Measures,
    Posterior,
    Progress,
    StopReason,
)

Value = Callable[[int, int], float]
"""The validation log-likelihood of a depth after some epochs."""


def unimodal(depth: int, epoch: int) -> float:
    """Best at depth 6; deeper networks learn more slowly; no two depths tie."""
    return -0.2 - 0.01 * (depth - 6.2) ** 2 - (1 + depth) / (10 + epoch)


def rehearse(
    units: Sequence[RunningUnit], value: Value = unimodal, *, slots: int = 1, max_steps: int | None = None
) -> int:
    """Runs the units until they are over, or until the driver "is killed" after `max_steps` reports and ends.

    Trials keep no checkpoint: one that a killed driver left open starts anew, and its reports repeat themselves.
    Returns the number of steps taken.
    """
    together = SideBySide(units, slots, 0, None, None, _write_result)
    with tempfile.TemporaryDirectory() as folder:
        together.prepare(unused_experiment(folder))
        steps = simulate(together, lambda task: Course(made_up_reports(task, value)), max_steps=max_steps)
    if steps != max_steps and not together.is_finished:
        raise RuntimeError("nothing runs and nothing is proposed, yet the search has not ended")
    return steps


def _write_result(unit: RunningUnit) -> None:
    unit.complete()


def made_up_reports(task: AnyTask, value: Value) -> Iterator[tuple[float, Report]]:
    """What a worker would report for this task, and after how many seconds: an epoch takes one."""
    config, training = task.config, task.config.training
    if isinstance(task, FinalTask):
        yield 0.0, Report(final=_evaluation(value(config.depth, task.epochs)))
        return
    cap = task.epochs if isinstance(task, RefitTask | RetrainTask) else config.epochs
    yield 0.0, Report(facts=_FACTS)
    for epoch in [*range(training.report_every, cap, training.report_every), cap]:
        stop_reason: StopReason | None = "cap" if epoch == cap else None
        measured = value(config.depth, epoch)
        progress = made_up_progress(config.learns_depth, config.depth, epoch, measured, stop_reason)
        yield float(epoch), Report(progress=progress)


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
        cost=Cost(held_seconds=float(epoch), epochs=epoch),
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
