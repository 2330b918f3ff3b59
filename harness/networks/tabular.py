"""A residual network for tables."""

import math
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import nn

from harness.networks.base import Network, Residual, Shape


class TabularResNet(Network):
    """Pre-activation blocks of two linear layers with LayerNorm and dropout, for rows of numbers.

    Gorishniy et al.: Revisiting Deep Learning Models for Tabular Data, NeurIPS 2021, with LayerNorm instead of
    BatchNorm, which on small tables follows the few rows of a mini-batch.
    """

    small: ClassVar[dict[str, Any]] = {"width": 5, "hidden": 6}

    width: Annotated[int, Field(gt=0, le=100_000)] = 64
    """Units between the blocks."""
    hidden: Annotated[int, Field(gt=0, le=100_000)] = 128
    """Units inside a block."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the units inside a block that is left out at random in training."""

    def stem(self, shape: Shape) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), self.width))

    def block(self, number: int) -> nn.Module:
        return Residual(
            nn.LayerNorm(self.width),
            nn.Linear(self.width, self.hidden),
            nn.ReLU(),
            nn.Dropout(self.dropout),
            nn.Linear(self.hidden, self.width),
        )

    def head(self, n_classes: int, n_heads: int) -> nn.Module:
        return nn.Sequential(nn.LayerNorm(self.width), nn.ReLU(), nn.Linear(self.width, n_classes))

    def shrink(self, block: nn.Module, scale: float) -> None:
        assert isinstance(block, Residual)
        self.scale(block[-1], scale)
