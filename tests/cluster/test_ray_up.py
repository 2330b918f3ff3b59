"""`ray up` for real, on three simulated hosts: token, job, a host lost in mid-run, tear-down."""

import functools
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from mlflow import MlflowClient

import harness
from harness import keys
from harness.running.store import read_units
from tests.cluster import rig
from tests.running.results import ledger

pytestmark = [pytest.mark.slow, pytest.mark.skipif(rig.missing() is not None, reason=rig.missing() or "")]

ROOT = Path(__file__).parent.parent.parent
STOP = "ray_cluster_local_stop.sh"
MOUNTED = ("harness", "search_spaces", "pyproject.toml", "README.md", "constraints.txt", STOP)
HOME = "/root/me"  # on the laptop: not the home of the hosts, so that a `~` that the wrong shell reads is noticed
REPO = f"{HOME}/repo"
ENV = {"HOME": HOME, "PYTHONPATH": REPO, "RAY_AUTH_MODE": "token"}
ENV |= {"RAY_UP_enable_autoscaler_v2": "0", "RAY_USAGE_STATS_ENABLED": "0"}
FILE = "ray_cluster_local.yaml"
VERSION = f"{harness.__version__}+lab"  # of the copy that `ray up` mounts: what runs on the hosts is that copy
SERVE = Path(ray.__file__).parent / "serve"  # not used, and half of what each of some 25 `ray` commands imports
LONG = 600  # seconds; only a broken run, or a very busy machine, comes near it
TUNNEL, MLFLOW = "http://127.0.0.1:8265", "http://127.0.0.1:5000"
METHODS = ("ldn", "grid")
CPUS = (os.cpu_count() or 1) / 2 + 0.5  # more than half of a host's: it holds one trial, with half of the threads
EPOCHS = 3000
SETTINGS: tuple[str, ...] = ("depth.min=1", "depth.max=2", "training.report_every=100")  # as many trials as hosts
SETTINGS += (f"training.max_epochs={EPOCHS}", f"training.patience={EPOCHS}")
SMALL = f"--methods {','.join(METHODS)} --cpus-per-trial {CPUS} " + " ".join(f"--set {each}" for each in SETTINGS)


@pytest.fixture
def lab() -> Iterator[rig.Lab]:
    # Not pytest's folder: it lies under /tmp, which is each host's own.
    base = Path(tempfile.mkdtemp(prefix="harness-lab-", dir="/var/tmp"))
    try:
        with rig.lab(base, keep=[ROOT, Path(sys.prefix), Path(sys.base_prefix)], hide=[SERVE]) as made:
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
        install: f"test -f ~/depth-search-harness/constraints.txt || ({install})",  # the doctor reads it
    }
    config["setup_commands"] = [swap.get(command, command) for command in config["setup_commands"]]
    config["setup_commands"].append("echo 'export PYTHONPATH=$HOME/depth-search-harness' >> ~/.depth_search_env")
    return config


def clone(lab: rig.Lab, laptop: rig.Host) -> Path:
    """The user's copy of the repository, as `ray up` finds it."""
    repo = laptop.home / Path(REPO).relative_to("/root")
    repo.mkdir(parents=True)
    for name in MOUNTED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, repo / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, repo / name)
    (repo / "harness" / "__init__.py").write_text(f'__version__ = "{VERSION}"\n')
    (repo / FILE).write_text(yaml.safe_dump(filled_in(lab)))
    return repo


def hosts_in_the_middle(results: Path, checkpoints: Path) -> set[str]:
    """Hosts with a trial that trains, has left a checkpoint and is not about to end."""
    found = set()
    for method in METHODS:
        hosts: dict[str, str] = {}
        for event in ledger(results, method):
            report = event.get("report", {})
            if report.get("facts"):
                hosts[event["trial"]] = report["facts"]["host"]
            elif report.get("progress"):
                far_from_its_end = report["progress"]["epoch"] < 0.9 * EPOCHS
                if far_from_its_end and list(checkpoints.glob(f"quickstart/{method}/seed-0/*/{event['trial']}.pt")):
                    found.add(hosts[event["trial"]])
                else:
                    found.discard(hosts[event["trial"]])
    return found


def test_from_ray_up_to_ray_down(lab: rig.Lab) -> None:
    head, worker1, worker2 = (lab.add(name) for name in ("head", "worker1", "worker2"))
    laptop = lab.add("laptop", sshd=False)
    repo = clone(lab, laptop)
    path = f"PATH={Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"

    def at_home(command: str, *, check: bool = True, **env: str) -> str:
        done = laptop.run(f"cd {REPO} && {path} && {command}", timeout=LONG, check=check, **{**ENV, **env})
        return f"exit {done.returncode}\n{done.stdout}{done.stderr}"

    def on_head(command: str) -> str:
        return at_home(f"ray exec {FILE} {shlex.quote(command)}")

    at_home("ray get-auth-token --generate > /dev/null && chmod 600 ~/.ray/auth_token")
    assert "NO " not in at_home(f"harness doctor {FILE}")
    at_home(f"ray up -y --no-config-cache {FILE}")
    for host in (worker1, worker2):
        rig.wait_until(f"Ray on {host.name}", functools.partial(_runs_ray, host), LONG)

    # The doors: pages only through ssh, no work without the token.
    tunnels = []
    for port in (8265, 5000):
        rig.wait_until(f"port {port} of the head", functools.partial(_opens, head, "127.0.0.1", port), LONG)
        assert not _opens(worker1, head.address, port), f"port {port} of the head is open to its neighbours"
        command = f"ray dashboard {FILE} --port {port} --remote-port {port}"
        tunnels.append(laptop.start(f"cd {REPO} && {path} && {command}", **ENV))
        rig.wait_until(f"the tunnel to {port}", functools.partial(_opens, laptop, "127.0.0.1", port), LONG)
    # No --address, no --storage, no --tracking-uri: in a job, and on the head, they are what the cluster file says.
    run = f"harness run quickstart {SMALL}"
    results = checkpoints = lab.shared
    submit = f"ray job submit --address {TUNNEL} --submission-id first --no-wait -- {run}"
    for stranger in ({"RAY_AUTH_MODE": "disabled", "HOME": "/tmp"}, {"RAY_AUTH_TOKEN": "0" * 64}):
        refused = at_home(submit, check=False, **stranger)
        assert not refused.startswith("exit 0"), refused
        assert "401" in refused or "403" in refused or "oken" in refused, refused

    # The doctor, and the run's own preflight, on a cluster of several machines.
    doctor = "harness doctor"
    fine = rig.wait_until("three nodes", lambda: said if "3 alive" in (said := on_head(doctor)) else "", LONG)
    assert fine.count("\nok    ") == 6 and "written and read by 3 nodes" in fine and f"harness {VERSION}" in fine, fine
    assert f"{3 * (os.cpu_count() or 1)} at once now" in fine, fine
    wrong = "--storage ~/unshared --gpus-per-trial 1 --tracking-uri sqlite:///mlflow.db"
    asked = f"harness doctor {wrong}", f"{run} --storage ~/unshared", "RAY_AUTH_MODE=disabled harness doctor"
    ill = on_head("; ".join(f"{command}; echo exit code $?" for command in asked))
    assert "refuses this process" in ill and "export RAY_AUTH_MODE=token" in ill, ill
    assert "InvalidAuthToken" not in ill, ill
    assert "does not see what" in ill and "no machine ever has that" in ill and "there are 3 machines" in ill, ill
    assert "error: storage: " in ill and "(NFS)" in ill and ill.count("exit code 2") == 3, ill
    assert not (results / "quickstart").exists(), "a run that was refused left something behind"

    submitted = at_home(submit)
    assert "submitted successfully" in submitted, submitted
    workers = {"worker1": worker1, "worker2": worker2}
    middle = rig.wait_until(
        "a trial on a worker", lambda: hosts_in_the_middle(results, checkpoints) & workers.keys(), LONG
    )
    lost = workers.pop(min(middle))
    lost.kill()
    logs = at_home(f"ray job logs --address {TUNNEL} --follow first")
    assert "succeeded" in at_home(f"ray job status --address {TUNNEL} first"), logs
    for said in ("take home: seed ", f"results: {results} on head", f"report: {results}/quickstart"):
        assert said in logs, logs

    at_home(f"ray rsync-down {FILE} '{results}/' ./results/")
    at_home(f"ray rsync-down {FILE} '~/mlflow/' ./mlflow-of-the-cluster/")
    check_results(repo / "results", lost)
    check_mlflow(f"sqlite:///{repo}/mlflow-of-the-cluster/mlflow.db")
    assert "Below each verdict" in at_home("harness compare quickstart --out results")
    assert "results/quickstart/report.html" in at_home("harness report quickstart --out results")

    for tunnel in tunnels:
        os.killpg(tunnel.pid, signal.SIGINT)  # Ctrl-C, as a person ends a tunnel
    on_head(f"sh ~/depth-search-harness/{STOP}")
    at_home(f"ray down -y {FILE}")
    for host in (head, *workers.values()):
        rig.wait_until(f"no process on {host.name}: {host.processes()}", functools.partial(_is_empty, host), 60)


def test_a_taken_dashboard_port_stops_ray_up(lab: rig.Lab) -> None:
    """Ray itself would start without a dashboard, and say so in a log."""
    head = lab.add("head")
    config = yaml.safe_load((ROOT / FILE).read_text())
    [look] = [command for command in config["head_start_ray_commands"] if "/dev/tcp/" in command]
    assert head.run(look).stdout == ""
    listener = head.start(f"{sys.executable} -m http.server --bind 127.0.0.1 8265")
    rig.wait_until("the port to be taken", lambda: _opens(head, "127.0.0.1", 8265), 60)
    stopped = head.run(look, check=False)
    assert stopped.returncode == 1 and "is taken on the head; end what listens there" in stopped.stdout
    os.killpg(listener.pid, signal.SIGKILL)


def check_results(results: Path, lost_host: rig.Host) -> None:
    """Every unit is complete; the one trial that was on the lost host went on elsewhere, and what it lost is paid."""
    units, problems = read_units(results, "quickstart")
    assert not problems and sorted(unit.plan.method for unit in units) == sorted(METHODS)
    again = []
    for unit in units:
        assert unit.result is not None and unit.result.trials_by_status == {"finished": len(unit.trials)}
        lost = [attempt.lost_seconds for trial in unit.trials for attempt in trial.attempts]
        again += [trial.attempts for trial in unit.trials if len(trial.attempts) > 1]
        cost = unit.result.cost
        assert cost.phases["lost"] == pytest.approx(sum(lost))
        assert sum(cost.phases.values()) == pytest.approx(cost.held_seconds)
    [(first, second)] = again
    assert (first.ended, second.ended) == ("died", "finished")
    assert first.host == lost_host.name != second.host
    assert 0 < first.lost_seconds < first.held_seconds and second.resumed_from_epoch > 0, "its checkpoint was not used"


def check_mlflow(uri: str) -> None:
    """The tree: a parent per search, a child per trial, all ended."""
    client = MlflowClient(uri, registry_uri=uri)
    experiment = client.get_experiment_by_name("depth-search/quickstart")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    assert {run.info.status for run in runs} == {"FINISHED"}
    parents = {run.info.run_id: run.info.run_name for run in runs if run.data.tags[keys.TAG_KIND] == keys.KIND_SEARCH}
    children = [parents[run.data.tags["mlflow.parentRunId"]] for run in runs if "mlflow.parentRunId" in run.data.tags]
    assert sorted(parents.values()) == ["grid/s0", "ldn/s0"]
    assert {name: children.count(name) for name in parents.values()} == {"grid/s0": 2, "ldn/s0": 1}


def _runs_ray(host: rig.Host) -> bool:
    lines = host.processes()
    return any("raylet" in line for line in lines) and not any("ray start" in line for line in lines)


def _is_empty(host: rig.Host) -> bool:
    return host.processes() == []


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
