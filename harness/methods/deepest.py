"""No search at all: the network of the largest depth."""

from typing import ClassVar

from ray.tune.search import BasicVariantGenerator

from harness.methods.base import SearchMethod, SearchPlan
from harness.schema.records import Validation
from harness.schema.settings import Budget, SearchSpace


class Deepest(SearchMethod):
    """One network of the space's largest depth: what is trained when nobody searches. Stops no trial early."""

    adaptive: ClassVar[bool] = False
    seeded: ClassVar[bool] = False
    validation: ClassVar[Validation] = "unused"
    colour: ClassVar[str] = "#5A5A5A"

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        depth = space.depth.values[-1]
        return SearchPlan({"depth": depth}, BasicVariantGenerator(random_state=seed))
