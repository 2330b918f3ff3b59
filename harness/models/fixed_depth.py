"""The fixed-depth network (DDN): the same backbone with exactly d blocks and one call of the output block."""

from torch import Tensor, nn

from harness.models.one_shot import log_probs_of
from harness.models.passes import Passes, count
from harness.networks.base import Backbone


class FixedDepthNet(nn.Module):
    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.trained, self.looked = Passes(), Passes()

    def forward(self, x: Tensor) -> Tensor:
        """log p(y | x): (N, classes)."""
        return self._log_probs(x)[0]

    def objective(self, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """Mean log-likelihood of the labels. To be maximised."""
        return log_probs_of(self._log_probs(x), y).mean()

    def _log_probs(self, x: Tensor) -> Tensor:
        count(self, len(x), (len(self.backbone.blocks),))
        log_probs: Tensor = self.backbone(x)
        return log_probs
