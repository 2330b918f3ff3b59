"""One-shot depth search: a single learnt-depth network, its posterior over depths trained by gradient."""

from typing import ClassVar

from torch import Tensor

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import DepthPosterior, log_prior
from harness.models.one_shot import OneShotNet
from harness.models.resnet import Backbone
from harness.spaces import PosteriorSettings


class LearntDepthNet(OneShotNet):
    """Weights and q(d) trained together by an ELBO that is exact in one forward pass."""

    def objective(self, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """ELBO per sample: mean_n Σ_i q_i log p(y_n | x_n, d=i) − KL(q ‖ β) / n_train. To be maximised."""
        log_likelihoods = self.log_likelihood_per_depth(x, y)  # (D+1,)
        return self.posterior.log_q().exp() @ log_likelihoods - self.posterior.kl() / n_train


class LearntDepth(OneShotMethod):
    """The learnt-depth network as a single trial: weights and a posterior over depths 0…D from one training run.

    Antorán, Allingham, Hernández-Lobato: Variational Depth Search in ResNets, 2020. Stops no trial early.
    """

    colour: ClassVar[str] = "#D55E00"

    def network(self, backbone: Backbone, posterior: PosteriorSettings) -> LearntDepthNet:
        return LearntDepthNet(backbone, DepthPosterior(log_prior(posterior.prior, len(backbone.blocks))))
