"""A residual network in three stages, as He et al. have it for CIFAR."""

from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from harness.networks.base import GlobalMean, Network, Shape, Takes


class StagedResNet(Network):
    """Blocks of two 3×3 convolutions in three stages, each with half the pixels and more channels, for images.

    He et al.: Deep Residual Learning, CVPR 2016: ResNet-20 is depth 9 with the default options. Depth counts the blocks
    of all stages; the last stage takes all blocks that follow. What a stage gives is brought to the width of the last
    one by a linear layer of the stage's own, behind which one output layer serves all depths.
    """

    takes: ClassVar[Takes] = "images"
    small: ClassVar[dict[str, Any]] = {"widths": (3, 4, 5), "blocks": (1, 1)}

    widths: tuple[
        Annotated[int, Field(gt=0, le=100_000)],
        Annotated[int, Field(gt=0, le=100_000)],
        Annotated[int, Field(gt=0, le=100_000)],
    ] = (16, 32, 64)
    """Channels of the stages."""
    blocks: tuple[Annotated[int, Field(gt=0, le=10_000)], Annotated[int, Field(gt=0, le=10_000)]] = (3, 3)
    """Blocks of the first and of the second stage."""

    def check(self, shape: Shape) -> None:
        _, height, width = shape
        if min(height, width) < 4:
            raise ValueError(f"images of at least 4×4 pixels, which it halves twice; got {height}×{width}")

    def least_depth(self) -> int:
        """The first block of the last stage: without it, depth would be the number of pixels."""
        return sum(self.blocks) + 1

    def stage(self, depth: int) -> int:
        first, second = self.blocks
        return 0 if depth <= first else 1 if depth <= first + second else 2

    def stem(self, shape: Shape) -> nn.Module:
        width = self.widths[0]
        return nn.Sequential(nn.Conv2d(shape[0], width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())

    def block(self, number: int) -> nn.Module:
        before, now = self.stage(number - 1), self.stage(number)
        return BasicBlock(self.widths[before], self.widths[now], stride=1 if before == now else 2)

    def readout(self, stage: int) -> nn.Module:
        return (
            nn.Sequential(GlobalMean(), nn.Linear(self.widths[stage], self.widths[-1])) if stage < 2 else GlobalMean()
        )

    def head(self, n_classes: int, n_heads: int) -> nn.Module:
        return nn.Linear(self.widths[-1], n_classes)

    def shrink(self, block: nn.Module, scale: float) -> None:
        assert isinstance(block, BasicBlock)
        self.scale(block.branch[-1], scale)


class BasicBlock(nn.Module):
    """relu(shortcut(x) + branch(x)), the branch two convolutions; the shortcut is one where the shape changes."""

    def __init__(self, before: int, now: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(before, now, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(now),
            nn.ReLU(),
            nn.Conv2d(now, now, 3, padding=1, bias=False),
            nn.BatchNorm2d(now),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Sequential(nn.Conv2d(before, now, 1, stride, bias=False), nn.BatchNorm2d(now))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = nn.functional.relu(self.shortcut(x) + self.branch(x))
        return out
