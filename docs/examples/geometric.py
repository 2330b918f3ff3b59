"""The smallest one-shot network of your own: weights over depths with a single parameter."""

import torch
from torch import Tensor, nn

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import DepthWeights
from harness.models.one_shot import OneShotNet


class GeometricDepths(DepthWeights):
    """q(d) ∝ r^d over depths 0…D."""

    def __init__(self, log_beta: Tensor) -> None:
        super().__init__(log_beta)
        self.log_r = nn.Parameter(torch.zeros(()))

    def log_weights(self) -> Tensor:
        return self.log_r * torch.arange(len(self.log_beta), device=self.log_beta.device)


class Geometric(OneShotMethod):
    """A learnt-depth network whose posterior over depths is geometric. Stops no trial early."""

    is_posterior = True  # the network that is handed over averages depths 0…d_opt by q

    def weights(self, log_beta: Tensor) -> GeometricDepths:
        return GeometricDepths(log_beta)

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """ELBO per sample: Σ_i q_i ℓ_i − KL(q ‖ β) / n_train."""
        return net.posterior.log_q().exp() @ net.log_likelihood_per_depth(x, y) - net.posterior.kl() / n_train
