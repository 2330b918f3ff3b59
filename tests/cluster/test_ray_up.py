"""`ray up` for real, on three simulated hosts: token, job, a host lost in mid-run, tear-down."""

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import rig
from tests.cluster.standin_job import UNITS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(rig.missing() is not None, reason=rig.missing() or "")]

ROOT = Path(__file__).parent.parent.parent
STOP = "ray_cluster_local_stop.sh"
MOUNTED = ("harness", "search_spaces", "pyproject.toml", "README.md", "constraints.txt", STOP)
ENV = {"RAY_UP_enable_autoscaler_v2": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
FILE = "ray_cluster_local.yaml"
LONG = 600  # seconds; only a broken run, or a very busy machine, comes near it
TUNNEL = "http://127.0.0.1:8265"


def job_command(shared: Path) -> str:
    """What is submitted; the ONE place to put `harness run …` in."""
    return f"python {shared}/standin_job.py {shared}"


@pytest.fixture
def lab() -> Iterator[rig.Lab]:
    # Not pytest's folder: it lies under /tmp, which is each host's own.
    base = Path(tempfile.mkdtemp(prefix="harness-lab-", dir="/var/tmp"))
    try:
        with rig.lab(base, keep=[ROOT, Path(sys.prefix), Path(sys.base_prefix)]) as made:
            yield made
    finally:
        shutil.rmtree(base)


def filled_in(lab: rig.Lab) -> dict[str, Any]:
    """The shipped file with its five values, and the installation replaced: the lab has no registry to install from."""
    config: dict[str, Any] = yaml.safe_load(
        (ROOT / FILE).read_text().replace("/nfs/EDIT-ME/depth-search", str(lab.shared))
    )
    config["provider"]["head_ip"] = lab.hosts["head"].address
    config["provider"]["worker_ips"] = [lab.hosts[name].address for name in ("worker1", "worker2")]
    config["auth"] = {"ssh_user": "root", "ssh_private_key": str(lab.key)}
    make, install = [
        command for command in config["setup_commands"] if "-m venv" in command or "pip install" in command
    ]
    swap = {
        make: f"ln -sfn {sys.prefix} ~/depth-search-venv",
        install: "test -f ~/depth-search-harness/pyproject.toml && test -f ~/depth-search-harness/constraints.txt",
    }
    config["setup_commands"] = [swap.get(command, command) for command in config["setup_commands"]]
    config["setup_commands"].append("echo 'export PYTHONPATH=$HOME/depth-search-harness' >> ~/.depth_search_env")
    return config


def clone(lab: rig.Lab, laptop: rig.Host) -> None:
    """The user's copy of the repository, as `ray up` finds it."""
    repo = laptop.home / "repo"
    repo.mkdir()
    for name in MOUNTED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, repo / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, repo / name)
    (repo / FILE).write_text(yaml.safe_dump(filled_in(lab)))


def on(host: str, shared: Path) -> list[str]:
    """The units that an attempt on this host was made at."""
    return [path.name for path in (shared / "attempts").glob(f"*-{host}-*")]


def test_from_ray_up_to_ray_down(lab: rig.Lab) -> None:
    head, worker1, worker2 = (lab.add(name) for name in ("head", "worker1", "worker2"))
    laptop = lab.add("laptop", sshd=False)
    clone(lab, laptop)
    shutil.copy(Path(__file__).with_name("standin_job.py"), lab.shared)
    path = f"PATH={Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"

    def at_home(command: str, *, timeout: float = LONG, check: bool = True, **env: str) -> str:
        done = laptop.run(f"cd /root/repo && {path} && {command}", timeout=timeout, check=check, **{**ENV, **env})
        return f"exit {done.returncode}\n{done.stdout}{done.stderr}"

    at_home("ray get-auth-token --generate > /dev/null && chmod 600 ~/.ray/auth_token")
    at_home(f"ray up -y --no-config-cache {FILE}")
    for host in (worker1, worker2):
        rig.wait_until(
            f"Ray on {host.name}", lambda host=host: any("raylet" in line for line in host.processes()), LONG
        )
    nodes = f"ray exec {FILE} 'ray list nodes --format json --filter state=ALIVE' 2> /dev/null"
    rig.wait_until("three nodes", lambda: at_home(nodes).count('"node_id"') == 3, LONG)

    # The doors: pages only through ssh, no work without the token.
    for port in (8265, 5000):
        rig.wait_until(f"port {port} of the head", lambda port=port: _opens(head, "127.0.0.1", port), LONG)
        assert not _opens(worker1, head.address, port), f"port {port} of the head is open to its neighbours"
    tunnel = laptop.start(f"cd ~/repo && {path} && ray dashboard {FILE}", **ENV)
    rig.wait_until("the tunnel", lambda: _opens(laptop, "127.0.0.1", 8265), LONG)
    submit = f"ray job submit --address {TUNNEL} --submission-id lab --no-wait -- {job_command(lab.shared)}"
    for stranger in ({"RAY_AUTH_MODE": "disabled", "HOME": "/tmp"}, {"RAY_AUTH_TOKEN": "0" * 64}):
        refused = at_home(submit, check=False, **stranger)
        assert not refused.startswith("exit 0"), refused
        assert "401" in refused or "403" in refused or "oken" in refused, refused
    assert not (lab.shared / "attempts").exists(), "a job without the token ran"

    submitted = at_home(submit)
    assert "submitted successfully" in submitted, submitted
    rig.wait_until("every unit to be held by a host", lambda: len(list(lab.shared.glob("attempts/*"))) == UNITS, LONG)
    by_name = {check["name"]: check for check in json.loads((lab.shared / "doctor.json").read_text())}
    assert all(check["ok"] for check in by_name.values()), by_name
    assert "written and read by 3 nodes" in by_name["storage"]["detail"]
    unshared = {check["name"]: check for check in json.loads((lab.shared / "doctor_unshared.json").read_text())}
    assert not unshared["storage"]["ok"] and "does not see" in unshared["storage"]["detail"]

    lost = on("worker2", lab.shared)
    assert lost, "the job did not reach the host that is to be lost"
    worker2.kill()
    (lab.shared / "go").touch()  # the others end; the lost units have to be done again, on what is left
    ended = rig.wait_until("the job to end", lambda: _end_of(at_home(f"ray job status --address {TUNNEL} lab")), LONG)
    logs = at_home(f"ray job logs --address {TUNNEL} lab")
    assert ended == "succeeded" and "done on" in logs, logs
    results = [json.loads(result.read_text()) for result in (lab.shared / "results").iterdir()]
    assert sorted(result["unit"] for result in results) == list(range(UNITS))
    assert {result["host"] for result in results} <= {"head", "worker1"}
    assert len(list(lab.shared.glob("attempts/*"))) == UNITS + len(lost)

    os.killpg(tunnel.pid, signal.SIGINT)  # Ctrl-C, as a person ends a tunnel
    at_home(f"ray rsync-down {FILE} '~/mlflow/' ./mlflow-of-the-cluster/")
    assert (laptop.home / "repo" / "mlflow-of-the-cluster" / "mlflow.db").exists()
    at_home(f"ray exec {FILE} 'sh ~/depth-search-harness/{STOP}'")
    at_home(f"ray down -y {FILE}")
    for host in (head, worker1):
        rig.wait_until(f"no process on {host.name}: {host.processes()}", lambda host=host: host.processes() == [], 60)


def _end_of(status: str) -> str | None:
    """How a job ended, by what `ray job status` prints; None while it runs."""
    return next((word for word in ("succeeded", "failed", "was stopped") if f"' {word}" in status.lower()), None)


def _opens(host: rig.Host, address: str, port: int) -> bool:
    """Whether a connection can be made from a host."""
    return host.run(f"timeout 3 bash -c '< /dev/tcp/{address}/{port}'", check=False).returncode == 0


def test_lab_leaves_nothing(tmp_path: Path) -> None:
    """Also when the body fails: no process, no link, no mount of the lab is left on this machine."""
    links = set(Path("/sys/class/net").iterdir())
    base = Path(tempfile.mkdtemp(prefix="harness-lab-", dir="/var/tmp"))
    pids: list[int] = []
    try:
        with pytest.raises(ZeroDivisionError), rig.lab(base, keep=[]) as made:
            one, two = made.add("one"), made.add("two")
            assert _opens(one, two.address, 22), "the hosts do not reach each other"
            one.start("sleep infinity")
            rig.wait_until("the process", lambda: one.processes() == ["sleep infinity"], 20)
            assert two.processes() == [], "hosts see each other's processes"
            pids = [one.pid, two.pid]
            raise ZeroDivisionError
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
        assert set(Path("/sys/class/net").iterdir()) == links
        assert str(base) not in Path("/proc/mounts").read_text()
    finally:
        shutil.rmtree(base)
