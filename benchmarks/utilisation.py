"""How much of the devices' time is training, over ten minutes of a head-to-head: Σ train ÷ (workers × wall).

    python -m benchmarks utilisation

Wall is everything from the call to the last result on disk, Ray's own start included.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from harness.methods import parse_methods
from harness.options import RunOptions
from harness.running import runner
from harness.spaces import load_space

WORKERS = 2
MINUTES = 10.0


def main() -> Iterator[str]:
    methods, seeds = parse_methods("ldn,grid,asha"), range(20)
    with tempfile.TemporaryDirectory() as folder:
        # No trial starts past the cost limit: it ends the run, whatever the machine's speed.
        options = RunOptions(out=Path(folder), workers=WORKERS, max_cost=WORKERS * 60 * MINUTES)
        units = runner.make_units([load_space("spirals")], methods, seeds, options)
        began = time.perf_counter()
        runner.run_units(units, options)
        wall = time.perf_counter() - began
    trained = [log for unit in units for log in unit.search_logs()]  # of units that the limit left unfinished, too
    phases: dict[str, float] = {}
    for log in trained:
        for phase, seconds in log.cost(devices=1.0).phases.items():
            phases[phase] = phases.get(phase, 0.0) + seconds
    trials = len(trained)
    share = {phase: seconds / (WORKERS * wall) for phase, seconds in sorted(phases.items(), key=lambda item: -item[1])}
    yield f"spirals, ldn + grid + asha: {trials} trials in {wall:.0f} s on {WORKERS} workers"
    both = share["train"] + share["validate"]
    yield f"training is {share['train']:.3f} of the devices' time   goal ≥ 0.95; {both:.3f} with its validations"
    rest = ", ".join(f"{phase} {part:.3f}" for phase, part in share.items() if phase != "train" and part >= 0.0005)
    yield f"  the rest: {rest}, no trial on the device {1 - sum(share.values()):.3f}"
