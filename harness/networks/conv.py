"""Pre-activation bottleneck blocks of convolutions, for images."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from harness.networks.base import HeadNorm, Network, Residual, Shape, StackedBatchNorm, Takes


class Convolutional(Network):
    """Pre-activation bottleneck blocks of convolutions, for images."""

    takes: ClassVar[Takes] = "images"
    small: ClassVar[dict[str, Any]] = {"channels": 4, "bottleneck": 3}

    channels: Annotated[int, Field(gt=0, le=100_000)] = 64
    """Channels between the blocks."""
    bottleneck: Annotated[int, Field(gt=0, le=100_000)] = 32
    """Channels inside a block."""
    head_bn: Literal["per_depth", "shared"] = "per_depth"
    """Whether a network that learns its depth has a BatchNorm for every depth in front of its output layer, or one."""

    def check(self, shape: Shape) -> None:
        _, height, width = shape
        if min(height, width) < 6:  # the 5×5 convolution and the 2×2 pool leave nothing of a smaller one
            raise ValueError(f"images of at least 6×6 pixels; got {height}×{width}")

    def stem(self, shape: Shape) -> nn.Module:
        return PooledConv(shape[0], self.channels, kernel_size=5)

    def block(self, number: int) -> nn.Module:
        """Pre-activation: BN-ReLU-Conv1×1, BN-ReLU-Conv3×3, BN-ReLU-Conv1×1."""
        c, b = self.channels, self.bottleneck
        layers: list[nn.Module] = []
        for n_in, n_out, kernel in ((c, b, 1), (b, b, 3), (b, c, 1)):
            layers += [nn.BatchNorm2d(n_in), nn.ReLU(), nn.Conv2d(n_in, n_out, kernel, padding=kernel // 2)]
        return Residual(*layers)

    def head(self, n_classes: int, n_heads: int) -> nn.Module:
        return ConvHead(self.channels, n_classes, n_heads, self.head_bn)

    def shrink(self, block: nn.Module, scale: float) -> None:
        assert isinstance(block, Residual)
        self.scale(block[-1], scale)


class PooledConv(nn.Conv2d):
    """A convolution followed by a 2×2 average pool, as the one convolution of stride 2 that it is.

    Both are linear: averaging four neighbouring outputs is averaging the kernel over its four shifts. A third of the
    operations, and no feature map of the full size to be kept for the backward pass.
    """

    def forward(self, x: Tensor) -> Tensor:
        kernel = F.avg_pool2d(F.pad(self.weight, (1, 1, 1, 1)), kernel_size=2, stride=1)
        return F.conv2d(x, kernel, self.bias, stride=2)


class ConvHead(nn.Module):
    """One residual fc block and a linear layer, on a stack of pooled features (K, N, C) → (K, N, classes)."""

    def __init__(self, width: int, n_classes: int, n_heads: int, head_bn: HeadNorm) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.bn = StackedBatchNorm(width, n_heads, head_bn)
        self.out = nn.Linear(width, n_classes)

    def forward(self, features: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        hidden: Tensor = self.out(features + self.bn(F.relu(self.fc(features)), rows))
        return hidden

    def kept(self, depths: range) -> "ConvHead":
        head = ConvHead(self.out.in_features, self.out.out_features, len(depths), self.bn.mode)
        head.fc, head.out, head.bn = self.fc, self.out, self.bn.kept(depths)
        return head
