"""A power posterior over depths: likelihoods count T times instead of N."""

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import WeightsByLikelihood
from harness.models.one_shot import Epoch, OneShotNet
from harness.schema.records import Validation


class Tempered(OneShotMethod):
    """One network trained on all depths, weighted by a power posterior that stays broad; the best depth on validation.

    q_i ∝ β_i exp(T·ℓ_i) with ℓ_i the last epoch's mean training log-likelihood at depth i: the prior for T = 0, the
    exact posterior for T = N (the training set's size), much flatter for T ≪ N. Friel, Pettitt: power posteriors,
    JRSS B 2008. Stops no trial early. Labels: the training set's, and validation's for the choice of depth.
    """

    validation: ClassVar[Validation] = "chooses"
    colour: ClassVar[str] = "#B07AA1"

    temperature: Annotated[float, Field(ge=0)] = 20.0
    """T: 0 leaves the prior, the size of the training set gives the exact posterior."""

    def weights(self, log_beta: Tensor) -> WeightsByLikelihood:
        weights = WeightsByLikelihood(log_beta)
        weights.logits.copy_(log_beta)  # before the first epoch all depths are as likely
        return weights

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """Σ_i q_i ℓ_i; q is given."""
        log_likelihoods = net.log_likelihood_per_depth(x, y)
        _weights(net).saw(log_likelihoods, len(y))
        return net.posterior.log_q().exp() @ log_likelihoods

    @torch.no_grad()
    def after_epoch(self, net: OneShotNet, epoch: Epoch, validation: object) -> None:
        """logits ← log β + T·ℓ."""
        q = _weights(net)
        q.logits.copy_(q.log_beta + self.temperature * q.take_mean())


def _weights(net: OneShotNet) -> WeightsByLikelihood:
    assert isinstance(net.posterior, WeightsByLikelihood)
    return net.posterior
