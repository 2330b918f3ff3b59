"""The best validation log-likelihood so far against the device-seconds spent so far."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.comparing.finished import Finished
from harness.schema import records

Array = NDArray[np.float64]

ORDERS = 1000  # of the trials of a method whose order means nothing


@dataclass(frozen=True)
class Trajectory:
    """Incumbent against cost, a row per order of the trials, or per search: `best[o, i]` holds from `cost[o, i]` on.

    `best` is −∞ as long as nothing has succeeded. A search that decides from what it has seen, and was not replayed,
    has one row: its own.
    """

    cost: Array
    best: Array

    def cost_to_reach(self, target: float) -> float | None:
        """Expected cost until the incumbent is at least `target`: all that was spent until then ÷ rows that got there.

        Of rows that all get there it is the mean. One that never does is paid for in full: it would be begun again with
        another seed (the expected running time of Hansen et al.: COCO, 2021). None: no row gets there.
        """
        reached = self.best[:, -1] >= target if self.best.size else np.array([False])
        if not reached.any():
            return None
        first = np.where(reached, (self.best >= target).argmax(axis=1), self.cost.shape[1] - 1)
        return float(self.cost[np.arange(len(first)), first].sum() / reached.sum())

    def best_at(self, grid: Array) -> Array:
        """Mean incumbent over rows at each cost of `grid`; NaN until every row has one."""
        if not self.best.size:
            return np.full(len(grid), np.nan)
        values = np.empty((len(self.cost), len(grid)))
        for row, (cost, best) in enumerate(zip(self.cost, self.best, strict=True)):
            index = np.searchsorted(cost, grid, side="right") - 1
            values[row] = np.where(index >= 0, best[np.maximum(index, 0)], -np.inf)
        return np.where(np.isfinite(values).all(axis=0), values.mean(axis=0), np.nan)


def rungs_of(units: Sequence[Finished]) -> frozenset[int]:
    """Epochs at which the method's scheduler stopped a trial on any seed."""
    return records.rungs_of(trial for unit in units for trial in unit.trials)


def trajectory(unit: Finished, rungs: frozenset[int] = frozenset()) -> Trajectory:
    """Over searches with other seeds where they were replayed, over orders where these mean nothing, or its own."""
    if unit.result.replayed_searches:
        return _rows(unit.result.replayed_searches)
    if not unit.facts.ordered:
        return _over_orders(unit)
    return _rows([records.incumbents(unit.trials, rungs)])


def _rows(searches: Sequence[Sequence[tuple[float, float]]]) -> Trajectory:
    """Of unequal lengths: after its end a search stays where it is."""
    longest = max(map(len, searches))
    padded = [[*search, *list(search[-1:]) * (longest - len(search))] for search in searches]
    both = np.array(padded, dtype=np.float64).reshape(len(searches), longest, 2)
    return Trajectory(both[:, :, 0], both[:, :, 1])


def _over_orders(unit: Finished) -> Trajectory:
    costs = np.array([trial.cost.device_seconds for trial in unit.trials])
    values = np.array([trial.val.log_likelihood if trial.val else -np.inf for trial in unit.trials])
    rng = np.random.default_rng(unit.seed)
    orders = rng.permuted(np.tile(np.arange(len(costs)), (ORDERS, 1)), axis=1)
    return Trajectory(costs[orders].cumsum(axis=1), np.maximum.accumulate(values[orders], axis=1))
