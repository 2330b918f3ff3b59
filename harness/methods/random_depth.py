"""One random depth: random sampling, the humblest baseline."""

from typing import ClassVar

from ray.tune.search import BasicVariantGenerator

from harness.methods.base import SearchMethod, SearchPlan
from harness.methods.random_search import draw_depths
from harness.schema.records import Validation
from harness.schema.settings import Budget, SearchSpace


class RandomDepth(SearchMethod):
    """One network of a depth drawn at random: what a search must beat. Stops no trial early.

    The random sampling that Lindauer, Hutter: Best Practices for NAS, JMLR 2020, ask for beside random search.
    """

    adaptive: ClassVar[bool] = False
    validation: ClassVar[Validation] = "unused"
    colour: ClassVar[str] = "#66A182"

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        [depth] = draw_depths(space, 1, seed)
        return SearchPlan({"depth": depth}, BasicVariantGenerator(random_state=seed))
