"""How often samples went through blocks and output block: what a network's cost is counted from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch


@dataclass
class Passes:
    """Samples that went through the stem, by the last block they went through, and by depth they were read at."""

    through: dict[int, int] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        return sum(self.through.values())

    @property
    def blocks(self) -> int:
        """Samples × residual blocks."""
        return sum(depth * samples for depth, samples in self.through.items())

    @property
    def heads(self) -> int:
        """Samples × depths the output block was applied to."""
        return sum(self.read.values())


class Counted(Protocol):
    """A network that counts its passes: with a gradient to be taken, and without."""

    trained: Passes
    looked: Passes


def count(network: Counted, samples: int, depths: Sequence[int]) -> None:
    """A pass of so many samples, read at these depths, ascending. Outside the backbone, whose compiled form must not
    change with every pass."""
    passes = network.trained if torch.is_grad_enabled() else network.looked
    passes.through[depths[-1]] = passes.through.get(depths[-1], 0) + samples
    for depth in depths:
        passes.read[depth] = passes.read.get(depth, 0) + samples
