"""What a network is, and the residual backbone that is made of it. A new one is one file with one class: see `Network`.

a_0 = f_0(x),   a_i = f_i(a_{i-1}),   p(y | x, d=i) = softmax(f_{D+1}(r(a_i)))

with f_0 the stem, f_1…f_D the blocks, r the readout of a depth's stage, and f_{D+1} the one output block of all depths.

This file goes into every model in MLflow, so that it works where this package is not: of the package it imports only
schema/identity.py, which goes there too and imports nothing of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, final

import torch
import torch.nn.functional as F
from pydantic import ConfigDict
from torch import Tensor, nn

from harness.schema.identity import Identified

Shape = tuple[int, ...]  # of a sample as the network gets it: (features,) or (channels, height, width)
Takes = Literal["rows", "images", "any"]
HeadNorm = Literal["per_depth", "shared"]


class Network(Identified, ABC):
    """A family of networks, one for each depth. Subclass it once in a file of its own; the file's name is its `kind`.

    The class's fields are its options (`network: {kind: my_net.py, width: 64}`), typed, with defaults, validated when
    given; a docstring below a field is what `harness show` says about it.

    Depth is the number of blocks. A network of depth d is the stem, blocks 1…d, the readout of depth d, and the head;
    one that learns its depth is the same with a prediction at every depth 0…D. `block(i)` must not depend on how many
    blocks there are: then depth d of the one and a network of d blocks are the same architecture. Parameters are
    float32 and draw their first values from torch's generator, as torch's layers do by themselves; they are made in the
    order stem, blocks, readouts, head. `harness check my_net.py` tries all of this on a small network.
    """

    # A default of the wrong type is a mistake like any other. The sentence below an option explains it.
    model_config = ConfigDict(validate_default=True, use_attribute_docstrings=True)

    takes: ClassVar[Takes] = "any"
    """What samples it is for; `check` says more."""

    small: ClassVar[dict[str, Any]] = {}
    """Options of a small one, for checks and tests."""

    @abstractmethod
    def stem(self, shape: Shape) -> nn.Module:
        """f_0: samples (N, *shape) → a_0."""

    @abstractmethod
    def block(self, number: int) -> nn.Module:
        """f_i, i = `number` from 1: a_{i-1} → a_i, the whole step. `Residual(layers…)` adds its input to its output."""

    @abstractmethod
    def head(self, n_classes: int, n_heads: int) -> nn.Module:
        """f_{D+1}: features of `n_heads` depths, a stack (K, N, C) → logits (K, N, classes). All depths share it.

        It must treat each of the K depths by itself: nn.BatchNorm1d would mix them, `StackedBatchNorm` does not. A head
        with a StackedBatchNorm defines `kept(depths)` and takes `rows`, as ConvHead in conv.py shows.
        """

    def stage(self, depth: int) -> int:
        """Depths whose activations have one shape are a stage; they share a readout."""
        return 0

    def readout(self, stage: int) -> nn.Module:
        """r: an activation of this stage → features (N, C), with the same C for all stages. Default: the mean over all
        positions."""
        return GlobalMean()

    def least_depth(self) -> int:
        """The smallest depth that makes sense by itself; a space's depth.min must not lie below it."""
        return 0

    def check(self, shape: Shape) -> None:
        """Raises ValueError where it cannot take samples of this shape; the message says what it needs, and what it
        got."""

    def shrink(self, block: nn.Module, scale: float) -> None:
        """Scales the last layer of a new block in place: at scale 0 it passes on what it is given, or its shortcut."""
        raise NotImplementedError(f"{type(self).__name__} does not define shrink(block, scale)")

    @staticmethod
    def scale(layer: nn.Module, by: float) -> None:
        """Multiplies all parameters of a layer: what `shrink` does to the last one of a block."""
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(by)

    @final
    def backbone(self, shape: Shape, n_classes: int, n_blocks: int, n_heads: int) -> "Backbone":
        """Of `n_blocks` blocks, with a prediction at the deepest `n_heads` depths."""
        stem = self.stem(shape)
        blocks = [self.block(number) for number in range(1, n_blocks + 1)]
        stages = [self.stage(depth) for depth in range(n_blocks + 1 - n_heads, n_blocks + 1)]
        readouts = {stage: self.readout(stage) for stage in dict.fromkeys(stages)}
        return Backbone(stem, blocks, [readouts[stage] for stage in stages], self.head(n_classes, n_heads))


class Residual(nn.Sequential):
    """x + layers(x)."""

    def forward(self, x: Tensor) -> Tensor:
        branch: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return x + branch


class GlobalMean(nn.Module):
    """The mean over all positions: feature maps (N, C, H, W), or tokens (N, T, C) → (N, C). A vector stays as it is."""

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 4:
            # Channels last, so that the gradient is born in that memory format, and not copied into it at every block.
            return x.permute(0, 2, 3, 1).mean(dim=(1, 2))
        return x.mean(dim=1) if x.dim() == 3 else x


class Backbone(nn.Module):
    """Predicts at the deepest of its depths, in one pass and one call of the head."""

    def __init__(
        self, stem: nn.Module, blocks: Sequence[nn.Module], readouts: Sequence[nn.Module], head: nn.Module
    ) -> None:
        """`readouts` are those of the deepest depths, at which it predicts; depths of a stage have the same one."""
        super().__init__()
        self.stem = stem
        self.blocks = nn.ModuleList(blocks)
        different = list(dict.fromkeys(readouts))
        self.readouts = nn.ModuleList(different)
        self.readout_of = [different.index(readout) for readout in readouts]
        self.head = head
        self.n_heads = len(readouts)  # D+1 for a learnt depth, 1 for a fixed one
        self.autocast: torch.dtype | None = None  # what layers compute in while training; None: in float32

    def forward(self, x: Tensor, depths: Sequence[int] | None = None) -> Tensor:
        """log p(y | x, d) at the deepest `n_heads` depths: (K, N, classes). One pass, one call of the head.

        `depths`, ascending, asks for fewer of them; blocks after the last one are not run.

        Mixed precision ends here: probabilities, and all that objectives make of them, are in float32. Rounded to
        bfloat16, the log-likelihoods of neighbouring depths would be one number.
        """
        lower = self.autocast if self.training else None
        with torch.autocast(x.device.type, lower or torch.bfloat16, enabled=lower is not None):
            logits = self._logits(x, depths)
        return torch.log_softmax(logits.float(), dim=-1)

    def _logits(self, x: Tensor, depths: Sequence[int] | None) -> Tensor:
        first = len(self.blocks) + 1 - self.n_heads
        stacked = self.features(x, range(first, len(self.blocks) + 1) if depths is None else depths)
        rows = {"rows": [depth - first for depth in depths]} if depths and hasattr(self.head, "kept") else {}
        logits: Tensor = self.head(stacked, **rows)
        return logits

    def features(self, x: Tensor, depths: Sequence[int]) -> Tensor:
        """What the head gets at these depths, ascending: (K, N, C). Blocks after the last one are not run."""
        activation = self.stem(x)
        # Pooling commutes with stacking; done at once, the large feature maps need not be kept for the stack.
        features = [self._features(activation, 0)] if depths[0] == 0 else []
        for depth, block in zip(range(1, depths[-1] + 1), self.blocks, strict=False):
            activation = block(activation)
            if depth in depths:
                features.append(self._features(activation, depth))
        return torch.stack(features)

    def _features(self, activation: Tensor, depth: int) -> Tensor:
        row = depth - (len(self.blocks) + 1 - self.n_heads)
        features: Tensor = self.readouts[self.readout_of[row]](activation)
        return features

    def pruned(self, depth: int) -> "Backbone":
        """Depths 0…`depth` only; the modules are shared with the full network, the later blocks are left out."""
        return self._kept(range(depth + 1))

    def at(self, depth: int) -> "Backbone":
        """`depth` blocks and a prediction at their end alone; the modules are shared with the full network."""
        return self._kept(range(depth, depth + 1))

    def _kept(self, depths: range) -> "Backbone":
        """Of a network that predicts at every depth, these, up to the last block they need."""
        head: Any = self.head
        if hasattr(head, "kept"):
            head = head.kept(depths)
        readouts = [self.readouts[self.readout_of[depth]] for depth in depths]
        return Backbone(self.stem, list(self.blocks)[: depths[-1]], readouts, head)


class StackedBatchNorm(nn.Module):
    """Batch normalisation of K stacked batches, each by itself, with one shared scale and shift.

    `per_depth` keeps running statistics for each of the K depths: the shallow ones differ from the deep ones, and
    one set for all would be wrong for most of them at test time. `shared` keeps one set, updated K times a step as
    the paper's code does by calling its head K times; the two differ in evaluation mode only.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, n_heads: int, mode: HeadNorm) -> None:
        super().__init__()
        self.mode = mode
        self.n_heads = n_heads
        self.momentum = 0.1
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        rows = n_heads if mode == "per_depth" else 1
        self.register_buffer("running_mean", torch.zeros(rows, width))
        self.register_buffer("running_var", torch.ones(rows, width))

    def forward(self, x: Tensor, rows: Sequence[int] | None = None) -> Tensor:  # (K, N, C)
        """`rows` says which of the depths these K are, where they are not all of them."""
        if rows is not None and self.mode == "per_depth":
            return self._some_depths(x, rows)
        k, n, c = x.shape
        flat = x.transpose(0, 1).reshape(n, k * c)
        fresh = self.training and self.mode == "shared"
        # Per depth, `mean` and `var` are views of the buffers, which batch_norm itself moves on in training.
        mean, var = self.running_mean, self.running_var  # in float32, whatever x is in
        mean = mean.new_zeros(k * c) if fresh else mean.expand(k, c).reshape(k * c)
        var = var.new_ones(k * c) if fresh else var.expand(k, c).reshape(k * c)
        momentum = 1.0 if fresh else self.momentum  # 1: what comes back are the batches' own statistics
        out = F.batch_norm(flat, mean, var, self.weight.repeat(k), self.bias.repeat(k), self.training, momentum)
        if fresh:
            self._update_shared(mean.view(k, c), var.view(k, c))
        return out.view(n, k, c).transpose(0, 1)

    def _some_depths(self, x: Tensor, rows: Sequence[int]) -> Tensor:
        k, n, c = x.shape
        flat = x.transpose(0, 1).reshape(n, k * c)
        # Copies, row by row: an index made of a list would be sent to a GPU at every step, which waits for it.
        mean, var = (torch.cat([buffer[row] for row in rows]) for buffer in (self.running_mean, self.running_var))
        scale, shift = self.weight.repeat(k), self.bias.repeat(k)
        out = F.batch_norm(flat, mean, var, scale, shift, self.training, self.momentum)
        if self.training:
            for running, moved in ((self.running_mean, mean), (self.running_var, var)):
                for row, value in zip(rows, moved.view(k, c), strict=True):
                    running[row].copy_(value)
        return out.view(n, k, c).transpose(0, 1)

    def _update_shared(self, mean: Tensor, var: Tensor) -> None:
        """What K updates in a row would leave: (1−m)^K · running + m · Σ_k (1−m)^(K−1−k) · batch_k."""
        k = len(mean)
        decay = (1 - self.momentum) ** torch.arange(k - 1, -1, -1, device=mean.device, dtype=mean.dtype)
        for running, batch in ((self.running_mean, mean), (self.running_var, var)):
            running.mul_((1 - self.momentum) ** k).add_(self.momentum * (decay[:, None] * batch).sum(0))

    def kept(self, depths: range) -> "StackedBatchNorm":
        """The statistics of these depths; scale and shift stay the same tensors."""
        bn = StackedBatchNorm(len(self.weight), len(depths), self.mode)
        bn.weight, bn.bias = self.weight, self.bias
        rows = slice(depths[0], depths[-1] + 1) if self.mode == "per_depth" else slice(None)
        bn.running_mean = self.running_mean[rows].clone()
        bn.running_var = self.running_var[rows].clone()
        return bn
