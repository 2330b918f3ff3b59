"""Two simulated nodes, one of which is lost in mid-run: no trial is lost with it."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import ray

from tests.running.results import ledger, read, searches, wait_for

ROOT = Path(__file__).parent.parent.parent
NODE: dict[str, Any] = {"num_cpus": 1, "num_gpus": 1}


@pytest.mark.slow
def test_a_lost_node_loses_no_trial(tmp_path: Path) -> None:
    """In a process of its own: another Ray that ran before leaves settings behind, and this one starts no actor."""
    temp = tempfile.mkdtemp(prefix="ht-", dir="/tmp")  # short: Ray puts sockets below it
    code = f"from tests.running.test_two_nodes import lose_a_node; lose_a_node({str(tmp_path)!r}, {temp!r})"
    # Ray notes the cluster's address in its own folder, which nobody may have made yet.
    environment = os.environ | {"HARNESS_LOGICAL_GPUS": "1", "PYTHONPATH": str(ROOT), "RAY_TMPDIR": temp}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=400)
    shutil.rmtree(temp, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-4000:]


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
    outcome = searches(out, "grid", *long, gpus_per_trial=1.0)
    loser.join()
    ray.shutdown()
    cluster.shutdown()
    assert outcome.failures == {}
    [result] = outcome.results
    assert result.trials_by_status == {"finished": 5}
    assert result.most_coresident_trials == 2 and result.cost.devices == 1.0
    assert [event["trial"] for event in ledger(out, "grid") if event["event"] == "died"]
    assert len(read(out, "grid")["trials"]) == 5
