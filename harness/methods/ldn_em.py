"""The learnt-depth network with an exact E-step: q follows the posterior instead of its slow gradient."""

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import WeightsByLikelihood
from harness.models.one_shot import Epoch, OneShotNet
from harness.schema.identity import Later


class HeldWeights(WeightsByLikelihood):
    """q stays uniform until it is released; its logits move before that."""

    released: Tensor

    def __init__(self, log_beta: Tensor) -> None:
        super().__init__(log_beta)
        self.register_buffer("released", torch.zeros((), dtype=torch.int64, device=log_beta.device))

    def log_weights(self) -> Tensor:
        return self.logits * self.released


class LearntDepthByEm(OneShotMethod):
    """The learnt-depth network whose q takes a natural-gradient step towards the exact posterior after every epoch.

    The ELBO's maximiser over q for given weights is q_i ∝ β_i exp(N·ℓ_i), with ℓ_i the mean training log-likelihood at
    depth i. The step is logits ← (1 − ρ)·logits + ρ·(log β + N·ℓ), ρ = 1 / (1 + memory × most epochs); weights follow
    the ELBO by gradient. In a warm-up q stays uniform: without one, deep networks collapse to the first depths that
    learn. The logits move from the first epoch on. If they were zero when the warm-up ends (`from_start=false`, as it
    was at first), one epoch would decide: where the loss happens to jump in that epoch, q falls on a shallow depth, and
    no other depth learns any more. Dempster, Laird, Rubin: EM, 1977; Antorán et al., 2020 (their code has the warm-up).
    Stops no trial early. Labels: the training set's; depth by the space's rule on q.
    """

    is_posterior: ClassVar[bool] = True
    full_name: ClassVar[str] = "learnt-depth network with exact E-steps"
    colour: ClassVar[str] = "#8C2D04"

    memory: Annotated[float, Field(ge=0)] = 0.025
    """Share of the most epochs over which the log-likelihood of each depth is averaged."""
    warm_up: Annotated[float, Field(ge=0, lt=1)] = 0.25
    """Share of the most epochs in which q stays uniform."""
    from_start: Annotated[bool, Later(before=False)] = True
    """Whether log-likelihoods are averaged from the first epoch on; else from the end of the warm-up on."""

    def weights(self, log_beta: Tensor) -> WeightsByLikelihood:
        return HeldWeights(log_beta) if self.from_start else WeightsByLikelihood(log_beta)

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """ELBO per sample, as the LDN's: Σ_i q_i ℓ_i − KL(q ‖ β) / n_train; q is given."""
        log_likelihoods = net.log_likelihood_per_depth(x, y)
        _weights(net).saw(log_likelihoods, len(y))
        return net.posterior.log_q().exp() @ log_likelihoods - net.posterior.kl() / n_train

    @torch.no_grad()
    def after_epoch(self, net: OneShotNet, epoch: Epoch, validation: object) -> None:
        """logits ← (1 − ρ)·logits + ρ·(log β + N·ℓ)."""
        q = _weights(net)
        exact = q.log_beta + epoch.n_train * q.take_mean()
        if self.settled(epoch) or self.from_start:
            q.logits.lerp_(exact, 1 / (1 + self.memory * epoch.of))
        if isinstance(q, HeldWeights) and self.settled(epoch):
            q.released.fill_(1)

    def settled(self, epoch: Epoch) -> bool:
        return epoch.number > self.warm_up * epoch.of


def _weights(net: OneShotNet) -> WeightsByLikelihood:
    assert isinstance(net.posterior, WeightsByLikelihood)
    return net.posterior
