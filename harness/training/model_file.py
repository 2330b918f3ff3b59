"""`model.pt`: the network a unit hands over, with what is needed to build and feed it."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness.data.columns import Column
from harness.data.splits import TrainingData
from harness.errors import UserError
from harness.models import ChosenNet, DepthMixture, FixedDepthNet
from harness.models.build import build_backbone
from harness.models.depth_posterior import DepthPosterior
from harness.networks import make_known
from harness.networks.base import Network
from harness.schema.networks import NetworkSettings, OwnNetwork
from harness.schema.records import TrialConfig
from harness.schema.upgrade import upgraded_model


class HandedOver(nn.Module):
    """Takes rows as they are in the data set, features (N, F) or images (N, H, W, C); gives class log-probabilities."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: ChosenNet,
        settings: NetworkSettings,
        mean: Tensor,
        std: Tensor,
        row_shape: tuple[int, ...],
        class_names: tuple[str, ...],
        columns: tuple[Column, ...],
    ) -> None:
        super().__init__()
        self.network = network
        self.settings = settings
        self.row_shape = row_shape
        self.class_names = class_names
        self.columns = columns  # of a table, whose features the rows are; empty for other data
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x: Tensor) -> Tensor:
        x = (x.float() - self.mean) / self.std
        log_probs: Tensor = self.network(x.permute(0, 3, 1, 2) if x.dim() == 4 else x)
        return log_probs


def save_model(path: Path, network: ChosenNet, d_opt: int, config: TrialConfig, data: TrainingData) -> None:
    """Weights of the chosen (pruned) `network` and plain values; nothing that would need unpickling."""
    content = {
        "config": config.model_dump_json(),
        "d_opt": d_opt,
        "averages_depths": isinstance(network, DepthMixture),
        "sample_shape": data.sample_shape,
        "n_classes": data.n_classes,
        "class_names": list(data.class_names),
        "columns": [column.model_dump_json() for column in data.columns],
        "mean": torch.from_numpy(data.mean.copy()),
        "std": torch.from_numpy(data.std.copy()),
        "weights": {name: tensor.cpu() for name, tensor in network.state_dict().items()},
    }
    with path.open("wb") as file:  # by its path torch would write the file's name into it: other bytes, another hash
        torch.save(content, file)


def unpacked(path: Path, device: torch.device | str = "cpu") -> Any:
    """What a file of ours holds: tensors and plain values. Nothing else is unpickled, and torch says nothing about it;
    it raises many kinds of errors for a file that is none.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.load(path, map_location=device, weights_only=True)


def read_model(path: Path) -> tuple[TrialConfig, dict[str, Any]]:
    """What a model.pt holds; no code is run."""
    with _explained(path):
        content = unpacked(path)
        config = TrialConfig.model_validate_json(content["config"])
        return config, upgraded_model(content, config)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Torch, pydantic and we ourselves raise many kinds for a file that is no model; torch advises to unpickle it."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{path} holds no network of the harness, and nothing of it was run ({type(error).__name__}); take the "
            "model.pt that a run has left"
        ) from None


def load_model(path: Path, trust_code: bool = False, network_class: type[Network] | None = None) -> HandedOver:
    """`trust_code` runs the network.py beside it, where the network is a user's own; or that is its class."""
    config, content = read_model(path)
    if isinstance(config.network, OwnNetwork):
        make_known(config.network, path, trust_code, network_class)
    with _explained(path):
        return _built(config, content)


def _built(config: TrialConfig, content: dict[str, Any]) -> HandedOver:
    d_opt, averages = content["d_opt"], content["averages_depths"]
    if not 0 <= d_opt <= len(content["weights"]):  # before so many blocks are built
        raise ValueError(f"d_opt {d_opt}")
    shapes = tuple(content["sample_shape"]), content["n_classes"]
    backbone = build_backbone(config.network, *shapes, n_blocks=d_opt, n_heads=d_opt + 1 if averages else 1)
    network = DepthMixture(backbone, DepthPosterior(torch.zeros(d_opt + 1))) if averages else FixedDepthNet(backbone)
    network.load_state_dict(content["weights"])
    channels, *size = content["sample_shape"]
    return HandedOver(
        network,
        config.network,
        content["mean"],
        content["std"],
        row_shape=(*size, channels),
        class_names=tuple(content["class_names"]),
        columns=tuple(Column.model_validate_json(column) for column in content["columns"]),
    ).eval()
