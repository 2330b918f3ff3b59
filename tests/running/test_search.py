"""The one ask/tell object: every driver asks and tells a method the same things, and plans it once."""

import io
import logging
import signal
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.samplers import RandomSampler
from ray.tune.experiment import Experiment
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
)
from ray.tune.search import ConcurrencyLimiter, Searcher
from ray.tune.search.optuna import OptunaSearch

from harness.errors import UserError
from harness.methods.base import METRIC, MODE, TIME, SearchMethod, SearchPlan
from harness.replaying.rehearsal import rehearse
from harness.running.search import Search, _Once, plan_of
from harness.schema.settings import Budget, SearchSpace
from tests.rehearsed import make_unit, run
from tests.synthetic import make_space


class Recorder(Searcher):
    """Writes down every call; asks for depths 2 and 4."""

    def __init__(self, said: list[tuple[Any, ...]]) -> None:
        super().__init__(metric=METRIC, mode=MODE)
        self.said, self.left = said, [2, 4]

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        self.said.append(("suggest",))
        return {"depth": self.left.pop(0)} if self.left else Searcher.FINISHED  # type: ignore[return-value]

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.said.append(("searcher", result[TIME], result[METRIC], result["training_iteration"]))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.said.append(("end", (result or {}).get(TIME), error))


class Stopping(FIFOScheduler):
    """Stops every trial at epoch 30."""

    def __init__(self, said: list[tuple[Any, ...]]) -> None:
        super().__init__()
        self.said = said

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self.said.append(("add",))

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        self.said.append(("scheduler", result[TIME]))
        return self.STOP if result[TIME] >= 30 else self.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        self.said.append(("scheduler's end", result[TIME]))


class Watched(SearchMethod):
    said: ClassVar[list[tuple[Any, ...]]] = []
    plans: ClassVar[int] = 0

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        type(self).plans += 1
        self.said.clear()
        return SearchPlan({}, Recorder(self.said), Stopping(self.said), num_samples=2)


TRIAL = [
    *(("suggest",), ("add",)),
    *(("scheduler", 10), ("searcher", 10), ("scheduler", 20), ("searcher", 20)),
    *(("scheduler", 30), ("scheduler's end", 30), ("end", 30, False)),
]


def short(said: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [entry[:2] if entry[0] == "searcher" else entry for entry in said]


def test_the_scheduler_hears_first_and_the_searcher_not_of_a_report_that_led_to_a_stop(tmp_path: Path) -> None:
    unit = run(tmp_path, Watched(), concurrency=1)
    assert unit.result is not None and unit.result.trials_by_status == {"stopped": 2}
    assert short(Watched.said)[: 2 * len(TRIAL)] == TRIAL * 2


def _search(tmp_path: Path, scheduler: TrialScheduler | None) -> Search:
    plan = SearchPlan({}, Recorder([]), scheduler, num_samples=2)
    return Search(plan, Experiment("rungs", lambda config: None, storage_path=str(tmp_path)))


@given(data=st.data(), grace=st.integers(1, 30), factor=st.sampled_from([2, 2.5, 3, 4]), every=st.integers(1, 7))
def test_a_trial_is_stopped_only_by_its_first_report_from_a_rung_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, grace: int, factor: float, every: int
) -> None:
    """Workers rely on it: between such reports they do not wait for an answer."""
    cap = 100
    scheduler = ASHAScheduler(TIME, METRIC, MODE, cap, grace, factor, stop_last_trials=False)
    search = _search(tmp_path_factory.getbasetemp(), scheduler)
    rungs = search.rungs
    assert rungs is not None and rungs == tuple(ceil(grace * factor**power) for power in range(len(rungs)))
    trials = [trial for _ in range(2) if (trial := search.ask())]
    for trial in trials:
        search.accept(trial)
    before = dict.fromkeys(trials, 0)
    for epoch in range(every, cap, every):
        for trial in list(before):
            value = data.draw(st.floats(-3, 0))
            if search.tell(trial, {TIME: epoch, METRIC: value, "training_iteration": epoch}) == TrialScheduler.STOP:
                assert any(before[trial] < rung <= epoch for rung in rungs)
                del before[trial]
            else:
                before[trial] = epoch


def test_any_report_may_stop_a_trial_of_a_scheduler_that_is_not_known(tmp_path: Path) -> None:
    class OnesOwn(ASHAScheduler):
        pass

    assert _search(tmp_path, None).rungs == ()
    for scheduler in (Stopping([]), OnesOwn(TIME, METRIC, MODE), ASHAScheduler(TIME, METRIC, MODE), FIFOScheduler()):
        assert _search(tmp_path, scheduler).rungs is None


def test_continued_at_every_step_the_method_hears_the_same(tmp_path: Path) -> None:
    steps = rehearse([make_unit(tmp_path / "whole", Watched(), concurrency=1)])
    undisturbed = list(Watched.said)
    for stop in range(steps):
        run(tmp_path / str(stop), Watched(), concurrency=1, max_steps=stop)
        run(tmp_path / str(stop), Watched(), concurrency=1)
        assert Watched.said == undisturbed, stop


def test_plan_is_called_once_per_seed(tmp_path: Path) -> None:
    before = Watched.plans
    rehearse([make_unit(tmp_path, Watched(), seed=seed) for seed in (0, 1)])
    assert Watched.plans == before + 2


class Listed(SearchMethod):
    """These depths, one after the other."""

    first: int
    second: int

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        searcher = Recorder([])
        searcher.left = [self.first, self.second]
        return SearchPlan({}, searcher, num_samples=2)


def test_a_unit_whose_continuation_fails_holds_no_slot(tmp_path: Path) -> None:
    """Its open trials of before are not Tune's: they must not keep the others from running."""
    begun = run(tmp_path, Listed(first=2, second=4), slots=2, max_steps=4)
    assert [log.is_open for log in begun.search_logs()] == [True, True]
    broken, other = make_unit(tmp_path, Listed(first=2, second=4)), make_unit(tmp_path, "random_search")
    changed = make_unit(tmp_path / "elsewhere", Listed(first=2, second=5))  # as if its file was, after the first depth
    broken._search_plan = changed._search_plan
    rehearse([broken, other], slots=1)
    assert "cannot be continued: its ledger has depth 4 for t001" in (broken.failure or "")
    assert not broken.live and other.result is not None


class Median(SearchMethod):
    """A scheduler of Ray's that looks at Tune's controller."""

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        rule = MedianStoppingRule(time_attr=TIME, metric=METRIC, mode=MODE, grace_period=10, min_samples_required=1)
        return SearchPlan({}, Recorder([]), rule, num_samples=2)


def test_a_scheduler_of_rays_that_looks_at_the_controller_works_in_every_driver(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", Median(), concurrency=1)
    run(tmp_path, Median(), concurrency=1, max_steps=5)
    again = run(tmp_path, Median(), concurrency=1)
    assert whole.failure is None and again.failure is None
    assert [record.status for record in again.records()] == [record.status for record in whole.records()]


class Loss(SearchMethod):
    where: str

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        metric = "loss" if self.where == "metric" else METRIC
        time_attr = "seconds" if self.where == "time" else TIME
        rule = MedianStoppingRule(time_attr=time_attr, metric=metric, mode=MODE)
        searcher = Recorder([])
        searcher._metric = "loss" if self.where == "searcher" else METRIC
        return SearchPlan({}, searcher, rule, num_samples=2)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("metric", "method mine: the scheduler of its plan asks for 'loss', which no report carries; reports have"),
        ("time", "method mine: the scheduler of its plan asks for 'seconds', which no report carries"),
        ("searcher", "method mine: the search_alg of its plan asks for 'loss', which no report carries"),
    ],
)
def test_a_method_that_asks_for_what_no_report_carries_is_refused(tmp_path: Path, where: str, said: str) -> None:
    """It would wait for it in vain: Ray's schedulers let every trial go on, and its searchers learn nothing."""
    with pytest.raises(UserError) as error:
        make_unit(tmp_path, Loss(where=where))
    assert said in str(error.value)


class Given(SearchMethod):
    """Its parts are made by the test."""

    searcher: ClassVar[Callable[[], Any]] = staticmethod(lambda: Recorder([]))
    scheduler: ClassVar[Callable[[], TrialScheduler | None]] = staticmethod(lambda: None)

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return SearchPlan({}, type(self).searcher(), type(self).scheduler(), num_samples=2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: HyperBandScheduler(time_attr=TIME, max_t=50),
        lambda: PopulationBasedTraining(hyperparam_mutations={"depth": [1, 2]}),
        lambda: MedianStoppingRule(time_attr=TIME, hard_stop=False),
    ],
)
def test_a_scheduler_that_pauses_trials_is_refused_before_anything_runs(
    make: Callable[[], TrialScheduler], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Given, "scheduler", staticmethod(make))
    with pytest.raises(UserError, match=rf"^method mine: its scheduler {type(make()).__name__} pauses trials, and a t"):
        make_unit(tmp_path, Given())


class Pausing(FIFOScheduler):
    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        return str(self.PAUSE)


def test_one_of_a_users_own_that_pauses_ends_its_unit_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Given, "scheduler", Pausing)
    assert run(tmp_path, Given()).failure == (
        "method mine: its scheduler answers PAUSE to a report, and a trial can only go on (CONTINUE) or stop (STOP)"
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: ASHAScheduler(time_attr=TIME, max_t=50, grace_period=10, reduction_factor=2),
        lambda: ASHAScheduler(time_attr=TIME, max_t=50, grace_period=10, reduction_factor=2, metric=METRIC),
        lambda: ASHAScheduler(time_attr=TIME, max_t=50, grace_period=10, reduction_factor=2, mode=MODE),
        lambda: MedianStoppingRule(time_attr=TIME, grace_period=10, min_samples_required=1),
    ],
)
def test_a_scheduler_without_metric_and_mode_gets_them(
    make: Callable[[], TrialScheduler], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Depth 4 comes after depth 2: one that maximises stops it where it is worse, and only there."""
    monkeypatch.setattr(Given, "scheduler", staticmethod(make))
    unit = run(tmp_path, Given(), value=lambda depth, epoch: -1.0 / depth, concurrency=1)
    assert unit.failure is None
    assert [record.status for record in unit.records()] == ["finished", "finished"]
    reverse = run(tmp_path / "reverse", Given(), value=lambda depth, epoch: -1.0 * depth, concurrency=1)
    assert [record.status for record in reverse.records()] == ["finished", "stopped"]


def optuna_without_metric() -> Searcher:
    from optuna.distributions import IntDistribution

    return OptunaSearch(space={"depth": IntDistribution(0, 6)}, sampler=RandomSampler(seed=1))


class Bare(Recorder):
    """Says nothing of what it wants, and asks for its metric by the name that it was given."""

    def __init__(self) -> None:
        super().__init__([])
        self._metric = self._mode = None

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        assert result and self.mode == MODE
        self.said.append(("end", result[self.metric], error))


@pytest.mark.parametrize("make", [Bare, optuna_without_metric, lambda: ConcurrencyLimiter(Bare(), max_concurrent=1)])
def test_a_searcher_without_metric_and_mode_gets_them(
    make: Callable[[], Searcher], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Given, "searcher", staticmethod(make))
    unit = run(tmp_path, Given(), concurrency=1)
    assert unit.failure is None and unit.result is not None


class Broken(SearchMethod):
    hangs: bool

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        while self.hangs:
            pass
        raise ZeroDivisionError("in plan")


def test_a_plan_that_raises_or_hangs_is_one_sentence_in_a_run_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.running.search.PLAN_LIMIT_SECONDS", 0.05)
    with pytest.raises(
        UserError, match=r"^method mine: plan\(space, budget, seed\) fails: ZeroDivisionError: in plan$"
    ):
        make_unit(tmp_path, Broken(hangs=False))
    with pytest.raises(
        UserError, match=r"^method mine: plan\(space, budget, seed\) did not end within 0.05 s; it must"
    ):
        make_unit(tmp_path, Broken(hangs=True))
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0
    assert list(tmp_path.iterdir()) == []


def test_a_warning_of_rays_is_shown_once_and_nobody_elses_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """By each handler, also one that Ray put in place of another, as it does when it starts, or shares with others."""
    monkeypatch.setattr("harness.running.search._ONCE", _Once())
    of_ray, of_others = logging.getLogger("ray"), logging.getLogger("rays")
    handlers = [logging.StreamHandler(io.StringIO()) for _ in range(2)]
    for logger in (of_ray, of_others):
        monkeypatch.setattr(logger, "handlers", handlers)
    level = of_ray.level
    of_ray.setLevel(logging.WARNING)  # a Ray that was started before may have set another
    for seed in range(3):
        plan_of("watched", Watched(), make_space(), seed)
        logging.getLogger("ray.of_this_test").warning("of %s", "a test")
        of_others.warning("of others")
    of_ray.setLevel(level)
    assert [each.stream.getvalue() for each in handlers] == ["of a test\n" + "of others\n" * 3] * 2
