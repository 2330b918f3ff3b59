"""What a search method is. A new one is one file with one class: see `SearchMethod`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher
from ray.tune.search.search_algorithm import SearchAlgorithm

from harness.errors import UserError
from harness.records import TrialRecord
from harness.spaces import Budget, Frozen, SearchSpace

METRIC = "val_log_likelihood"  # what every report carries for searchers and schedulers, to be maximised
MODE = "max"
TIME = "epoch"  # the fidelity that every report carries
FINISHED = "finished"  # true in a trial's last report; a report without it was followed by a scheduler's stop
TIE_NATS = 1e-4  # validation log-likelihoods closer than this are equal, and the smaller depth wins


@dataclass(frozen=True)
class SearchPlan:
    """What Ray Tune is asked to do for one seed. Building it starts nothing.

    param_space: `{"kind": "ddn" | "ldn", "depth": …}`; `depth` may be a `tune.grid_search` or come from `search_alg`.
    search_alg: a Ray searcher or generator, seeded. Required: Tune's default samples without a seed.
    scheduler: stops trials early, or None. Every report carries METRIC and TIME.
    num_samples: as Tune means it: suggestions of a searcher, or repeats of the grid.
    """

    param_space: Mapping[str, Any]
    search_alg: Searcher | SearchAlgorithm
    scheduler: TrialScheduler | None = None
    num_samples: int = 1

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

    `plan` is called once per seed, before anything starts. It must be quick, must not start Ray, and must depend on
    its arguments alone: the same seed gives the same plan. Everything random takes its seed from `seed`.

    `select` is called once per seed, when no trial is running or waiting any more, with every trial of the search
    in the order they were suggested, failed and early-stopped ones included. It sees no test data.
    """

    adaptive: ClassVar[bool] = True
    """Whether later configurations, or stops, depend on earlier results; then the order of events matters."""

    @abstractmethod
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan: ...

    def select(self, trials: Sequence[TrialRecord]) -> TrialRecord:
        """Highest validation log-likelihood; within TIE_NATS the smallest depth wins."""
        usable = [trial for trial in trials if trial.status != "failed" and trial.val is not None]
        if not usable:
            raise UserError(f"no trial is left to choose from: all {len(trials)} failed or reported nothing")
        best = max(trial.val.log_likelihood for trial in usable if trial.val)
        tied = [trial for trial in usable if trial.val and trial.val.log_likelihood >= best - TIE_NATS]
        return min(tied, key=lambda trial: trial.depth)
