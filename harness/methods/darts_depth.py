"""DARTS over depths: weights on the training loss, the mixture of depths on the validation loss."""

from collections.abc import Callable
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import SetWeights
from harness.models.one_shot import Batch, OneShotNet
from harness.schema.records import Validation
from harness.schema.settings import Rule

BETA_1, BETA_2, EPSILON = 0.5, 0.999, 1e-8  # of Adam, as DARTS has them


class Mixture(SetWeights):
    """Logits that Adam moves; its moments are buffers, so that a checkpoint has them."""

    mean: Tensor
    square: Tensor
    steps: Tensor

    def __init__(self, log_beta: Tensor) -> None:
        super().__init__(log_beta)
        self.register_buffer("mean", torch.zeros_like(log_beta))
        self.register_buffer("square", torch.zeros_like(log_beta))
        self.register_buffer("steps", torch.zeros((), device=log_beta.device))

    def ascend(self, gradient: Tensor, rate: float) -> None:
        """One step of Adam (Kingma, Ba, 2015)."""
        self.steps.add_(1)
        self.mean.lerp_(gradient, 1 - BETA_1)
        self.square.lerp_(gradient.square(), 1 - BETA_2)
        mean, square = self.mean / (1 - BETA_1**self.steps), self.square / (1 - BETA_2**self.steps)
        self.logits.add_(rate * mean / (square.sqrt() + EPSILON))


class DartsDepth(OneShotMethod):
    """Differentiable architecture search over depths: a softmax over depths is fitted to the validation set.

    Weights and softmax take turns, step by step (first order): SGD on the training batch for the weights, Adam on a
    validation batch for the softmax. The depth with the largest weight is kept and predicts alone; `--refit` trains it
    again, as DARTS does. Liu, Simonyan, Yang: DARTS, ICLR 2019. Stops no trial early. Labels: the training set's for
    the weights, validation's for the softmax.
    """

    validation: ClassVar[Validation] = "fits"
    full_name: ClassVar[str] = "differentiable architecture search over depths"
    colour: ClassVar[str] = "#7F3C8D"

    rate: Annotated[float, Field(gt=0)] = 0.01
    """Learning rate of Adam, which moves the softmax over depths."""

    def weights(self, log_beta: Tensor) -> Mixture:
        return Mixture(log_beta)

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """Σ_i q_i ℓ_i on the training batch; q is given."""
        return net.posterior.log_q().exp() @ net.log_likelihood_per_depth(x, y)

    @torch.no_grad()  # the softmax's gradient has a closed form, so that none can reach the weights
    def after_step(self, net: OneShotNet, validation: Callable[[], Batch]) -> None:
        """∂/∂logit_j Σ_i q_i ℓ_i = q_j (ℓ_j − Σ_i q_i ℓ_i), ℓ on the validation batch in evaluation mode."""
        mixture = net.posterior
        assert isinstance(mixture, Mixture)
        net.eval()
        log_likelihoods = net.log_likelihood_per_depth(*validation())
        net.train()
        q = mixture.log_q().exp()
        mixture.ascend(q * (log_likelihoods - q @ log_likelihoods), self.rate)

    def choose(self, q: Tensor, val: Tensor | None, rule: Rule) -> int:
        return int(q.argmax())
