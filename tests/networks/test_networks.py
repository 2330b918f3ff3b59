"""What every network must keep to, whatever it is made of."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from harness.errors import UserError
from harness.models.build import build_backbone, parameter_count
from harness.models.passes import Passes
from harness.networks import network_of, small_network
from harness.networks.base import Backbone
from harness.schema.networks import known_networks, network_settings
from harness.training.cost import flop

DEPTH, CLASSES = 5, 3


def shape_of(kind: str) -> tuple[int, ...]:
    return (2, 8, 8) if network_of(small_network(kind)).takes == "images" else (7,)


def backbone_of(kind: str, depth: int, n_heads: int) -> Backbone:
    torch.manual_seed(1)
    return build_backbone(small_network(kind), shape_of(kind), CLASSES, depth, n_heads)


def counted(backbone: Backbone, kind: str, train: bool) -> float:
    x = torch.zeros(5, *shape_of(kind))
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(train):
        log_probs = backbone.train(train)(x)
        if train:
            log_probs.sum().backward()
    return float(counter.get_total_flops()) / 5


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("kind", known_networks())
def test_operations_are_those_of_the_whole_network_at_every_depth(kind: str, train: bool) -> None:
    shapes = small_network(kind), shape_of(kind), CLASSES
    for depth in range(DEPTH + 1):
        alone = flop(*shapes, Passes({depth: 1}, {depth: 1}), train)
        assert alone == counted(backbone_of(kind, depth, 1), kind, train)
        everywhere = flop(*shapes, Passes({depth: 1}, dict.fromkeys(range(depth + 1), 1)), train)
        assert everywhere == counted(backbone_of(kind, depth, depth + 1), kind, train)


@pytest.mark.parametrize("kind", known_networks())
def test_parameters_are_counted_without_building(kind: str) -> None:
    for depth in (0, 2, DEPTH):
        built = sum(parameter.numel() for parameter in backbone_of(kind, depth, 1).parameters())
        assert parameter_count(small_network(kind), shape_of(kind), CLASSES, depth) == built


def test_resnet_20_has_its_parameters() -> None:
    """He et al. count 0.27 million with shortcuts that have none; two projections are added here."""
    shortcuts = 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
    assert parameter_count(network_settings("resnet"), (3, 32, 32), 10, 9) == 269_722 + shortcuts


def test_the_stages_halve_the_image_and_share_one_output_layer() -> None:
    backbone = build_backbone(network_settings("resnet", widths=(4, 6, 8), blocks=(2, 1)), (3, 16, 16), 10, 5, 6).eval()
    activation, sizes = backbone.stem(torch.zeros(2, 3, 16, 16)), []
    for block in backbone.blocks:
        activation = block(activation)
        sizes.append(tuple(activation.shape[1:]))
    assert sizes == [(4, 16, 16), (4, 16, 16), (6, 8, 8), (8, 4, 4), (8, 4, 4)]
    assert backbone.readout_of == [0, 0, 0, 1, 2, 2] and backbone(torch.zeros(2, 3, 16, 16)).shape == (6, 2, 10)
    assert network_of(network_settings("resnet", blocks=(2, 1))).least_depth() == 4


@pytest.mark.parametrize(
    ("kind", "shape", "sentence"),
    [
        ("resnet", (12,), "network.kind resnet needs images; .* 12 features"),
        ("resnet", (1, 3, 8), "network.kind resnet needs images of at least 4×4 pixels.* got 3×8"),
        ("conv", (1, 5, 8), "network.kind conv needs images of at least 6×6 pixels; got 5×8"),
    ],
)
def test_samples_that_a_network_does_not_take_are_refused(kind: str, shape: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        build_backbone(network_settings(kind), shape, 3, 1, 1)
