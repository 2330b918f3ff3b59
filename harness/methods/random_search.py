"""Random search over depths."""

from typing import ClassVar

from ray import tune
from ray.tune.search import BasicVariantGenerator

from harness.methods.base import SearchMethod, SearchPlan
from harness.schema.settings import Budget, SearchSpace
from harness.seeds import numpy_generator


def draw_depths(space: SearchSpace, n: int, seed: int) -> list[int]:
    """`n` depths of the space in random order, none twice; all of them when there are fewer."""
    depths = numpy_generator(seed, "searcher").permutation(space.depth.values)
    return [int(depth) for depth in depths[:n]]


class RandomSearch(SearchMethod):
    """`budget.trials` depths drawn without replacement, trained in full.

    Bergstra, Bengio: Random Search for Hyper-Parameter Optimization, JMLR 2012. Stops no trial early.
    """

    adaptive: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    at_random: ClassVar[bool] = True
    colour: ClassVar[str] = "#009E73"

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        depths = tune.grid_search(draw_depths(space, budget.trials, seed))
        return SearchPlan({"depth": depths}, BasicVariantGenerator(random_state=seed))
