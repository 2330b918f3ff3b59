"""The end of a run, while another thread (the one that writes MLflow) still works."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

# The second thread is the garbage collector's usual host: it collects whenever collecting is allowed.
LEAVES_RAY = """
import gc, threading
import ray
from harness.running.ray_session import ray_session

gc.set_threshold(0)  # only the thread below collects
gc.freeze()  # it need not look through all that was imported each time
garbage, over = [], threading.Event()

def collect():
    while not over.is_set():
        if gc.isenabled():
            garbage and garbage.pop()
            gc.collect()

with ray_session(None):
    for number in range(2000):
        cycle = [ray.put(number)]
        cycle.append(cycle)
        garbage.append(cycle)
    thread = threading.Thread(target=collect)
    thread.start()
print("left Ray with", "garbage" if garbage else "nothing")
over.set()
thread.join()
"""


@pytest.mark.slow
def test_garbage_of_rays_is_not_freed_while_ray_shuts_down() -> None:
    """Else Ray ends the process ("The core worker has already been shutdown"), seen in a run on a cluster."""
    root = Path(__file__).parent.parent.parent
    temp = tempfile.mkdtemp(prefix="ht-", dir="/tmp")  # short: Ray puts sockets below it
    environment = {**os.environ, "PYTHONPATH": str(root), "RAY_TMPDIR": temp}
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_RAY], env=environment, capture_output=True, text=True, timeout=240
    )
    shutil.rmtree(temp, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    assert "left Ray with garbage" in done.stdout
