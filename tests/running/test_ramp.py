"""Trials that are shorter than the start of a worker: the cluster fills all the same."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from benchmarks.made_up import report_at_once
from harness.running import runner
from harness.running.messages import received_task
from tests.running.results import local_ray, searches

WORKERS, SHORT = 4, 10


@pytest.fixture
def four_workers(no_ray: None) -> Iterator[None]:
    with local_ray(num_cpus=WORKERS):
        yield


def short_trial(config: dict[str, Any], data_dir: str, **_: Any) -> None:
    """The first ten take no time; the others wait until every worker has had a trial, so that the queue lasts."""
    (Path(data_dir) / str(os.getpid())).touch()
    while received_task(config).config.depth >= SHORT and len(list(Path(data_dir).iterdir())) < WORKERS:
        time.sleep(0.05)
    report_at_once(config)


@pytest.mark.slow
def test_a_worker_that_is_free_again_does_not_replace_one_that_is_starting(
    four_workers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "run_task", short_trial)
    seen = tmp_path / "seen"
    seen.mkdir()
    [result] = searches(tmp_path / "out", "grid", f"depth.max={SHORT + 20}", data_dir=seen).results
    assert result.trials_by_status == {"finished": SHORT + 21}
    workers = [actor for actor in ray._private.state.actors().values() if actor["ActorClassName"] == "ImplicitFunc"]
    assert len(workers) == WORKERS == len(list(seen.iterdir()))
