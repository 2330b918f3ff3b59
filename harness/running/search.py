"""A search: a method's searcher and scheduler behind ask and tell. Every driver goes through this object.

The live run on Ray Tune, the continuation of a ledger and the rehearsal of `harness check` ask and tell the same
things in the same order, so they cannot disagree about what a method would have done.
"""

import contextlib
import copy
import inspect
import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from ray.tune.experiment import Experiment, Trial
from ray.tune.schedulers import (
    HyperBandScheduler,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
    TrialScheduler,
)
from ray.tune.search import Searcher
from ray.tune.search.search_algorithm import SearchAlgorithm
from ray.tune.search.search_generator import SearchGenerator

from harness.backends import ray_door
from harness.errors import UserError, blaming, brief
from harness.methods.base import METRIC, MODE, TIME, SearchMethod, SearchPlan
from harness.schema.settings import SearchSpace

GO_ON, STOP = TrialScheduler.CONTINUE, TrialScheduler.STOP
PLAN_LIMIT_SECONDS = 5.0  # after which a plan that has not come is given up
PAUSING = (
    *(HyperBandScheduler, PopulationBasedTraining, PopulationBasedTrainingReplay),
    ResourceChangingScheduler,  # it pauses trials to give them other devices
)


class _NoController:
    """Stands in for Tune's controller, which only the live run has: a scheduler decides from reports alone."""

    def get_trials(self) -> list[Trial]:
        return []

    def get_live_trials(self) -> set[Trial]:
        return set()


_NO_CONTROLLER: Any = _NoController()


def plan_of(name: str, method: SearchMethod, space: SearchSpace, seed: int) -> SearchPlan:
    """What a method plans for a seed, checked: a plan is made by whoever wrote the method."""
    ray_door.check()
    for handler in logging.getLogger("ray").handlers:  # others than before, if a Ray was started meanwhile
        handler.addFilter(_ONCE)
    with blaming(f"method {name}: plan(space, budget, seed) fails", type(method)):
        with _ended_after(PLAN_LIMIT_SECONDS, f"method {name}: plan(space, budget, seed)"):
            plan: Any = method.plan(space, space.budget, seed)
        if inspect.iscoroutine(plan):
            plan.close()
            raise UserError(f"method {name}: plan must be an ordinary function, not async")
        if not isinstance(plan, SearchPlan):
            raise UserError(f"method {name}: plan must return a SearchPlan; got {type(plan).__name__}")
        kinds: dict[str, tuple[Any, ...]] = {
            "param_space": (Mapping,),
            "search_alg": (Searcher, SearchAlgorithm),
            "scheduler": (TrialScheduler, type(None)),
            "num_samples": (int,),
        }
        for field, wanted in kinds.items():
            if not isinstance(value := getattr(plan, field), wanted):
                names = " or ".join(kind.__name__ for kind in wanted).replace("NoneType", "None")
                raise UserError(f"method {name}: {field} of its plan must be a {names}; got {brief(repr(value))}")
        if _pauses(plan.scheduler):
            raise UserError(
                f"method {name}: its scheduler {type(plan.scheduler).__name__} pauses trials, and a trial here goes on "
                "or stops; take one that stops them, as ASHAScheduler and MedianStoppingRule(hard_stop=True) do"
            )
        for part in ("search_alg", "scheduler"):
            given = getattr(plan, part)
            for asked, known in (
                (getattr(given, "metric", None), (METRIC,)),
                (ray_door.time_attribute(given), (TIME, "training_iteration")),
            ):
                if asked is not None and asked not in known:
                    raise UserError(
                        f"method {name}: the {part} of its plan asks for {brief(repr(asked))}, which no report "
                        f"carries; reports have {METRIC} and {TIME}"
                    )
        if plan.n_trials < 1:
            raise UserError(f"method {name} plans no trial on {space.name}; at least one is needed")
    return plan


def _pauses(scheduler: TrialScheduler | None) -> bool:
    return isinstance(scheduler, PAUSING) or ray_door.pauses_softly(scheduler)


class _TooLong(BaseException):
    """No Exception: whoever wrote what takes too long may catch those."""


@contextlib.contextmanager
def _ended_after(seconds: float, what: str) -> Iterator[None]:
    """One sentence when the block takes longer. In the main thread, which alone can be interrupted; else no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(signum: int, frame: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, end)
    others, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _TooLong:
        raise UserError(f"{what} did not end within {seconds:g} s; it must be quick and start nothing") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, others)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)


class Search:
    """One method on one seed. `ask` for a trial; `accept` or `answer` it; `tell` its reports, then its end."""

    def __init__(self, plan: SearchPlan, experiment: Experiment) -> None:
        self._scheduler = plan.scheduler
        if self._scheduler:
            _give_metric(self._scheduler)
        self._searcher = _as_algorithm(plan.search_alg, dict(plan.param_space))
        self._searcher.add_configurations([_with_config(experiment, dict(plan.param_space), plan.num_samples)])

    @property
    def rungs(self) -> tuple[int, ...] | None:
        """Epochs that decide: a trial may be stopped by its first report from there on. None: by any report."""
        if self._scheduler is None:
            return ()
        rungs = ray_door.rungs_of(self._scheduler)
        return None if rungs is None else tuple(sorted({ceil(rung) for rung in rungs}))

    @property
    def is_finished(self) -> bool:
        """It will propose nothing more."""
        return bool(self._searcher.is_finished())

    def ask(self) -> Trial | None:
        """A trial whose configuration is what the method chose; None: nothing now."""
        return self._searcher.next_trial()

    def accept(self, trial: Trial) -> None:
        """It will be trained: the scheduler meets it."""
        if self._scheduler:
            self._scheduler.on_trial_add(_NO_CONTROLLER, trial)

    def answer(self, trial: Trial, result: dict[str, Any]) -> None:
        """It is known already and will not be trained: the searcher gets the known result."""
        self._searcher.on_trial_complete(trial.trial_id, result=result, error=False)

    def tell(self, trial: Trial, result: dict[str, Any]) -> str:
        """A report; the scheduler's decision. As in Tune, the searcher does not hear of a report that led to a stop."""
        decision = GO_ON
        if self._scheduler:
            decision = self._scheduler.on_trial_result(_NO_CONTROLLER, trial, result)
        if decision != STOP:
            self._searcher.on_trial_result(trial.trial_id, result)
        return decision

    def tell_end(self, trial: Trial, result: dict[str, Any] | None) -> None:
        """Its last report, whatever ended it; None: it crashed."""
        if self._scheduler and result is None:
            self._scheduler.on_trial_error(_NO_CONTROLLER, trial)
        elif self._scheduler:
            self._scheduler.on_trial_complete(_NO_CONTROLLER, trial, result or {})
        self._searcher.on_trial_complete(trial.trial_id, result=result, error=result is None)


def one_trial(experiment: Experiment, config: dict[str, Any]) -> Trial:
    """A trial that no method asked for: the refit, or the final evaluation."""
    generator = SearchGenerator(_OneConfiguration())
    generator.add_configurations([_with_config(experiment, config, num_samples=1)])
    trial: Trial = generator.next_trial()
    return trial


def _with_config(experiment: Experiment, config: dict[str, Any], num_samples: int) -> Experiment:
    own = copy.copy(experiment)
    own.spec = {**experiment.spec, "config": config, "num_samples": num_samples}
    return own


class _OneConfiguration(Searcher):
    """A searcher that adds nothing: the experiment's configuration is the trial's."""

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass


def _give_metric(scheduler: TrialScheduler) -> None:
    """To one that was made without; what it was made with stays."""
    metric = METRIC if scheduler.metric is None else None
    mode = MODE if ray_door.mode_of(scheduler) is None else None
    if metric or mode:
        scheduler.set_search_properties(metric, mode)


def _as_algorithm(search_alg: Searcher | SearchAlgorithm, param_space: dict[str, Any]) -> SearchAlgorithm:
    if isinstance(search_alg, Searcher):
        search_alg = SearchGenerator(search_alg)
    # Searchers that were built with a space of their own refuse another one, and need none.
    search_alg.set_search_properties(METRIC, MODE, param_space)
    searcher = getattr(search_alg, "searcher", None)
    while isinstance(searcher, Searcher):  # one may limit or repeat what another proposes
        ray_door.give_metric(searcher, METRIC, MODE)
        searcher = getattr(searcher, "searcher", None)
    ray_door.give_trial_ids(search_alg, f"{Trial.generate_id()}_")
    return search_alg


class _Once(logging.Filter):
    """Lets each of Ray's messages through once. A method plans for each seed, and Ray would repeat its warnings.

    Ray's logger may share its handlers with others, whose messages are not looked at; and it may have several, which
    all get the same record.
    """

    def __init__(self) -> None:
        super().__init__("ray")
        self._first: dict[str, logging.LogRecord] = {}  # by its message

    def filter(self, record: logging.LogRecord) -> bool:
        return not super().filter(record) or self._first.setdefault(record.getMessage(), record) is record


_ONCE = _Once()
