"""TPE suggestions, stopped early by successive halving, with Optuna told the truth about it."""

from typing import Annotated, Any, ClassVar

from optuna.trial import TrialState
from pydantic import Field
from ray.tune.search.optuna import OptunaSearch

from harness.methods.asha import halving
from harness.methods.base import FINISHED, METRIC, MODE, TIME, SearchMethod, SearchPlan
from harness.methods.optuna_tpe import depth_distribution, tpe_sampler
from harness.schema.settings import Budget, SearchSpace


class PruningAwareSearch(OptunaSearch):
    """Tells Optuna a stopped trial as PRUNED at the epoch it reached.

    Stock `OptunaSearch` tells every stopped trial as COMPLETE, so TPE would take a value after 40 epochs for one
    after 1,000. TPE itself ranks pruned trials by the step they reached, then by value.
    """

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self._ot_trials[trial_id].report(result[METRIC], result[TIME])

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if not result or METRIC not in result or result.get(FINISHED):
            super().on_trial_complete(trial_id, result, error)
            return
        trial = self._ot_trials[trial_id]
        # Tune hands the result that led to the stop to this method only.
        trial.report(result[METRIC], result[TIME])
        assert self._ot_study is not None  # set up with the space
        self._ot_study.tell(trial, state=TrialState.PRUNED)
        self._completed_trials.add(trial_id)


class OptunaAsha(SearchMethod):
    """TPE suggests depths, ASHA stops the worse ones at rungs over epochs; a stopped trial is told as pruned.

    Akiba et al.: Optuna, KDD 2019; Li et al.: ASHA, MLSys 2020. A depth proposed again is answered from its first
    training if that was complete, else trained and charged.
    """

    full_name: ClassVar[str] = "Optuna's tree-structured Parzen estimator with successive halving"
    colour: ClassVar[str] = "#56B4E9"

    grace_epochs: Annotated[int, Field(gt=0)] | None = None
    """Epochs before a trial may be stopped; null: a twenty-seventh of training.max_epochs, but at least one report."""
    reduction_factor: Annotated[int, Field(ge=2)] = 3
    """At each rung the best one in so many goes on; the next rung is so many times later."""
    n_startup_trials: Annotated[int, Field(gt=0)] | None = None
    """Trials drawn at random before the model suggests depths; null: a third of the budget, but at least 2."""

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        n_trials = budget.early_stopping_trials
        sampler = tpe_sampler(n_trials, self.n_startup_trials, seed)
        return SearchPlan(
            {},
            PruningAwareSearch(space=depth_distribution(space), metric=METRIC, mode=MODE, sampler=sampler),
            scheduler=halving(space, self.grace_epochs, self.reduction_factor),
            num_samples=n_trials,
        )
