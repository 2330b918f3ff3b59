"""A `TrialConfig` in, a network out. `forward` gives class log-probabilities, `objective` is maximised."""

from harness.data.memory import check_fits
from harness.errors import UserError
from harness.methods import blaming, one_shot_method
from harness.models import DepthNet, FixedDepthNet, OneShotNet
from harness.models.resnet import build_backbone, parameter_count
from harness.records import TrialConfig
from harness.seeds import torch_seeded
from harness.spaces import NetworkSettings


def check_network_fits(settings: NetworkSettings, sample_shape: tuple[int, ...], n_classes: int, depth: int) -> None:
    """Raises UserError where this machine cannot train the network. Nothing is built.

    Four numbers of 4 bytes are kept for every parameter: itself, its gradient, its momentum and its best value so far.
    """
    parameters = parameter_count(settings, sample_shape, n_classes, depth)
    what = f"training a network of {parameters:,} parameters (depth {depth})"
    check_fits(4 * 4 * parameters, what, "lower depth.max or the network's width")


def build_network(config: TrialConfig, sample_shape: tuple[int, ...], n_classes: int) -> DepthNet:
    """Default PyTorch initialisation, drawn from a stream of (seed, kind, depth): the same net in every method."""
    check_network_fits(config.network, sample_shape, n_classes, config.depth)
    n_heads = config.depth + 1 if config.learns_depth else 1
    with torch_seeded(config.seed, "init", config.kind, config.depth):
        backbone = build_backbone(config.network, sample_shape, n_classes, config.depth, n_heads)
    if not config.learns_depth:
        return FixedDepthNet(backbone)
    method = one_shot_method(config.kind, config.options)
    with blaming(f"method {config.kind}: network(backbone, posterior) fails", type(method)):
        network = method.network(backbone, config.posterior)
        if not isinstance(network, OneShotNet):
            raise UserError(f"method {config.kind}: network must return a OneShotNet; got {type(network).__name__}")
    return network
