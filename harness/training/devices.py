"""On which device a trial trains."""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator

import torch

from harness.data.memory import available_bytes
from harness.errors import UserError
from harness.schema.settings import Precision, TrainingSettings

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


def check_usable() -> None:
    """Raises UserError where torch sees no GPU: what is missing, and where to get it."""
    if torch.cuda.is_available():
        return
    if torch.version.cuda is None:
        why = f"torch {torch.__version__} is built without CUDA"
        remedy = "install a CUDA build of the same version (https://pytorch.org/get-started/locally)"
    elif os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        why, remedy = "CUDA_VISIBLE_DEVICES is empty, which hides all GPUs", "unset it"
    elif driver_version() is None:
        why, remedy = "nvidia-smi finds no driver", "install the NVIDIA driver, and check the machine with nvidia-smi"
    else:
        why = f"driver {driver_version()} does not serve torch's CUDA {torch.version.cuda}"
        remedy = "install a newer driver, or a build of torch for an older CUDA"
    raise UserError(f"no GPU can be used on {socket.gethostname()}: {why}; {remedy}")


def driver_version() -> str | None:
    """As nvidia-smi says it; None where it does not run."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.split()), None)


def device_of_trial(gpus: float) -> torch.device:
    """Where a trial trains that Ray gave so many GPUs."""
    if gpus == 0 or os.environ.get(LOGICAL_GPUS):
        return torch.device("cpu")
    check_usable()
    return torch.device("cuda")


def wait_for(device: torch.device) -> None:
    """Until what was asked of a GPU is done: else its time would be taken for that of whatever comes next."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize(device)


def start(device: torch.device, share: float) -> None:
    """Brings a GPU up before a trial's clock runs: CUDA's context and libraries belong to the start of its worker.

    Of a GPU that several trials share, each may take its share of the memory; the cache of the trial before is emptied.
    """
    if device.type == "cpu":
        return
    os.environ.setdefault(*CUBLAS_WORKSPACE)
    backend = torch.get_device_module(device)
    if share < 1:
        backend.set_per_process_memory_fraction(share, device)
    backend.empty_cache()
    ones = torch.ones(1, 1, 8, 8, device=device)
    torch.nn.functional.conv2d(ones, ones) @ ones.flatten(2)  # loads cuDNN and cuBLAS
    wait_for(device)


@contextlib.contextmanager
def threads(number: int) -> Iterator[None]:
    """Computes with so many threads inside the block. Small networks on more only wait for each other's."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def memory_for(device: torch.device, share: float) -> int | None:
    """Bytes that a trial with this share of a device may take; None where nobody knows. Takes none itself."""
    if device.type == "cpu":
        return available_bytes()
    return int(share * torch.get_device_module(device).get_device_properties(device).total_memory)


def prepare(device: torch.device, settings: TrainingSettings) -> None:
    """Switches of the process that a trial's numbers depend on, all of them: a worker's last trial may have set others.

    `deterministic` on CUDA: cuDNN's and cuBLAS's repeatable algorithms, and an error where torch has none.
    """
    settings.check_device(device.type != "cpu")
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
