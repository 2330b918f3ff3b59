"""A network for rows of numbers: four lines, and the class around them."""

from typing import ClassVar

from torch import nn

from harness.networks.base import Network, Residual, Shape, Takes


class RowsNet(Network):
    """Residual blocks of two linear layers, 32 units wide."""

    takes: ClassVar[Takes] = "rows"

    def stem(self, shape: Shape) -> nn.Module:
        return nn.Linear(shape[0], 32)

    def block(self, number: int) -> nn.Module:
        return Residual(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))

    def head(self, n_classes: int, n_heads: int) -> nn.Module:
        return nn.Linear(32, n_classes)
