"""One-shot depth search with a posterior over depths of two numbers: a normal distribution, cut into depths."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import DepthWeights
from harness.models.one_shot import OneShotNet


class NormalWeights(DepthWeights):
    """q_i ∝ Φ((i + 1 − μ)/σ) − Φ((i − μ)/σ) on 0…D, σ = softplus(s); μ and s are learnt by gradient.

    At first the normal distribution is as wide as the range and lies in its middle, so that no depth is left out.
    """

    middles: Tensor

    def __init__(self, log_beta: Tensor) -> None:
        super().__init__(log_beta)
        self.register_buffer("middles", torch.arange(len(log_beta)) + 0.5)
        half = torch.tensor(len(log_beta) / 2)
        self.mean = nn.Parameter(half.clone())
        self.spread = nn.Parameter(half + torch.log(-torch.expm1(-half)))  # softplus of it is `half`

    def log_weights(self) -> Tensor:
        middle = self.middles - self.mean
        # Φ(b) − Φ(a) = Φ(−a) − Φ(−b): of the two, the one in the left tail, where log Φ is exact.
        left = -middle.abs()
        far, near = torch.special.log_ndtr(torch.stack([left + 0.5, left - 0.5]) / F.softplus(self.spread))
        weights: Tensor = far + torch.log(-torch.expm1(near - far))
        return weights


class LearntDepthNormal(OneShotMethod):
    """The learnt-depth network with a discretised normal distribution for q: two parameters, whatever the depth.

    q_i ∝ Φ((i + 1 − μ)/σ) − Φ((i − μ)/σ), cut to depths 0…D; μ and σ follow the gradient of the ELBO, at the rate of
    weights over depths. Neighbouring depths share what is learnt of them, and q has one mode. Van Erp, de Vries: 2024
    (arXiv:2410.10395). Stops no trial early. Labels: the training set's; depth by the space's rule on q.
    """

    is_posterior: ClassVar[bool] = True
    full_name: ClassVar[str] = "learnt-depth network with a normal posterior"
    colour: ClassVar[str] = "#E8956D"

    def weights(self, log_beta: Tensor) -> NormalWeights:
        return NormalWeights(log_beta)

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """ELBO per sample, as the LDN's: Σ_i q_i ℓ_i − KL(q ‖ β) / n_train."""
        log_q = net.posterior.log_q()  # (D+1,), once: its gradient is dear
        gain = net.log_likelihood_per_depth(x, y) - (log_q - net.posterior.log_beta) / n_train
        return log_q.exp() @ gain
