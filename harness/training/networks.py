"""A `TrialConfig` in, a network out: as it is trained, and as it is handed over."""

import copy

from harness.data.memory import check_fits
from harness.data.splits import TrainingData
from harness.errors import UserError
from harness.methods import blaming, one_shot_method
from harness.models import ChosenNet, DepthNet, FixedDepthNet, OneShotNet
from harness.models.build import build_backbone, parameter_count
from harness.models.depth_posterior import DepthWeights, log_prior
from harness.schema.records import TrialConfig
from harness.schema.settings import NetworkSettings
from harness.seeds import torch_generator, torch_seeded
from harness.training.cost import trial_bytes


def check_network_fits(settings: NetworkSettings, sample_shape: tuple[int, ...], n_classes: int, depth: int) -> None:
    """Raises UserError where this machine cannot train the network. Nothing is built.

    Four numbers of 4 bytes are kept for every parameter: itself, its gradient, its momentum and its best value so far.
    """
    parameters = parameter_count(settings, sample_shape, n_classes, depth)
    what = f"training a network of {parameters:,} parameters (depth {depth})"
    check_fits(4 * 4 * parameters, what, "lower depth.max or the network's width")


def check_trial_fits(config: TrialConfig, data: TrainingData, available: float | None = None) -> None:
    """Raises UserError where a trial needs more memory than is available: on its device, or else on this machine."""
    check_network_fits(config.network, data.sample_shape, data.n_classes, config.depth)  # before it builds small ones
    what = f"a trial of depth {config.depth} with mini-batches of {config.training.batch_size}"
    remedy = "lower training.batch_size, depth.max or the network's width, or give trials a larger share of a GPU"
    check_fits(trial_bytes(config, data), what, remedy, available)


def build_network(config: TrialConfig, sample_shape: tuple[int, ...], n_classes: int) -> DepthNet:
    """Default PyTorch initialisation, drawn from a stream of (seed, kind, depth): the same net in every method.

    `forward` gives class log-probabilities, `objective` is maximised.
    """
    check_network_fits(config.network, sample_shape, n_classes, config.depth)
    n_heads = config.depth + 1 if config.learns_depth else 1
    with torch_seeded(config.seed, "init", config.kind, config.depth):
        backbone = build_backbone(config.network, sample_shape, n_classes, config.depth, n_heads)
    if not config.learns_depth:
        return FixedDepthNet(backbone)
    method = one_shot_method(config.kind, config.options)
    with blaming(f"method {config.kind}: weights(log_beta) fails", type(method)):
        weights = method.weights(log_prior(config.posterior.prior, config.depth))
        if not isinstance(weights, DepthWeights):
            raise UserError(f"method {config.kind}: weights must return DepthWeights; got {type(weights).__name__}")
    return OneShotNet(backbone, weights, method, torch_generator(config.seed, "method", config.kind))


def chosen_network(network: DepthNet, d_opt: int) -> ChosenNet:
    """What a unit hands over, in evaluation mode: a fixed depth as it is; of a one-shot network what its weights mean.

    A posterior is pruned to d_opt and averages the depths that are left; any other predicts at d_opt alone.
    """
    if isinstance(network, FixedDepthNet):
        return network
    if network.method.is_posterior:
        return network.pruned(d_opt).eval()
    return at_depth(network, d_opt)


def at_depth(network: OneShotNet, depth: int) -> FixedDepthNet:
    """The prediction at one depth, as a network of its own, in evaluation mode."""
    return copy.deepcopy(FixedDepthNet(network.backbone.at(depth))).eval()
