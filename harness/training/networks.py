"""A `TrialConfig` in, a network out: as it is trained, and as it is handed over."""

import copy
import math

import torch
from torch import Tensor, nn

from harness.data.memory import check_fits
from harness.data.on_device import on_device
from harness.data.splits import TrainingData
from harness.errors import UserError, blaming
from harness.methods import one_shot_method
from harness.models import ChosenNet, DepthNet, FixedDepthNet, OneShotNet
from harness.models.build import build_backbone, check_samples, parameter_count
from harness.models.depth_posterior import DepthWeights, log_prior
from harness.networks import network_of
from harness.schema.networks import NetworkSettings, OwnNetwork
from harness.schema.records import TrialConfig
from harness.schema.settings import SearchSpace
from harness.seeds import torch_generator, torch_seeded
from harness.training import flat
from harness.training.cost import trial_bytes
from harness.training.devices import threads
from harness.training.recipe import check_augmentation

FIRST_ROWS = 32  # for a first step


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


def check_network(space: SearchSpace, data: TrainingData) -> None:
    """Raises UserError where the space's network does not take its samples, or its depths; a user's own is tried."""
    settings, shape = space.network, data.sample_shape
    check_samples(settings, shape)
    check_augmentation(space.training, shape)
    if space.depth.min < (least := network_of(settings).least_depth()):
        raise UserError(
            f"depth.min must be at least {least} for network.kind {settings.kind} with these options, the first depth "
            f"that has all its parts; got {space.depth.min}"
        )
    if isinstance(settings, OwnNetwork):
        check_predictions(settings, shape, data.n_classes, space.depth.max)


def check_predictions(settings: NetworkSettings, shape: tuple[int, ...], n_classes: int, depth: int) -> None:
    """Raises UserError where a network does not predict every class at every depth, in finite numbers."""
    random = torch.Generator().manual_seed(0)
    with threads(1), torch_seeded(0, "check"), torch.inference_mode():
        network = build_backbone(settings, shape, n_classes, depth, n_heads=depth + 1)
        what = f"network {settings.kind}:"
        with blaming(f"{what} a forward pass fails", type(network_of(settings))):
            activation = network.stem(torch.randn(4, *shape, generator=random))
            stack: list[Tensor] = []
            for number, block in enumerate([nn.Identity(), *network.blocks]):
                activation = block(activation)
                stage = network_of(settings).stage(number)
                features = network.readouts[network.readout_of[number]](activation)
                if features.dim() != 2 or len(features) != 4 or (stack and features.shape != stack[0].shape):
                    wanted = f" as at depth 0, {tuple(stack[0].shape)}" if stack else " (N, C)"
                    raise UserError(
                        f"{what} at depth {number} readout({stage}) must give features of shape{wanted}; got "
                        f"{tuple(features.shape)} from an activation of shape {tuple(activation.shape)}"
                    )
                stack.append(features)
            if any(isinstance(module, nn.BatchNorm1d) for module in network.head.modules()):
                raise UserError(
                    f"{what} a BatchNorm1d in its head takes the statistics of all depths together, or those of rows "
                    "for those of features; use StackedBatchNorm of harness.networks.base, or LayerNorm"
                )
            logits = network.head(torch.stack(stack))
        if logits.shape != (depth + 1, 4, n_classes):
            raise UserError(
                f"{what} its head must turn features of shape (K, N, C) into logits (K, N, classes), here "
                f"{(depth + 1, 4, n_classes)}; got {tuple(logits.shape)}"
            )
        for number, each in enumerate(logits):
            if not bool(each.isfinite().all()):
                raise UserError(f"{what} its output must be finite; at depth {number} it is not, before any training")


def build_network(config: TrialConfig, sample_shape: tuple[int, ...], n_classes: int) -> DepthNet:
    """Default PyTorch initialisation, drawn from a stream of (seed, kind, depth): the same net in every method. A
    restart has a stream of its own.

    `forward` gives class log-probabilities, `objective` is maximised.
    """
    check_network_fits(config.network, sample_shape, n_classes, config.depth)
    n_heads = config.depth + 1 if config.learns_depth else 1
    restart = ("restart", config.restart) if config.restart else ()
    with torch_seeded(config.seed, "init", config.kind, config.depth, *restart):
        backbone = build_backbone(config.network, sample_shape, n_classes, config.depth, n_heads)
    if not config.learns_depth:
        return FixedDepthNet(backbone)
    method = one_shot_method(config.kind, config.options)
    with blaming(f"method {config.kind}: weights(log_beta) fails", type(method)):
        weights = method.weights(log_prior(config.posterior.prior, config.depth))
        if not isinstance(weights, DepthWeights):
            raise UserError(f"method {config.kind}: weights must return DepthWeights; got {type(weights).__name__}")
    random = torch_generator(config.seed, "method", config.kind)
    return OneShotNet(backbone, weights, network_of(config.network), method, random)


def set_memory_format(network: nn.Module, memory_format: torch.memory_format) -> None:
    """Of kernels: as a batch of images lies in memory while a network trains, so that no layer has to copy it."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=memory_format)  # type: ignore[call-overload]


def check_a_step(config: TrialConfig, data: TrainingData) -> float:
    """Raises UserError where a one-shot network cannot take its first step; else its objective."""
    network = build_network(config, data.sample_shape, data.n_classes).train()
    assert isinstance(network, OneShotNet)
    try:
        flat.check_plain(network)
    except UserError as error:
        raise UserError(f"method {config.kind}: {error}") from None
    rows, train_rows, _ = on_device(data, torch.device("cpu"))
    x, y = rows.take(train_rows[:FIRST_ROWS])
    with blaming(f"method {config.kind}: its objective fails", type(one_shot_method(config.kind, config.options))):
        objective = network.objective(x, y, data.n_train)
        (-objective).backward()
    value = objective.item()
    if not math.isfinite(value):
        raise UserError(f"method {config.kind}: its objective must be finite; on the first rows it is {value}")
    gradients = [parameter.grad for parameter in network.backbone.parameters() if parameter.grad is not None]
    if not all(bool(gradient.isfinite().all()) for gradient in gradients):
        raise UserError(f"method {config.kind}: the gradient of its objective is not finite on the first rows")
    if not any(bool(gradient.any()) for gradient in gradients):
        raise UserError(f"method {config.kind}: its objective has no gradient to the network's weights")
    return value


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
