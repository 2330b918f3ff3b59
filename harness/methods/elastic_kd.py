"""An elastic network whose random depth learns from the deepest one's predictions."""

from typing import ClassVar

import torch
from torch import Tensor

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import SetWeights
from harness.models.one_shot import OneShotNet, log_probs_of
from harness.schema.records import Validation


class ElasticByDistillation(OneShotMethod):
    """An elastic network with in-place distillation: D learns from labels, a random depth from what D predicts.

    Each step trains D on the labels and one random depth r < D on D's predictions, through which no gradient goes.
    Yu, Huang: Universally Slimmable Networks, ICCV 2019, with depths in place of widths. Stops no trial early. Labels:
    the training set's, and validation's for the choice of depth.
    """

    validation: ClassVar[Validation] = "chooses"
    full_name: ClassVar[str] = "elastic network with in-place distillation"
    colour: ClassVar[str] = "#7B2D3B"

    def weights(self, log_beta: Tensor) -> SetWeights:
        return SetWeights(log_beta)

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """½ · ℓ_D + ½ · mean_n Σ_c p_D(c | x_n) log p_r(c | x_n), r uniform over 0…D−1, p_D without gradient."""
        drawn = int(torch.randint(net.max_depth, (), generator=net.random))
        log_probs = net.log_probs_at(x, (drawn, net.max_depth))
        student, teacher = log_probs.unbind()
        distilled = (teacher.detach().exp() * student).sum(dim=-1)
        return (log_probs_of(log_probs[1:], y)[0] + distilled).mean() / 2
