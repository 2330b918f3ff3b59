"""Golden-section search: depth is one number and quality is often unimodal in it, so bracket the best."""

import math
from typing import Any

from ray.tune.search import Searcher

from harness.methods.base import METRIC, MODE, TIE_NATS, SearchMethod, SearchPlan
from harness.spaces import Budget, SearchSpace


def next_depths(depths: tuple[int, ...], values: dict[int, float]) -> list[int]:
    """The depths to train next, from the values known so far; empty when the bracket has closed.

    Two inner points divide the bracket in the golden ratio; the side of the worse one is cut off. Where both are
    equal (within TIE_NATS) the deeper side goes. A bracket of three is trained in full.
    """
    low, high = 0, len(depths) - 1
    while high - low > 2:
        step = max(1, round((high - low) / ((1 + math.sqrt(5)) / 2)))
        left, right = high - step, low + step
        if left == right:  # a bracket of five: both points would be its middle
            left -= 1
        missing = [depths[i] for i in (left, right) if depths[i] not in values]
        if missing:
            return missing
        if values[depths[left]] >= values[depths[right]] - TIE_NATS:
            high = right
        else:
            low = left
    return [depths[i] for i in range(low, high + 1) if depths[i] not in values]


class GoldenSectionSearcher(Searcher):
    """Holds nothing but the known values and what is being trained: the next points follow from them alone."""

    def __init__(self, depths: tuple[int, ...]) -> None:
        super().__init__(metric=METRIC, mode=MODE)
        self.depths = depths
        self.values: dict[int, float] = {}
        self.running: dict[str, int] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        wanted = next_depths(self.depths, self.values)
        free = [depth for depth in wanted if depth not in self.running.values()]
        if free:
            self.running[trial_id] = free[0]
            return {"depth": free[0]}
        return None if wanted else Searcher.FINISHED  # type: ignore[return-value]  # a marker, as Tune wants it

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        depth = self.running.pop(trial_id)
        # A failed trial is as bad as can be, so the bracket moves away from it.
        self.values[depth] = (result or {}).get(METRIC, -math.inf)


class GoldenSection(SearchMethod):
    """Brackets the best depth with two inner points at a time, each trained in full; at most `budget.trials`.

    Kiefer: Sequential Minimax Search for a Maximum, 1953. Stops no trial early. At most two trials run at once.
    """

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        searcher = GoldenSectionSearcher(space.depth.values)
        return SearchPlan({"kind": "ddn"}, searcher, num_samples=budget.trials)
