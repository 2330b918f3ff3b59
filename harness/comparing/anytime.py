"""The best validation log-likelihood so far against the device-seconds spent so far."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.comparing.finished import Finished
from harness.records import TrialRecord

Array = NDArray[np.float64]

ORDERS = 1000  # of the trials of a method whose order means nothing


@dataclass(frozen=True)
class Trajectory:
    """Incumbent against cost, one row per order of the trials: `best[o, i]` holds from `cost[o, i]` device-seconds on.

    `best` is −∞ as long as nothing has succeeded. A method that decides from what it has seen has one row: its own.
    """

    cost: Array
    best: Array

    def cost_to_reach(self, target: float) -> float | None:
        """Mean over orders of the cost at which the incumbent first is at least `target`; None: never."""
        if not self.best.size or self.best[0, -1] < target:  # the last incumbent is the same in every order
            return None
        first = (self.best >= target).argmax(axis=1)
        return float(self.cost[np.arange(len(first)), first].mean())

    def best_at(self, grid: Array) -> Array:
        """Mean incumbent over orders at each cost of `grid`; NaN until every order has one."""
        if not self.best.size:
            return np.full(len(grid), np.nan)
        values = np.empty((len(self.cost), len(grid)))
        for row, (cost, best) in enumerate(zip(self.cost, self.best, strict=True)):
            index = np.searchsorted(cost, grid, side="right") - 1
            values[row] = np.where(index >= 0, best[np.maximum(index, 0)], -np.inf)
        return np.where(np.isfinite(values).all(axis=0), values.mean(axis=0), np.nan)


def rungs_of(units: Sequence[Finished]) -> frozenset[int]:
    """Epochs at which the method's scheduler stopped a trial on any seed: there it looks at running trials."""
    return frozenset(
        trial.curve[-1].epoch
        for unit in units
        for trial in unit.trials
        if trial.stop_reason == "scheduler" and trial.curve
    )


def trajectory(unit: Finished, rungs: frozenset[int] = frozenset()) -> Trajectory:
    """The incumbent changes when a trial ends or reports at a rung; where the depth is learnt, at every report."""
    if not unit.facts.ordered:
        return _over_orders(unit)
    return _as_recorded(unit.trials, rungs)


def _over_orders(unit: Finished) -> Trajectory:
    costs = np.array([trial.cost.device_seconds for trial in unit.trials])
    values = np.array([_final_value(trial) for trial in unit.trials])
    rng = np.random.default_rng(unit.seed)
    orders = rng.permuted(np.tile(np.arange(len(costs)), (ORDERS, 1)), axis=1)
    return Trajectory(costs[orders].cumsum(axis=1), np.maximum.accumulate(values[orders], axis=1))


def _as_recorded(trials: Sequence[TrialRecord], rungs: frozenset[int]) -> Trajectory:
    start, end = _time_spans(trials)
    totals = np.array([trial.cost.device_seconds for trial in trials])
    moments, values = [], []
    for index, trial in enumerate(trials):
        for own_cost, value in _events(trial, rungs):
            # A trial spends its device time evenly between start and end, also when a retry left a gap.
            share = own_cost / totals[index] if totals[index] else 1.0
            moments.append(start[index] + share * (end[index] - start[index]))
            values.append(value)
    order = np.argsort(moments, kind="stable")
    at = np.array(moments)[order]
    length = np.maximum(end - start, 1e-12)
    spent = np.clip((at[:, None] - start) / length, 0.0, 1.0) @ totals  # all trials', up to each moment
    return Trajectory(spent[None, :], np.maximum.accumulate(np.array(values)[order])[None, :])


def _time_spans(trials: Sequence[TrialRecord]) -> tuple[Array, Array]:
    """When each trial held its devices; one after the other where no clock was recorded."""
    start = np.array([trial.started_at for trial in trials])
    end = np.array([trial.ended_at for trial in trials])
    if (end > start).all():
        return start, end
    held = np.array([trial.cost.held_seconds for trial in trials])
    return held.cumsum() - held, held.cumsum()


def _events(trial: TrialRecord, rungs: frozenset[int]) -> list[tuple[float, float]]:
    reports = [
        (point.device_seconds, point.val_log_likelihood)
        for point in trial.curve
        if trial.val is not None and (trial.learns_depth or point.epoch in rungs)
    ]
    return [*reports, (trial.cost.device_seconds, _final_value(trial))]


def _final_value(trial: TrialRecord) -> float:
    return trial.val.log_likelihood if trial.val else -np.inf
