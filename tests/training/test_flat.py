"""A network's tensors in one buffer: nothing computes otherwise, nothing is lost, parts do not keep the whole."""

import copy

import pytest
import torch
from torch import nn

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
