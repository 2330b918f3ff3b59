"""One-shot depth search: a single learnt-depth network, its posterior over depths trained by gradient."""

from typing import ClassVar

from torch import Tensor

from harness.methods.base import OneShotMethod
from harness.models.one_shot import OneShotNet


class LearntDepth(OneShotMethod):
    """The learnt-depth network as a single trial: weights and a posterior over depths 0…D from one training run.

    Antorán, Allingham, Hernández-Lobato: Variational Depth Search in ResNets, 2020. Stops no trial early. Labels: the
    training set's; depth by the space's rule on q.
    """

    is_posterior: ClassVar[bool] = True
    full_name: ClassVar[str] = "learnt-depth network"
    colour: ClassVar[str] = "#D55E00"

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """ELBO per sample, exact in one pass: mean_n Σ_i q_i log p(y_n | x_n, d=i) − KL(q ‖ β) / n_train."""
        log_likelihoods = net.log_likelihood_per_depth(x, y)  # (D+1,)
        return net.posterior.log_q().exp() @ log_likelihoods - net.posterior.kl() / n_train
