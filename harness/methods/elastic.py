"""An elastic network: every step trains one random depth and the deepest."""

from typing import ClassVar

import torch
from torch import Tensor

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import SetWeights
from harness.models.one_shot import OneShotNet
from harness.schema.records import Validation


class Elastic(OneShotMethod):
    """One network from which any depth can be cut: each step trains a random depth and D; validation chooses the cut.

    The sandwich rule, with the shallow end left to chance. Yu, Huang: Universally Slimmable Networks, ICCV 2019; Cai
    et al.: Once-for-All, ICLR 2020. The output block's batch statistics of a depth move only when it is drawn. Stops
    no trial early. Labels: the training set's, and validation's for the choice of depth.
    """

    validation: ClassVar[Validation] = "chooses"
    colour: ClassVar[str] = "#C44E52"

    def weights(self, log_beta: Tensor) -> SetWeights:
        return SetWeights(log_beta)

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """(ℓ_r + ℓ_D) / 2, r uniform over 0…D−1: in expectation 1/(2D) · Σ_{i<D} ℓ_i + ℓ_D / 2."""
        drawn = int(torch.randint(net.max_depth, (), generator=net.random))
        return net.log_likelihood_at(x, y, (drawn, net.max_depth)).mean()
