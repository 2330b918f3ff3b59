"""Simulated nodes (real raylets on this machine): one is lost in mid-run, others come later."""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray

from benchmarks.made_up import report_at_once
from harness.methods import parse_methods
from harness.options import RunOptions
from harness.running import runner
from harness.running.forecast import Forecast, forecast
from harness.running.runner import make_units, run_units
from harness.spaces import load_space
from tests.forked import Forked
from tests.running.results import SMALL, ledger, read, searches, wait_for

NODE: dict[str, Any] = {"num_cpus": 1, "num_gpus": 1}


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_lost_node_loses_no_trial(tmp_path: Path) -> None:
    """Nor does it count as a failure of the trial's own: none is allowed."""
    in_a_process(lose_a_node, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_run_waits_for_its_first_node_and_uses_those_that_come_later(tmp_path: Path) -> None:
    """Grid and ASHA alike, within 30 s; and a forecast is timed on such a node."""
    in_a_process(gain_nodes, tmp_path)


def in_a_process(function: Callable[[str, str], None], folder: Path) -> None:
    """In one of its own: another Ray that ran before leaves settings behind, and this one starts no actor."""
    with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp", ignore_cleanup_errors=True) as temp:  # a short path
        # Ray notes the cluster's address in its own folder, which nobody may have made yet.
        env, said = {"HARNESS_LOGICAL_GPUS": "1", "RAY_TMPDIR": temp}, folder / "stderr"
        process = Forked(function, str(folder), temp, env=env, stderr=said)
        assert process.wait(timeout=400) == 0, said.read_text()[-4000:]


def lose_a_node(folder: str, temp: str) -> None:
    from ray.cluster_utils import Cluster

    Path(temp, "ray").mkdir()
    out, head = Path(folder), {**NODE, "include_dashboard": False, "temp_dir": temp}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    second = cluster.add_node(**NODE)
    cluster.wait_for_nodes()

    def lose_it() -> None:
        def both_train() -> bool:
            reporting = {event["trial"] for event in ledger(out, "grid") if event.get("report", {}).get("progress")}
            ended = {event["trial"] for event in ledger(out, "grid") if event["event"] == "end"}
            return len(reporting - ended) == 2

        wait_for(both_train, "a trial on each node")
        cluster.remove_node(second, allow_graceful=False)

    loser = threading.Thread(target=lose_it)
    loser.start()
    long = ("training.max_epochs=400", "training.patience=400")
    outcome = searches(out, "grid", *long, gpus_per_trial=1.0, max_failures=0)
    loser.join()
    ray.shutdown()
    cluster.shutdown()
    assert outcome.failures == {}
    [result] = outcome.results
    assert result.trials_by_status == {"finished": 5}
    assert result.most_coresident_trials == 2 and result.cost.devices == 1.0
    assert [event["trial"] for event in ledger(out, "grid") if event["event"] == "died"]
    assert len(read(out, "grid")["trials"]) == 5


def hold_until_two_work(config: dict[str, Any], data_dir: str, **_: Any) -> None:
    """In the place of training: no trial ends before two workers have had one."""
    mark = Path(data_dir) / str(os.getpid())
    if not mark.exists():
        mark.touch()
    while len(list(Path(data_dir).iterdir())) < 2:
        time.sleep(0.05)
    report_at_once(config)


def gain_nodes(folder: str, temp: str) -> None:
    from ray.cluster_utils import Cluster

    Path(temp, "ray").mkdir()
    head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": temp}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    space = load_space("quickstart", SMALL)
    added: list[Any] = []

    def run(method: str, told: list[str]) -> float:
        """Seconds from the moment a second node was there until a trial ran on it."""
        seen = Path(folder, f"seen-{method}")
        seen.mkdir()
        options = RunOptions(out=Path(folder, "out"), address=cluster.address, gpus_per_trial=1.0, data_dir=seen)
        units = make_units([space], parse_methods(method), [0], options)
        with ThreadPoolExecutor() as aside:  # nodes can be added by the main thread only
            running = aside.submit(run_units, units, options, tell=told.append)
            if not added:
                wait_for(lambda: told or running.done(), "a line that says what is waited for")
                added.append(cluster.add_node(**NODE))
            wait_for(lambda: list(seen.iterdir()) or running.done(), "a trial on the first node")
            added.append(cluster.add_node(**NODE))
            added_at = time.time()
            outcome = running.result()
        assert outcome.failures == {} and len(outcome.results) == 1
        _, second = sorted(path.stat().st_mtime for path in seen.iterdir())
        return second - added_at

    def priced() -> Forecast:
        options = RunOptions(gpus_per_trial=1.0)
        return forecast(make_units([space], parse_methods("deepest"), [0], options), None, cluster.address)

    no_node = priced()
    assert no_node.caveat == "no machine of the cluster that can hold a trial is up"
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run_task", hold_until_two_work)
        assert run("grid", told) < 30
        assert told == [
            "waiting for a machine with 1 GPU and 1 CPU for a trial, up to 600 s (--wait); the largest that is up has "
            "0 GPU, 0 CPU"
        ]
        cluster.remove_node(added.pop())
        assert run("asha", told) < 30
    assert len(told) == 1
    on_a_node = priced()
    assert on_a_node.caveat == "" and on_a_node.device == f"{no_node.device} of {socket.gethostname()}"
    ray.shutdown()
    cluster.shutdown()
