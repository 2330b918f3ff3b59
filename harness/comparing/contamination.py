"""Timings on a shared machine can mislead: did a second buy the same work for every method?"""

import itertools
import math
from collections.abc import Sequence

from harness.comparing.finished import ByMethod, Finished
from harness.comparing.values import Contamination, Pair
from harness.measures import DEVICE_SECONDS, TFLOP

STEP_TOLERANCE = 1.25  # seconds per training sample at equal depth, between two methods
RATIO_TOLERANCE = 1.5  # cost ratio in device-seconds against the one in TFLOP


def contamination(by_method: ByMethod, pairs: Sequence[Pair]) -> Contamination:
    return Contamination(signs=(*_unequal_steps(by_method), *_disagreeing_ratios(pairs)))


def _unequal_steps(by_method: ByMethod) -> list[str]:
    """The pair of methods whose training steps differ most at equal depth, when that is too much."""
    speeds = {method: _seconds_per_sample(units) for method, units in by_method.items()}
    worst = (1.0, "", "")
    for first, second in itertools.combinations(speeds, 2):
        common = speeds[first].keys() & speeds[second].keys()
        if common:
            logs = [math.log(speeds[first][network] / speeds[second][network]) for network in common]
            ratio = math.exp(sum(logs) / len(logs))
            slow, fast = (first, second) if ratio > 1 else (second, first)
            worst = max(worst, (max(ratio, 1 / ratio), slow, fast))
    ratio, slow, fast = worst
    if ratio <= STEP_TOLERANCE:
        return []
    return [f"at equal depth {slow} took {ratio:.2f}× as long for a training step as {fast}"]


def _seconds_per_sample(units: Sequence[Finished]) -> dict[tuple[str, int], float]:
    """By (kind, depth). Trials with several attempts are left out: their counters may hold work done twice."""
    seen: dict[tuple[str, int], list[float]] = {}
    for unit in units:
        for trial in unit.trials:
            usable = trial.status != "failed" and len(trial.attempts) <= 1
            if usable and trial.cost.samples and trial.cost.train_seconds > 0:
                kind = unit.method if trial.learns_depth else trial.kind
                seen.setdefault((kind, trial.depth), []).append(trial.cost.train_seconds / trial.cost.samples)
    return {network: sum(values) / len(values) for network, values in seen.items()}


def _disagreeing_ratios(pairs: Sequence[Pair]) -> list[str]:
    signs = []
    for pair in pairs:
        if not {DEVICE_SECONDS.key, TFLOP.key} <= pair.cost_ratios.keys():
            continue
        seconds, tflop = pair.cost_ratios[DEVICE_SECONDS.key].mean, pair.cost_ratios[TFLOP.key].mean
        if max(seconds / tflop, tflop / seconds) > RATIO_TOLERANCE:
            signs.append(
                f"{pair.baseline} costs {seconds:.2g}× {pair.method}'s device time, and {tflop:.2g}× its TFLOP"
            )
    return signs
