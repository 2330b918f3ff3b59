"""What a method is. A new one is one file with one class: see `SearchMethod` and `OneShotMethod`.

Ray is imported only where a plan is made: a one-shot method's network is built where no Ray is.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from pydantic import ConfigDict

from harness.errors import UserError
from harness.records import MethodFacts, TrialRecord
from harness.spaces import Budget, Frozen, PosteriorSettings, SearchSpace

if TYPE_CHECKING:
    from ray.tune.schedulers import TrialScheduler
    from ray.tune.search import Searcher
    from ray.tune.search.search_algorithm import SearchAlgorithm

    from harness.models.one_shot import OneShotNet
    from harness.models.resnet import Backbone

# What searchers and schedulers see of a report.
METRIC = "val_log_likelihood"  # to be maximised
MODE = "max"
TIME = "epoch"  # the fidelity
FINISHED = "finished"  # true in a trial's last report; a report without it was followed by a scheduler's stop
TIE_NATS = 1e-4  # validation log-likelihoods closer than this are equal, and the smaller depth wins


@dataclass(frozen=True)
class SearchPlan:
    """What Ray Tune is asked to do for one seed. Building it starts nothing.

    param_space: `{"depth": …}`, a `tune.grid_search` or one depth; empty where `search_alg` proposes it.
    search_alg: a Ray searcher or generator, seeded. Required: Tune's default samples without a seed.
    scheduler: stops trials early, or None. Every report carries METRIC and TIME.
    num_samples: as Tune means it: suggestions of a searcher, or repeats of the grid.
    """

    param_space: Mapping[str, Any]
    search_alg: "Searcher | SearchAlgorithm"
    scheduler: "TrialScheduler | None" = None
    num_samples: int = 1

    @property
    def depths(self) -> tuple[int, ...] | None:
        """The depths that are known before anything is trained; None where the searcher proposes them."""
        given = self.param_space.get("depth")
        if isinstance(given, int):
            return (given,)
        return tuple(given["grid_search"]) if isinstance(given, dict) and "grid_search" in given else None

    @property
    def n_trials(self) -> int:
        """The most trials this plan can start."""
        grids = (value["grid_search"] for value in self.param_space.values() if isinstance(value, dict))
        n = self.num_samples
        for values in grids:
            n *= len(values)
        return n


class SearchMethod(Frozen, ABC):
    """A way to choose a depth. Subclass it once in a file of its own; the file's name is the method's name.

    The class's fields are its options (`asha:grace_epochs=20`), typed, with defaults, validated when given.
    The docstring says what it is, where it comes from, and which trials it stops early.

    What is true of the method is declared on the class, below. It is written into every plan, and forecasts, anytime
    curves, wall-clock, fairness and the report read it from there; none of them knows a method by its name. The
    defaults are the careful ones: a method that declares nothing is never shown in a better light than it deserves.

    `plan` is called once per seed, before anything starts. It must be quick, must not start Ray, and must depend on
    its arguments alone: the same seed gives the same plan. Everything random takes its seed from `seed`.

    `select` is called once per seed, when no trial is running or waiting any more, with every trial of the search
    in the order they were suggested, failed and early-stopped ones included. It sees no test data.
    """

    model_config = ConfigDict(validate_default=True)  # a default of the wrong type is a mistake like any other

    adaptive: ClassVar[bool] = True
    """Whether later configurations, or stops, depend on earlier results; then the order of events matters."""

    ordered: ClassVar[bool] = True
    """Whether the order of its trials carries meaning. If not, anytime curves are averaged over random orders."""

    exhaustive: ClassVar[bool] = False
    """Whether it trains every depth of the space in full: the curve that choices of depth are measured against."""

    at_random: ClassVar[bool] = False
    """Whether its depths are drawn at random and trained in full: the baseline that no comparison should lack."""

    most_at_once: ClassVar[int | None] = None
    """How many trials it can use at once; None: as many as it plans."""

    learns_depth: ClassVar[bool] = False
    """Whether its network learns its depth in one training. `OneShotMethod` says so."""

    colour: ClassVar[str | None] = None
    """`#rrggbb` in every table, figure and MLflow view; None: a shade by its name."""

    @classmethod
    def facts(cls) -> MethodFacts:
        """What the class declares, as it is written into a plan."""
        return MethodFacts(**{name: getattr(cls, name) for name in MethodFacts.model_fields})

    @abstractmethod
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan: ...

    def select(self, trials: Sequence[TrialRecord]) -> TrialRecord:
        """Highest validation log-likelihood; within TIE_NATS the smallest depth wins."""
        values = [
            (trial.val.log_likelihood, trial)
            for trial in trials
            if trial.status != "failed" and trial.val and math.isfinite(trial.val.log_likelihood)
        ]
        if not values:
            raise UserError(f"no trial is left to choose from: all {len(trials)} failed or reported nothing finite")
        best = max(value for value, _ in values)
        return min((trial for value, trial in values if value >= best - TIE_NATS), key=lambda trial: trial.depth)


class OneShotMethod(SearchMethod):
    """One trial whose network learns its depth: the class says which network, its fields are part of the trial.

    `network` is called on a worker with a backbone of D blocks whose output block is applied to depths 0…D. It must
    depend on its arguments alone; the backbone's initial weights are drawn from the seed already.
    """

    adaptive: ClassVar[bool] = False
    learns_depth: ClassVar[bool] = True

    @abstractmethod
    def network(self, backbone: "Backbone", posterior: PosteriorSettings) -> "OneShotNet": ...

    @final
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        from ray.tune.search import BasicVariantGenerator

        return SearchPlan({"depth": space.depth.max}, BasicVariantGenerator(random_state=seed))
