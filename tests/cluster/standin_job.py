"""Stands in for `harness run` in the cluster test: doctors the cluster, then holds six CPUs until told to go.

    python standin_job.py SHARED_FOLDER

Each attempt at a unit leaves a file when it starts, so the test sees which host holds what, and what was done twice.
"""

import dataclasses
import json
import os
import socket
import sys
import time
import uuid
from pathlib import Path

import ray

import harness
from harness.doctor import doctor

UNITS = 6


@ray.remote(num_cpus=1, max_retries=5, scheduling_strategy="SPREAD")
def unit(number: int, shared: Path) -> str:
    host = socket.gethostname()
    started = time.monotonic()
    (shared / "attempts" / f"{number}-{host}-{uuid.uuid4().hex[:6]}").touch()
    while not (shared / "go").exists():
        time.sleep(0.2)
    result = {"unit": number, "host": host, "held_seconds": time.monotonic() - started}
    (shared / "results" / f"{number}.json").write_text(json.dumps(result))
    return host


def main() -> None:
    shared = Path(sys.argv[1])
    for folder in ("attempts", "results"):
        (shared / folder).mkdir()
    ray.init(address="auto", log_to_driver=False)
    unshared = Path.home() / "unshared"
    unshared.mkdir(exist_ok=True)
    for name, storage in (("doctor", shared), ("doctor_unshared", unshared)):
        checks = doctor("auto", str(storage), "http://127.0.0.1:5000", gpus_per_trial=0, cpus_per_trial=1)
        partial = shared / f"{name}.partial"
        partial.write_text(json.dumps([dataclasses.asdict(check) for check in checks]))
        partial.rename(shared / f"{name}.json")
    hosts = ray.get([unit.remote(number, shared) for number in range(UNITS)])
    assert Path(harness.__file__).is_relative_to(Path.home() / "depth-search-harness"), "not the mounted code"
    assert os.environ["RAY_AUTH_MODE"] == "token"
    print("done on", *sorted(set(hosts)))


if __name__ == "__main__":
    main()
