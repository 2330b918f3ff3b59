"""A network that predicts at every depth and holds weights over the depths: what one-shot methods train."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from harness.errors import UserError
from harness.models.depth_posterior import DepthWeights
from harness.models.passes import Passes, count
from harness.networks.base import Backbone, Network
from harness.schema.records import Validation
from harness.schema.settings import Rule

Batch = tuple[Tensor, Tensor]  # inputs and labels


@dataclass(frozen=True)
class Epoch:
    """Where training is."""

    number: int  # from 1
    of: int  # the most there can be
    n_train: int  # size of the training set


class Trainer(Protocol):
    """What a one-shot method says of its network; `OneShotMethod` explains each."""

    @property
    def is_posterior(self) -> bool: ...

    @property
    def validation(self) -> Validation: ...

    def objective(self, net: "OneShotNet", x: Tensor, y: Tensor, n_train: int) -> Tensor: ...

    def after_step(self, net: "OneShotNet", validation: Callable[[], Batch]) -> None: ...

    def after_epoch(self, net: "OneShotNet", epoch: Epoch, validation: Callable[[], Batch]) -> None: ...

    def settled(self, epoch: Epoch) -> bool: ...

    def choose(self, q: Tensor, val: Tensor | None, rule: Rule) -> int: ...

    def validated(self, q: Tensor, val: Tensor | None, rule: Rule) -> int | None: ...


class DepthMixture(nn.Module):
    """A prediction at every depth 0…D from one shared output block, averaged by weights over the depths."""

    def __init__(self, backbone: Backbone, posterior: DepthWeights) -> None:
        super().__init__()
        self.backbone = backbone
        self.posterior = posterior

    @property
    def max_depth(self) -> int:
        return len(self.backbone.blocks)

    def log_probs_per_depth(self, x: Tensor) -> Tensor:
        """log p(y | x, d=i) for i = 0…D: (D+1, N, classes)."""
        log_probs: Tensor = self.backbone(x)
        return log_probs

    def forward(self, x: Tensor) -> Tensor:
        """log p(y | x) = log Σ_i q_i p(y | x, d=i): (N, classes)."""
        return torch.logsumexp(self.posterior.log_q()[:, None, None] + self.log_probs_per_depth(x), dim=0)

    def pruned(self, depth: int) -> "DepthMixture":
        """Without the blocks after `depth`; their probability moves to `depth`. A network of its own."""
        pruned = DepthMixture(self.backbone.pruned(depth), self.posterior.pruned(depth))
        return copy.deepcopy(pruned).train(self.training)


class OneShotNet(DepthMixture):
    """The mixture while a one-shot method trains it.

    `network` made the backbone. `random` is the method's own source of random numbers, on the CPU; checkpoints hold its
    state. `trained` and `looked` count the passes with and without a gradient: the cost.
    """

    def __init__(
        self,
        backbone: Backbone,
        posterior: DepthWeights,
        network: Network,
        method: Trainer,
        random: torch.Generator,
    ) -> None:
        super().__init__(backbone, posterior)
        self.network = network
        self.method = method
        self.random = random
        self.trained, self.looked = Passes(), Passes()

    def objective(self, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """The method's, to be maximised; `n_train` is the size of the training set."""
        value: object = self.method.objective(self, x, y, n_train)
        if isinstance(value, Tensor) and value.dim() == 0 and (value.requires_grad or not torch.is_grad_enabled()):
            return value
        got = type(value).__name__
        if isinstance(value, Tensor):
            got = f"a tensor of shape {tuple(value.shape)}" if value.dim() else "one without a gradient"
        raise UserError(
            f"the objective of {type(self.method).__name__} must be one number, a tensor of shape () with a gradient "
            f"to the weights; got {got}"
        )

    def log_probs_per_depth(self, x: Tensor) -> Tensor:
        count(self, len(x), range(self.max_depth + 1))
        return super().log_probs_per_depth(x)

    def log_likelihood_per_depth(self, x: Tensor, y: Tensor) -> Tensor:
        """ℓ_i = mean_n log p(y_n | x_n, d=i) for i = 0…D: (D+1,)."""
        return log_probs_of(self.log_probs_per_depth(x), y).mean(dim=1)

    def log_probs_at(self, x: Tensor, depths: Sequence[int]) -> Tensor:
        """log p(y | x, d) for these depths only, ascending; blocks after the last one are not run: (K, N, classes)."""
        count(self, len(x), depths)
        log_probs: Tensor = self.backbone(x, depths)
        return log_probs

    def log_likelihood_at(self, x: Tensor, y: Tensor, depths: Sequence[int]) -> Tensor:
        """ℓ_i for these depths only, likewise: (K,)."""
        return log_probs_of(self.log_probs_at(x, depths), y).mean(dim=1)

    def features_per_depth(self, x: Tensor) -> Tensor:
        """What the output block gets at depths 0…D: (D+1, N, C)."""
        count(self, len(x), (self.max_depth,))
        return self.backbone.features(x, range(self.max_depth + 1))

    def choose(self, q: Tensor, val: Tensor | None, rule: Rule) -> int:
        """The method's choice of depth, checked."""
        return self._checked("choose", self.method.choose(q, val, rule))

    def validated(self, q: Tensor, val: Tensor | None, rule: Rule) -> int:
        depth = self.method.validated(q, val, rule)
        return self.choose(q, val, rule) if depth is None else self._checked("validated", depth)

    def _checked(self, hook: str, depth: object) -> int:
        if not isinstance(depth, int) or not 0 <= depth <= self.max_depth:
            raise UserError(
                f"{type(self.method).__name__}.{hook} must return a depth from 0 to {self.max_depth}; got {depth!r}"
            )
        return depth


def log_probs_of(log_probs: Tensor, y: Tensor) -> Tensor:
    """log p(y_n) of the given labels: (K, N, classes), (N,) → (K, N)."""
    index = y.expand(log_probs.shape[0], -1).unsqueeze(-1)
    return log_probs.gather(-1, index).squeeze(-1)
