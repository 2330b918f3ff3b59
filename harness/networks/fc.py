"""Fully connected residual blocks, for rows of numbers."""

import math
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import nn

from harness.networks.base import Network, Residual, Shape


class FullyConnected(Network):
    """Residual blocks of a linear layer, ReLU and BatchNorm, for rows of numbers."""

    small: ClassVar[dict[str, Any]] = {"width": 5}

    width: Annotated[int, Field(gt=0, le=100_000)] = 20
    """Units of every block."""

    def stem(self, shape: Shape) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), self.width))

    def block(self, number: int) -> nn.Module:
        return Residual(nn.Linear(self.width, self.width), nn.ReLU(), nn.BatchNorm1d(self.width))

    def head(self, n_classes: int, n_heads: int) -> nn.Module:
        return nn.Linear(self.width, n_classes)

    def shrink(self, block: nn.Module, scale: float) -> None:
        assert isinstance(block, Residual)
        self.scale(block[-1], scale)
