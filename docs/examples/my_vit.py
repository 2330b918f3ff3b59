"""A small vision transformer (Dosovitskiy et al., ICLR 2021): images become tokens, one for each patch."""

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from harness.networks.base import Network, Shape, Takes


class SmallViT(Network):
    """A vision transformer: depth is the number of its encoder blocks."""

    takes: ClassVar[Takes] = "images"

    width: Annotated[int, Field(gt=0, multiple_of=4)] = 32
    """Numbers of a token."""
    patch: Annotated[int, Field(gt=0)] = 4
    """Pixels of a patch, in height and width."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of a block's numbers that is left out in training."""

    def check(self, shape: Shape) -> None:
        if shape[1] % self.patch or shape[2] % self.patch:
            raise ValueError(f"images whose sides are multiples of patch = {self.patch}; got {shape[1]}×{shape[2]}")

    def stem(self, shape: Shape) -> nn.Module:
        tokens = (shape[1] // self.patch) * (shape[2] // self.patch)
        return Tokens(shape[0], self.width, self.patch, tokens)

    def block(self, number: int) -> nn.Module:
        return Encoder(self.width, self.dropout)

    def head(self, n_classes: int, n_heads: int) -> nn.Module:
        return nn.Sequential(nn.LayerNorm(self.width), nn.Linear(self.width, n_classes))

    def shrink(self, block: nn.Module, scale: float) -> None:
        assert isinstance(block, Encoder)
        self.scale(block.attention.out_proj, scale)
        self.scale(block.mlp[-1], scale)


class Tokens(nn.Module):
    def __init__(self, channels: int, width: int, patch: int, tokens: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(channels, width, patch, stride=patch)
        self.position = nn.Parameter(0.02 * torch.randn(1, tokens, width))

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.cut(x).flatten(2).transpose(1, 2) + self.position
        return tokens  # (N, T, width)


class Encoder(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        out: Tensor = x + self.mlp(self.norm2(x))
        return out
