"""On which device a trial trains."""

import os

import torch

from harness.errors import UserError
from harness.spaces import Precision, TrainingSettings

AUTOCAST: dict[Precision, torch.dtype | None] = {
    "float32": None,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
CUBLAS_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read once, when CUDA starts; without it sums vary
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


def start(device: torch.device, share: float) -> None:
    """Brings a GPU up before a trial's clock runs: CUDA's context and libraries belong to the start of its worker.

    Of a GPU that several trials share, each may take its share of the memory; the cache of the trial before is emptied.
    """
    if device.type != "cuda":
        return
    os.environ.setdefault(*CUBLAS_WORKSPACE)
    if share < 1:
        torch.cuda.set_per_process_memory_fraction(share, device)
    torch.cuda.empty_cache()
    ones = torch.ones(1, 1, 8, 8, device=device)
    torch.nn.functional.conv2d(ones, ones) @ ones.flatten(2)  # loads cuDNN and cuBLAS
    torch.cuda.synchronize(device)


def prepare(device: torch.device, settings: TrainingSettings) -> None:
    """Switches of the process that a trial's numbers depend on, all of them: a worker's last trial may have set others.

    `deterministic` on CUDA: cuDNN's and cuBLAS's repeatable algorithms, and an error where torch has none.
    """
    settings.check_device(device.type == "cuda")
    if device.type == "cuda":
        _check_precision(device, settings.precision)
        os.environ.setdefault(*CUBLAS_WORKSPACE)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = settings.tf32
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = settings.deterministic
    if torch.are_deterministic_algorithms_enabled() != settings.deterministic:  # the call imports torch's compiler
        torch.use_deterministic_algorithms(settings.deterministic)


def _check_precision(device: torch.device, precision: Precision) -> None:
    if precision == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise UserError(
            f"training.precision bfloat16 needs a GPU that computes in it; {torch.cuda.get_device_name(device)} only "
            "emulates it, slowly; use float16 or float32"
        )
