"""A one-shot network that uses every part of the contract: own weights, own random numbers, hooks and a warm-up."""

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import SetWeights
from harness.models.one_shot import Epoch, OneShotNet


class SeenWeights(SetWeights):
    """Logits that `after_epoch` sets. What must survive a crash is a buffer: the sums since the last epoch."""

    total: Tensor
    times: Tensor

    def __init__(self, log_beta: Tensor) -> None:
        super().__init__(log_beta)
        self.register_buffer("total", torch.zeros_like(log_beta))
        self.register_buffer("times", torch.zeros_like(log_beta))


class FewDepths(OneShotMethod):
    """Each step trains a few depths drawn at random; q follows the log-likelihood that each depth has shown.

    Stops no trial early. Labels: the training set's; depth by the space's rule on q.
    """

    is_posterior: ClassVar[bool] = True  # q stands for p(d | training set)

    draws: Annotated[int, Field(ge=1)] = 3
    """Depths trained in each step."""
    warm_up: Annotated[float, Field(ge=0, lt=1)] = 0.25
    """Share of the most epochs in which q stays uniform."""

    def weights(self, log_beta: Tensor) -> SeenWeights:
        return SeenWeights(log_beta)

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """The mean of l_i over the drawn depths i, each as probable as every other."""
        drawn = torch.randperm(net.max_depth + 1, generator=net.random)[: self.draws]
        depths = sorted(drawn.tolist())  # log_likelihood_at wants them in ascending order
        log_likelihoods = net.log_likelihood_at(x, y, depths)
        q = _weights(net)
        q.total[depths] += log_likelihoods.detach()
        q.times[depths] += 1
        return log_likelihoods.mean()

    @torch.no_grad()
    def after_epoch(self, net: OneShotNet, epoch: Epoch, validation: object) -> None:
        """q moves half of the way to the exact posterior, q_i ~ beta_i exp(N l_i), once the warm-up is over."""
        q = _weights(net)
        exact = q.log_beta + epoch.n_train * q.total / q.times.clamp(min=1)
        if self.settled(epoch) and bool((q.times > 0).all()):
            q.logits.lerp_(exact, 0.5)
            q.total.zero_()
            q.times.zero_()

    def settled(self, epoch: Epoch) -> bool:
        return epoch.number > self.warm_up * epoch.of


def _weights(net: OneShotNet) -> SeenWeights:
    assert isinstance(net.posterior, SeenWeights)
    return net.posterior
