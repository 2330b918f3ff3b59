"""Asynchronous successive halving over random depths."""

from typing import Annotated, ClassVar

from pydantic import Field
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler
from ray.tune.search import BasicVariantGenerator

from harness.errors import UserError
from harness.methods.base import METRIC, MODE, TIME, SearchMethod, SearchPlan
from harness.methods.random_search import draw_depths
from harness.schema.settings import Budget, SearchSpace


def halving(space: SearchSpace, grace_epochs: int | None, reduction_factor: int) -> AsyncHyperBandScheduler:
    """Rungs over epochs from `grace_epochs` on, by default a twenty-seventh of the cap, but at least one report."""
    cap = space.training.max_epochs
    grace = grace_epochs or max(cap // 27, space.training.report_every)
    if grace > cap:
        raise UserError(f"grace_epochs must not exceed training.max_epochs = {cap}; got {grace}")
    return AsyncHyperBandScheduler(
        time_attr=TIME,
        metric=METRIC,
        mode=MODE,
        max_t=cap,
        grace_period=grace,
        reduction_factor=reduction_factor,
        stop_last_trials=False,  # a trial ends by its own rule; ending it at the cap would look like a stop
    )


class Asha(SearchMethod):
    """Random depths, none twice; at each rung the worse trials are stopped early (the stopping variant of ASHA).

    Li et al.: A System for Massively Parallel Hyperparameter Tuning, MLSys 2020. At a rung a trial goes on only if
    its validation log-likelihood is among the best 1/reduction_factor seen there so far.
    """

    full_name: ClassVar[str] = "asynchronous successive halving"
    colour: ClassVar[str] = "#E69F00"

    grace_epochs: Annotated[int, Field(gt=0)] | None = None
    """Epochs before a trial may be stopped; null: a twenty-seventh of training.max_epochs, but at least one report."""
    reduction_factor: Annotated[int, Field(ge=2)] = 3
    """At each rung the best one in so many goes on; the next rung is so many times later."""

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        depths = tune.grid_search(draw_depths(space, budget.early_stopping_trials, seed))
        return SearchPlan(
            {"depth": depths},
            BasicVariantGenerator(random_state=seed),
            scheduler=halving(space, self.grace_epochs, self.reduction_factor),
        )
