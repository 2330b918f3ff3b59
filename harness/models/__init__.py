"""What networks are made of: the residual backbone, weights over depths, a fixed and a learnt depth."""

from harness.models.fixed_depth import FixedDepthNet
from harness.models.one_shot import DepthMixture, OneShotNet

DepthNet = OneShotNet | FixedDepthNet  # as it is trained
ChosenNet = DepthMixture | FixedDepthNet  # as it is handed over

__all__ = ["ChosenNet", "DepthMixture", "DepthNet", "FixedDepthNet", "OneShotNet"]
