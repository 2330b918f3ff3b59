"""One-shot depth search: a single learnt-depth network."""

from typing import ClassVar

from ray.tune.search import BasicVariantGenerator

from harness.methods.base import SearchMethod, SearchPlan
from harness.spaces import Budget, SearchSpace


class LearntDepth(SearchMethod):
    """The learnt-depth network as a single trial: weights and a posterior over depths 0…D from one training run.

    Antorán, Allingham, Hernández-Lobato: Variational Depth Search in ResNets, 2020. Stops no trial early.
    """

    adaptive: ClassVar[bool] = False

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return SearchPlan({"kind": "ldn", "depth": space.depth.max}, BasicVariantGenerator(random_state=seed))
