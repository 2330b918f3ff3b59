"""What a method is. A new one is one file with one class: see `SearchMethod` and `OneShotMethod`.

Ray is imported only where a plan is made: a one-shot method's network is built where no Ray is.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

from pydantic import ConfigDict, model_validator

from harness.errors import UserError, last_line
from harness.schema.identity import Identified
from harness.schema.records import MethodFacts, TrialRecord, Validation
from harness.schema.settings import TIE_NATS, Budget, Rule, SearchSpace
from harness.schema.stage import Stage

if TYPE_CHECKING:
    from ray.tune.schedulers import TrialScheduler
    from ray.tune.search import Searcher
    from ray.tune.search.search_algorithm import SearchAlgorithm
    from torch import Tensor

    from harness.models.depth_posterior import DepthWeights
    from harness.models.one_shot import Batch, Epoch, OneShotNet

# What searchers and schedulers see of a report.
METRIC = "val_log_likelihood"  # to be maximised
MODE = "max"
TIME = "epoch"  # the fidelity
FINISHED = "finished"  # true in a trial's last report; a report without it was followed by a scheduler's stop


@dataclass(frozen=True)
class SearchPlan:
    """What Ray Tune is asked to do for one seed. Building it starts nothing.

    param_space: `{"depth": …}`, a `tune.grid_search` or one depth; empty where `search_alg` proposes it. `"restart"`
    beside it, a whole number, asks for another draw of a fixed depth's first weights than 0, which all searches share.
    search_alg: a Ray searcher or generator, seeded. Required: Tune's default samples without a seed.
    scheduler: stops trials early, or None; one that pauses trials is refused. Every report carries METRIC and TIME.
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


def smallest_within(log_likelihoods: Sequence[float], within: float) -> int:
    """Of depths 0…D: min {i : ℓ_i ≥ max_j ℓ_j − within}."""
    best = max(log_likelihoods)
    return next(depth for depth, value in enumerate(log_likelihoods) if value >= best - within)


class SearchMethod(Identified, ABC):
    """A way to choose a depth. Subclass it once in a file of its own; the file's name is the method's name.

    The class's fields are its options (`asha:grace_epochs=20`), typed, with defaults, validated when given; a
    docstring below a field is what `harness show` says about it. One that is added when there are results already is
    marked `Later`, so that these stay what they are (schema/identity.py).
    The docstring says what it is, where it comes from, and which trials it stops early.

    What is true of the method is declared on the class, below. It is written into every plan, and forecasts, anytime
    curves, wall-clock, fairness and the report read it from there; none of them knows a method by its name. The
    defaults are the careful ones: a method that declares nothing is never shown in a better light than it deserves.

    `plan` is called once per seed, before anything starts. It must be quick, must not start Ray, and must depend on
    its arguments alone: the same seed gives the same plan. Everything random takes its seed from `seed`.

    `select` is called once per seed, when no trial is running or waiting any more, with every trial of the search
    in the order they were suggested, failed and early-stopped ones included. It sees no test data.
    """

    # A default of the wrong type is a mistake like any other. The sentence below an option explains it.
    model_config = ConfigDict(validate_default=True, use_attribute_docstrings=True)

    adaptive: ClassVar[bool] = True
    """Whether later configurations, or stops, depend on earlier results; then the order of events matters."""

    ordered: ClassVar[bool] = True
    """Whether the order of its trials carries meaning. If not, anytime curves are averaged over random orders."""

    exhaustive: ClassVar[bool] = False
    """Whether it trains every depth of the space in full: the curve that choices of depth are measured against."""

    at_random: ClassVar[bool] = False
    """Whether its depths are drawn at random and trained in full: the baseline that no comparison should lack."""

    seeded: ClassVar[bool] = True
    """Whether its search depends on its seed. If not, one replay stands for all search seeds."""

    most_at_once: ClassVar[int | None] = None
    """How many trials it can use at once; None: as many as it plans."""

    learns_depth: ClassVar[bool] = False
    """Whether its network learns its depth in one training. `OneShotMethod` says so."""

    validation: ClassVar[Validation] = "chooses"
    """What validation labels are used for, early stopping apart. A search chooses between its trials by them."""

    is_posterior: ClassVar[bool] = False
    """Whether its weights over depths stand for a posterior; see `OneShotMethod`."""

    full_name: ClassVar[str | None] = None
    """Its name spelled out, where that is an abbreviation; a report and a verdict say it once."""

    colour: ClassVar[str | None] = None
    """`#rrggbb` in every table, figure and MLflow view; None: a shade by its name."""

    def facts(self) -> MethodFacts:
        """What the class declares, as it is written into a plan; a method may change a fact by its options."""
        return MethodFacts(**{name: getattr(self, name) for name in MethodFacts.model_fields})

    @property
    def can_be_replayed(self) -> bool:
        """Whether recordings of every fixed depth, from its first initialisation, hold all that it would train."""
        return not self.learns_depth

    @abstractmethod
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan: ...

    def select(self, trials: Sequence[TrialRecord]) -> TrialRecord:
        """Highest validation log-likelihood; within TIE_NATS the smallest depth wins."""
        return self._smallest(trials, TIE_NATS)

    @final
    def choice(self, trials: Sequence[TrialRecord], within: float) -> tuple[TrialRecord, int]:
        """The trial whose network is handed over, and its depth, as the space's `choice_within` says.

        A method that selects in its own way, or whose network has another depth than its best one on validation, stays
        with that.
        """
        chosen = self.select(trials)
        if within == TIE_NATS:
            return chosen, chosen.d_opt
        if (posterior := chosen.posterior) is not None:
            by_validation = posterior.rule == "validation" and posterior.val_log_likelihoods
            if not by_validation or posterior.d_opt != smallest_within(posterior.val_log_likelihoods, TIE_NATS):
                return chosen, chosen.d_opt
            return chosen, smallest_within(posterior.val_log_likelihoods, within)
        if type(self).select is SearchMethod.select:
            chosen = self._smallest(trials, within)
        return chosen, chosen.d_opt

    def _smallest(self, trials: Sequence[TrialRecord], within: float) -> TrialRecord:
        """The smallest depth within so many nats of the best; of its networks the best."""
        values = [
            (trial.val.log_likelihood, trial)
            for trial in trials
            if trial.status != "failed" and trial.val and math.isfinite(trial.val.log_likelihood)
        ]
        if not values:
            errors = [trial.error for trial in trials if trial.error]
            why = f"; the last said: {last_line(errors[-1])}" if errors else ""
            raise UserError(
                f"no trial is left to choose from: all {len(trials)} failed or reported nothing finite{why}"
            )
        best = max(value for value, _ in values)
        near = [(value, trial) for value, trial in values if value >= best - within]
        if within == TIE_NATS:
            return min((trial for _, trial in near), key=lambda trial: trial.depth)
        return min(near, key=lambda each: (each[1].depth, -each[0]))[1]


class OneShotMethod(SearchMethod, Stage):
    """One trial whose network learns its depth: the class says how, its fields are part of the trial's identity.

    What may follow that trial (`then`, with `share` or `k`; schema/stage.py) is an option of every one-shot method and
    none of its own business: the chosen depth is retrained or fine-tuned, in trials of their own, and charged.

    The network (`net`) has D blocks, a prediction at each depth 0…D, and weights over the depths in `net.posterior`.
    `net.log_likelihood_per_depth(x, y)` gives ℓ_0…ℓ_D in one pass. The class must define `objective`; all else has a
    default. What must survive a crash lives in parameters and buffers of `net.posterior`, and random numbers come
    from `net.random`: then a trial that is interrupted goes on to the bit. Time spent in hooks is charged as training.

    The docstring also says which labels are used, besides those of the training set and for early stopping.
    """

    adaptive: ClassVar[bool] = False
    learns_depth: ClassVar[bool] = True
    validation: ClassVar[Validation] = "unused"
    """What it does with validation labels, early stopping apart: `unused`; it `chooses` the depth by them; or it `fits`
    something to them, and its hooks may then ask for them."""

    is_posterior: ClassVar[bool] = False
    """Whether the weights over depths stand for the posterior p(d | training set). Then the network that is handed over
    averages depths 0…d_opt by them, and the gap to the exact posterior is recorded. Else it predicts at d_opt alone."""

    ranks_depths: ClassVar[bool] = True
    """Whether its weights over depths, or validation, say which depths are next best. If not, it takes no then=top."""

    @model_validator(mode="after")
    def _can_rank(self) -> Self:
        if self.then == "top" and not self.ranks_depths:
            raise ValueError(
                f"then=top retrains the next best depths too, and {type(self).__name__} has none: it gives a single "
                "depth; take then=retrain or then=finetune"
            )
        return self

    @abstractmethod
    def objective(self, net: "OneShotNet", x: "Tensor", y: "Tensor", n_train: int) -> "Tensor":
        """One number per mini-batch, to be maximised by SGD; `n_train` is the size of the training set."""

    def weights(self, log_beta: "Tensor") -> "DepthWeights":
        """The weights over depths, given the space's log prior over 0…D. Default: logits, learnt by gradient."""
        from harness.models.depth_posterior import DepthPosterior

        return DepthPosterior(log_beta)

    def after_step(self, net: "OneShotNet", validation: "Callable[[], Batch]") -> None:
        """After each step of SGD. `validation()` is a mini-batch of the validation set, where it `fits` to that."""

    def after_epoch(self, net: "OneShotNet", epoch: "Epoch", validation: "Callable[[], Batch]") -> None:
        """After the last step of an epoch, before its parameters may be kept as the best; `validation` as above."""

    def settled(self, epoch: "Epoch") -> bool:
        """False in a warm-up: none of its parameters is kept once it is over, and patience counts from its end."""
        return True

    def choose(self, q: "Tensor", val: "Tensor | None", rule: Rule) -> int:
        """d_opt: from q by the space's rule, or from `val`, ℓ_0…ℓ_D on validation, where the method `chooses` by it."""
        from harness.models.depth_posterior import best_depth, choose_depth

        return choose_depth(q, rule) if val is None else best_depth(val)

    def validated(self, q: "Tensor", val: "Tensor | None", rule: Rule) -> int | None:
        """The depth whose prediction is validated during training, where no posterior averages; None: the choice."""
        return None

    @final
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        from ray.tune.search import BasicVariantGenerator

        if self.then == "top" and self.k > space.depth.max + 1:
            raise UserError(
                f"k must be at most the number of depths, {space.depth.max + 1} on {space.name}; got {self.k}"
            )

        return SearchPlan({"depth": space.depth.max}, BasicVariantGenerator(random_state=seed))
