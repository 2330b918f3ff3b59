"""Trials that are shorter than the start of a worker: the cluster fills all the same."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import ray

from benchmarks.made_up import report_at_once
from harness.running import runner
from harness.running.messages import received_task
from tests.running.results import local_ray, searches

ROOT = Path(__file__).parent.parent.parent
WORKERS, SHORT = 4, 10


def short_trial(config: dict[str, Any], data_dir: str, **_: Any) -> None:
    """The first ten take no time; the others wait until every worker has had a trial, so that the queue lasts."""
    (Path(data_dir) / str(os.getpid())).touch()
    while received_task(config).config.depth >= SHORT and len(list(Path(data_dir).iterdir())) < WORKERS:
        time.sleep(0.05)
    report_at_once(config)


@pytest.mark.slow
def test_a_worker_that_is_free_again_does_not_replace_one_that_is_starting(tmp_path: Path) -> None:
    """In a process of its own: after another Ray, this one's table of actors was once found empty."""
    code = f"from tests.running.test_ramp import fill_workers; fill_workers({str(tmp_path)!r})"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]


def fill_workers(folder: str) -> None:
    seen = Path(folder, "seen")
    seen.mkdir()
    with local_ray(num_cpus=WORKERS), pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run_task", short_trial)
        [result] = searches(Path(folder, "out"), "grid", f"depth.max={SHORT + 20}", data_dir=seen).results
        actors = ray._private.state.actors().values()
        started = [actor for actor in actors if actor["ActorClassName"] == "ImplicitFunc"]
    assert result.trials_by_status == {"finished": SHORT + 21}
    assert len(started) == WORKERS == len(list(seen.iterdir()))
