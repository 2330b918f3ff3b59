"""Golden-section search: depth is one number and quality is often unimodal in it, so bracket the best."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

from ray.tune.search import Searcher

from harness.methods.base import METRIC, MODE, SearchMethod, SearchPlan
from harness.schema.settings import TIE_NATS, Budget, SearchSpace

NextDepths = Callable[[tuple[int, ...], dict[int, float]], list[int]]


def next_depths(depths: tuple[int, ...], values: dict[int, float]) -> list[int]:
    """The depths to train next, from the values known so far; empty when the bracket has closed.

    Brackets have lengths of Fibonacci numbers, the golden ratio in whole steps: of the two inner points one is an
    inner point of the next bracket too, so each training cuts what is left to about 0.62 of it, and no search needs
    fewer in the worst case. The side of the worse point is cut off; of equal ones
    (within TIE_NATS), the deeper side.
    """

    def value(index: int) -> float:
        return values[depths[index]] if index < len(depths) else -math.inf  # beyond the range: never the better one

    short, long = 1, 1
    while short + long - 1 < len(depths):
        short, long = long, short + long
    low = -1  # the bracket runs from low to low + short + long, its ends not included
    while True:
        inner = sorted({low + short, low + long})
        missing = [depths[index] for index in inner if index < len(depths) and depths[index] not in values]
        if missing or len(inner) == 1:
            return missing
        left, right = inner
        if value(left) < value(right) - TIE_NATS:
            low = left
        short, long = long - short, short


class BracketSearcher(Searcher):
    """Holds nothing but the known values and what is being trained: the next points follow from them alone."""

    def __init__(self, depths: tuple[int, ...], next_depths: NextDepths = next_depths) -> None:
        super().__init__(metric=METRIC, mode=MODE)
        self.depths = depths
        self.next_depths = next_depths
        self.values: dict[int, float] = {}
        self.running: dict[str, int] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        wanted = self.next_depths(self.depths, self.values)
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

    Kiefer: Sequential Minimax Search for a Maximum, 1953, in its form for whole numbers (Fibonacci search). Stops no
    trial early. At most two trials run at once.
    """

    seeded: ClassVar[bool] = False
    most_at_once: ClassVar[int] = 2
    colour: ClassVar[str] = "#8C6D31"

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        searcher = BracketSearcher(space.depth.values)
        return SearchPlan({}, searcher, num_samples=budget.trials)
