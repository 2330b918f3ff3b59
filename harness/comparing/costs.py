"""What a method costs, seen every way: where its time went, until when it was as good, on more devices, and whether
seconds can be trusted at all.
"""

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.comparing.finished import ByMethod, Finished, paired
from harness.comparing.values import Contamination, EqualQuality, Pair, Phases, Reached, WallClock
from harness.measures import DEVICE_SECONDS, TFLOP, Measure
from harness.schema import curves
from harness.schema.records import PHASES, WALL_CLOCK_DEVICES
from harness.statistics import ratio_interval
from harness.text.shown import counted

Array = NDArray[np.float64]

ORDERS = 1000  # of the trials of a method whose order means nothing
LARGEST_OTHER = 0.03  # of held time, for trials of more than LONG_SECONDS
LONG_SECONDS = 10.0
STEP_TOLERANCE = 1.25  # seconds per training sample at equal depth, between two methods
RATIO_TOLERANCE = 1.5  # cost ratio in device-seconds against the one in TFLOP

# --- where the time went, and whether the parts add up ----------------------------------------------------------------


def phases_of(method: str, units: Sequence[Finished]) -> Phases:
    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    refits = [unit.result.refit.cost.device_seconds for unit in units if unit.result.refit is not None]
    return Phases(
        method=method,
        device_seconds={phase: mean([_phase(unit, phase) for unit in units]) for phase in PHASES},
        total=mean([unit.result.cost.device_seconds for unit in units]),
        worker_start=mean([unit.result.worker_start_device_seconds for unit in units]),
        final_eval=mean([unit.result.final.seconds for unit in units]),
        refit=mean(refits) if len(refits) == len(units) else None,
        driver_seconds=mean([unit.result.driver_seconds for unit in units]),
        queue_seconds=mean([sum(trial.queue_seconds for trial in unit.trials) for unit in units]),
    )


def pace(units: Sequence[Finished]) -> float | None:
    """Seconds of a clock per seed during which something was trained, here and now: what one more seed would take."""
    trained = [unit for unit in units if not unit.plan.replayed]
    stays = sorted((trial.started_at, trial.ended_at) for unit in trained for trial in unit.trials)
    busy, until = 0.0, 0.0
    for start, end in stays:
        busy, until = busy + max(0.0, end - max(start, until)), max(until, end)
    seeds = {unit.seed for unit in trained}
    return busy / len(seeds) if seeds and busy else None


def unexplained(units: Sequence[Finished]) -> list[str]:
    """Sentences about records whose parts do not sum to their whole."""
    faults = []
    for unit in units:
        name = f"{unit.method} seed {unit.seed}"
        total = unit.result.cost.device_seconds
        parts = sum(trial.cost.device_seconds for trial in unit.trials)
        if abs(total - parts) > 0.001 * max(total, parts):
            faults.append(f"{name}: its trials add up to {parts:.4g} device-seconds, its result says {total:.4g}")
        long = [trial for trial in unit.trials if trial.cost.held_seconds > LONG_SECONDS]
        leaky = [
            trial for trial in long if trial.cost.phases.get("other", 0.0) > LARGEST_OTHER * trial.cost.held_seconds
        ]
        if leaky:
            of = f"{len(leaky)} of {counted(len(long), 'long trial')} {'has' if len(leaky) == 1 else 'have'}"
            faults.append(f"{name}: {of} more than 3 % unexplained time")
    return faults


def _phase(unit: Finished, phase: str) -> float:
    return sum(trial.cost.phases.get(phase, 0.0) * trial.cost.devices for trial in unit.trials)


# --- the best validation log-likelihood so far against the device-seconds spent so far --------------------------------


@dataclass(frozen=True)
class Trajectory:
    """Incumbent against cost, a row per order of the trials, or per search: `best[o, i]` holds from `cost[o, i]` on.

    `best` is −∞ as long as nothing has succeeded. A search that decides from what it has seen, and was not replayed,
    has one row: its own.
    """

    cost: Array
    best: Array

    def cost_to_reach(self, target: float) -> float | None:
        """Expected cost until the incumbent is at least `target`: all that was spent until then ÷ rows that got there.

        Of rows that all get there it is the mean. One that never does is paid for in full: it would be begun again with
        another seed (the expected running time of Hansen et al.: COCO, 2021). None: no row gets there.
        """
        reached = self.best[:, -1] >= target if self.best.size else np.array([False])
        if not reached.any():
            return None
        first = np.where(reached, (self.best >= target).argmax(axis=1), self.cost.shape[1] - 1)
        return float(self.cost[np.arange(len(first)), first].sum() / reached.sum())

    def best_at(self, grid: Array) -> Array:
        """Mean incumbent over rows at each cost of `grid`; NaN until every row has one."""
        if not self.best.size:
            return np.full(len(grid), np.nan)
        values = np.empty((len(self.cost), len(grid)))
        for row, (cost, best) in enumerate(zip(self.cost, self.best, strict=True)):
            index = np.searchsorted(cost, grid, side="right") - 1
            values[row] = np.where(index >= 0, best[np.maximum(index, 0)], -np.inf)
        return np.where(np.isfinite(values).all(axis=0), values.mean(axis=0), np.nan)


def rungs_of(units: Sequence[Finished]) -> frozenset[int]:
    """Epochs at which the method's scheduler stopped a trial on any seed."""
    return curves.rungs_of(trial for unit in units for trial in unit.trials)


def trajectory(unit: Finished, rungs: frozenset[int] = frozenset()) -> Trajectory:
    """Over searches with other seeds where they were replayed, over orders where these mean nothing, or its own."""
    if unit.result.replayed_searches:
        return _rows(unit.result.replayed_searches)
    if not unit.facts.ordered:
        return _over_orders(unit)
    return _rows([curves.incumbents(unit.trials, rungs)])


def _rows(searches: Sequence[Sequence[tuple[float, float]]]) -> Trajectory:
    """Of unequal lengths: after its end a search stays where it is."""
    longest = max(map(len, searches))
    padded = [[*search, *list(search[-1:]) * (longest - len(search))] for search in searches]
    both = np.array(padded, dtype=np.float64).reshape(len(searches), longest, 2)
    return Trajectory(both[:, :, 0], both[:, :, 1])


def _over_orders(unit: Finished) -> Trajectory:
    costs = np.array([trial.cost.device_seconds for trial in unit.trials])
    values = np.array([trial.val.log_likelihood if trial.val else -np.inf for trial in unit.trials])
    rng = np.random.default_rng(unit.seed)
    orders = rng.permuted(np.tile(np.arange(len(costs)), (ORDERS, 1)), axis=1)
    return Trajectory(costs[orders].cumsum(axis=1), np.maximum.accumulate(values[orders], axis=1))


# --- cost at equal quality: how soon one method reaches what the other ended with, both ways --------------------------


def equal_quality(reference: Sequence[Finished], baseline: Sequence[Finished], margin: float) -> EqualQuality | None:
    """Targets are final validation log-likelihoods minus `margin`; None without a common seed."""
    pairs = paired(reference, baseline)
    if not pairs:
        return None
    seeds = tuple(ours.seed for ours, _ in pairs)
    baseline_costs = _costs_to_reach([(theirs, ours) for ours, theirs in pairs], rungs_of(baseline), margin)
    reference_costs = _costs_to_reach(pairs, rungs_of(reference), margin)
    reached = [cost for cost in baseline_costs if cost is not None]
    whole = [ours.result.cost.device_seconds for ours, _ in pairs]
    # A ratio over only those seeds that reached the target would flatter the baseline.
    all_reached = len(reached) == len(pairs) and min((*reached, *whole)) > 0
    return EqualQuality(
        baseline=baseline[0].method,
        baseline_reaches=Reached(seeds=seeds, device_seconds=baseline_costs),
        reference_reaches=Reached(seeds=seeds, device_seconds=reference_costs),
        speed_up=ratio_interval(reached, whole) if all_reached else None,
    )


def _costs_to_reach(
    pairs: Sequence[tuple[Finished, Finished]], rungs: frozenset[int], margin: float
) -> tuple[float | None, ...]:
    """Per seed: the first unit's cost at which it came within the margin of the second unit's final value."""
    return tuple(
        trajectory(runner, rungs).cost_to_reach(other.result.val.log_likelihood - margin) for runner, other in pairs
    )


# --- wall-clock on w devices ------------------------------------------------------------------------------------------


def wall_clock(method: str, units: Sequence[Finished]) -> WallClock:
    """Mean over seeds of the seconds at 1, 2, 4 and 8 devices: of replayed units by their replays, else modelled from
    recorded trial durations. Nothing here was measured on so many devices.
    """
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


# --- whether seconds can be trusted -----------------------------------------------------------------------------------


def contamination(by_method: ByMethod, pairs: Sequence[Pair]) -> Contamination:
    """Timings on a shared machine can mislead: did a second buy the same work for every method?"""
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


def leading_cost(doubts: Contamination) -> Measure:
    """What the text speaks of first: seconds, unless they mislead."""
    return TFLOP if doubts.found else DEVICE_SECONDS
