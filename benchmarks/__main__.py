"""`python -m benchmarks [name …]`: prints ratios measured side by side, never a time to hold anybody to."""

import importlib
import sys

ALL = (
    *("steps", "checkpoints", "compiling", "tracking", "runner", "replay", "memory", "cluster", "utilisation"),
    *("verdicts", "ray_start"),
)

for name in sys.argv[1:] or ALL:
    print(f"--- {name}", flush=True)
    for line in importlib.import_module(f"benchmarks.{name}").main():
        print(line, flush=True)
