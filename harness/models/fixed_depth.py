"""The fixed-depth network (DDN): the same backbone with exactly d blocks and one call of the output block."""

from torch import Tensor, nn

from harness.models.one_shot import log_probs_of
from harness.models.resnet import Backbone


class FixedDepthNet(nn.Module):
    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, x: Tensor) -> Tensor:
        """log p(y | x): (N, classes)."""
        log_probs: Tensor = self.backbone(x)[0]
        return log_probs

    def objective(self, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """Mean log-likelihood of the labels. To be maximised."""
        return log_probs_of(self.backbone(x), y).mean()
