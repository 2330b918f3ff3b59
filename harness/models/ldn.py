"""The learnt depth network: weights and q(d) trained together by an ELBO that is exact in one forward pass."""

import copy

import torch
from torch import Tensor, nn

from harness.models.depth_posterior import DepthPosterior
from harness.models.resnet import Backbone


class LearntDepthNet(nn.Module):
    """D blocks, a prediction at every depth 0…D from one shared output block, and a posterior over the depths."""

    def __init__(self, backbone: Backbone, posterior: DepthPosterior) -> None:
        super().__init__()
        self.backbone = backbone
        self.posterior = posterior

    def log_probs_per_depth(self, x: Tensor) -> Tensor:
        """log p(y | x, d=i) for i = 0…D: (D+1, N, classes)."""
        log_probs: Tensor = self.backbone(x)
        return log_probs

    def forward(self, x: Tensor) -> Tensor:
        """log p(y | x) = log Σ_i q_i p(y | x, d=i): (N, classes)."""
        return torch.logsumexp(self.posterior.log_q()[:, None, None] + self.log_probs_per_depth(x), dim=0)

    def objective(self, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """ELBO per sample: mean_n Σ_i q_i log p(y_n | x_n, d=i) − KL(q ‖ β) / n_train. To be maximised."""
        log_likelihoods = log_probs_of(self.log_probs_per_depth(x), y).mean(dim=1)  # (D+1,)
        return self.posterior.log_q().exp() @ log_likelihoods - self.posterior.kl() / n_train

    def pruned(self, depth: int) -> "LearntDepthNet":
        """Without the blocks after `depth`; their probability moves to `depth`. A network of its own."""
        pruned = copy.deepcopy(LearntDepthNet(self.backbone.pruned(depth), self.posterior.pruned(depth)))
        return pruned.train(self.training)


def log_probs_of(log_probs: Tensor, y: Tensor) -> Tensor:
    """log p(y_n) of the given labels: (K, N, classes), (N,) → (K, N)."""
    index = y.expand(log_probs.shape[0], -1).unsqueeze(-1)
    return log_probs.gather(-1, index).squeeze(-1)
