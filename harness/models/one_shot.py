"""A network that predicts at every depth and holds a distribution over them: what one-shot methods build on."""

import copy
from abc import abstractmethod

import torch
from torch import Tensor, nn

from harness.models.depth_posterior import DepthPosterior
from harness.models.resnet import Backbone


class OneShotNet(nn.Module):
    """D blocks, a prediction at every depth 0…D from one shared output block, and a distribution over the depths.

    A subclass says what is maximised. `forward` and `pruned` follow from the distribution.
    """

    def __init__(self, backbone: Backbone, posterior: DepthPosterior) -> None:
        super().__init__()
        self.backbone = backbone
        self.posterior = posterior

    @abstractmethod
    def objective(self, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """A scalar per mini-batch, to be maximised; `n_train` is the size of the training set."""

    def log_probs_per_depth(self, x: Tensor) -> Tensor:
        """log p(y | x, d=i) for i = 0…D: (D+1, N, classes)."""
        log_probs: Tensor = self.backbone(x)
        return log_probs

    def log_likelihood_per_depth(self, x: Tensor, y: Tensor) -> Tensor:
        """mean_n log p(y_n | x_n, d=i) for i = 0…D: (D+1,)."""
        return log_probs_of(self.log_probs_per_depth(x), y).mean(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """log p(y | x) = log Σ_i q_i p(y | x, d=i): (N, classes)."""
        return torch.logsumexp(self.posterior.log_q()[:, None, None] + self.log_probs_per_depth(x), dim=0)

    def pruned(self, depth: int) -> "OneShotNet":
        """Without the blocks after `depth`; their probability moves to `depth`. A network of its own."""
        pruned = copy.copy(self)  # the subclass's own settings come along
        pruned._modules = {**self._modules}
        pruned.backbone, pruned.posterior = self.backbone.pruned(depth), self.posterior.pruned(depth)
        return copy.deepcopy(pruned).train(self.training)


def log_probs_of(log_probs: Tensor, y: Tensor) -> Tensor:
    """log p(y_n) of the given labels: (K, N, classes), (N,) → (K, N)."""
    index = y.expand(log_probs.shape[0], -1).unsqueeze(-1)
    return log_probs.gather(-1, index).squeeze(-1)
