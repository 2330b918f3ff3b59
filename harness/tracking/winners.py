"""The winner of a unit, from its `model.pt`."""

from collections.abc import Callable
from pathlib import Path

import torch

from harness.records import Unit
from harness.running.store import UnitFolder
from harness.tracking.models import Winner
from harness.training.model_file import load_model


def winner_in(out: Path) -> Callable[[Unit], Winner | None]:
    """Looks a unit's winner up in the results folder; None where there is no model."""

    def winner(unit: Unit) -> Winner | None:
        path = UnitFolder(out, unit.plan.space.name, unit.plan.method, unit.plan.seed).model_path
        if not path.exists():
            return None
        model = load_model(path)
        features = tuple(name for column in model.columns for name in column.feature_names)
        return Winner(model, torch.zeros(2, *model.row_shape), model.class_names, features)

    return winner
