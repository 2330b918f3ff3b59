"""Wall-clock on w devices: of replayed units by their replays, else modelled from recorded trial durations.

Nothing here was measured on w devices.
"""

import heapq
from collections.abc import Sequence

from harness.comparing.finished import Finished
from harness.comparing.values import WallClock
from harness.schema.records import WALL_CLOCK_DEVICES


def wall_clock(method: str, units: Sequence[Finished]) -> WallClock:
    """Mean over seeds of the modelled seconds at 1, 2, 4 and 8 devices."""
    modelled: dict[int, float | None] = {}
    for devices in WALL_CLOCK_DEVICES:
        seconds = [_unit_seconds(unit, devices) for unit in units]
        known = [value for value in seconds if value is not None]
        modelled[devices] = sum(known) / len(known) if len(known) == len(seconds) else None
    return WallClock(method=method, seconds=modelled)


def _unit_seconds(unit: Finished, devices: int) -> float | None:
    """None: a trial that holds more than `devices` does not fit."""
    if unit.plan.replayed and unit.result.replayed_wall_seconds:
        return unit.result.replayed_wall_seconds.get(devices)
    held = max((trial.cost.devices for trial in unit.trials), default=1.0)
    slots = int(devices / held + 1e-9) if held > 0 else devices
    if slots < 1:
        return None
    if unit.facts.adaptive:  # with more at once it would have chosen and stopped otherwise
        slots = min(slots, unit.result.concurrency or slots)
    slots = min(slots, unit.facts.most_at_once or slots)
    return list_schedule([trial.cost.held_seconds for trial in unit.trials], slots)


def list_schedule(durations: Sequence[float], workers: int) -> float:
    """The end of the last trial when each, in its order, goes to the worker that is free first; no trial is spread."""
    free_at = [0.0] * workers
    for duration in durations:
        heapq.heapreplace(free_at, free_at[0] + duration)
    return max(free_at)
