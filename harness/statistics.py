"""Intervals and verdicts on values paired by seed. Pure functions; the numbers come from SciPy.

Student t, not the bootstrap: at three to eight repeats the percentile and BCa bootstrap cover 74 to 88 % where they
promise 95 %.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from scipy import special  # not stats, which takes most of a second to import

from harness.schema.identity import Frozen

LEVEL: Final = 0.05  # of wrong claims, two-sided
SIMULATED: Final = 100_000  # studies, to calibrate looks
MOST_SEEDS = 1000  # beyond this a number of seeds needed is no advice
ENOUGH_RESOLUTION = 3.0  # spread between depths ÷ jitter of the value that chooses, from which on depths are told apart

Quality = Literal["better", "as good", "slightly worse", "worse", "worse beyond the margin"]
Costs = Literal["cheaper", "dearer"]
Outcome = Quality | Costs | Literal["identical", "undecided", "no spread measured", "one seed"]


class Interval(Frozen):
    """A mean over `n` seeds; `low` and `high` are None when there is no interval: one seed, or no spread."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def half_width(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


class Verdict(Frozen):
    """How the reference compares with a baseline in one measure, as far as the seeds tell."""

    outcome: Outcome
    margin: float | None  # by how much it may be worse; None of a cost, which has no margin
    advantage: Interval  # of the reference, positive is better, whatever the measure's own direction; of a cost: logs
    seeds_needed: int | None = None  # in all, rough; where undecided, None when more than MOST_SEEDS

    @property
    def is_decided(self) -> bool:
        return self.outcome not in ("undecided", "no spread measured", "one seed")


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Mean ± t(1 − level/2, n − 1) · s / √n."""
    data = np.asarray(values, dtype=float)
    if data.size == 0:
        raise ValueError("an interval needs at least one value")
    mean = float(data.mean())
    if data.size == 1 or not _has_spread(data):
        return Interval(mean=mean, low=None, high=None, n=data.size)
    half = float(special.stdtrit(data.size - 1, 1 - level / 2)) * float(data.std(ddof=1)) / math.sqrt(data.size)
    return Interval(mean=mean, low=mean - half, high=mean + half, n=data.size)


def difference_interval(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Interval:
    """Mean of the paired differences first − second."""
    return mean_interval([a - b for a, b in zip(first, second, strict=True)], level)


def ratio_interval(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Interval:
    """Geometric mean of the paired ratios first / second; the t interval lives on their logarithms."""
    logs = mean_interval(log_ratios(first, second), level)
    low, high = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
    return Interval(mean=math.exp(logs.mean), low=low, high=high, n=logs.n)


def log_ratios(first: Sequence[float], second: Sequence[float]) -> list[float]:
    pairs = list(zip(first, second, strict=True))
    if any(a <= 0 or b <= 0 for a, b in pairs):
        raise ValueError("a ratio of costs needs positive costs")
    return [math.log(a / b) for a, b in pairs]


# --- verdicts -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """Is the reference better or worse than a baseline, and is it worse by more than the margin?"""

    advantages: tuple[float, ...]  # per seed, positive is better; of a cost: log(baseline / reference)
    margin: float | None = None  # None: a cost
    counted: bool = False  # by the program: no spread is no doubt then. Of what is measured, it is a copied record

    def p_values(self) -> dict[float, float]:
        """Of the two-sided t tests that the mean is 0, and that it is −margin; empty where there is no spread."""
        data = np.asarray(self.advantages)
        if data.size < 2 or not _has_spread(data):
            return {}
        nulls = [0.0] if self.margin is None else [0.0, -self.margin]
        mean, error = float(data.mean()), float(data.std(ddof=1)) / math.sqrt(data.size)
        return {null: 2 * float(special.stdtr(data.size - 1, -abs(mean - null) / error)) for null in nulls}


def judge(questions: Sequence[Question], looks: tuple[int, ...] = ()) -> list[Verdict]:
    """The verdicts on a family of questions: the chance that any claim among them is wrong is at most LEVEL.

    So it is with Gaussian differences. Strongly skewed ones, a few bad seeds among many good ones, make t intervals too
    short: `python -m benchmarks verdicts` says how often claims are wrong then.

    `looks` are the numbers of seeds at which the family is, or would have been, judged: see `over_looks`.

    Holm's procedure with Shaffer's count. Every question has two hypotheses, "the mean is 0" and "it is −margin"; they
    are rejected from the smallest p on, as long as p ≤ level / k. k is the number of questions with a hypothesis left:
    both hypotheses of one question cannot be true, so that many can be, at most.
    """
    p_values = [{null: over_looks(p, looks) for null, p in question.p_values().items()} for question in questions]
    left = [set(found) for found in p_values]
    for p, index, null in sorted((p, i, null) for i, found in enumerate(p_values) for null, p in found.items()):
        if p > LEVEL / sum(map(bool, left)):
            break
        left[index].discard(null)
    strictest = level_of_look(looks) / max(1, sum(map(bool, left)))
    return [
        _verdict(question, set(found) - remaining, level_of_look(looks), strictest)
        for question, found, remaining in zip(questions, p_values, left, strict=True)
    ]


def over_looks(p: float, looks: tuple[int, ...]) -> float:
    """The chance, where the hypothesis is true, that a p this small is seen at any of the looks.

    Whoever looks after every few seeds and stops at the first verdict that pleases is wrong far more often than at one
    look: 11.6 % instead of 2.5 % after each of seeds 3 to 20. Simulated with Gaussian differences; where the simulation
    is too small to tell, the bound looks · p.
    """
    if len(looks) < 2:
        return p
    smallest = _smallest_p(looks)
    seen = int(np.searchsorted(smallest, p, side="right"))
    return min(1.0, len(looks) * p, max(p, (seen + 1) / smallest.size) if seen >= 20 else 1.0)


@functools.cache
def level_of_look(looks: tuple[int, ...]) -> float:
    """The two-sided level of each look that keeps the chance of a wrong claim at any of them at LEVEL."""
    return LEVEL if len(looks) < 2 else float(np.quantile(_smallest_p(looks), LEVEL))


@functools.cache
def _smallest_p(looks: tuple[int, ...]) -> np.ndarray:
    """Of many simulated studies in which the hypothesis is true: the smallest p over the looks, sorted."""
    data = np.random.default_rng(0).standard_normal((SIMULATED, max(looks)))
    sums, squares = data.cumsum(axis=1), (data**2).cumsum(axis=1)
    smallest = np.ones(SIMULATED)
    for n in looks:
        mean = sums[:, n - 1] / n
        std = np.sqrt((squares[:, n - 1] - n * mean**2) / (n - 1))
        smallest = np.minimum(smallest, 2 * special.stdtr(n - 1, -np.abs(mean) / (std / math.sqrt(n))))
    return np.sort(smallest)


def _verdict(question: Question, rejected: set[float], level: float, strictest: float) -> Verdict:
    interval, margin = mean_interval(question.advantages, level), question.margin
    outcome = _outcome(question, interval, rejected)
    distance = max(abs(interval.mean), abs(interval.mean + (margin or 0.0)))  # to whichever is settled first
    needed = _seeds_needed(question.advantages, distance, strictest) if outcome == "undecided" else None
    return Verdict(outcome=outcome, margin=margin, advantage=interval, seeds_needed=needed)


def _outcome(question: Question, interval: Interval, rejected: set[float]) -> Outcome:
    """From the signs that are certain: of the mean, and of its distance to the margin."""
    margin = question.margin
    if interval.n == 1:
        return "one seed"
    if interval.low is None and not any(question.advantages):
        return "identical"
    if interval.low is None:
        return "no spread measured" if not question.counted else "cheaper" if interval.mean > 0 else "dearer"
    sign = math.copysign(1.0, interval.mean) if 0.0 in rejected else 0.0
    if margin is None:
        return "cheaper" if sign > 0 else "dearer" if sign < 0 else "undecided"
    if sign > 0:
        return "better"
    if -margin not in rejected:
        return "worse" if sign < 0 else "undecided"
    if interval.mean < -margin:
        return "worse beyond the margin"
    return "slightly worse" if sign < 0 else "as good"


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's ρ; None for fewer than three pairs or a constant side, where it means nothing."""
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    """From 1 on; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


@functools.cache
def _quantiles(level: float) -> np.ndarray:
    """t(1 − level/2, n − 1) for n = 2 … MOST_SEEDS, at index n − 2."""
    return np.asarray(special.stdtrit(np.arange(1, MOST_SEEDS), 1 - level / 2))


def _has_spread(data: np.ndarray) -> bool:
    """Differences that agree up to rounding are identical: an interval of width 1e-17 would claim certainty."""
    return bool(np.ptp(data) > 1e-12 * max(1.0, float(np.abs(data).max())))


def _seeds_needed(values: Sequence[float], distance: float, level: float) -> int | None:
    """The smallest n whose interval, at the spread seen so far, would be narrower than `distance`. Rough: mean and
    spread are estimates themselves."""
    n = np.arange(2, MOST_SEEDS + 1)
    half_widths = _quantiles(level) * np.std(values, ddof=1) / np.sqrt(n)
    enough = n[(half_widths < distance) & (n > len(values))]
    return int(enough[0]) if enough.size else None
