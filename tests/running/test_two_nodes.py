"""Two simulated nodes, one of which is lost in mid-run: no trial is lost with it."""

import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from tests.running.results import ledger, read, searches, wait_for

pytestmark = pytest.mark.slow
NODE = {"num_cpus": 1, "num_gpus": 1}


@pytest.fixture
def cluster(no_ray: None) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    temp = tempfile.mkdtemp(prefix="ht-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_LOGICAL_GPUS", "1")
        made = Cluster(
            initialize_head=True,
            head_node_args={**NODE, "include_dashboard": False, "temp_dir": temp},
        )
        ray.init(address=made.address, log_to_driver=False, configure_logging=False)
        yield made
        ray.shutdown()
        made.shutdown()
    shutil.rmtree(temp, ignore_errors=True)


def test_a_lost_node_loses_no_trial(cluster: Any, tmp_path: Path) -> None:
    second = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    long = ("training.max_epochs=400", "training.patience=400")

    def lose_it() -> None:
        def both_train() -> bool:
            reporting = {
                event["trial"] for event in ledger(tmp_path, "grid") if event.get("report", {}).get("progress")
            }
            ended = {event["trial"] for event in ledger(tmp_path, "grid") if event["event"] == "end"}
            return len(reporting - ended) == 2

        wait_for(both_train, "a trial on each node")
        cluster.remove_node(second, allow_graceful=False)

    loser = threading.Thread(target=lose_it)
    loser.start()
    outcome = searches(tmp_path, "grid", *long, gpus_per_trial=1.0)
    assert outcome.failures == {}
    [result] = outcome.results
    loser.join()
    assert result.trials_by_status == {"finished": 5}
    assert result.most_coresident_trials == 2 and result.cost.devices == 1.0
    died = [event["trial"] for event in ledger(tmp_path, "grid") if event["event"] == "died"]
    assert died
    assert len(read(tmp_path, "grid")["trials"]) == 5
