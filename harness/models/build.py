"""A space's network settings in, a backbone out; and what can be said of it without building it."""

import math

from harness.errors import UserError
from harness.models.resnet import Backbone, convolutional, fully_connected
from harness.schema.settings import Convolutional, FullyConnected, NetworkSettings


def build_backbone(
    settings: NetworkSettings, sample_shape: tuple[int, ...], n_classes: int, n_blocks: int, n_heads: int
) -> Backbone:
    match settings:
        case FullyConnected(width=w):
            return fully_connected(math.prod(sample_shape), w, n_classes, n_blocks, n_heads)
        case Convolutional(channels=c, bottleneck=b):
            _check_image(sample_shape)
            return convolutional(sample_shape[0], c, b, settings.head_bn, n_classes, n_blocks, n_heads)


def parameter_count(settings: NetworkSettings, sample_shape: tuple[int, ...], n_classes: int, n_blocks: int) -> int:
    """Of the backbone that `build_backbone` would build, without building it."""
    match settings:
        case FullyConnected(width=w):
            stem, block, head = _linear(math.prod(sample_shape), w), _linear(w, w) + 2 * w, _linear(w, n_classes)
        case Convolutional(channels=c, bottleneck=b):
            stem, head = _linear(25 * sample_shape[0], c), _linear(c, c) + 2 * c + _linear(c, n_classes)
            block = 2 * (c + b + b) + _linear(c, b) + _linear(9 * b, b) + _linear(b, c)
    return stem + n_blocks * block + head


def _linear(n_in: int, n_out: int) -> int:
    return (n_in + 1) * n_out


def _check_image(sample_shape: tuple[int, ...]) -> None:
    if len(sample_shape) != 3:
        raise UserError(
            f"network.kind conv needs images; this data set's samples are {math.prod(sample_shape)} features without "
            "a shape, use network.kind fc"
        )
    _, height, width = sample_shape
    if min(height, width) < 6:  # the 5×5 convolution and the 2×2 pool leave nothing of a smaller one
        raise UserError(f"network.kind conv needs images of at least 6×6 pixels; got {height}×{width}")
