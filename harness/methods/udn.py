"""A network that is unrolled only as deep as its posterior over depths needs: a truncated Poisson distribution."""

from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import DepthWeights
from harness.models.one_shot import Epoch, OneShotNet

QUANTILE = 0.95  # of the Poisson distribution; one depth further it is cut


class TruncatedPoisson(DepthWeights):
    """q_i ∝ λ^i / i! up to the cut and 0 beyond it, λ = softplus(ν); ν is learnt by gradient, the cut follows it."""

    cut: Tensor
    depths: Tensor
    log_factorials: Tensor
    this_epochs: int | None = None  # the cut, as read from the device

    def __init__(self, log_beta: Tensor, rate: float) -> None:
        super().__init__(log_beta)
        start = torch.tensor(rate)
        self.nu = nn.Parameter(start + torch.log(-torch.expm1(-start)))  # softplus of it is the rate
        self.register_buffer("cut", torch.zeros((), dtype=torch.int64))
        self.register_buffer("depths", torch.arange(len(log_beta)))
        self.register_buffer("log_factorials", torch.lgamma(torch.arange(1.0, len(log_beta) + 1)))
        self.cut_again()

    @torch.no_grad()
    def cut_again(self) -> None:
        """cut = min(D, 1 + min {k : Σ_{i≤k} Poisson(i; λ) ≥ QUANTILE})."""
        deepest = len(self.log_beta) - 1
        below = torch.exp(self._log_poisson()).cumsum(dim=0) < QUANTILE
        self.cut.copy_((below.sum() + 1).clamp(max=deepest))
        self.this_epochs = None

    def known_cut(self) -> int:
        """The cut moves between epochs only: a step must not wait for the device to say it."""
        if self.this_epochs is None:
            self.this_epochs = int(self.cut)
        return self.this_epochs

    def _log_poisson(self) -> Tensor:
        """i log λ − λ − log i!, for i = 0…D: (D+1,)."""
        rate = F.softplus(self.nu)
        return self.depths * rate.log() - rate - self.log_factorials

    def log_weights(self) -> Tensor:
        return self._log_poisson().masked_fill(self.depths > self.cut, -torch.inf)

    def kl(self) -> Tensor:
        """KL(q ‖ β), where q = 0 adds nothing."""
        upto = self.known_cut() + 1
        log_q = self.log_q()[:upto]
        return (log_q.exp() * (log_q - self.log_beta[:upto])).sum()


class UnboundedDepth(OneShotMethod):
    """A learnt-depth network that runs no block beyond the 0.95 quantile of its q, a Poisson distribution, plus one.

    q_i ∝ λ^i / i! for i ≤ cut; λ follows the gradient of the ELBO, at the rate of weights over depths, and the cut
    follows λ after each epoch. Nazaret, Blei: Variational Inference for Infinitely Deep Neural Networks, ICML 2022.
    Three differences keep it comparable: prior and output block are the space's, shared by all depths, and weights are
    point estimates without a prior of their own. Stops no trial early. Labels: the training set's; depth by the
    space's rule on q.
    """

    is_posterior: ClassVar[bool] = True
    full_name: ClassVar[str] = "unbounded-depth network"
    colour: ClassVar[str] = "#2E8B7A"

    rate: Annotated[float, Field(gt=0, le=1000)] = 2.0
    """The mean depth at the start, λ, before it is cut."""

    def weights(self, log_beta: Tensor) -> TruncatedPoisson:
        return TruncatedPoisson(log_beta, self.rate)

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """ELBO per sample up to the cut: Σ_{i≤cut} q_i ℓ_i − KL(q ‖ β) / n_train."""
        q = _poisson(net)
        upto = q.known_cut() + 1
        log_q = q.log_q()[:upto]
        gain = net.log_likelihood_at(x, y, range(upto)) - (log_q - q.log_beta[:upto]) / n_train
        return log_q.exp() @ gain

    def after_epoch(self, net: OneShotNet, epoch: Epoch, validation: object) -> None:
        _poisson(net).cut_again()


def _poisson(net: OneShotNet) -> TruncatedPoisson:
    assert isinstance(net.posterior, TruncatedPoisson)
    return net.posterior
