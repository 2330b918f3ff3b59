"""One-shot methods that each break one rule: every check of the kit for networks can fail, in one sentence."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from harness import methods
from harness.data import load_test
from harness.errors import UserError
from harness.methods.base import OneShotMethod
from harness.methods.exits import Exits
from harness.models.depth_posterior import DepthPosterior, DepthWeights, SetWeights
from harness.models.one_shot import Batch, Epoch, OneShotNet
from harness.replaying.method_rules import NotKept, method_rules
from harness.schema.settings import Rule
from harness.training.networks import check_a_step
from harness.training.train import run_trial
from tests.rehearsed import small_space
from tests.tiny import config, spirals

pytestmark = pytest.mark.slow


class Good(OneShotMethod):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        return net.log_likelihood_per_depth(x, y).mean()


class NotOneNumber(Good):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        return net.log_likelihood_per_depth(x, y)


class NotATensor(Good):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Any:
        return float(net.log_likelihood_per_depth(x, y).mean().detach())


class NoGradient(Good):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        return super().objective(net, x, y, n_train).detach()


class TrainsTheWeightsOverDepthsAlone(Good):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        return net.posterior.log_q().exp() @ net.log_likelihood_per_depth(x, y).detach()


class NotFinite(Good):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        return super().objective(net, x, y, n_train) / 0


class Raises(Good):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        raise ZeroDivisionError("in the objective")


class TooFew(SetWeights):
    def log_weights(self) -> Tensor:
        return self.logits[1:]


class ForgetsADepth(Good):
    def weights(self, log_beta: Tensor) -> DepthWeights:
        return TooFew(log_beta)


class DropsWeight(SetWeights):
    """Deeper weights are lost where they should move to the depth that is kept."""

    def pruned(self, depth: int) -> DepthPosterior:
        kept = slice(depth + 1)
        return DepthPosterior(self.log_beta[kept], logits=self.log_weights()[kept] - torch.arange(depth + 1))


class PrunesWrongly(Good):
    is_posterior: ClassVar[bool] = True

    def weights(self, log_beta: Tensor) -> DepthWeights:
        return DropsWeight(log_beta)


class ChoosesOutside(Good):
    def choose(self, q: Tensor, val: Tensor | None, rule: Rule) -> int:
        return len(q)


class ChoosesATensor(Good):
    def choose(self, q: Tensor, val: Tensor | None, rule: Rule) -> Any:
        return q.argmax()


class DrawsFromAnywhere(Good):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        return float(np.random.rand()) * super().objective(net, x, y, n_train)


class CountsSteps(SetWeights):
    """What a step depends on is in no buffer, so no checkpoint has it."""

    steps = 0


class RemembersElsewhere(Good):
    def weights(self, log_beta: Tensor) -> DepthWeights:
        return CountsSteps(log_beta)

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        assert isinstance(net.posterior, CountsSteps)
        net.posterior.steps += 1
        return super().objective(net, x, y, n_train) * net.posterior.steps


class AsksForValidation(Good):
    def after_step(self, net: OneShotNet, validation: Callable[[], Batch]) -> None:
        validation()


class OpensTheTestSet(Good):
    def after_epoch(self, net: OneShotNet, epoch: Epoch, validation: Callable[[], Batch]) -> None:
        load_test(config().data, 0, spirals(config()))


def broken(method: OneShotMethod, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setitem(methods._own, "mine", type(method))
    found = {}
    for rule in method_rules("mine", method, small_space()):
        try:
            rule.test()
        except (NotKept, UserError) as error:
            found[rule.name] = str(error)
        except ZeroDivisionError as error:  # `harness check` does not try rules that build on a broken one
            found[rule.name] = str(error)
    return found


def test_a_good_network_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken(Good(), monkeypatch) == {}


@pytest.mark.parametrize(
    ("method", "rule", "said"),
    [
        (
            NotOneNumber(),
            "the objective",
            r"must be one number, .* got a tensor of shape \(4,\)",
        ),
        (NotATensor(), "the objective", "got float"),
        (NoGradient(), "the objective", "got one without a gradient"),
        (TrainsTheWeightsOverDepthsAlone(), "the objective", "no gradient to the network's weights"),
        (NotFinite(), "the objective", "must be finite; on the first rows it is -inf"),
        (Raises(), "the objective", "ZeroDivisionError: in the objective"),
        (ForgetsADepth(), "predictions at every depth", r"\(3,\) weights for 4 depths"),
        (PrunesWrongly(), "it prunes to any depth", "the network pruned at depth 1 predicts something else"),
        (ChoosesOutside(), "the choice of depth", "must return a depth from 0 to 3; got 4"),
        (ChoosesATensor(), "the choice of depth", r"must return a depth from 0 to 3; got tensor\(3?"),
        (DrawsFromAnywhere(), "same seed, same network", "two trials with the same seed differ in"),
        (RemembersElsewhere(), "a trial goes on", "a trial continued after epoch 1 differs from an undisturbed one"),
        (
            AsksForValidation(),
            "validation labels",
            'asks for validation labels .* declare `validation = "fits"`',
        ),
        (OpensTheTestSet(), "no use of test data", "training opened the test set"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, OneShotMethod) else "",
)
def test_a_broken_rule_is_found(method: OneShotMethod, rule: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {name: sentence for name, sentence in broken(method, monkeypatch).items() if name.startswith(rule)}
    assert len(found) == 1
    [sentence] = found.values()
    assert re.search(said, sentence), sentence
    assert "\n" not in sentence


def test_a_run_is_refused_before_it_begins_where_no_step_can_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for method, said in ((NotOneNumber, "one number"), (NotFinite, "finite"), (Raises, "in the objective")):
        monkeypatch.setitem(methods._own, "mine", method)
        trial = config("mine")
        with pytest.raises(UserError, match=said):
            check_a_step(trial, spirals(trial))


def test_a_choice_outside_ends_the_trial_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods._own, "mine", ChoosesOutside)
    trial = config("mine")
    with pytest.raises(UserError, match=r"ChoosesOutside\.choose must return a depth from 0 to 3; got 4"):
        run_trial(trial, spirals(trial))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ldn_em:warm_up=1", "warm_up should be less than 1; got 1"),
        ("ldn_em:memory=-1", "memory should be greater than or equal to 0; got -1"),
        ("tempered:temperature=cold", "temperature should be a valid number; got 'cold'"),
        ("darts_depth:rate=0", "rate should be greater than 0; got 0"),
        ("autogrow:every=2", "every should be less than or equal to 1; got 2"),
        ("exits:depth=3", "unknown key 'depth'"),
    ],
)
def test_options_out_of_range_are_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        methods.load_method(text)


def test_a_file_without_an_objective_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "no_goal.py"
    path.write_text("from harness.methods.base import OneShotMethod\n\n\nclass NoGoal(OneShotMethod):\n    pass\n")
    with pytest.raises(UserError, match=r"NoGoal does not define objective\(net, x, y, n_train\)"):
        methods.load_method(str(path))


def test_facts_of_a_one_shot_are_in_its_plan() -> None:
    facts = Exits().facts()
    assert (facts.validation, facts.is_posterior, facts.learns_depth) == ("chooses", False, True)
