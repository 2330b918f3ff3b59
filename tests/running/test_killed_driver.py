"""The real command, killed or stopped at several moments and given again: it ends like an undisturbed run.

The same runs show what a Ray of our own lets in and leaves behind.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.running.results import SMALL, kill_nine, ledger, listening, processes_below, read, unit_folder, wait_for

pytestmark = pytest.mark.slow
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1 in /proc/net/tcp and tcp6
METHODS = ("ldn", "grid", "random_search", "optuna_tpe")
SETTINGS = (*SMALL, "training.max_epochs=300", "training.patience=300", "depth.max=3", "budget.trials=2")


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    temp = tempfile.mkdtemp(prefix="ht-", dir="/tmp")
    yield {**os.environ, "RAY_TMPDIR": temp, "RAY_USAGE_STATS_ENABLED": "0", "MLFLOW_DISABLE_TELEMETRY": "true"}
    shutil.rmtree(temp, ignore_errors=True)


def start(out: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    options = ["--methods", ",".join(METHODS), "--concurrency", "1", "--out", str(out)]
    for setting in SETTINGS:
        options += ["--set", setting]
    code = "from harness.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "run", "quickstart", *options],
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def events(out: Path) -> list[tuple[str, str, str]]:
    return [(method, e["event"], e.get("trial", "")) for method in METHODS for e in ledger(out, method)]


def run_until(moment: Callable[[], bool], what: str, out: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    driver = start(out, environment)
    wait_for(lambda: moment() or driver.poll() is not None, what)
    assert driver.poll() is None, driver.communicate()
    return driver


def kill(driver: subprocess.Popen[str]) -> dict[int, str]:
    """The driver alone, as a machine without memory does it. What it had started, by process id."""
    started = processes_below(driver.pid)
    kill_nine(driver.pid)
    driver.communicate()
    return started


def ends_when_it_dies(name: str, driver: subprocess.Popen[str]) -> None:
    """A process of Ray's is killed: the command ends with one sentence, and its processes with it."""
    started = processes_below(driver.pid)
    [pid] = [pid for pid, title in started.items() if title.split(" ")[0].endswith(f"/{name}")]
    kill_nine(pid)
    stdout, stderr = driver.communicate(timeout=60)
    assert driver.returncode == 1
    assert stderr.startswith(f"error: Ray's {name} died") and stderr.endswith("the same command continues\n")
    assert stderr.count("\n") == 1 and name not in stdout
    wait_for(lambda: not alive(started), "the end of Ray's processes")


def alive(started: dict[int, str]) -> list[int]:
    """Zombies that nobody has asked about do not count."""
    states = {pid: Path(f"/proc/{pid}/stat") for pid in started}
    return [
        pid for pid, stat in states.items() if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
    ]


def test_killed_and_stopped_and_given_again_it_ends_like_an_undisturbed_run(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    out, whole, temp = tmp_path / "disturbed", tmp_path / "whole", Path(environment["RAY_TMPDIR"])

    def ended() -> set[tuple[str, str]]:
        return {(method, trial) for method, event, trial in events(out) if event == "end"}

    # Before anything was reported.
    driver = run_until(lambda: "start" in [event for _, event, _ in events(out)], "the first trial", out, environment)
    orphans = kill(driver)
    assert len(list(temp.iterdir())) == 1, "what is left when nothing could be tidied up"

    # Ctrl-C, once, after two trials have ended.
    driver = run_until(lambda: len(ended()) >= 2, "two ended trials", out, environment)
    assert not alive(orphans) and len(list(temp.iterdir())) == 1, "the next run has tidied up after the killed one"
    assert listening(processes_below(driver.pid)) <= LOOPBACK
    assert len(listening(processes_below(driver.pid))) == 2, "the list shows nothing"
    driver.send_signal(signal.SIGINT)
    _, stderr = driver.communicate(timeout=240)
    assert driver.returncode == 130
    assert "re-run to resume" in stderr and "Traceback" not in stderr

    assert list(temp.iterdir()) == []

    # Ray dies in the middle.
    before = ended()
    ends_when_it_dies("raylet", run_until(lambda: len(ended()) >= len(before) + 2, "two more", out, environment))
    kept = ended()

    # Another part of it during a final evaluation.
    finals = len([trial for _, event, trial in events(out) if (event, trial) == ("start", "final")])

    def a_final_runs() -> bool:
        return len([trial for _, event, trial in events(out) if (event, trial) == ("start", "final")]) > finals

    ends_when_it_dies("gcs_server", run_until(a_final_runs, "a final evaluation", out, environment))

    last = start(out, environment)
    stdout, stderr = last.communicate(timeout=400)
    assert last.returncode == 0, stderr
    assert "Verdict" in stdout

    for method, trial in kept:  # not trained again once its end was written
        told = [event for whose, event, name in events(out) if (whose, name) == (method, trial)]
        assert "start" not in told[told.index("end") :]
    undisturbed = start(whole, environment)
    _, stderr = undisturbed.communicate(timeout=400)
    assert undisturbed.returncode == 0, stderr
    for method in METHODS:
        assert read(out, method) == read(whole, method)
        assert (unit_folder(out, method) / "model.pt").exists()
    assert not list(out.rglob("*.partial"))
    assert list(temp.iterdir()) == []
