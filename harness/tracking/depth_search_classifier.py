"""The code inside a logged model: rows in, the probability of each class out.

This file is copied into every model, beside the file of the network (`depth_search_network.py`) and copies of the two
files of this package which that imports, so that it works where the package is not. It imports nothing of it.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import torch
from mlflow.models import Model
from torch import Tensor, nn

BATCH = 4096  # rows


class ClassProbabilities:
    """Takes rows as they are in the data set: features (N, F), images (N, H, W, C), or of a table a DataFrame."""

    def __init__(self, network: nn.Module, classes: Sequence[str], row_shape: Sequence[int], columns: Any) -> None:
        self.network = network  # normalises; gives log-probabilities
        self.classes, self.row_shape, self.columns = list(classes), tuple(row_shape), columns

    def predict(self, rows: Any) -> pd.DataFrame:
        """The probability of each class, under its name, for every row."""
        index = rows.index if isinstance(rows, pd.DataFrame) else None
        values = features_of(rows, self.columns) if index is not None and self.columns else np.asarray(rows)
        if values.shape[1:] != self.row_shape or not len(values):
            expected = ", ".join(map(str, self.row_shape))
            raise ValueError(f"rows must have shape (N, {expected}), N at least 1; got {values.shape}")
        parts = torch.from_numpy(values.astype(np.float32)).split(BATCH)
        with torch.inference_mode():
            probabilities = torch.cat([self.network(part).exp() for part in parts])
        return pd.DataFrame(probabilities.numpy(), columns=self.classes, index=index)

    def get_raw_model(self) -> nn.Module:
        """What `get_raw_model()` of a loaded model gives: the torch module, rows in, log-probabilities out."""
        return self.network


class Network(nn.Module):
    """log p(y | x) = log Σ_i q_i p(y | x, d=i) over the depths that the network predicts at; for a fixed depth, one."""

    mean: Tensor
    std: Tensor
    log_q: Tensor

    def __init__(self, backbone: nn.Module, mean: Tensor, std: Tensor, log_q: Tensor) -> None:
        super().__init__()
        self.backbone = backbone
        for name, value in (("mean", mean), ("std", std), ("log_q", log_q)):
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        x = (x.float() - self.mean) / self.std
        log_probs: Tensor = self.backbone(x.permute(0, 3, 1, 2) if x.dim() == 4 else x)  # (K, N, classes)
        return torch.logsumexp(self.log_q[:, None, None] + log_probs, dim=0)


def network_of(content: Mapping[str, Any], settings: Mapping[str, Any], code: Path) -> Network:
    """From what a unit's `model.pt` holds, the settings of its network, and the folder with that network's file."""
    weights = content["weights"]
    logits = weights.get("posterior.logits", torch.zeros(1))
    options = {name: value for name, value in settings.items() if name not in ("kind", "source")}
    network = _network_class(code).model_validate_json(json.dumps(options))
    sizes = {"n_classes": content["n_classes"], "n_blocks": content["d_opt"], "n_heads": len(logits)}
    backbone = network.backbone(tuple(content["sample_shape"]), **sizes)
    own = "backbone."
    backbone.load_state_dict({name.removeprefix(own): each for name, each in weights.items() if name.startswith(own)})
    return Network(backbone, content["mean"], content["std"], torch.log_softmax(logits, dim=0)).eval()


def _network_class(code: Path) -> Any:
    """The class in the network's file. What that imports as `harness…` are the copies beside it, whether there is such
    a package here or not."""
    copies = {"harness.schema.identity": "depth_search_identity.py", "harness.networks.base": "depth_search_base.py"}
    names = ["harness", "harness.schema", "harness.networks", *copies]
    before = {name: sys.modules.pop(name, None) for name in names}
    try:
        for name in names:
            sys.modules[name] = ModuleType(name)
        for name, file in copies.items():
            _run(code / file, sys.modules[name])
        own = sys.modules["depth_search_network"] = ModuleType("depth_search_network")
        _run(code / "depth_search_network.py", own)
        base: Any = sys.modules["harness.networks.base"]
        classes = [each for each in vars(own).values() if isinstance(each, type) and each.__module__ == own.__name__]
        return next(each for each in classes if issubclass(each, base.Network))
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module


def _run(path: Path, module: ModuleType) -> None:
    module.__file__ = str(path)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(module))


def features_of(frame: pd.DataFrame, columns: Sequence[Mapping[str, Any]]) -> Any:
    """A number as it is, or the training rows' median in its place; a category as 1 among 0s."""
    import pyarrow
    import pyarrow.compute
    import pyarrow.types

    names = [column["name"] for column in columns]
    if absent := [name for name in names if name not in frame.columns]:
        raise ValueError(f"the rows must have the columns of the table that was trained on; they lack {absent}")
    table = pyarrow.Table.from_pandas(frame[names], preserve_index=False)
    parts = []
    for column in columns:
        values = table.column(column["name"])
        if column["categories"] is not None:
            if pyarrow.types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
            known = pyarrow.array([column["categories"][number] for number in column["kept"]], pyarrow.string())
            found = pyarrow.compute.index_in(values.cast(pyarrow.string()), value_set=known)
            position = np.asarray(found.cast(pyarrow.float32()).to_numpy())
            parts.append(position[:, None] == np.arange(len(known)))
        else:
            numbers = np.asarray(values.cast(pyarrow.float64(), safe=False).to_numpy(), dtype=np.float32)
            missing = np.isnan(numbers)
            if column["median"] is None and missing.any():
                raise ValueError(
                    f"column {column['name']!r} must have a value in every row; it is missing in {missing.sum()}"
                )
            parts.append(np.where(missing, np.float32(column["median"] or 0.0), numbers)[:, None])
    return np.concatenate(parts, axis=1, dtype=np.float32)


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> ClassProbabilities:
    """Called by `mlflow.pyfunc.load_model` with the file of the network, in a folder of the model's."""
    root = Path(path).parent.parent
    about = Model.load(str(root)).metadata or {}
    content = torch.load(path, map_location="cpu", weights_only=True)
    network = network_of(content, about["network"], root / "code")
    return ClassProbabilities(network, about["classes"], about["row_shape"], about["columns"])
