"""A space's network settings in, a backbone out; and what can be said of it without building it."""

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from harness.errors import UserError, blaming
from harness.networks import network_of
from harness.networks.base import Backbone
from harness.schema.networks import NetworkSettings


def build_backbone(
    settings: NetworkSettings, sample_shape: tuple[int, ...], n_classes: int, n_blocks: int, n_heads: int
) -> Backbone:
    network = network_of(settings)
    check_samples(settings, sample_shape)
    with blaming(f"network {settings.kind}: a network of depth {n_blocks} cannot be built", type(network)):
        backbone = network.backbone(sample_shape, n_classes, n_blocks, n_heads)
        for name, tensor in backbone.state_dict(keep_vars=True).items():
            _check_tensor(f"network {settings.kind}: {name}", tensor)
        return backbone


def _check_tensor(name: str, tensor: Tensor) -> None:
    """Raises UserError for what cannot lie in one buffer with the others, as it has to while it is trained."""
    if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
        raise UserError(
            f"{name} has no shape before the first rows; use layers that are told their sizes, none of Lazy…"
        )
    if not tensor.is_contiguous():
        raise UserError(f"{name} must be contiguous; got shape {tuple(tensor.shape)} with strides {tensor.stride()}")
    if isinstance(tensor, nn.Parameter) and tensor.dtype != torch.float32:
        raise UserError(
            f"{name} must be float32, as all parameters; got {tensor.dtype}; training.precision sets others"
        )


def check_samples(settings: NetworkSettings, sample_shape: tuple[int, ...]) -> None:
    """Raises UserError where the network does not take samples of this shape."""
    network, features = network_of(settings), math.prod(sample_shape)
    if network.takes == "images" and len(sample_shape) != 3:
        raise UserError(
            f"network.kind {settings.kind} needs images; this data set's samples are {features} features without "
            "a shape, use network.kind fc"
        )
    if network.takes == "rows" and len(sample_shape) != 1:
        size = "×".join(map(str, sample_shape[1:]))
        raise UserError(
            f"network.kind {settings.kind} needs rows of numbers; this data set's samples are images of {size} pixels, "
            "use network.kind conv"
        )
    with blaming(f"network {settings.kind}: check({sample_shape}) fails", type(network)):
        try:
            network.check(sample_shape)
        except ValueError as error:
            raise UserError(f"network.kind {settings.kind} needs {error}") from None


@functools.lru_cache(maxsize=256)
def parameter_count(settings: NetworkSettings, sample_shape: tuple[int, ...], n_classes: int, n_blocks: int) -> int:
    """Of the backbone that `build_backbone` would build, without taking memory for it."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        backbone = build_backbone(settings, sample_shape, n_classes, n_blocks, 1)
    return sum(parameter.numel() for parameter in backbone.parameters())
