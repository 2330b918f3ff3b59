"""Grid search over depths."""

from typing import ClassVar

from ray import tune
from ray.tune.search import BasicVariantGenerator

from harness.methods.base import SearchMethod, SearchPlan
from harness.schema.settings import Budget, SearchSpace


class Grid(SearchMethod):
    """Every depth of the space, trained in full by Tune's own generator. Exhaustive; stops no trial early."""

    adaptive: ClassVar[bool] = False
    seeded: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    exhaustive: ClassVar[bool] = True
    colour: ClassVar[str] = "#0072B2"

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        depths = tune.grid_search(list(space.depth.values))
        return SearchPlan({"depth": depths}, BasicVariantGenerator(random_state=seed))
