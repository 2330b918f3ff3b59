"""A `TrialConfig` in, a network out. `forward` gives class log-probabilities, `objective` is maximised."""

from harness.methods import one_shot_method
from harness.models import DepthNet, FixedDepthNet
from harness.models.resnet import build_backbone
from harness.records import TrialConfig
from harness.seeds import torch_seeded


def build_network(config: TrialConfig, sample_shape: tuple[int, ...], n_classes: int) -> DepthNet:
    """Default PyTorch initialisation, drawn from a stream of (seed, kind, depth): the same net in every method."""
    n_heads = config.depth + 1 if config.learns_depth else 1
    with torch_seeded(config.seed, "init", config.kind, config.depth):
        backbone = build_backbone(config.network, sample_shape, n_classes, config.depth, n_heads)
    if not config.learns_depth:
        return FixedDepthNet(backbone)
    return one_shot_method(config.kind, config.options).network(backbone, config.posterior)
