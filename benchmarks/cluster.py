"""How well does a queue of trials fill a cluster, and how much can its driver hear? No computation.

    python -m benchmarks cluster

Reports per second: trials that do nothing but report, all at once, to one driver; with one fsync for all reports that
wait, over one for each. Driver-seconds: processor time of the driver per trial that reports once and ends.

Utilisation, on 32 logical GPUs of 8 simulated nodes: GPU-seconds held ÷ offered, from the moment every GPU was first
taken until the queue is empty (the last trial has started). Driver overhead per trial: (GPU-seconds offered − held) ÷
trials in that window, that is how long a GPU waits between two trials; and the driver's own CPU seconds per trial.
"""

import logging
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.made_up import report_at_once
from harness.options import RunOptions
from harness.running.messages import TrainTask, received_task
from harness.spaces import load_space

NODES, GPUS_PER_NODE = 8, 4
GPUS = NODES * GPUS_PER_NODE
TRIALS, SECONDS = 200, 5.0
TALKERS, REPORTS = 8, 250  # trials at once, and how often each of them reports
QUEUES = (100, 1000, 3000)  # trials that do nothing


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


def hold(config: dict[str, Any], data_dir: str, **_: Any) -> None:
    """In the place of the runner's `run_task`: holds one GPU, computes nothing, leaves when it had which.

    The first trial on a GPU begins its seconds when all GPUs are taken: a machine of few cores needs longer to start
    32 workers than 200 trials last, so the queue would be empty before. This lies before the window that is measured;
    that short trials do not hinder workers from starting is shown by tests/running/test_ramp.py.
    """
    task = received_task(config)
    if isinstance(task, TrainTask):
        import ray

        start, folder = time.time(), Path(data_dir)
        gpu = f"{ray.get_runtime_context().get_node_id()}:{os.environ['CUDA_VISIBLE_DEVICES']}"
        (folder / "taken" / gpu).touch()
        while sum(1 for _ in (folder / "taken").iterdir()) < GPUS:
            time.sleep(0.2)
        time.sleep(SECONDS)
        Path(folder, "held", task.trial).write_text(f"{gpu} {start} {time.time()}")
    report_at_once(config)


def run_trials(folder: Path) -> None:
    """A grid of so many depths, as `harness run … --gpus-per-trial 1` runs it."""
    from harness.methods import parse_methods
    from harness.running import runner

    runner.run_task = hold  # type: ignore[assignment, attr-defined]
    space = load_space("quickstart", [f"depth.max={TRIALS - 1}", "training.max_epochs=20"])
    # CPUs are not what is short here; a node with more of them would start as many workers at once.
    share = 1 / GPUS_PER_NODE
    options = RunOptions(out=folder / "results", gpus_per_trial=1.0, cpus_per_trial=share, data_dir=folder)
    outcome = runner.run_units(runner.make_units([space], parse_methods("grid"), [0], options), options)
    if outcome.failures:
        raise RuntimeError(str(outcome.failures))


def read(line: str) -> Held:
    gpu, start, end = line.split()
    return Held(gpu, float(start), float(end))


def report_often(config: dict[str, Any], **_: Any) -> None:
    """In the place of the runner's `run_task`: as many reports as the space has epochs, one after the other."""
    from ray import tune

    from harness.replaying.rehearsal import made_up_reports

    for _seconds, report in made_up_reports(received_task(config), lambda depth, epoch: 0.0):
        tune.report(report.to_tune())


def reports_per_second(out: Path) -> float:
    """From the first progress that the ledger has to the last one of the trials."""
    from harness.methods import parse_methods
    from harness.running import runner
    from harness.running.ledger import Reported

    runner.run_task = report_often  # type: ignore[assignment, attr-defined]
    each = ("training.eval_every=1", "training.report_every=1")
    settings = [f"depth.max={TALKERS - 1}", f"training.max_epochs={REPORTS}", f"training.patience={REPORTS}", *each]
    options = RunOptions(out=out, cpus_per_trial=1 / TALKERS)
    [unit] = runner.make_units([load_space("quickstart", settings)], parse_methods("grid"), [0], options)
    outcome = runner.run_units([unit], options)
    if outcome.failures:
        raise RuntimeError(str(outcome.failures))
    told = [event.time for event in unit.folder.events() if isinstance(event, Reported) and event.report.progress]
    return (len(told) - 1) / (told[-1] - told[0])


def driver_seconds(trials: int, out: Path) -> float:
    from harness.methods import parse_methods
    from harness.running import runner

    runner.run_task = report_at_once  # type: ignore[assignment, attr-defined]
    space = load_space("quickstart", [f"depth.max={trials - 1}", "training.max_epochs=20"])
    options = RunOptions(out=out)
    began = time.process_time()
    outcome = runner.run_units(runner.make_units([space], parse_methods("grid"), [0], options), options)
    if outcome.failures or outcome.results[0].trials != trials:
        raise RuntimeError(f"{outcome.failures}")
    return (time.process_time() - began) / trials


def hearing(scratch: Path) -> Iterator[str]:
    """What one driver hears of, on a Ray of this machine."""
    from unittest.mock import patch

    import ray

    from harness.backends import ray_door
    from harness.running import runner  # noqa: F401 - before Ray starts: it sets Ray's environment

    logging.getLogger("ray").setLevel(logging.CRITICAL)
    with ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False):
        reports_per_second(scratch / "warm")
        speeds: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(3):  # in turn: the machine may be busy with something else for a while
            for together in (True, False):
                with patch.object(ray_door, "can_answer_later", lambda _: together):  # noqa: B023
                    speeds[together].append(reports_per_second(scratch / f"{together}-{turn}"))
        one, each = (sorted(speeds[together])[1] for together in (True, False))
        yield (
            f"reports per second   {one:.0f} with one fsync for all that wait, {each:.0f} with one each "
            f"({TALKERS} trials at once, medians of 3)   ratio {one / each:.2f}"
        )
        for trials in QUEUES:
            yield f"driver, {trials:>5,} trials {1000 * driver_seconds(trials, scratch / str(trials)):.1f} ms per trial"


def writing(scratch: Path) -> Iterator[str]:
    """The ledger alone: what the disk allows, without Tune's loop around it."""
    from harness.running.ledger import Started
    from harness.running.store import UnitFolder

    def per_second(group: int) -> float:
        folder = UnitFolder(scratch, "ledger", "grid", len(list(scratch.glob("*/*/*"))))
        folder.path.mkdir(parents=True)
        began = time.perf_counter()
        for _ in range(640 // group):
            for _ in range(group):
                folder.append(Started(trial="t000", coresident=1), and_commit=group == 1)
            folder.commit()
        return 640 / (time.perf_counter() - began)

    per_second(1)
    each = per_second(1)
    for group in (8, 64):
        together = per_second(group)
        speeds = f"{together:,.0f}/s in groups of {group}, {each:,.0f}/s alone"
        yield f"lines on disk        {speeds}   ratio {together / each:.1f}"


def main() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:  # a real disk: /tmp may be memory
        yield from writing(Path(scratch))
        yield from hearing(Path(scratch))
    yield from filling_a_cluster()


def filling_a_cluster() -> Iterator[str]:
    import ray
    from ray.cluster_utils import Cluster

    from harness.running import runner  # noqa: F401 - before Ray starts: it sets Ray's environment

    logging.getLogger("ray").setLevel(logging.CRITICAL)  # it misses the result files that it was told not to write
    node: dict[str, Any] = {"num_cpus": 1, "num_gpus": GPUS_PER_NODE, "object_store_memory": 80 * 1024**2}
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
            run_trials(folder)
            wall, cpu = time.monotonic() - began, time.process_time() - cpu
            held = [read(path.read_text()) for path in (folder / "held").iterdir()]
        ray.shutdown()
    finally:
        cluster.shutdown()
    found = filling(held, GPUS)
    size = f"{GPUS} logical GPUs on {NODES} nodes, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    yield f"{len(held)} of {TRIALS} trials of {SECONDS:g} s, {size}, {wall:.1f} s in all"
    yield f"every GPU taken      after {found.full_after:.1f} s, queue empty {found.window:.1f} s later"
    yield f"utilisation          {found.utilisation:.3f}   goal ≥ 0.85"
    yield f"overhead per trial   {found.idle_per_trial:.3f} GPU-s idle, {cpu / TRIALS:.3f} CPU-s of the driver"
