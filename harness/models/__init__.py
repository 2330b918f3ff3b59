"""Networks: a `TrialConfig` in, a module out. `forward` gives class log-probabilities, `objective` is maximised."""

from harness.models.depth_posterior import DepthPosterior, log_prior
from harness.models.fixed_depth import FixedDepthNet
from harness.models.ldn import LearntDepthNet
from harness.models.resnet import build_backbone
from harness.records import TrialConfig
from harness.seeds import torch_seeded

DepthNet = LearntDepthNet | FixedDepthNet

__all__ = ["DepthNet", "FixedDepthNet", "LearntDepthNet", "build_network"]


def build_network(config: TrialConfig, sample_shape: tuple[int, ...], n_classes: int) -> DepthNet:
    """Default PyTorch initialisation, drawn from a stream of (seed, kind, depth): the same net in every method."""
    learnt = config.kind == "ldn"
    with torch_seeded(config.seed, "init", config.kind, config.depth):
        backbone = build_backbone(
            config.network, sample_shape, n_classes, config.depth, n_heads=config.depth + 1 if learnt else 1
        )
    if not learnt:
        return FixedDepthNet(backbone)
    return LearntDepthNet(backbone, DepthPosterior(log_prior(config.posterior.prior, config.depth)))
