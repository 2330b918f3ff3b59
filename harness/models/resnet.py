"""The residual backbone both networks share: stem f_0, blocks f_1…f_D of one width, output block f_{D+1}.

a_0 = f_0(x),   a_i = a_{i-1} + f_i(a_{i-1}),   p(y | x, d=i) = softmax(f_{D+1}(a_i))

This file goes into every model in MLflow, so that it works where this package is not: it imports nothing of it.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HeadNorm = Literal["per_depth", "shared"]


class Backbone(nn.Module):
    """`features` gives the output block's input at each depth asked for; `head` turns a stack of them into logits."""

    def __init__(self, stem: nn.Module, blocks: Sequence[nn.Module], head: nn.Module, n_heads: int) -> None:
        super().__init__()
        self.stem = stem
        self.blocks = nn.ModuleList(blocks)
        self.head = head
        self.n_heads = n_heads  # depths the head is applied to: D+1 for a learnt depth, 1 for a fixed one
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
        wanted = range(first, len(self.blocks) + 1) if depths is None else depths
        activation = self.stem(x)
        # Pooling commutes with stacking; done at once, the large feature maps need not be kept for the stack.
        features = [_pool(activation)] if wanted[0] == 0 else []
        for depth, block in zip(range(1, wanted[-1] + 1), self.blocks, strict=False):
            activation = activation + block(activation)
            if depth in wanted:
                features.append(_pool(activation))
        stacked = torch.stack(features)
        rows = {"rows": [depth - first for depth in depths]} if depths and isinstance(self.head, ConvHead) else {}
        logits: Tensor = self.head(stacked, **rows)
        return logits

    def pruned(self, depth: int) -> "Backbone":
        """Depths 0…`depth` only; the modules are shared with the full network, the later blocks are left out."""
        return self._kept(range(depth + 1))

    def at(self, depth: int) -> "Backbone":
        """`depth` blocks and a prediction at their end alone; the modules are shared with the full network."""
        return self._kept(range(depth, depth + 1))

    def _kept(self, depths: range) -> "Backbone":
        """Of a network that predicts at every depth, these, up to the last block they need."""
        head = self.head.kept(depths) if isinstance(self.head, ConvHead) else self.head
        return Backbone(self.stem, list(self.blocks)[: depths[-1]], head, n_heads=len(depths))


def fully_connected(n_inputs: int, width: int, n_classes: int, n_blocks: int, n_heads: int) -> Backbone:
    """f_i: Linear, ReLU, BatchNorm. Depth 0 is a linear model."""
    stem = nn.Sequential(nn.Flatten(), nn.Linear(n_inputs, width))
    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.BatchNorm1d(width)) for _ in range(n_blocks)]
    return Backbone(stem, blocks, nn.Linear(width, n_classes), n_heads)


def convolutional(
    n_inputs: int, channels: int, bottleneck: int, head_bn: HeadNorm, n_classes: int, n_blocks: int, n_heads: int
) -> Backbone:
    """A pooled convolution, pre-activation bottlenecks, and an output block on globally pooled features."""
    stem = PooledConv(n_inputs, channels, kernel_size=5)
    blocks = [_bottleneck(channels, bottleneck) for _ in range(n_blocks)]
    return Backbone(stem, blocks, ConvHead(channels, n_classes, n_heads, head_bn), n_heads)


def _bottleneck(channels: int, bottleneck: int) -> nn.Sequential:
    """Pre-activation: BN-ReLU-Conv1×1, BN-ReLU-Conv3×3, BN-ReLU-Conv1×1."""
    layers: list[nn.Module] = []
    for n_in, n_out, kernel in ((channels, bottleneck, 1), (bottleneck, bottleneck, 3), (bottleneck, channels, 1)):
        layers += [nn.BatchNorm2d(n_in), nn.ReLU(), nn.Conv2d(n_in, n_out, kernel, padding=kernel // 2)]
    return nn.Sequential(*layers)


class PooledConv(nn.Conv2d):
    """A convolution followed by a 2×2 average pool, as the one convolution of stride 2 that it is.

    Both are linear: averaging four neighbouring outputs is averaging the kernel over its four shifts. A third of the
    operations, and no feature map of the full size to be kept for the backward pass.
    """

    def forward(self, x: Tensor) -> Tensor:
        kernel = F.avg_pool2d(F.pad(self.weight, (1, 1, 1, 1)), kernel_size=2, stride=1)
        return F.conv2d(x, kernel, self.bias, stride=2)


def _pool(activation: Tensor) -> Tensor:
    """Global average of feature maps; a vector stays as it is. (N, C, H, W) or (N, C) → (N, C)"""
    # Channels last, so that the gradient is born in that memory format, and not copied into it at every block.
    return activation.permute(0, 2, 3, 1).mean(dim=(1, 2)) if activation.dim() == 4 else activation


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
