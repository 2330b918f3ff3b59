from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from harness.errors import UserError
from harness.models.build import build_backbone, parameter_count
from harness.networks.base import StackedBatchNorm
from harness.networks.conv import PooledConv
from harness.schema.networks import network_settings
from harness.training.networks import build_network
from tests.tiny import config, conv_config

DEPTHS, SAMPLES, WIDTH = 4, 7, 5


def _looped(modules: list[nn.BatchNorm1d], x: Tensor) -> Tensor:
    return torch.stack([module(at_depth) for module, at_depth in zip(modules, x, strict=True)])


def _plain(mode: Literal["per_depth", "shared"], stacked: StackedBatchNorm) -> list[nn.BatchNorm1d]:
    """One BatchNorm1d per depth, or the same one at every depth, with the stack's scale and shift."""
    one = nn.BatchNorm1d(WIDTH)
    modules = [nn.BatchNorm1d(WIDTH) for _ in range(DEPTHS)] if mode == "per_depth" else [one] * DEPTHS
    for module in modules:
        module.weight, module.bias = stacked.weight, stacked.bias
    return modules


@pytest.mark.parametrize("mode", ["per_depth", "shared"])
def test_stack_equals_a_loop_of_batch_norms(mode: Literal["per_depth", "shared"]) -> None:
    generator = torch.Generator().manual_seed(0)
    stacked = StackedBatchNorm(WIDTH, DEPTHS, mode)
    with torch.no_grad():
        stacked.weight.copy_(torch.randn(WIDTH, generator=generator))
        stacked.bias.copy_(torch.randn(WIDTH, generator=generator))
    plain = _plain(mode, stacked)
    scale = torch.arange(1.0, DEPTHS + 1)[:, None, None]  # every depth has statistics of its own
    for _ in range(3):
        x = scale * (1 + torch.randn(DEPTHS, SAMPLES, WIDTH, generator=generator))
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        out, expected = stacked(a), _looped(plain, b)
        torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
        upstream = torch.randn(out.shape, generator=generator)
        mine = torch.autograd.grad(out, (a, stacked.weight, stacked.bias), upstream)
        theirs = torch.autograd.grad(expected, (b, stacked.weight, stacked.bias), upstream)
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)

    distinct = plain if mode == "per_depth" else plain[:1]
    buffers = [dict(module.named_buffers()) for module in distinct]
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(stacked, name), torch.stack([each[name] for each in buffers]))


@pytest.mark.parametrize("size", [(6, 6), (7, 10), (28, 28), (31, 32)])
def test_pooled_convolution_is_a_convolution_and_a_pool(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    pooled = PooledConv(3, 4, kernel_size=5).double()
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    out = pooled(x)
    expected = nn.functional.avg_pool2d(nn.functional.conv2d(x, pooled.weight, pooled.bias), 2)
    torch.testing.assert_close(out, expected)
    upstream = torch.randn_like(out)
    assert pooled.bias is not None
    parameters = (pooled.weight, pooled.bias)
    mine, theirs = (torch.autograd.grad(y, parameters, upstream) for y in (out, expected))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("mode", ["per_depth", "shared"])
def test_pruned_statistics_serve_the_first_depths(mode: Literal["per_depth", "shared"]) -> None:
    generator = torch.Generator().manual_seed(1)
    stacked = StackedBatchNorm(WIDTH, DEPTHS, mode)
    x = torch.randn(DEPTHS, SAMPLES, WIDTH, generator=generator) * torch.arange(1.0, DEPTHS + 1)[:, None, None]
    stacked(x)
    stacked.eval()
    torch.testing.assert_close(stacked.kept(range(2)).eval()(x[:2]), stacked(x)[:2])


def test_initialisation_is_a_function_of_seed_kind_and_depth() -> None:
    def weights(**changes: int | str) -> list[Tensor]:
        return list(build_network(config().model_copy(update=changes), (2,), 2).state_dict().values())

    def same(a: list[Tensor], b: list[Tensor]) -> bool:
        return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))

    torch.manual_seed(1)
    first = weights()
    torch.manual_seed(2)  # the global generator has no say, and is left as it was
    state = torch.get_rng_state()
    assert same(first, weights())
    assert torch.equal(state, torch.get_rng_state())
    assert not same(first, weights(seed=1))
    assert not torch.equal(weights(kind="ddn", depth=2)[0], weights(kind="ddn", depth=3)[0])


def test_depth_zero_of_the_fc_network_is_linear() -> None:
    network = build_network(config("ddn", depth=0), (2,), 2).eval()
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    logits = network.backbone.head(network.backbone.stem(x))
    torch.testing.assert_close(network(x), torch.log_softmax(logits, dim=-1))
    assert [type(module) for module in network.backbone.modules()][-1] is nn.Linear


@pytest.mark.parametrize(
    ("shape", "given"), [((64,), "64 features"), ((1, 5, 8), "5×8")], ids=["no image", "too small an image"]
)
def test_conv_network_refuses_what_its_stem_cannot_take(shape: tuple[int, ...], given: str) -> None:
    with pytest.raises(UserError, match=given):
        build_network(conv_config(), shape, 3)


def test_conv_network_takes_the_smallest_image() -> None:
    assert build_network(conv_config(), (1, 6, 6), 3).eval()(torch.zeros(2, 1, 6, 6)).shape == (2, 3)


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("kind", ["fc", "conv"])
def test_parameters_are_counted_without_building(kind: str, depth: int) -> None:
    settings = network_settings("fc", width=5) if kind == "fc" else network_settings("conv", channels=6, bottleneck=4)
    shape = (7,) if kind == "fc" else (2, 8, 8)
    network = build_backbone(settings, shape, 3, depth, 1)
    assert parameter_count(settings, shape, 3, depth) == sum(each.numel() for each in network.parameters())
