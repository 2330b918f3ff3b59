"""How many copies of the data do four concurrent trials hold? Proportional set sizes while all four train.

    python -m benchmarks memory

The memory of four workers and of Ray's object store on Fashion-MNIST (from `HARNESS_DATA_DIR`; made-up images of the
same shape where it is not), less the same on 5,000 of its images, half of them for validation: they fill batches and
evaluation chunks just as all do, so that a worker's own memory is in both. What is left is the other 55,000 images,
held once or several times. Of each process the private pages and its share of the shared memory count. Libraries do
not: how much of them is ours depends on who else has them open. Nor does freed memory that the allocator keeps, up to
64 MB a worker and never twice the same: here it gives freed arrays back at once.
"""

import contextlib
import os
import signal
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from harness.data.on_device import EVAL_BATCH
from harness.methods import parse_methods
from harness.options import RunOptions
from harness.running import runner
from harness.running.side_by_side import SideBySide
from harness.spaces import parse_space

TRIALS = 4
SAMPLES = 8
BATCH = 256
FEW = 5_000  # half of them for validation: more than a training batch, more than an evaluation chunk
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_TRIM_THRESHOLD_": "262144"}  # glibc reads them at its start
SHAPE = (60_000, 28, 28)  # Fashion-MNIST's training set


@dataclass(frozen=True)
class Held:
    """Bytes of four workers: the object store's pages, whoever has touched them, and the workers' private ones."""

    shared: float
    private: float

    @property
    def all(self) -> float:
        return self.shared + self.private


def data_settings(folder: Path, shape: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Fashion-MNIST if its files are there and no other shape is asked for; made-up images else."""
    if shape is None and (Path(os.environ.get("HARNESS_DATA_DIR", "")) / "FashionMNIST" / "raw").is_dir():
        return {"kind": "fashion_mnist"}
    n, *sample = shape or SHAPE
    x, y = np.random.default_rng(0).integers(0, 256, (n, *sample), dtype=np.uint8), np.arange(n) % 10
    np.savez(folder / "made_up.npz", x_train=x, y_train=y, x_test=x[:100], y_test=y[:100])
    return {"kind": "arrays", "path": str(folder / "made_up.npz")}


def held_bytes(data: dict[str, Any], folder: Path) -> Held:
    """Of four trials of a small network in mid-training, at the median of several moments; the run ends after them."""
    space = parse_space(
        {
            "name": "memory",
            "description": "Four trials that would train for ever.",
            "data": data,
            "network": {"kind": "conv", "channels": 4, "bottleneck": 2},
            "depth": {"min": 0, "max": TRIALS - 1},
            "posterior": {"rule": "threshold"},
            "training": {"max_epochs": 1_000_000, "patience": 1_000_000, "batch_size": BATCH},
        },
        source="benchmark",
    )
    options = RunOptions(out=folder, workers=TRIALS, cpus_per_trial=(os.cpu_count() or 1) / TRIALS)
    samples: list[Held] = []

    @contextlib.contextmanager
    def sampling(together: SideBySide) -> Iterator[Callable[[], None]]:
        def look() -> None:
            logs = together.units[0].search_logs()
            if sum(len(log.curve) >= 2 for log in logs) == TRIALS:  # every one has trained and validated
                samples.append(memory_of_workers())
                if len(samples) == SAMPLES:
                    together.stop.by = signal.SIGINT  # asked for long ago: no report is waited for

        yield look

    outcome = runner.run_units(runner.make_units([space], parse_methods("grid"), [0], options), options, show=sampling)
    if len(samples) < SAMPLES:
        raise RuntimeError(f"the trials ended after {len(samples)} samples: {outcome.failures}")
    return Held(statistics.median(s.shared for s in samples), statistics.median(s.private for s in samples))


def memory_of_workers() -> Held:
    shared = private = workers = 0
    for pid in family(os.getpid()):
        with contextlib.suppress(OSError):  # it has ended
            sizes = pss(pid)
            is_trial = Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::ImplicitFunc")
            workers += is_trial
            shared += sizes["Pss_Shmem"]
            private += is_trial * sizes["Pss_Anon"]
    if workers != TRIALS:
        raise RuntimeError(f"{workers} workers run a trial, not {TRIALS}")
    return Held(shared, private)


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    with contextlib.suppress(OSError):
        children = [
            int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()
        ]
        return [pid, *(member for child in children for member in family(child))]
    return []


def pss(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(size.split()[0]) * 1024 for name, _, size in (line.partition(":") for line in lines)}


def main() -> Iterator[str]:
    assert FEW / 2 > EVAL_BATCH > BATCH
    with tempfile.TemporaryDirectory() as name, patch.dict(os.environ, GIVES_BACK):  # for the workers
        folder = Path(name)
        data, image = data_settings(folder), float(np.prod(SHAPE[1:]))
        few = held_bytes({**data, "n_train": FEW, "val_fraction": 0.5}, folder / "few")
        everything = held_bytes(data, folder / "all")
    others = (SHAPE[0] - FEW) * image
    yield f"{data['kind']}: {SHAPE[0]:,} images of {image:.0f} bytes, {TRIALS} trials at once"
    for title, held in ((f"{FEW:,} images", few), ("all images", everything)):
        private = held.private / TRIALS
        yield f"held with {title}: {held.all / 1e6:.1f} MB, of it {private / 1e6:.1f} MB private to each worker"
    gained = everything.all - few.all
    yield f"(difference, {gained / 1e6:.1f} MB) ÷ (images, {others / 1e6:.1f} MB): {gained / others:.2f}   goal ≤ 1.2"
    yield f"  shared memory alone: {(everything.shared - few.shared) / others:.2f}"
