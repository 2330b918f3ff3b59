"""A one-shot network is one file: the class says which network, nothing else is edited."""

from pathlib import Path

import pytest
import torch

from harness.errors import UserError
from harness.methods import load_method, one_shot_method
from harness.methods.base import OneShotMethod
from harness.models import DepthMixture
from harness.replaying.conformance import check_method
from harness.spaces import load_space
from harness.training.networks import check_a_step, chosen_network
from harness.training.train import run_trial
from tests.rehearsed import make_unit
from tests.tiny import config, spirals

EXITS = '''
from torch import Tensor

from harness.methods.base import OneShotMethod
from harness.models.one_shot import OneShotNet


class Exits(OneShotMethod):
    """Equal weights for all depths."""

    scale: float = 1.0
    is_posterior = True

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        return net.log_likelihood_per_depth(x, y).mean() - net.posterior.kl() / n_train
'''


@pytest.fixture
def exits(tmp_path: Path) -> str:
    path = tmp_path / "equal_exits.py"
    path.write_text(EXITS)
    return str(path)


def test_a_file_of_ones_own_trains_prunes_and_hands_over(exits: str) -> None:
    name, method = load_method(exits)
    assert isinstance(method, OneShotMethod) and method.facts().learns_depth and not method.facts().adaptive
    trial = config(name, 3, max_epochs=4)
    data = spirals(trial)
    trained = run_trial(trial, data)
    assert trained.progress.posterior is not None
    d_opt = trained.progress.posterior.d_opt
    x = torch.zeros(2, 2)
    assert chosen_network(trained.network, d_opt)(x).exp().sum(dim=-1).tolist() == pytest.approx([1.0, 1.0])
    assert isinstance(chosen_network(trained.network, 1), DepthMixture)


@pytest.mark.slow  # one of the rules takes another process
def test_it_keeps_the_rules(exits: str) -> None:
    assert all(rule.ok for rule in check_method(*load_method(f"{exits}:scale=2.0"), load_space("quickstart")))


def test_its_plan_carries_its_options(exits: str, tmp_path: Path) -> None:
    unit = make_unit(tmp_path, f"{exits}:scale=2.0")
    trial = unit.plan.trial_config(6)
    assert (trial.kind, trial.options) == ("equal_exits", {"scale": 2.0})
    other = make_unit(tmp_path / "other", exits).plan.trial_config(6)
    assert trial.hash != other.hash


def test_a_search_has_no_network() -> None:
    with pytest.raises(UserError, match="'grid' searches over fixed depths"):
        one_shot_method("grid", {})
    with pytest.raises(UserError, match="unknown method 'gird'"):
        one_shot_method("gird", {})


def test_a_file_without_an_objective_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "unfinished.py"
    path.write_text(EXITS.replace("def objective", "def goal"))
    with pytest.raises(UserError, match=r"Exits does not define objective\(net, x, y, n_train\)"):
        load_method(str(path))


ODD = EXITS.replace(
    """    def objective""",
    """    def weights(self, log_beta):
        weights = super().weights(log_beta)
        for name, parameter in list(weights.named_parameters()):
            setattr(weights, name, torch.nn.Parameter(CHANGED(parameter.detach())))
        return weights

    def objective""",
).replace("from torch import Tensor", "import torch\nfrom torch import Tensor")


@pytest.mark.parametrize(
    ("changed", "said"),
    [("torch.Tensor.double", "is torch.float64"), ("lambda x: x[:1].expand(len(x))", "shares or skips memory")],
)
def test_parameters_that_have_no_place_in_a_buffer_are_refused_by_name_before_a_run(
    tmp_path: Path, changed: str, said: str
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD.replace("CHANGED", f"({changed})"))
    name, _ = load_method(str(path))
    trial = config(name, 3)
    with pytest.raises(UserError, match=rf"method odd: posterior\.\w+ of the network {said}"):
        check_a_step(trial, spirals(trial))
