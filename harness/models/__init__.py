"""What networks are made of: the residual backbone, the distribution over depths, a fixed and a learnt depth."""

from harness.models.fixed_depth import FixedDepthNet
from harness.models.one_shot import OneShotNet

DepthNet = OneShotNet | FixedDepthNet

__all__ = ["DepthNet", "FixedDepthNet", "OneShotNet"]
