"""Optuna's Gaussian process over depths."""

from typing import Annotated, ClassVar

import optuna
from pydantic import Field
from ray.tune.search.optuna import OptunaSearch

from harness.methods.base import METRIC, MODE, SearchMethod, SearchPlan
from harness.methods.optuna_tpe import depth_distribution, searcher_seed, startup_trials
from harness.schema.settings import Budget, SearchSpace


class OptunaGp(SearchMethod):
    """A Gaussian process suggests `budget.trials` depths from the results so far, each trained in full.

    Log expected improvement on a Matérn kernel, with observation noise fitted; suited to a handful of trials, where TPE
    is still drawing at random. Jones et al.: EGO, 1998; Akiba et al.: Optuna, KDD 2019. Stops no trial early. A depth
    proposed again is answered from its first training at no cost.
    """

    full_name: ClassVar[str] = "Optuna's Gaussian process"
    colour: ClassVar[str] = "#9A6F9E"

    n_startup_trials: Annotated[int, Field(gt=0)] | None = None
    """Trials drawn at random before the model suggests depths; null: a third of the budget, but at least 2."""

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        sampler = optuna.samplers.GPSampler(
            seed=searcher_seed(seed),
            n_startup_trials=startup_trials(budget.trials, self.n_startup_trials),
            deterministic_objective=False,
        )
        searcher = OptunaSearch(space=depth_distribution(space), metric=METRIC, mode=MODE, sampler=sampler)
        return SearchPlan({}, searcher, num_samples=budget.trials)
