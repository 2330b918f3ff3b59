"""Which machine, device, versions and code the numbers come from."""

import functools
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import torch

import harness
from harness.schema.records import Environment
from harness.schema.settings import TrainingSettings


def environment(device: torch.device, settings: TrainingSettings) -> Environment:
    return Environment(
        harness=harness.__version__,
        code=code_version(),
        python=platform.python_version(),
        torch=torch.__version__,
        ray=_installed("ray"),
        optuna=_installed("optuna"),
        machine=_processor(),
        device="cpu" if device.type == "cpu" else torch.get_device_module(device).get_device_name(device),
        threads=torch.get_num_threads(),
        tf32=settings.tf32 and device.type == "cuda",
        deterministic=settings.deterministic,
    )


@functools.cache
def code_version() -> str:
    """The clone's commit, `+dirty` with local changes; the package's version where there is no clone."""
    folder = Path(harness.__file__).parent  # the whole package

    def git(*args: str) -> str:
        # A run that is killed here must not leave .git/index.lock behind: `status` would write the index if it could.
        command = ["git", "--no-optional-locks", "-C", str(folder), *args]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        if not git("ls-files", "--error-unmatch", "__init__.py"):
            return harness.__version__
        return git("rev-parse", "--short=12", "HEAD") + ("+dirty" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return harness.__version__


@functools.cache
def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
