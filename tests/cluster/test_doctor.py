"""The preflight: its rules on made-up clusters, and once on two simulated nodes."""

import http.server
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.cluster.checks import Check
from harness.cluster.doctor import check_nodes, check_storage, check_tracking, check_versions, doctor
from harness.cluster.nodes import NodeReport
from harness.errors import UserError
from tests.cluster.test_slots import GPU_AUTOSCALER, OWN_MACHINES

SAME = {"python": "3.11.7", "ray": "2.60.0", "torch": "2.13.0", "harness": "0.1.0"}


def test_a_failed_check_needs_a_remedy() -> None:
    with pytest.raises(ValueError, match="must say what to do"):
        Check("x", False, "broken")


def test_same_versions_pass() -> None:
    check = check_versions([NodeReport("1", "a", SAME), NodeReport("2", "b", SAME)])
    assert check.ok and "torch 2.13.0" in check.detail


@pytest.mark.parametrize(
    ("package", "version", "words"),
    [
        ("torch", "2.12.0", "torch: 2.12.0 on b, 2.13.0 on a"),
        ("ray", "2.59.0", "ray: 2.59.0 on b, 2.60.0 on a"),
        ("harness", None, "harness: 0.1.0 on a, missing on b"),
    ],
)
def test_another_version_names_the_node(package: str, version: str | None, words: str) -> None:
    check = check_versions([NodeReport("1", "a", SAME), NodeReport("2", "b", {**SAME, package: version})])
    assert not check.ok and check.detail == words


def test_missing_everywhere_is_not_the_same_version() -> None:
    assert not check_versions([NodeReport("1", "a", {**SAME, "harness": None})]).ok


def test_storage() -> None:
    hosts = {"1": "a", "2": "b"}
    assert check_storage("/nfs", {"1": None, "2": None}, hosts).ok
    failed = check_storage("/home/me", {"1": None, "2": "does not see what 1 other node(s) wrote"}, hosts)
    assert not failed.ok and failed.detail.startswith("b: does not see")
    assert not check_storage(None, {}, hosts).ok
    assert check_storage(None, {}, {"1": "a", "2": "a"}).ok, "two simulated nodes share the disk of one machine"


def test_a_missing_machine_of_ones_own_is_named_but_does_not_stop_a_run() -> None:
    check = check_nodes(2, [], ["10.0.0.1", "10.0.0.2"], OWN_MACHINES)
    assert not check.ok and not check.fatal
    assert check.detail == "1 of 2 workers are up, missing: 10.0.0.3"
    assert check_nodes(3, [], ["10.0.0.1", "10.0.0.2", "10.0.0.3"], OWN_MACHINES).ok
    assert check_nodes(1, [], ["10.0.0.1"], GPU_AUTOSCALER).detail == "1 alive, more start when trials wait"
    assert not check_nodes(1, ["10.0.0.1"], ["10.0.0.1"], None).ok


@pytest.fixture
def health() -> Iterator[str]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_tracking_server_that_answers(health: str) -> None:
    assert check_tracking(health, machines=3).ok
    assert check_tracking(f"{health}/", machines=3).ok
    assert not check_tracking(f"{health}/wrong", machines=3).ok


def test_tracking_that_cannot_work(tmp_path: Path) -> None:
    silent = check_tracking("http://127.0.0.1:9", machines=1)
    assert not silent.ok and not silent.fatal, "an outage of MLflow never stops a run"
    sqlite = f"sqlite:///{tmp_path}/mlflow.db"
    assert check_tracking(sqlite, machines=1).ok
    shared = check_tracking(sqlite, machines=2)
    assert not shared.ok and shared.fatal and "2 machines" in shared.detail
    assert "mkdir -p" in check_tracking(f"sqlite:///{tmp_path}/none/mlflow.db", machines=1).remedy
    assert not check_tracking("./mlruns", machines=1).ok
    assert check_tracking(None, machines=5).ok


def test_no_ray_is_one_sentence(no_ray: None) -> None:
    with pytest.raises(UserError, match=r"none answers at 127\.0\.0\.1:1; start one") as caught:
        doctor("127.0.0.1:1", None, None, 0, 1)
    assert "\n" not in str(caught.value)


@pytest.fixture
def cluster(no_ray: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head with a CPU and a node with a CPU and two logical GPUs."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp", ignore_cleanup_errors=True) as temp:  # a short path
        Path(temp, "ray").mkdir()  # where Ray notes the cluster's address
        monkeypatch.setenv("RAY_TMPDIR", temp)
        head = {"num_cpus": 1, "include_dashboard": False, "temp_dir": temp}
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            made.add_node(num_cpus=1, num_gpus=2)
            yield made
        finally:
            made.shutdown()


@pytest.mark.slow
def test_two_simulated_nodes(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*options: str) -> str:
        """What the command says; it ends with 2 and leaves nothing behind."""
        out = tmp_path / "results"
        with pytest.raises(SystemExit, match="2"):
            main(["run", "quickstart", "--address", cluster.address, "--out", str(out), *options])
        assert not out.exists()
        [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        return line

    good = {c.name: c for c in doctor(cluster.address, str(tmp_path / "s"), None, 0.5, 0.25)}
    assert all(check.ok for check in good.values()), good
    assert "written and read by 2 nodes" in good["storage"].detail
    assert "0.5 GPU and 0.25 CPU per trial: 4 at once" in good["resources"].detail
    assert list((tmp_path / "s").iterdir()) == [], "the tokens were not removed"

    # That nodes do not see each other's storage needs machines of their own: tests/cluster.
    readonly = tmp_path / "a_file"
    readonly.write_text("a storage folder cannot be made here")
    assert "cannot write" in refused("--storage", str(readonly))
    never = refused("--gpus-per-trial", "1", "--cpus-per-trial", "2", "--wait", "0")
    assert "no machine ever has that (largest now: 2 GPU, 1 CPU); lower --gpus-per-trial" in never

    # A node whose Ray really differs does not join. Here the node is real and gives the answers; the difference is
    # planted: the metadata of another Ray comes first on its path.
    metadata = tmp_path / "older" / "ray-2.59.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: ray\nVersion: 2.59.0\n")
    path = os.pathsep.join([str(tmp_path / "older"), *sys.path])
    cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": path})
    mixed = refused()
    assert "versions: ray: 2.59.0 on " in mixed and mixed.endswith("pip install -c constraints.txt .")
