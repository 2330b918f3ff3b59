"""A deep network that is cut where its activations stop changing, and healed by training the rest on."""

import math
from collections.abc import Callable
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from harness.methods.base import OneShotMethod
from harness.models.depth_posterior import DepthWeights
from harness.models.one_shot import Batch, Epoch, OneShotNet
from harness.schema.settings import Rule
from harness.schema.stage import Then


class CutByDistance(DepthWeights):
    """All weight on the depth of the cut; the distances that it goes by are a buffer, so that a checkpoint has them."""

    distances: Tensor
    seen: Tensor | None = None  # the last mini-batch of the epoch, on which they are measured

    def __init__(self, log_beta: Tensor, threshold: float) -> None:
        super().__init__(log_beta)
        self.threshold = threshold
        untrained = torch.ones_like(log_beta)
        untrained[-1] = 0.0
        self.register_buffer("distances", untrained)

    def log_weights(self) -> Tensor:
        """min {i : distance_i < threshold}; at the last depth the distance is 0."""
        at = (self.distances < self.threshold).int().argmax()
        return torch.full_like(self.log_beta, -torch.inf).scatter(0, at[None], 0.0)


class PruneHeal(OneShotMethod):
    """The deepest network, cut at the first depth whose activations point where the last ones do, then fine-tuned.

    distance_i = arccos(a_i·a_D / (|a_i| |a_D|)) / π, mean over the rows of the epoch's last mini-batch, with a_i as the
    output block gets it; the cut is min {i : distance_i < threshold}. It is healed as any one-shot is fine-tuned
    (then=finetune), unless told otherwise. Gromov et al.: The Unreasonable Ineffectiveness of the Deeper Layers, ICLR
    2025. Stops no trial early. Labels: the training set's.
    """

    colour: ClassVar[str] = "#3A5FCD"
    ranks_depths: ClassVar[bool] = False

    then: Then = "finetune"
    """What follows the cut; null: it is handed over as it is."""
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Distance below which activations count as those of the last depth: 0.2 is an angle of 36 degrees."""

    def weights(self, log_beta: Tensor) -> CutByDistance:
        return CutByDistance(log_beta, self.threshold)

    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        """ℓ_D, as a search trains its deepest network."""
        _cut(net).seen = x
        return net.log_likelihood_at(x, y, (net.max_depth,))[0]

    @torch.no_grad()
    def after_epoch(self, net: OneShotNet, epoch: Epoch, validation: Callable[[], Batch]) -> None:
        where = _cut(net)
        assert where.seen is not None
        net.eval()
        where.distances.copy_(distances(net.features_per_depth(where.seen)))
        net.train()

    def choose(self, q: Tensor, val: Tensor | None, rule: Rule) -> int:
        return int(q.argmax())

    def validated(self, q: Tensor, val: Tensor | None, rule: Rule) -> int:
        return len(q) - 1


def distances(features: Tensor) -> Tensor:
    """Mean angle between the features at each depth and the deepest ones, ÷ π: (D+1, N, C) → (D+1,)."""
    wide = features.double()  # an angle of nearly 0 has a cosine of nearly 1
    cosine = torch.cosine_similarity(wide, wide[-1:], dim=-1).clamp(-1, 1)
    found = cosine.arccos().mean(dim=1) / math.pi
    found[-1] = 0.0
    return found.to(features.dtype)


def _cut(net: OneShotNet) -> CutByDistance:
    assert isinstance(net.posterior, CutByDistance)
    return net.posterior
