"""Deep supervision: every depth is an exit, all count the same."""

from typing import ClassVar

from torch import Tensor

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import SetWeights
from harness.models.one_shot import OneShotNet
from harness.schema.records import Validation


class Exits(OneShotMethod):
    """One network with an exit at every depth, all trained with equal weight; the best exit on validation is kept.

    The baseline of early-exit networks. Lee et al.: Deeply-Supervised Nets, AISTATS 2015; Teerapittayanon et al.:
    BranchyNet, ICPR 2016. Stops no trial early. Labels: the training set's, and validation's for the choice of depth.
    """

    validation: ClassVar[Validation] = "chooses"
    colour: ClassVar[str] = "#B8860B"

    def weights(self, log_beta: Tensor) -> SetWeights:
        return SetWeights(log_beta)

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """1/(D+1) · Σ_i ℓ_i, with ℓ_i = mean_n log p(y_n | x_n, d=i)."""
        return net.log_likelihood_per_depth(x, y).mean()
