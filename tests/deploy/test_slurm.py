"""deploy/slurm: the batch script on simulated hosts, with stubs for `srun` and `scontrol`. No Slurm runs here.

The stubs do what Slurm documents of the options that the script gives them: a task on each node, the environment of the
script, the end of all tasks when one ends with an error.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import rig
from tests.running.results import ledger, read

pytestmark = [pytest.mark.slow, pytest.mark.skipif(rig.missing() is not None, reason=rig.missing() or "")]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "slurm" / "depth_search.sbatch"
EPOCHS = 800
SETTINGS = ("depth.min=1", "depth.max=2", "training.report_every=40", f"training.max_epochs={EPOCHS}")
RUN = ("quickstart", "--methods", "grid", "--cpus-per-trial", "2", "--concurrency", "1")
COMMAND = (*RUN, *(part for each in (*SETTINGS, f"training.patience={EPOCHS}") for part in ("--set", each)))
LONG = 900  # seconds; only a broken run, or a very busy machine, comes near it

SRUN = """#!/bin/bash
# srun [options] COMMAND…: COMMAND on each node; with the first that ends with an error all are ended, and so does this.
bad_exit=0
while [[ $1 == --* ]]; do [[ $1 == --kill-on-bad-exit=1 ]] && bad_exit=1; shift; done
export -p > "$STUBS/environment"; export -f >> "$STUBS/environment"; declare -f >> "$STUBS/environment"
ssh="ssh -i $STUBS/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
ssh="$ssh -o ServerAliveInterval=1 -o ServerAliveCountMax=3 -o ConnectTimeout=5"
declare -A tasks
for node in $NODES; do
    $ssh root@$node ". $STUBS/environment; cd /; exec setsid --wait $(printf '%q ' "$@")" &
    tasks[$!]=$node
done
worst=0
for _ in $NODES; do
    wait -n -p ended; code=$?
    echo "${tasks[$ended]}: $code" >> "$STUBS/ended"
    [ $code -gt $worst ] && worst=$code
    unset "tasks[$ended]"
    if [ $code != 0 ] && [ $bad_exit = 1 ]; then
        for node in "${tasks[@]}"; do $ssh root@$node "pkill -KILL -f 'symmetric-run|bin/harness|ray/' ; true"; done
        break
    fi
done
exit $worst
"""
SCONTROL = """#!/bin/bash
echo "$@" >> "$STUBS/asked"
"""


@pytest.fixture
def lab() -> Iterator[rig.Lab]:
    base = Path(tempfile.mkdtemp(prefix="harness-lab-", dir="/var/tmp"))  # /tmp is each host's own
    try:
        with rig.lab(base, keep=[ROOT, Path(sys.prefix), Path(sys.base_prefix)]) as made:
            yield made
    finally:
        shutil.rmtree(base)


class Allocation:
    """A job of Slurm's: its nodes, and its batch script on the first of them."""

    def __init__(self, lab: rig.Lab) -> None:
        self.lab, self.stubs, self.restarts = lab, lab.base / "stubs", -1
        self.stubs.mkdir()
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            (self.stubs / name).write_text(text)
            (self.stubs / name).chmod(0o755)
        shutil.copy(lab.key, self.stubs / "key")
        (self.stubs / "key").chmod(0o600)
        self.log = lab.base / "job.log"

    def start(self, hosts: Sequence[rig.Host]) -> "subprocess.Popen[bytes]":
        """As after `sbatch`, and after Slurm has put the job into the queue again."""
        self.restarts += 1
        env = {
            "PATH": f"{self.stubs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "STUBS": str(self.stubs),
            "NODES": " ".join(host.address for host in hosts),
            "HARNESS_ENV": sys.prefix,
            "HARNESS_STORAGE": str(self.lab.shared),
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NUM_NODES": str(len(hosts)),
            "SLURM_CPUS_ON_NODE": "2",
            "SLURM_SUBMIT_DIR": str(self.lab.base),
            "SLURM_RESTART_COUNT": str(self.restarts),
        }
        words = shlex.join(["bash", str(SCRIPT), *COMMAND])
        return hosts[0].start(f"cd {self.lab.base} && {words} >> {self.log} 2>&1", **env)

    def said(self) -> str:
        return self.log.read_text()


def _without_ray(host: rig.Host) -> bool:
    return not any("raylet" in line or "gcs_server" in line for line in host.processes())


def in_the_middle(out: Path, job: "subprocess.Popen[bytes]", allocation: "Allocation") -> bool:
    """A trial has reported, and is not about to end."""
    assert job.poll() is None, allocation.said()
    reports = [event["report"]["progress"] for event in ledger(out, "grid") if event.get("report", {}).get("progress")]
    return bool(reports) and reports[-1]["epoch"] < 0.8 * EPOCHS


def test_a_lost_host_a_failing_worker_and_then_the_same_results(lab: rig.Lab) -> None:
    head, second, third, fourth = (lab.add(name) for name in ("node1", "node2", "node3", "node4"))
    job, out = Allocation(lab), lab.shared

    running = job.start([head, second, third])
    rig.wait_until(f"a trial: {job.log}", partial(in_the_middle, out, running, job), LONG)
    lost = third  # whichever host a trial is on: the job ends with any of its nodes
    lost.kill()
    assert running.wait(timeout=LONG) != 0, job.said()

    # Slurm starts it again on other nodes; this time the Ray of a worker dies.
    reached = len(ledger(out, "grid"))
    running = job.start([head, second, fourth])
    rig.wait_until("it to continue", lambda: len(ledger(out, "grid")) > reached + 2, LONG)
    fourth.run("pkill -KILL raylet")
    assert running.wait(timeout=LONG) != 0, job.said()
    assert f"{fourth.address}: 1" in (job.stubs / "ended").read_text(), "the worker's own exit code"
    assert "node4: Ray has ended here, and the run has not" in job.said()

    (job.stubs / "ended").unlink()
    running = job.start([head, second, fourth])
    assert running.wait(timeout=LONG) == 0, job.said()
    assert f"results: {out} on node1" in job.said() and "report: " in job.said()
    ends = (job.stubs / "ended").read_text().splitlines()
    assert sorted(ends) == sorted(f"{host.address}: 0" for host in (head, second, fourth))
    for host in (head, second, fourth):
        rig.wait_until(f"no Ray on {host.name}", partial(_without_ray, host), 60)
    assert not (job.stubs / "asked").exists(), "it asked to be started again, and the time was not over"

    alone = shlex.join(["harness", "run", *COMMAND, "--address", "local", "--out", str(lab.base / "alone")])
    path = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    head.run(alone, timeout=LONG, PATH=path, PYTHONPATH=str(ROOT), RAY_USAGE_STATS_ENABLED="0")
    assert read(out, "grid") == read(lab.base / "alone", "grid")


def test_when_the_time_is_over_the_run_stops_in_order_and_the_job_is_queued_again(lab: rig.Lab) -> None:
    head = lab.add("node1")
    job = Allocation(lab)
    running = job.start([head])
    rig.wait_until(f"a trial: {job.log}", partial(in_the_middle, lab.shared, running, job), LONG)
    head.run(f"pkill -TERM -f '^bash {SCRIPT}'")  # as Slurm signals the batch script alone: --signal=B:TERM
    assert running.wait(timeout=LONG) not in (0, 137), job.said()
    assert (job.stubs / "asked").read_text() == "requeue 4711\n"
    assert "stopp" in job.said().lower(), job.said()


def test_the_script_asks_for_what_it_relies_on() -> None:
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", SCRIPT.read_text(), re.MULTILINE))
    assert {"exclusive", "requeue"} <= asked.keys() and asked["ntasks-per-node"] == "1"
    assert asked["signal"].startswith("B:TERM@") and asked["open-mode"] == "append"
    options: Any = subprocess.run(
        [Path(sys.prefix) / "bin" / "ray", "start", "--help"], capture_output=True, text=True, check=True
    ).stdout
    [line] = re.findall(r"ray symmetric-run ((?:.|\n)*?) -- harness run", SCRIPT.read_text())
    for option in re.findall(r"--[\w-]+", line):
        assert option in options or option == "--min-nodes"
