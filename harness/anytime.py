"""How good a search was after spending a given cost: the incumbent's validation log-likelihood against device-seconds.

Every report of every trial counts, in the order of the clock: a trial keeps its best parameters, so stopping the search
at that moment would have yielded that network. Cost is what ALL trials of the search had spent by then.
"""

from bisect import bisect_right
from collections.abc import Sequence

from harness.records import TrialRecord

STEPS_PER_DECADE = 20  # neighbouring grid points differ by 12 %


def incumbent_curve(trials: Sequence[TrialRecord]) -> list[tuple[float, float]]:
    """(device-seconds spent by the search, best validation log-likelihood so far), at every improvement and the end."""
    reports = sorted(
        (_clock(trial, point.device_seconds), point.val_log_likelihood) for trial in trials for point in trial.curve
    )
    curve: list[tuple[float, float]] = []
    for clock, value in reports:
        if not curve or value > curve[-1][1]:
            curve.append((sum(_spent(trial, clock) for trial in trials), value))
    total = sum(trial.cost.device_seconds for trial in trials)
    if curve and total > curve[-1][0]:
        curve.append((total, curve[-1][1]))
    return curve


def on_cost_grid(curve: Sequence[tuple[float, float]]) -> list[tuple[int, float]]:
    """The curve at whole milliseconds 10^(k/20), a grid that is the same for every search whatever it cost.

    Runs from the first grid point that has an incumbent to the first one that covers the whole search.
    """
    if not curve:
        return []
    costs = [cost for cost, _ in curve]
    points: list[tuple[int, float]] = []
    for exponent in range(20 * STEPS_PER_DECADE):
        step = round(10 ** (exponent / STEPS_PER_DECADE))
        known = bisect_right(costs, step / 1000)
        if known and (not points or step > points[-1][0]):
            points.append((step, curve[known - 1][1]))
        if step / 1000 >= costs[-1]:
            break
    return points


def _clock(trial: TrialRecord, device_seconds: float) -> float:
    """The moment a trial had spent that much, its spending spread evenly from its start to its end."""
    share = device_seconds / trial.cost.device_seconds if trial.cost.device_seconds else 1.0
    return trial.started_at + min(share, 1.0) * (trial.ended_at - trial.started_at)


def _spent(trial: TrialRecord, clock: float) -> float:
    if clock >= trial.ended_at:
        return trial.cost.device_seconds
    share = (clock - trial.started_at) / (trial.ended_at - trial.started_at)
    return max(share, 0.0) * trial.cost.device_seconds
