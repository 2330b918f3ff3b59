"""The optimiser without what torch.optim puts around it takes torch's own steps."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.training import flat
from harness.training.sgd import SGD


def network_and_rows() -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3), nn.Linear(3, 3))
    return network, torch.randn(8, 5, generator=torch.Generator().manual_seed(0))


def torchs(parameters: Any, lr: float, momentum: float) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr, momentum, fused=True)


def trained(make: Callable[..., Any], momentum: float, scaler: torch.amp.GradScaler, late: bool) -> list[Tensor]:
    """All tensors after six steps; `late`: the last layer has no gradient in the first three."""
    network, rows = network_and_rows()
    optimiser = make(network.parameters(), 0.1, momentum)
    for step in range(6):
        optimiser.zero_grad()
        layers = network[:3] if late and step < 3 else network
        scaler.scale(layers(rows).square().mean()).backward()
        scaler.step(optimiser)
        scaler.update()
    if momentum == 0:
        return list(network.state_dict().values())
    momenta = (
        flat.views(optimiser.momenta, list(network.parameters()))
        if isinstance(optimiser, SGD)
        else (optimiser.state[parameter]["momentum_buffer"] for parameter in network.parameters())
    )
    return [*network.state_dict().values(), *momenta]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("scaled", [False, True])
def test_to_the_bit_the_steps_of_torch(momentum: float, scaled: bool) -> None:
    """Also with a scaled loss, whose scale the scaler hands to the optimiser and torch's kernel takes out again."""

    def all_of(make: Callable[..., Any]) -> list[Tensor]:
        return trained(make, momentum, torch.amp.GradScaler("cpu", enabled=scaled), late=False)

    assert all(torch.equal(our, their) for our, their in zip(all_of(SGD), all_of(torchs), strict=True))


def test_a_gradient_that_comes_late_begins_with_no_momentum() -> None:
    """Torch's fused step wants all momenta or none, so the plain one is what it is compared with."""

    def plain(parameters: Any, lr: float, momentum: float) -> torch.optim.SGD:
        return torch.optim.SGD(parameters, lr, momentum, fused=False, foreach=False)

    def all_of(make: Callable[..., Any]) -> list[Tensor]:
        return trained(make, 0.9, torch.amp.GradScaler("cpu", enabled=False), late=True)

    for our, their in zip(all_of(SGD), all_of(plain), strict=True):
        torch.testing.assert_close(our, their)


def test_a_step_that_overflowed_is_left_out() -> None:
    network, rows = network_and_rows()
    before = [parameter.detach().clone() for parameter in network.parameters()]
    optimiser, scaler = SGD(network.parameters(), 0.1, 0.9), torch.amp.GradScaler("cpu")
    scaler.scale(network(rows).square().mean() * float("inf")).backward()
    scaler.step(optimiser)  # type: ignore[arg-type]
    assert all(torch.equal(now, then) for now, then in zip(network.parameters(), before, strict=True))
    assert not optimiser.momenta[0].any()
