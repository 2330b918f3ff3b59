"""How well does a queue of trials fill a cluster? 32 logical GPUs on 4 simulated nodes, no computation.

    python -m benchmarks cluster

Utilisation: GPU-seconds held ÷ offered, from the moment every GPU was first taken until the queue is empty (the last
trial has started). Driver overhead per trial: (GPU-seconds offered − held) ÷ trials in that window, that is how long a
GPU waits between two trials; and the driver's own CPU seconds per trial.
"""

import contextlib
import io
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # with verbose=0: silence
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")

NODES, GPUS_PER_NODE = 4, 8
GPUS = NODES * GPUS_PER_NODE


@dataclass(frozen=True)
class Held:
    """One trial's stay on a GPU, in seconds of the machine's clock (all nodes are on one machine)."""

    gpu: str
    start: float
    end: float


@dataclass(frozen=True)
class Filling:
    full_after: float  # seconds from the first trial until every GPU was taken
    window: float
    utilisation: float
    idle_per_trial: float  # GPU-seconds lost per trial that started in the window


def filling(trials: list[Held], gpus: int) -> Filling:
    """The issue's definition; a queue that leaves a GPU unused is an error, not a utilisation."""
    first: dict[str, float] = {}
    for trial in trials:
        first[trial.gpu] = min(trial.start, first.get(trial.gpu, trial.start))
    if len(first) != gpus:
        raise ValueError(f"{len(trials)} trials used {len(first)} of {gpus} GPUs")
    full, empty = max(first.values()), max(trial.start for trial in trials)
    held = sum(max(0.0, min(trial.end, empty) - max(trial.start, full)) for trial in trials)
    offered = gpus * (empty - full)
    started = sum(trial.start > full for trial in trials)
    if not started:
        raise ValueError(f"{len(trials)} trials are too few: none waited for a GPU")
    return Filling(full - min(first.values()), empty - full, held / offered, (offered - held) / started)


def hold(config: dict[str, object]) -> None:
    """A trial: holds one GPU, computes nothing, leaves the moments at which it had it.

    The first trial on a GPU begins its seconds when all GPUs are taken: on few cores 32 workers take longer to start
    than a trial lasts, and a worker that is free again would take the place of one that is still starting. This part
    lies before the window that is measured.
    """
    import ray

    start = time.time()
    folder = Path(str(config["folder"]))
    gpu = f"{ray.get_runtime_context().get_node_id()}:{os.environ['CUDA_VISIBLE_DEVICES']}"
    taken = folder / "taken"
    (taken / gpu).touch()
    while sum(1 for _ in taken.iterdir()) < GPUS:
        time.sleep(0.2)
    time.sleep(float(str(config["seconds"])))
    Path(folder, "held", str(config["number"])).write_text(f"{gpu} {start} {time.time()}")


def run_trials(count: int, seconds: float, folder: Path, storage: Path) -> None:
    """The ONE place to swap in the harness's own runner."""
    from ray import tune
    from ray.tune.search.basic_variant import BasicVariantGenerator

    space = {"seconds": seconds, "folder": str(folder), "number": tune.grid_search(list(range(count)))}
    tuner = tune.Tuner(
        tune.with_resources(hold, {"cpu": 0, "gpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(search_alg=BasicVariantGenerator(random_state=0), reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(storage), verbose=0),
    )
    logging.getLogger("ray").setLevel(logging.CRITICAL)  # it misses the result files that it was told not to write
    with contextlib.redirect_stdout(io.StringIO()):  # Tune prints a line per trial that reported nothing
        results = tuner.fit()
    if results.num_errors:
        raise RuntimeError(f"{results.num_errors} trials failed")


def read(line: str) -> Held:
    gpu, start, end = line.split()
    return Held(gpu, float(start), float(end))


def main(trials: int = 200, seconds: float = 5.0) -> Iterator[str]:
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "num_gpus": GPUS_PER_NODE, "object_store_memory": 80 * 1024**2}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for _ in range(NODES - 1):
            cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            for part in ("held", "taken"):
                (folder / part).mkdir()
            began, cpu = time.monotonic(), time.process_time()
            run_trials(trials, seconds, folder, folder / "ray")
            wall, cpu = time.monotonic() - began, time.process_time() - cpu
            held = [read(path.read_text()) for path in (folder / "held").iterdir()]
        ray.shutdown()
    finally:
        cluster.shutdown()
    found = filling(held, GPUS)
    size = f"{GPUS} logical GPUs on {NODES} nodes, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    yield f"{len(held)} of {trials} trials of {seconds:g} s, {size}, {wall:.1f} s in all"
    yield f"every GPU taken      after {found.full_after:.1f} s, queue empty {found.window:.1f} s later"
    yield f"utilisation          {found.utilisation:.3f}, goal 0.85"
    yield f"overhead per trial   {found.idle_per_trial:.3f} GPU-s idle, {cpu / trials:.3f} CPU-s of the driver"
