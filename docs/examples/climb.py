"""A search with a searcher of its own: walk to the better neighbour until there is none."""

from typing import Annotated, Any, ClassVar

from pydantic import Field
from ray.tune.search import Searcher

from harness.methods.base import METRIC, MODE, SearchMethod, SearchPlan
from harness.schema.settings import Budget, SearchSpace


class Climber(Searcher):
    """Asked for depths, told what became of them. It keeps the values it knows and what is being trained."""

    def __init__(self, depths: tuple[int, ...], start: float) -> None:
        super().__init__(metric=METRIC, mode=MODE)
        self.depths = depths
        self.start = round(start * (len(depths) - 1))
        self.values: dict[int, float] = {}  # place in `depths` -> validation log-likelihood
        self.running: dict[str, int] = {}  # trial -> place

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        here = max(self.values, key=self.values.__getitem__, default=self.start)
        wanted = [place for place in (here, here - 1, here + 1) if 0 <= place < len(self.depths)]
        unknown = [place for place in wanted if place not in self.values]
        if not unknown:
            return Searcher.FINISHED  # type: ignore[return-value]  # a marker: nothing more to train
        free = [place for place in unknown if place not in self.running.values()]
        if not free:
            return None  # nothing now: ask again when a trial has ended
        self.running[trial_id] = free[0]
        return {"depth": self.depths[free[0]]}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.values[self.running.pop(trial_id)] = (result or {}).get(METRIC, float("-inf"))  # -inf: it failed


class Climb(SearchMethod):
    """Starts at one depth and moves to the better neighbour until there is none. Stops no trial early."""

    seeded: ClassVar[bool] = False  # nothing in it is random
    most_at_once: ClassVar[int] = 3  # a depth and its two neighbours

    start: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Where to begin: 0 is the smallest depth of the space, 1 the largest."""

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return SearchPlan({}, Climber(space.depth.values, self.start), num_samples=budget.trials)
