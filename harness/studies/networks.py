"""The trained networks of a study, from their checkpoints, and the functions they compute at every depth."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from harness.data import load_training_data
from harness.data.splits import Array, TrainingData
from harness.models import DepthNet, OneShotNet
from harness.networks.base import Backbone
from harness.running.ledger import Suggested
from harness.running.messages import checkpoint_key
from harness.running.store import UnitFolder
from harness.schema.records import Unit
from harness.training.checkpoints import CheckpointStore
from harness.training.train import best_network

CLASS = 1  # whose probability is shown


@dataclass(frozen=True)
class TrainedNetwork:
    network: DepthNet
    data: TrainingData
    d_opt: int

    def per_depth(self, x: Array) -> Array:
        """p(class 1 | x) at every depth 0…D: the output block on the activations after each block. (D+1, N)"""
        backbone = self.network.backbone
        readouts = [backbone.readouts[0]] * (len(backbone.blocks) + 1)
        every_depth = Backbone(backbone.stem, list(backbone.blocks), readouts, backbone.head)
        with torch.inference_mode():
            return _probability(every_depth(self._inputs(x)))

    def marginal(self, x: Array) -> Array:
        """p(class 1 | x) of the learnt-depth network pruned to d_opt: its depths 0…d_opt, weighted. (N,)"""
        assert isinstance(self.network, OneShotNet)
        with torch.inference_mode():
            return _probability(self.network.pruned(self.d_opt)(self._inputs(x)))

    def _inputs(self, x: Array) -> Tensor:
        return torch.from_numpy(((x - self.data.mean) / self.data.std).astype(np.float32))


def load_network(unit: Unit | None, out: Path, storage: str) -> TrainedNetwork | None:
    """The network that a unit chose; None where it was not trained or its checkpoint is gone."""
    if unit is None or unit.result is None:
        return None
    plan = unit.plan
    chosen = next(trial for trial in unit.trials if trial.trial_id == unit.result.chosen_trial)
    events = UnitFolder(out, plan.space.name, plan.method, plan.seed).events()
    suggested = (event for event in events if isinstance(event, Suggested) and event.trial == chosen.trial_id)
    if (begun := next(suggested, None)) is None:
        return None
    config = plan.config_of(chosen)
    data = load_training_data(plan.space.data, plan.seed)
    with CheckpointStore(storage).fetched(checkpoint_key(begun.task.unit, begun.task.trial)) as path:
        if path is None:
            return None
        return TrainedNetwork(best_network(path, config, data, torch.device("cpu")), data, unit.result.d_opt)


def _probability(log_probs: Tensor) -> Array:
    probability: Array = log_probs[..., CLASS].exp().numpy()
    return probability
