"""Trials that are shorter than the start of a worker: the cluster fills all the same."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import ray

from benchmarks.made_up import report_at_once
from harness.running import runner
from harness.running.messages import received_task
from tests.forked import Forked
from tests.running.results import local_ray, searches

WORKERS, SHORT = 4, 10


def short_trial(config: dict[str, Any], data_dir: str, **_: Any) -> None:
    """The first ten take no time; the others wait until every worker has had a trial, so that the queue lasts."""
    (Path(data_dir) / str(os.getpid())).touch()
    while received_task(config).config.depth >= SHORT and len(list(Path(data_dir).iterdir())) < WORKERS:
        time.sleep(0.05)
    report_at_once(config)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_worker_that_is_free_again_does_not_replace_one_that_is_starting(tmp_path: Path) -> None:
    """In a process of its own: after another Ray, this one's table of actors was once found empty."""
    process = Forked(fill_workers, str(tmp_path), env={}, stderr=tmp_path / "stderr")
    assert process.wait(timeout=400) == 0, (tmp_path / "stderr").read_text()[-4000:]


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
