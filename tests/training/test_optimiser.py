"""The optimiser without what torch.optim puts around it takes torch's own steps."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.models import OneShotNet
from harness.schema.records import TrialConfig
from harness.training import flat
from harness.training.networks import build_network
from harness.training.optimiser import SGD, AdamW, Optimiser, Rule, optimiser_of
from harness.training.train import run_trial
from tests.tiny import config, spirals


def network_and_rows() -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3), nn.Linear(3, 3))
    return network, torch.randn(8, 5, generator=torch.Generator().manual_seed(0))


Make = Callable[[Any], Any]  # parameters → an optimiser
OURS: dict[str, Rule] = {
    "plain": SGD(0.1),
    "momentum": SGD(0.1, 0.9),
    "nesterov, decay": SGD(0.1, 0.9, nesterov=True, weight_decay=0.05),
    "adamw": AdamW(0.01, (0.8, 0.99), 0.1),
}


def ours(rule: Rule) -> Make:
    return lambda parameters: Optimiser({rule: list(parameters)})


def torchs(rule: Rule, fused: bool) -> Make:
    settings: dict[str, Any] = {**dataclasses.asdict(rule), "fused": fused, "foreach": False}  # type: ignore[call-overload]
    return lambda parameters: (torch.optim.AdamW if isinstance(rule, AdamW) else torch.optim.SGD)(
        parameters, **settings
    )


def numbers_of(optimiser: Any, parameters: list[nn.Parameter]) -> list[Tensor]:
    """What an optimiser keeps of each parameter."""
    if isinstance(optimiser, Optimiser):
        views = [flat.views([buffer], parameters) for buffer in optimiser.state[:2]]
        return [tensor for each in views for tensor in each]
    names = ("momentum_buffer", "exp_avg", "exp_avg_sq")
    states = [optimiser.state[parameter] for parameter in parameters]
    return [state[name] for name in names for state in states if state.get(name) is not None]


def trained(make: Make, scaler: torch.amp.GradScaler, late: bool) -> list[Tensor]:
    """All tensors after six steps; `late`: the last layer has no gradient in the first three."""
    network, rows = network_and_rows()
    optimiser = make(network.parameters())
    for step in range(6):
        optimiser.zero_grad()
        layers = network[:3] if late and step < 3 else network
        scaler.scale(layers(rows).square().mean()).backward()
        scaler.step(optimiser)
        scaler.update()
    return [*network.state_dict().values(), *numbers_of(optimiser, list(network.parameters()))]


@pytest.mark.parametrize("rule", OURS.values(), ids=OURS)
@pytest.mark.parametrize("scaled", [False, True])
def test_to_the_bit_the_steps_of_torch(rule: Rule, scaled: bool) -> None:
    """Also with a scaled loss, whose scale the scaler hands to the optimiser and torch's kernel takes out again."""
    mine, theirs = (
        trained(make, torch.amp.GradScaler("cpu", enabled=scaled), late=False)
        for make in (ours(rule), torchs(rule, fused=True))
    )
    assert all(torch.equal(our, their) for our, their in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("rule", OURS.values(), ids=OURS)
def test_a_gradient_may_come_late(rule: Rule) -> None:
    """Torch's fused SGD wants all momenta or none, so its plain one is what it is compared with; AdamW to the bit."""
    fused = isinstance(rule, AdamW)
    mine, theirs = (
        trained(make, torch.amp.GradScaler("cpu", enabled=False), late=True)
        for make in (ours(rule), torchs(rule, fused))
    )
    same = torch.equal if fused else torch.allclose
    assert all(same(our, their) for our, their in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("rule", OURS.values(), ids=OURS)
def test_a_step_that_overflowed_is_left_out(rule: Rule) -> None:
    network, rows = network_and_rows()
    before = [parameter.detach().clone() for parameter in network.parameters()]
    optimiser, scaler = ours(rule)(network.parameters()), torch.amp.GradScaler("cpu")
    scaler.scale(network(rows).square().mean() * float("inf")).backward()
    scaler.step(optimiser)
    assert all(torch.equal(now, then) for now, then in zip(network.parameters(), before, strict=True))
    assert not any(buffer.any() for buffer in optimiser.state)


@pytest.mark.parametrize("recipe", [{}, {"nesterov": True, "weight_decay": 0.1}, {"optimiser": "adamw", "lr": 0.01}])
def test_q_is_trained_by_sgd_and_never_decayed(recipe: dict[str, Any]) -> None:
    """And biases and normalisation are not decayed either."""
    trial = config("ldn", weight_decay=recipe.pop("weight_decay", 0.05), **recipe)
    network = build_network(trial, (2,), 2)
    assert isinstance(network, OneShotNet)
    rules = {id(parameter): rule for rule, group in groups_of(network, trial) for parameter in group}
    assert rules[id(network.posterior.logits)] == SGD(0.1, 0.5)
    for name, parameter in network.backbone.named_parameters():
        rule = rules[id(parameter)]
        assert isinstance(rule, AdamW) == (trial.training.optimiser == "adamw")
        assert isinstance(rule, SGD | AdamW) and (rule.weight_decay > 0) == (parameter.dim() > 1), name


def test_q_has_a_rate_of_its_own() -> None:
    trial = config("ldn", posterior={"rule": "argmax", "lr": 0.7})
    network = build_network(trial, (2,), 2)
    assert [rule.lr for rule, group in groups_of(network, trial) if len(group) == 1] == [0.7]


def test_one_call_moves_all_that_have_one_rule() -> None:
    trial = config("ldn")
    assert len(groups_of(build_network(trial, (2,), 2), trial)) == 1, "as before there were other recipes"


def groups_of(network: Any, trial: TrialConfig) -> list[tuple[Rule, Any]]:
    return [(rule, group) for rule, group, _ in optimiser_of(network, trial.training, trial.posterior)._groups]


def test_clipping_is_torchs_and_leaves_q_alone() -> None:
    trial = config("ldn", clip_norm=1e-3, max_epochs=1)
    free, data = (
        trial.model_copy(update={"training": trial.training.model_copy(update={"clip_norm": None})}),
        spirals(trial),
    )
    start, clipped, unclipped = (
        build_network(trial, (2,), 2),
        *(run_trial(each, data).network for each in (trial, free)),
    )

    def moved(network: nn.Module) -> float:
        there = dict(network.named_parameters())
        pairs = [(there[name], before) for name, before in start.named_parameters() if name.startswith("backbone.")]
        return math.sqrt(sum(float((now - before).detach().square().sum()) for now, before in pairs))

    assert moved(clipped) < 0.1 * moved(unclipped)
    ours, theirs = (float(network.state_dict()["posterior.logits"].abs().max()) for network in (clipped, unclipped))
    assert ours > 0.5 * theirs > 0
