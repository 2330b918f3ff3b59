"""How often samples went through blocks and output block: what a network's cost is counted from."""

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass
class Passes:
    """Samples, samples × residual blocks, samples × depths the output block was applied to."""

    samples: int = 0
    blocks: int = 0
    heads: int = 0


class Counted(Protocol):
    """A network that counts its passes: with a gradient to be taken, and without."""

    trained: Passes
    looked: Passes


def count(network: Counted, samples: int, blocks: int, heads: int) -> None:
    """A pass of so many samples. Outside the backbone, whose compiled form must not change with every pass."""
    passes = network.trained if torch.is_grad_enabled() else network.looked
    passes.samples += samples
    passes.blocks += samples * blocks
    passes.heads += samples * heads
