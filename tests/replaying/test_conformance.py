"""The kit over everything discovered, and over methods that each break one rule: every check can fail."""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import ray
from ray import tune
from ray.tune.schedulers import HyperBandScheduler
from ray.tune.search import BasicVariantGenerator, Searcher

from harness.methods import known_methods, load_method
from harness.methods.base import METRIC, MODE, SearchMethod, SearchPlan
from harness.replaying.conformance import RuleCheck, check_method, closing
from harness.schema.records import TrialRecord
from harness.schema.settings import Budget, SearchSpace
from tests.rehearsed import small_space


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred ends of trials are written; none of these tests is about a power cut."""
    monkeypatch.setattr("harness.running.store.os.fsync", lambda descriptor: None)


@pytest.mark.slow
@pytest.mark.parametrize("name", known_methods())
def test_every_known_method_conforms(name: str) -> None:
    had_ray = ray.is_initialized()  # another test's
    checks = check_method(*load_method(name), small_space())
    assert [check for check in checks if not check.ok] == []
    method = load_method(name)[1]
    assert len(checks) == 9 + (not method.seeded) + 10 * method.learns_depth
    assert ray.is_initialized() == had_ray


def broken(method: SearchMethod) -> dict[str, str]:
    return {check.name: check.detail for check in check_method("mine", method, small_space()) if check.ok is False}


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
        return self.grid([1.0, 2.5])


class WholeFloats(Good):
    """As Tune's `quniform` draws them."""

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return self.grid([1.0, np.float32(2.0), np.int64(3)])


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
    """Depends on what it is not told again: the trials that were left open in this process."""

    open: ClassVar[set[str]] = set()

    def __init__(self, depths: Sequence[int]) -> None:
        super().__init__(metric=METRIC, mode=MODE)
        self.depths, self.n = depths, len(self.open)

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.n += 1
        self.open.add(trial_id)
        return {"depth": self.depths[self.n % len(self.depths)]}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.open.discard(trial_id)


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
        return [trial for trial in trials if trial.status == "finished" and _is_finite(trial)][0]  # noqa: RUF015


class HangsInPlan(Good):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        while True:
            with contextlib.suppress(Exception):  # nor can it hold on by this
                time.monotonic()


class _Silent(_Forgetful):
    def suggest(self, trial_id: str) -> dict[str, Any]:
        return Searcher.FINISHED  # type: ignore[return-value]


class ProposesNothing(Good):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return SearchPlan({}, _Silent(space.depth.values), num_samples=3)


class Pauses(Good):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return dataclasses.replace(super().plan(space, budget, seed), scheduler=HyperBandScheduler())


class RaisesInPlan(Good):
    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        raise ZeroDivisionError("in plan")


@pytest.mark.parametrize(
    ("method", "rule", "said"),
    [
        (SaysItHasNoSeed(), "any seed, same configurations", "it declares seeded = False, yet seed 3 proposed depths"),
        (ForgetsSeed(), "same seed, same configurations", "two runs with seed 3 proposed depths"),
        (OutsideSpace(), "every configuration lies in the space", "depth 7"),
        (HalfDepth(), "every configuration lies in the space", "depth 2.5"),
        (TunesSomethingElse(), "every configuration lies in the space", "lr"),
        (MoreThanPlanned(), "no more trials than planned", "the plan states 2"),
        (DoesNotPickle(), "it pickles", "lock"),
        (CannotContinue(), "a stopped search continues as if nothing had happened", "not deterministic"),
        (SelectsACopy(), "select returns one of the given trials", "none of the trials"),
        (SelectsFailed(), "select ignores failed and non-finite trials", "status failed"),
        (SelectsNotANumber(), "select ignores failed and non-finite trials", "log_likelihood=nan"),
        (CrashesWhenNoneIsLeft(), "select says what is wrong when no trial is left", "IndexError"),
        (RaisesInPlan(), "plan is quick and starts no Ray", "plan(space, budget, seed) fails: ZeroDivisionError"),
        (HangsInPlan(), "plan is quick and starts no Ray", "plan(space, budget, seed) did not end within 0.1 s"),
        (ProposesNothing(), "every configuration lies in the space", "method mine proposed nothing: its searcher"),
        (Pauses(), "plan is quick and starts no Ray", "its scheduler HyperBandScheduler pauses trials, and a trial"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, SearchMethod) else "",
)
def test_a_broken_rule_is_found_and_one_cause_breaks_one_rule(
    method: SearchMethod, rule: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(method, HangsInPlan):  # the others may be slow on a busy machine
        monkeypatch.setattr("harness.running.search.PLAN_LIMIT_SECONDS", 0.1)
    found = broken(method)
    assert said in found[rule]
    others = {"select says what is wrong when no trial is left"} if isinstance(method, SelectsNotANumber) else set()
    assert found.keys() - others == {rule}  # that one has two faults


def test_what_builds_on_a_broken_rule_is_not_tried() -> None:
    checks = check_method("mine", RaisesInPlan(), small_space())
    assert [(check.ok, check.detail) for check in checks[1:]] == [(None, "not tried")] * 8
    assert closing(checks) == "1 of 9 rules does not hold, 8 were not tried."
    assert closing([RuleCheck("a", True, ""), RuleCheck("b", True, "")]) == "All 2 rules hold."


def test_whole_floats_are_depths() -> None:
    assert broken(WholeFloats()) == {}


def test_a_slow_plan_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=2)  # two seconds between any two looks at it
    monkeypatch.setattr("harness.replaying.conformance.time.perf_counter", lambda: next(clock))
    assert "less than 1 s" in broken(SlowPlan())["plan is quick and starts no Ray"]


def test_a_plan_that_starts_ray_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    state = itertools.chain([False], itertools.repeat(True))
    monkeypatch.setattr("harness.replaying.conformance.ray.is_initialized", lambda: next(state))
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
