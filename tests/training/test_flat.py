"""A network's tensors in one buffer: nothing computes otherwise, nothing is lost, parts do not keep the whole."""

import copy

import pytest
import torch
from torch import nn

from harness.errors import UserError
from harness.training import flat
from harness.training.networks import build_network
from tests.tiny import config, conv_config

CONFIGS = [
    pytest.param(config("ldn", 3), (2,), id="fc, learnt"),
    pytest.param(config("ddn", 2), (2,), id="fc, fixed"),
    pytest.param(conv_config("ldn", 2), (1, 8, 8), id="conv, learnt"),
]


@pytest.mark.parametrize(("trial", "shape"), CONFIGS)
def test_flattened_it_is_the_same_network(trial, shape) -> None:  # type: ignore[no-untyped-def]
    network = build_network(trial, shape, 2)
    if len(shape) == 3:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    before = copy.deepcopy(network)
    buffers = flat.flatten(network)
    assert sorted(str(buffer.dtype) for buffer in buffers) == ["torch.float32", "torch.int64"]
    for (name, tensor), (_, old) in zip(network.state_dict().items(), before.state_dict().items(), strict=True):
        assert torch.equal(tensor, old), name
        assert tensor.stride() == old.stride(), name
        assert tensor.data_ptr() % flat.ALIGNMENT_BYTES == 0, name
        assert any(tensor.untyped_storage().data_ptr() == each.untyped_storage().data_ptr() for each in buffers), name


@pytest.mark.parametrize(("trial", "shape"), CONFIGS)
def test_buffers_hold_the_whole_network(trial, shape) -> None:  # type: ignore[no-untyped-def]
    network, other = build_network(trial, shape, 2), build_network(trial, shape, 2)
    buffers = flat.flatten(network)
    with torch.no_grad():
        for number, tensor in enumerate(network.state_dict().values()):
            tensor.fill_(number)
    flat.load(buffers, other)
    for number, (name, tensor) in enumerate(other.state_dict().items()):
        assert bool((tensor == number).all()), name


def test_a_tensor_that_got_its_memory_back_does_not_hold_on_to_the_rest() -> None:
    network = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    values = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    flat.flatten(network)
    flat.unflatten(network)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, values[name])
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


class Odd(nn.Module):
    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self.first, self.odd, self.last = nn.Parameter(torch.ones(3)), nn.Parameter(values), nn.Parameter(torch.ones(3))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (torch.zeros(1).expand(40), r"shares or skips memory \(shape \(40,\), strides \(0,\)\)"),
        (torch.zeros(40, 40)[:, 0], r"shares or skips memory \(shape \(40,\), strides \(40,\)\)"),
        (torch.zeros(3, 3, dtype=torch.float64), r"is torch\.float64, and parameters are torch\.float32"),
        (torch.zeros(3, 3, dtype=torch.float16), r"is torch\.float16, and parameters are torch\.float32"),
    ],
)
def test_what_has_no_place_in_a_buffer_is_refused_by_name(values: torch.Tensor, said: str) -> None:
    """A tensor that skips memory would lie over its neighbours."""
    with pytest.raises(UserError, match=f"^odd of the network {said}"):
        flat.flatten(Odd(values))
    with pytest.raises(UserError, match=r"^0\.weight of the network has no shape before the first rows come"):
        flat.flatten(nn.Sequential(nn.LazyLinear(3)))


@pytest.mark.parametrize("values", [torch.zeros(2, 3).T, torch.zeros(1, 3)[:, :1], torch.zeros(0, 3), torch.zeros(())])
def test_any_dense_tensor_has_a_place(values: torch.Tensor) -> None:
    assert sum(buffer.numel() for buffer in flat.flatten(Odd(values.clone(memory_format=torch.preserve_format))))
