"""On which device a trial trains."""

import os

import torch

from harness.errors import UserError

LOGICAL_GPUS = "HARNESS_LOGICAL_GPUS"  # tests of GPU scheduling on a machine without one: train on the CPU instead


def choose_device(name: str) -> torch.device:
    """`auto` takes a GPU when there is one; a device that is not there is an error, not a silent CPU run."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in {"cpu", "cuda"}:
        raise UserError(f"a device is auto, cpu, cuda or cuda:N; got {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device {name!r} is not there: this machine shows {torch.cuda.device_count()} CUDA devices")
    return device


def device_of_trial(gpus: float) -> torch.device:
    """Where a trial trains that Ray gave so many GPUs."""
    if gpus == 0 or os.environ.get(LOGICAL_GPUS):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("Ray gave this trial a GPU, but torch sees none on the node: check the driver and the build")
    return torch.device("cuda")
