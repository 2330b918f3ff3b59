"""The host of a head dies on a network of its own, and another host continues from the storage alone.

Simulated hosts, real Rays, a real run with a method, a network and data of its own; moto's server, on a host of its
own, stands in for S3.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cluster import rig
from tests.cluster.test_ray_up import LONG, ROOT, SERVE
from tests.running.results import ledger, read

pytestmark = [pytest.mark.slow, pytest.mark.skipif(rig.missing() is not None, reason=rig.missing() or "")]

BIN = Path(sys.prefix) / "bin"
ENV = {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", "MLFLOW_DISABLE_TELEMETRY": "true"}
ENV |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
ENV |= {"PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin"}
EXPORTS = "; ".join(f"export {name}={value}" for name, value in ENV.items())
BUCKET, PORT = "depth-search", 9000
SPACE = """
name: mine
data: {kind: arrays, path: own.npz}
network: {kind: my_net.py, width: 8}
depth: {min: 0, max: 4}
training: {max_epochs: 1500, patience: 1500, eval_every: 10, report_every: 30}
budget: {trials: 3}
"""
METHOD = '''
from harness.methods.ldn import LearntDepth


class Mine(LearntDepth):
    """A learnt depth of my own."""

    colour = "#999999"
'''
NETWORK = '''
from torch import nn

from harness.networks.base import Network, Residual


class MyNet(Network):
    """Blocks of my own."""

    width: int = 4

    def stem(self, shape):
        return nn.Linear(shape[0], self.width)

    def block(self, number):
        return Residual(nn.Linear(self.width, self.width), nn.LayerNorm(self.width), nn.GELU())

    def head(self, n_classes, n_heads):
        return nn.Linear(self.width, n_classes)
'''
METHODS = ("asha", "mine")
MAKE_BUCKET = f"""
import boto3, sys, time
client = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1")
for _ in range(200):
    try:
        client.create_bucket(Bucket="{BUCKET}")
        break
    except Exception:
        time.sleep(0.5)
"""


@pytest.fixture
def lab() -> Iterator[rig.Lab]:
    base = Path(tempfile.mkdtemp(prefix="harness-lab-", dir="/var/tmp"))  # /tmp is each host's own
    try:
        with rig.lab(base, keep=[ROOT, Path(sys.prefix), Path(sys.base_prefix)], hide=[SERVE]) as made:
            yield made
    finally:
        shutil.rmtree(base)


def with_project(folder: Path) -> Path:
    """What a user has, on any host."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    np.savez(folder / "own.npz", x_train=rng.normal(size=(120, 2)) + 2 * y[:, None], y_train=y)
    (folder / "mine.yaml").write_text(SPACE)
    (folder / "mine.py").write_text(METHOD)
    (folder / "my_net.py").write_text(NETWORK)
    return folder


def on(host: rig.Host, command: str, check: bool = True) -> str:
    done = host.run(f"{EXPORTS}; {command}", timeout=LONG, check=check)
    assert done.returncode == 0, f"{host.name}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def ray_on(host: rig.Host, head: rig.Host, cpus: int) -> None:
    what = "--head --port=6379 --include-dashboard=false" if host is head else f"--address={head.address}:6379"
    on(host, f"ray start {what} --node-ip-address={host.address} --num-cpus={cpus}")


def reports(out: Path) -> int:
    return sum(bool(event.get("report", {}).get("progress")) for event in ledger(out, "asha", space="mine"))


def hosts_of(out: Path) -> list[str]:
    facts = [event.get("report", {}).get("facts") for event in ledger(out, "asha", space="mine")]
    return [each["host"] for each in facts if each]


@pytest.mark.parametrize("kind", ["s3", "shared folder"])
def test_a_new_head_continues_from_the_storage_alone(lab: rig.Lab, tmp_path: Path, kind: str) -> None:
    heads = [lab.add(name, sshd=False) for name in ("head1", "head2")]
    workers = [lab.add(name, sshd=False) for name in ("worker1", "worker2")]
    laptop = lab.add("laptop", sshd=False)
    storage = str(lab.shared / "depth-search")
    if kind == "s3":
        store = lab.add("store", sshd=False)
        store.start(f"moto_server -H {store.address} -p {PORT}", **ENV)
        (store.home / "make_bucket.py").write_text(MAKE_BUCKET)
        on(store, f"python ~/make_bucket.py http://{store.address}:{PORT}")
        storage = f"s3://{BUCKET}/runs?scheme=http&endpoint_override={store.address}:{PORT}&region=us-east-1"
    run = "harness run mine.yaml --methods asha,mine.py --concurrency 1 --workers 1"
    for host in (*heads, laptop):
        with_project(host.home / "project")
    outs = [Path(storage) if kind != "s3" else host.home / "project" / "results" for host in (*heads, laptop)]

    def job(more: str = "") -> str:
        return f"cd ~/project && RAY_ADDRESS=auto {run} --storage '{storage}' {more} > log 2>&1"

    ray_on(heads[0], heads[0], cpus=0)
    ray_on(workers[0], heads[0], cpus=1)
    heads[0].start(job(), **ENV)
    rig.wait_until("reports from the first worker", lambda: reports(outs[0]) > 10, LONG)
    workers[0].kill()
    ray_on(workers[1], heads[0], cpus=1)
    rig.wait_until("reports from the second worker", lambda: "worker2" in hosts_of(outs[0]), LONG)
    before = reports(outs[0])
    rig.wait_until("more reports", lambda: reports(outs[0]) > before + 5, LONG)
    heads[0].kill()
    workers[1].kill()
    assert not (outs[0] / "mine/asha/seed-0/result.json").exists(), "the search was over before its head died"

    ray_on(heads[1], heads[1], cpus=1)
    assert kind != "s3" or not outs[1].exists(), "the new head has the storage alone"
    on(heads[1], f"{job('--take-over')} || (cat log; exit 1)", check=False)
    assert hosts_of(outs[1])[-1] == "head2" and {"worker1", "head2"} <= {*hosts_of(outs[1])}

    on(laptop, f"cd ~/project && {run} --out undisturbed")
    if kind == "s3":
        on(laptop, f"cd ~/project && harness pull '{storage}'")
    for method in METHODS:
        there = read(outs[1], method, space="mine")
        assert there == read(laptop.home / "project" / "undisturbed", method, space="mine")
        assert there == read(outs[2], method, space="mine")
    out = storage if kind != "s3" else "results"
    view = f"cd ~/project && harness compare mine --format json --out {out} && harness report mine --out {out}"
    seen = [on(host, f"{view} && cat {out}/mine/report.html") for host in (heads[1], laptop)]
    assert seen[0] == seen[1] and "<html" in seen[0]
