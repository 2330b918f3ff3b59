"""A unit's network, ready to use: NumPy rows in, classes or probabilities out."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.data import table
from harness.data.columns import features_of
from harness.data.on_device import EVAL_BATCH
from harness.data.splits import Array
from harness.errors import UserError
from harness.networks.base import Network
from harness.text.shown import counted
from harness.training.model_file import HandedOver, load_model


class Predictor:
    """Takes rows as they are in the data set: features (N, F), images (N, H, W, C), or of a table a pandas DataFrame.

    Normalises them itself.
    """

    def __init__(self, network: HandedOver) -> None:
        self.network = network  # a torch module that gives class log-probabilities

    @classmethod
    def load(cls, path: Path | str, *, trust_code: bool = False, network: type[Network] | None = None) -> "Predictor":
        """From a unit's `model.pt`. Where the network is a user's own, its code is run only if `trust_code` says so
        (the network.py beside it), or its class is given as `network`."""
        return cls(load_model(Path(path), trust_code, network))

    def predict(self, x: Any) -> Array:
        """The most probable class of every row, as its index in `class_names`."""
        return np.asarray(self.predict_proba(x).argmax(axis=1))

    def predict_names(self, x: Any) -> Array:
        """The most probable class of every row, as the data set calls it."""
        return np.array(self.class_names)[self.predict(x)]

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of their probabilities."""
        return self.network.class_names

    def predict_proba(self, x: Any) -> Array:
        """The probability of every class, (N, classes)."""
        columns = self.network.columns
        rows = features_of(columns, table.rows_of(x, columns)) if columns and hasattr(x, "columns") else np.asarray(x)
        expected = self.network.row_shape
        if rows.shape[1:] != expected:
            raise UserError(f"rows must have shape (N, {', '.join(map(str, expected))}); got {rows.shape}")
        if not len(rows):
            raise UserError("there must be at least one row to predict; got none")
        with torch.inference_mode():
            parts = [self.network(part).exp() for part in torch.from_numpy(rows).split(EVAL_BATCH)]
        return np.asarray(torch.cat(parts))

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.network.row_shape))
        return f"<network of {counted(len(self.network.network.backbone.blocks), 'block')}, takes rows (N, {shape})>"
