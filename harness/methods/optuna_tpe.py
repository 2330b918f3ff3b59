"""Optuna's tree-structured Parzen estimator over depths."""

import warnings
from typing import Annotated, ClassVar

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from pydantic import Field
from ray.tune.search.optuna import OptunaSearch

from harness.methods.base import METRIC, MODE, SearchMethod, SearchPlan
from harness.schema.settings import Budget, SearchSpace
from harness.seeds import stream


def startup_trials(n_trials: int, given: int | None) -> int:
    """Optuna's default of ten random trials would be the whole budget: a third of it is drawn at random instead."""
    return given or max(2, n_trials // 3)


def searcher_seed(seed: int) -> int:
    return stream(seed, "searcher") % 2**32


def tpe_sampler(n_trials: int, n_startup: int | None, seed: int) -> optuna.samplers.TPESampler:
    """With the settings written out whose defaults Optuna 5.0 changed: else two versions would be two algorithms."""
    return optuna.samplers.TPESampler(
        seed=searcher_seed(seed),
        n_startup_trials=startup_trials(n_trials, n_startup),
        multivariate=True,
        constant_liar=True,
    )


def depth_distribution(space: SearchSpace) -> dict[str, BaseDistribution]:
    depths = space.depth.values
    return {"depth": IntDistribution(depths[0], depths[-1], step=space.depth.step)}


optuna.logging.set_verbosity(optuna.logging.WARNING)  # a line per trial would break the live table
# Optuna 4 warns of what this file and optuna_gp.py use, at every search; 5 no longer does.
warnings.filterwarnings(
    "ignore", r".*(multivariate|constant_liar|GPSampler).* is (an )?experimental", ExperimentalWarning
)


class OptunaTpe(SearchMethod):
    """TPE suggests `budget.trials` depths from the results so far, each trained in full. Stops no trial early.

    Bergstra et al.: Algorithms for Hyper-Parameter Optimization, NeurIPS 2011; Akiba et al.: Optuna, KDD 2019.
    A depth proposed again is answered from its first training at no cost.
    """

    full_name: ClassVar[str] = "Optuna's tree-structured Parzen estimator"
    colour: ClassVar[str] = "#CC79A7"

    n_startup_trials: Annotated[int, Field(gt=0)] | None = None
    """Trials drawn at random before the model suggests depths; null: a third of the budget, but at least 2."""

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        sampler = tpe_sampler(budget.trials, self.n_startup_trials, seed)
        searcher = OptunaSearch(space=depth_distribution(space), metric=METRIC, mode=MODE, sampler=sampler)
        return SearchPlan({}, searcher, num_samples=budget.trials)
