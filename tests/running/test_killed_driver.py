"""The real command, killed or stopped at several moments and given again: it ends like an undisturbed run."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.running.results import SMALL, ledger, read, unit_folder, wait_for

pytestmark = pytest.mark.slow
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


def kill(driver: subprocess.Popen[str]) -> None:
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()


def test_killed_and_stopped_and_given_again_it_ends_like_an_undisturbed_run(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    out, whole = tmp_path / "disturbed", tmp_path / "whole"

    def ended() -> set[tuple[str, str]]:
        return {(method, trial) for method, event, trial in events(out) if event == "end"}

    # Before anything was reported.
    kill(run_until(lambda: "start" in [event for _, event, _ in events(out)], "the first trial", out, environment))

    # Ctrl-C, once, after two trials have ended.
    driver = run_until(lambda: len(ended()) >= 2, "two ended trials", out, environment)
    driver.send_signal(signal.SIGINT)
    _, stderr = driver.communicate(timeout=240)
    assert driver.returncode == 130
    assert "re-run to resume" in stderr and "Traceback" not in stderr

    # In the middle.
    before = ended()
    kill(run_until(lambda: len(ended()) >= len(before) + 2, "two more", out, environment))
    kept = ended()

    # During a final evaluation.
    finals = len([trial for _, event, trial in events(out) if (event, trial) == ("start", "final")])

    def a_final_runs() -> bool:
        return len([trial for _, event, trial in events(out) if (event, trial) == ("start", "final")]) > finals

    kill(run_until(a_final_runs, "a final evaluation", out, environment))

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
