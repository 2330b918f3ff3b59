"""`import torchvision` with a torch that it was not built for.

The registry's torchvision is built against CUDA. With a CPU-only torch its C++ operators do not load, and its import
fails while it registers shape functions for `nms` and `qnms`, which then do not exist. Data sets need neither, so after
such a failure the two names are declared (schema only, nothing behind them) and the import is tried again. It has to be
in this order: names declared before operators that do load would clash with them.
"""

import importlib
from typing import Any

import torch

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def torchvision_datasets() -> Any:
    """The module `torchvision.datasets`, imported on demand: it takes a second that other data need not pay."""
    try:
        return importlib.import_module("torchvision.datasets")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            torch.library.define(f"torchvision::{operator}", _BOXES)
    return importlib.import_module("torchvision.datasets")
