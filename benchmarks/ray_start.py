"""What leaving out processes that a run does not need saves of Ray's start; without it Ray starts them all.

In turns, on this machine. It rewrites the raylet's command line (harness/backends/ray_door.py, "few processes"), so it
stays only while Ray takes more than twice the time without.
"""

import statistics
import time
from collections.abc import Iterator
from unittest.mock import patch

import ray

from harness.backends import ray_door
from harness.running.ray_session import ray_session

ROUNDS = 5


def main() -> Iterator[str]:
    everything = {each for each in ray_door.NAMES if each.together == ray_door.START_PROCESS.together}
    there = ray_door.is_there
    _seconds()  # the first start reads Ray from the disk
    rounds = []
    for _ in range(ROUNDS):
        few = _seconds()
        with patch.object(ray_door, "is_there", lambda private: private not in everything and there(private)):
            rounds.append((few, _seconds()))
    for what, number in (("until Ray is there", 0), ("until a first task is done", 1)):
        ratios = [everything_[number] / few[number] for few, everything_ in rounds]
        median = statistics.median(few[number] for few, _ in rounds)
        yield (
            f"{what}: all processes take {statistics.median(ratios):.1f} times what the needed ones do "
            f"({min(ratios):.1f} to {max(ratios):.1f} in {ROUNDS} rounds; {median:.1f} s here)"
        )


def _seconds() -> tuple[float, float]:
    before = time.perf_counter()
    with ray_session(None):
        started = time.perf_counter()
        ray.get(ray.remote(lambda: None).remote())
        return started - before, time.perf_counter() - before
