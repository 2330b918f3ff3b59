"""What must be equal between two runs: everything on disk but times and costs."""

import io
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from harness.cli import main
from harness.methods import parse_methods
from harness.options import RunOptions
from harness.running import ray_session
from harness.running.runner import RunOutcome, make_units, run_units
from harness.spaces import load_space
from tests import warm

TIMED = {
    *("cost", "cost_without_startup", "worker_start_device_seconds", "wall_seconds", "driver_seconds"),
    *("most_coresident_trials", "checksum", "replayed_wall_seconds", "replayed_searches", "replayed_choices"),
}
TIMED_FINAL = {
    "stopped_test",
    "seconds",
    "forward_seconds_per_sample",
    "full_forward_seconds_per_sample",
    "deepest_forward_seconds_per_sample",
}
TIMED_TRIAL = {"cost", "attempts", "started_at", "ended_at", "queue_seconds", "environment"}


def read(out: Path, method: str, seed: int = 0, space: str = "quickstart") -> dict[str, Any]:
    """A unit's result.json and trials.jsonl, sorted by configuration, without times and costs."""
    folder = unit_folder(out, method, seed, space)
    result = json.loads((folder / "result.json").read_text())
    result = {key: value for key, value in result.items() if key not in TIMED}
    result["final"] = {key: value for key, value in result["final"].items() if key not in TIMED_FINAL}
    result["final"]["floor"] = {**(result["final"]["floor"] or {}), "seconds": 0.0}
    if result["refit"]:
        del result["refit"]["cost"]
    trials = []
    for line in (folder / "trials.jsonl").read_text().splitlines():
        trial = {key: value for key, value in json.loads(line).items() if key not in TIMED_TRIAL}
        trial["curve"] = [{k: v for k, v in point.items() if k != "device_seconds"} for point in trial["curve"]]
        trial["work"] = {key: json.loads(line)["cost"][key] for key in ("epochs", "tflop", "samples", "block_passes")}
        trials.append(trial)
    return {"result": result, "trials": sorted(trials, key=lambda trial: (trial["depth"], trial["trial_id"]))}


def unit_folder(out: Path, method: str, seed: int = 0, space: str = "quickstart") -> Path:
    return out / space / method / f"seed-{seed}"


def ledger(out: Path, method: str, seed: int = 0, space: str = "quickstart") -> list[dict[str, Any]]:
    """The events so far; a line that is being written is left out."""
    path = unit_folder(out, method, seed, space) / "ledger.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def searches(out: Path, methods: str, *settings: str, seeds: tuple[int, ...] = (0,), **options: Any) -> RunOutcome:
    """`harness run quickstart`, small, in this process on the Ray that is there."""
    space = load_space("quickstart", small(*settings))
    run_options = RunOptions(out=out, **options)
    return run_units(make_units([space], parse_methods(methods), seeds, run_options), run_options)


SMALL = (
    *("depth.max=4", "training.max_epochs=60", "training.eval_every=10", "training.report_every=10"),
    *("budget.trials=3", "budget.early_stopping_trials=4", "data.n_test=100"),
)


def small(*settings: str) -> list[str]:
    """Settings of a small space. Each may be given once, so one of `settings` takes the place of the usual one."""
    return list({setting.partition("=")[0]: setting for setting in (*SMALL, *settings)}.values())


def set_words(settings: Iterable[str]) -> list[str]:
    """As they stand on a command line."""
    return [word for setting in settings for word in ("--set", setting)]


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 240.0) -> Any:
    """Polls: the machine may be busy, so the deadline is far away and only a hang reaches it."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)
    return value


@contextmanager
def local_ray(**resources: int) -> Iterator[None]:
    """A Ray of the test's own, in this process, started as a run starts one."""
    with ray_session._folder_of_a_run() as folder:
        ray_session._start_here(folder, False, {"log_to_driver": False, "configure_logging": False, **resources})
        try:
            yield
        finally:
            ray_session._shut_down()


def command(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """`harness …` in a folder, in this process: torch, MLflow and a Ray that is there need not start again.

    Figures of the report that ends a run are left out, which take longer than its training; `harness report` has them.
    """
    out, err = io.StringIO(), io.StringIO()
    no_figures: Any = patch("harness.reporting.html.all_figures", lambda *_: [])
    with chdir(folder), redirect_stdout(out), redirect_stderr(err), no_figures if words[0] == "run" else nullcontext():
        try:
            main(list(words))
        except SystemExit as end:
            code = int(end.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def workers_of(raylet_parent: int) -> list[int]:
    """Process ids of Ray workers that run a trial, of the Ray that the given process has started."""
    return processes_of(raylet_parent, "ray::ImplicitFunc")


def processes_of(ancestor: int, title: str = "") -> list[int]:
    """Process ids below a process whose command line has this in its first word."""
    parents, titles = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            titles[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            status = (path / "stat").read_text()
        except (OSError, ValueError):
            continue  # it has ended
        parents[int(path.name)] = int(status.rpartition(")")[2].split()[1])
    parents |= {worker: asking for worker, asking in warm.asked_by().items() if asking in parents}

    def descends(pid: int) -> bool:
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == ancestor:
                return True
        return False

    return [pid for pid, words in titles.items() if title in words.split(" ")[0] and descends(pid)]


def left_in(temporary: Path) -> list[str]:
    """Whatever is there, but for the folder that all temporary ones are made in, which stays."""
    stays = temporary / f"harness-{os.getuid()}"
    return [str(path.relative_to(temporary)) for path in temporary.rglob("*") if path != stays]


def listening(pids: Iterable[int]) -> set[str]:
    """The addresses, as the kernel writes them, at which processes wait for TCP connections."""
    inodes = set()
    for pid in pids:
        with suppress(OSError):  # it has ended
            inodes |= {str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()}
    sockets = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    waiting = [fields for fields in sockets if fields[3] == "0A"]
    return {fields[1].partition(":")[0] for fields in waiting if f"socket:[{fields[9]}]" in inodes}


def kill_nine(pid: int) -> None:
    os.kill(pid, 9)
