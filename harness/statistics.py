"""Intervals on values paired by seed, and how often they fail. Pure functions; the numbers come from SciPy.

Of means, Student t, not the bootstrap: at three to eight repeats the percentile and BCa bootstrap cover 74 to 88 %
where they promise 95 %. Of medians, order statistics: exact whatever the distribution.
"""

import functools
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy import special  # not stats, which takes most of a second to import

from harness.schema.identity import Frozen

LEVEL: Final = 0.05  # of wrong claims, two-sided
ENOUGH_RESOLUTION: Final = 3.0  # gap between two depths ÷ jitter, from which on one trial tells them apart


class Interval(Frozen):
    """A mean over `n` seeds; `low` and `high` are None when there is no interval: one seed, or no spread."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def half_width(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


class MedianInterval(Frozen):
    """A median over `n` seeds; `low` and `high` are None when so few seeds have no interval at that level."""

    median: float
    low: float | None
    high: float | None
    n: int

    def times(self, sign: float) -> "MedianInterval":
        """The same, seen from the other side where `sign` is −1."""
        if sign > 0:
            return self
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return MedianInterval(median=-self.median, low=low, high=high, n=self.n)


class Failures(Frozen):
    """On how many seeds a method was worse than the baseline by the margin or more."""

    seeds: tuple[int, ...]  # those seeds
    n: int  # of so many
    at_most: float  # share of all seeds, with 95 % confidence, one-sided (Clopper and Pearson)
    worst: float  # advantage on the worst seed, positive is better
    worst_seed: int

    @property
    def count(self) -> int:
        return len(self.seeds)


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Mean ± t(1 − level/2, n − 1) · s / √n."""
    data = np.asarray(values, dtype=float)
    if data.size == 0:
        raise ValueError("an interval needs at least one value")
    mean = float(data.mean())
    if data.size == 1 or not has_spread(data):
        return Interval(mean=mean, low=None, high=None, n=data.size)
    half = float(special.stdtrit(data.size - 1, 1 - level / 2)) * float(data.std(ddof=1)) / math.sqrt(data.size)
    return Interval(mean=mean, low=mean - half, high=mean + half, n=data.size)


def median_interval(values: Sequence[float], level: float = LEVEL) -> MedianInterval:
    """From the (k + 1)th smallest to the (k + 1)th largest value, k the most exceptions of a sign test at `level`."""
    ordered = np.sort(np.asarray(values, dtype=float))
    if ordered.size == 0:
        raise ValueError("an interval needs at least one value")
    allowed = exceptions_allowed(ordered.size, level)
    low, high = (float(ordered[allowed]), float(ordered[-allowed - 1])) if allowed >= 0 else (None, None)
    return MedianInterval(median=float(np.median(ordered)), low=low, high=high, n=ordered.size)


@functools.cache
def exceptions_allowed(n: int, level: float) -> int:
    """The most exceptions with which a two-sided sign test at this level still rejects; −1: not even without any."""
    return int((2 * special.bdtr(np.arange(n // 2 + 1.0), n, 0.5) <= level * (1 + 1e-9)).sum()) - 1


def failures(advantages: Sequence[float], seeds: Sequence[int], margin: float) -> Failures:
    """The bound on their share is the largest with which so few would be seen in 5 % of studies."""
    outside = tuple(seed for seed, value in zip(seeds, advantages, strict=True) if value <= -margin)
    n, worst = len(advantages), int(np.argmin(advantages))
    share = 1.0 if len(outside) == n else float(special.betaincinv(len(outside) + 1, n - len(outside), 1 - LEVEL))
    return Failures(seeds=outside, n=n, at_most=share, worst=float(advantages[worst]), worst_seed=seeds[worst])


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


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's ρ; None for fewer than three pairs or a constant side, where it means nothing."""
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    """From 1 on; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


def has_spread(data: np.ndarray) -> bool:
    """Differences that agree up to rounding are identical: an interval of width 1e-17 would claim certainty."""
    return bool(np.ptp(data) > 1e-12 * max(1.0, float(np.abs(data).max())))
