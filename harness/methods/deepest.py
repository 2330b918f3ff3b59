"""No search at all: the network of the largest depth."""

from typing import Annotated, ClassVar

from pydantic import Field
from ray import tune
from ray.tune.search import BasicVariantGenerator

from harness.methods.base import SearchMethod, SearchPlan
from harness.schema.identity import Later
from harness.schema.records import MethodFacts, Validation
from harness.schema.settings import Budget, SearchSpace


class Deepest(SearchMethod):
    """One network of the space's largest depth: what is trained when nobody searches. Stops no trial early.

    With restarts, the best of several draws of its first weights on validation: what a search over depths should beat
    at equal cost, since it, too, is the best of several networks. Labels: the training set's, and with restarts
    validation's for the choice between them.
    """

    adaptive: ClassVar[bool] = False
    seeded: ClassVar[bool] = False
    validation: ClassVar[Validation] = "unused"
    colour: ClassVar[str] = "#5A5A5A"

    restarts: Annotated[int, Field(ge=1, le=10_000), Later(before=1)] = 1
    """Draws of its first weights; the first is the one that every search has, and all are trained."""

    def facts(self) -> MethodFacts:
        return super().facts().model_copy(update={"validation": "chooses"} if self.restarts > 1 else {})

    @property
    def can_be_replayed(self) -> bool:
        return self.restarts == 1

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        depth = space.depth.values[-1]
        restarts = {"restart": tune.grid_search(list(range(self.restarts)))} if self.restarts > 1 else {}
        return SearchPlan({"depth": depth, **restarts}, BasicVariantGenerator(random_state=seed))
