"""The smallest search: a list of depths, all of them trained in full."""

from ray import tune
from ray.tune.search import BasicVariantGenerator

from harness.methods.base import SearchMethod, SearchPlan
from harness.schema.settings import Budget, SearchSpace


class EveryOther(SearchMethod):
    """Every `stride`-th depth of the space. Stops no trial early."""

    stride: int = 2
    adaptive = False  # later trials do not depend on earlier results

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        depths = tune.grid_search(list(space.depth.values[:: self.stride]))
        return SearchPlan({"depth": depths}, BasicVariantGenerator(random_state=seed))
