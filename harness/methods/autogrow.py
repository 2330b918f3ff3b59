"""A network that grows block by block while validation gains from it."""

import math
from collections.abc import Callable
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import DepthWeights
from harness.models.one_shot import Batch, Epoch, OneShotNet
from harness.schema.records import Validation

SMOOTHING = 0.5  # of the validation value: the share of the newest


class GrownSoFar(DepthWeights):
    """All weight on the depth that is grown; what growth goes by is in buffers, so that a checkpoint has it."""

    depth: Tensor
    smoothed: Tensor
    best: Tensor
    vain: Tensor
    this_epochs: int | None = None  # depth, as read from the device

    def __init__(self, log_beta: Tensor) -> None:
        super().__init__(log_beta)
        self.register_buffer("depth", torch.zeros((), dtype=torch.int64))
        self.register_buffer("smoothed", torch.tensor(-math.inf))  # validation log-likelihood
        self.register_buffer("best", torch.tensor(-math.inf))  # the smoothed value that growth last gained
        self.register_buffer("vain", torch.zeros((), dtype=torch.int64))  # blocks since then

    def log_weights(self) -> Tensor:
        nowhere = torch.full_like(self.log_beta, -math.inf)
        return nowhere.scatter(0, self.depth[None], 0.0)

    def known_depth(self) -> int:
        """The depth that is grown. It changes between epochs, and a step must not wait for the device to say it."""
        if self.this_epochs is None:
            self.this_epochs = int(self.depth)
        return self.this_epochs


class AutoGrow(OneShotMethod):
    """A network that begins without blocks and gets one every few epochs, until validation no longer gains from it.

    What practitioners do by hand. A new block keeps its random initialisation, with its last layer scaled down, so that
    its output begins near zero. Growth ends when `patience` blocks in a row raised the smoothed validation
    log-likelihood by less than `threshold`; then the network is trained on. Blocks not grown yet are not run. Wen et
    al.: AutoGrow, KDD 2020. Stops no trial early. Labels: the training set's, and validation's for growth.
    """

    validation: ClassVar[Validation] = "fits"
    colour: ClassVar[str] = "#6B8E23"
    ranks_depths: ClassVar[bool] = False

    every: Annotated[float, Field(gt=0, le=1)] = 0.025
    """Share of the most epochs between two blocks."""
    threshold: Annotated[float, Field(ge=0)] = 0.01
    """The least gain of the smoothed validation log-likelihood that counts, in nats."""
    patience: Annotated[int, Field(gt=0)] = 4
    """Blocks in a row without such a gain after which growth ends."""
    scale: Annotated[float, Field(ge=0)] = 0.1
    """What a new block's last layer is multiplied by."""

    def weights(self, log_beta: Tensor) -> GrownSoFar:
        return GrownSoFar(log_beta)

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """ℓ_d at the depth d that is grown."""
        return net.log_likelihood_at(x, y, (_grown(net).known_depth(),))[0]

    @torch.no_grad()
    def after_epoch(self, net: OneShotNet, epoch: Epoch, validation: Callable[[], Batch]) -> None:
        """Smooths the validation value; after every `every` epochs decides on the next block."""
        grown, depth = _grown(net), _grown(net).known_depth()
        grown.this_epochs = None
        if depth == net.max_depth or int(grown.vain) >= self.patience:
            return
        net.eval()
        value = net.log_likelihood_at(*validation(), (depth,))[0]
        net.train()
        grown.smoothed.copy_(value if grown.smoothed.isinf() else grown.smoothed.lerp(value, SMOOTHING))
        if epoch.number % max(1, round(self.every * epoch.of)):
            return
        gains = bool(grown.smoothed > grown.best + self.threshold)
        grown.vain.copy_(torch.zeros_like(grown.vain) if gains else grown.vain + 1)
        grown.best.copy_(torch.maximum(grown.best, grown.smoothed))
        if int(grown.vain) < self.patience:
            self._add_block(net, grown, depth)

    def _add_block(self, net: OneShotNet, grown: GrownSoFar, depth: int) -> None:
        net.network.shrink(net.backbone.blocks[depth], self.scale)
        grown.depth.add_(1)


def _grown(net: OneShotNet) -> GrownSoFar:
    assert isinstance(net.posterior, GrownSoFar)
    return net.posterior
