"""The kit over everything discovered, and over methods that each break one rule: every check can fail."""

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import ray
from ray import tune
from ray.tune.search import BasicVariantGenerator, Searcher

from harness.methods import known_methods, load_method
from harness.methods.base import METRIC, MODE, SearchMethod, SearchPlan
from harness.records import TrialRecord
from harness.running.conformance import RuleCheck, check_method
from harness.spaces import Budget, SearchSpace
from tests.rehearsed import small_space


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred ends of trials are written; none of these tests is about a power cut."""
    monkeypatch.setattr("harness.running.store.os.fsync", lambda descriptor: None)


def each_method() -> list[Any]:
    """Rules for networks take a second: the fast suite tries them on the reference, the slow one on all others."""
    networks = {name for name in known_methods() if load_method(name)[1].learns_depth} - {"ldn"}
    return [pytest.param(name, marks=[pytest.mark.slow] if name in networks else []) for name in known_methods()]


@pytest.mark.parametrize("name", each_method())
def test_every_known_method_conforms(name: str) -> None:
    had_ray = ray.is_initialized()  # another test's
    checks = check_method(*load_method(name), small_space())
    assert [check for check in checks if not check.ok] == []
    method = load_method(name)[1]
    assert len(checks) == 9 + (not method.seeded) + 8 * method.learns_depth
    assert ray.is_initialized() == had_ray


def broken(method: SearchMethod) -> dict[str, str]:
    return {check.name: check.detail for check in check_method("mine", method, small_space()) if not check.ok}


class Good(SearchMethod):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return self.grid(space.depth.values)

    @staticmethod
    def grid(depths: Sequence[Any], **more: Any) -> SearchPlan:
        settings = {"depth": tune.grid_search(list(depths)), **more}
        return SearchPlan(settings, BasicVariantGenerator(random_state=0))


def test_a_good_method_breaks_nothing() -> None:
    assert broken(Good()) == {}


_CALLS = itertools.count()  # what a method must not depend on


class SaysItHasNoSeed(Good):
    seeded: ClassVar[bool] = False

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return self.grid(space.depth.values[seed % 2 :])


class ForgetsSeed(Good):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        values = space.depth.values
        turn = next(_CALLS) % len(values)
        return self.grid(values[turn:] + values[:turn])


class SlowPlan(Good):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        time.perf_counter()  # replaced in the test
        return super().plan(space, budget, seed)


class OutsideSpace(Good):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return self.grid([1, space.depth.max + 1])


class HalfDepth(Good):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return self.grid([1.0, 2.0])


class TunesSomethingElse(Good):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return self.grid(space.depth.values, lr=0.3)


class _Greedy(BasicVariantGenerator):
    """Proposes its grid again and again."""

    def next_trial(self) -> Any:
        trial = super().next_trial()
        if trial is None and next(_CALLS) % 40:
            self._finished = False
            self._trial_generator, self._trial_iter = [], None
            self.add_configurations(self._kept)
            trial = super().next_trial()
        return trial

    def add_configurations(self, experiments: Any) -> None:
        self._kept = experiments
        super().add_configurations(experiments)


class MoreThanPlanned(Good):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        settings = {"depth": tune.grid_search([1, 2])}
        return SearchPlan(settings, _Greedy(random_state=seed))


class DoesNotPickle(Good):
    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle a thing with a lock")


class _Forgetful(Searcher):
    """Depends on what it is not told again: how often it was built in this process."""

    def __init__(self, depths: Sequence[int]) -> None:
        super().__init__(metric=METRIC, mode=MODE)
        self.depths, self.n = depths, next(_CALLS)

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.n += 1
        return {"depth": self.depths[self.n % len(self.depths)]}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        pass


class CannotContinue(Good):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return SearchPlan({}, _Forgetful(space.depth.values), num_samples=3)


class SelectsACopy(Good):
    def select(self, trials: Sequence[TrialRecord]) -> TrialRecord:
        return super().select(trials).model_copy()


class SelectsFailed(Good):
    def select(self, trials: Sequence[TrialRecord]) -> TrialRecord:
        super().select(trials)
        return max((trial for trial in trials if trial.val), key=lambda trial: trial.val.accuracy if trial.val else 0.0)


class SelectsNotANumber(Good):
    def select(self, trials: Sequence[TrialRecord]) -> TrialRecord:
        usable = [trial for trial in trials if trial.status != "failed" and trial.val] or list(trials)
        return max(usable, key=lambda trial: trial.val.log_likelihood if trial.val else 0.0)


def _is_finite(trial: TrialRecord) -> bool:
    return trial.val is not None and abs(trial.val.log_likelihood) < 9


class CrashesWhenNoneIsLeft(Good):
    def select(self, trials: Sequence[TrialRecord]) -> TrialRecord:
        return [super().select([trial]) for trial in trials if trial.status == "finished" and _is_finite(trial)][0]  # noqa: RUF015


class RaisesInPlan(Good):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        raise ZeroDivisionError("in plan")


@pytest.mark.parametrize(
    ("method", "rule", "said"),
    [
        (SaysItHasNoSeed(), "any seed, same configurations", "it declares seeded = False, yet seed 3 proposed depths"),
        (ForgetsSeed(), "same seed, same configurations", "two runs with seed 3 proposed depths"),
        (OutsideSpace(), "every configuration lies in the space", "depth 7"),
        (HalfDepth(), "every configuration lies in the space", "depth 1.0"),
        (TunesSomethingElse(), "every configuration lies in the space", "lr"),
        (MoreThanPlanned(), "no more trials than planned", "the plan states 2"),
        (DoesNotPickle(), "it pickles", "lock"),
        (CannotContinue(), "a stopped search continues as if nothing had happened", "not deterministic"),
        (SelectsACopy(), "select returns one of the given trials", "none of the trials"),
        (SelectsFailed(), "select ignores failed and non-finite trials", "status failed"),
        (SelectsNotANumber(), "select ignores failed and non-finite trials", "log_likelihood=nan"),
        (CrashesWhenNoneIsLeft(), "select says what is wrong when no trial is left", "IndexError"),
        (RaisesInPlan(), "plan is quick and starts no Ray", "ZeroDivisionError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, SearchMethod) else "",
)
def test_a_broken_rule_is_found(method: SearchMethod, rule: str, said: str) -> None:
    found = broken(method)
    assert rule in found, found
    assert said in found[rule]


def test_a_slow_plan_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=2)  # two seconds between any two looks at it
    monkeypatch.setattr("harness.running.conformance.time.perf_counter", lambda: next(clock))
    assert "less than 1 s" in broken(SlowPlan())["plan is quick and starts no Ray"]


def test_a_plan_that_starts_ray_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    state = itertools.chain([False], itertools.repeat(True))
    monkeypatch.setattr("harness.running.conformance.ray.is_initialized", lambda: next(state))
    [check] = [check for check in check_method("mine", Good(), small_space()) if "Ray" in check.name]
    assert check == RuleCheck("plan is quick and starts no Ray", False, "plan started Ray")


@pytest.mark.slow
def test_a_one_shot_file_that_only_this_machine_can_import_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It imports a neighbour, which a worker does not have."""
    (tmp_path / "my_helper.py").write_text("SCALE = 2.0\n")
    (tmp_path / "leans_on_it.py").write_text(
        """from my_helper import SCALE
import my_helper
from harness.methods.base import OneShotMethod


class LeansOnIt(OneShotMethod):
    def objective(self, net, x, y, n_train):
        return my_helper.SCALE * net.log_likelihood_per_depth(x, y).mean()
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = {
        check.name: check.detail
        for check in check_method(*load_method(str(tmp_path / "leans_on_it.py")), small_space())
        if not check.ok
    }
    assert list(found) == ["its code reaches a worker"]
    [sentence] = found.values()
    assert "method leans_on_it cannot be imported on the worker" in sentence
    assert "No module named 'my_helper'; its file may import only what is installed on every node" in sentence
