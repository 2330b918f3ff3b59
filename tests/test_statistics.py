"""The statistics against cases worked out by hand, and against simulated studies whose truth is known."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.statistics import (
    difference_interval,
    failures,
    mean_interval,
    median_interval,
    rank_correlation,
    ratio_interval,
)

STUDIES = 4000


def test_mean_interval_by_hand() -> None:
    # mean 2, s = 1, n = 3: t(0.975, 2) = 4.30265, half = 4.30265 / sqrt(3) = 2.48414
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval.mean == pytest.approx(2.0)
    assert interval.low == pytest.approx(-0.48414, abs=1e-5)
    assert interval.high == pytest.approx(4.48414, abs=1e-5)
    assert interval.half_width == pytest.approx(2.48414, abs=1e-5)


def test_differences_are_paired() -> None:
    # Seeds differ a lot, the pairs do not: differences 1, 2, 3.
    interval = difference_interval([101.0, 12.0, 53.0], [100.0, 10.0, 50.0])
    assert (interval.mean, interval.n) == (pytest.approx(2.0), 3)
    assert interval.low == pytest.approx(-0.48414, abs=1e-5)


def test_ratio_is_a_geometric_mean_by_hand() -> None:
    # log2 ratios 1, 2, 3: geometric mean 4, ends 2^-0.48414 and 2^4.48414
    interval = ratio_interval([2.0, 8.0, 24.0], [1.0, 2.0, 3.0])
    assert interval.mean == pytest.approx(4.0)
    assert interval.low == pytest.approx(2**-0.48414, rel=1e-5)
    assert interval.high == pytest.approx(2**4.48414, rel=1e-5)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=2, max_size=6))
def test_inverting_a_ratio_inverts_its_interval(pairs: list[tuple[float, float]]) -> None:
    first, second = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    there, back = ratio_interval(first, second), ratio_interval(second, first)
    assert there.mean == pytest.approx(1 / back.mean)
    if there.low is not None and there.high is not None and there.high < 1e200:
        assert back.high is not None and there.low == pytest.approx(1 / back.high)


def test_costs_of_zero_have_no_ratio() -> None:
    with pytest.raises(ValueError, match="positive"):
        ratio_interval([1.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="at least one"):
        mean_interval([])


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3, 4], [1, 4, 9, 16]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=20))
def test_rank_correlation_is_scipys(pairs: list[tuple[int, int]]) -> None:
    """With ties, which share the mean of their ranks."""
    first, second = ([float(pair[side]) for pair in pairs] for side in (0, 1))
    found = rank_correlation(first, second)
    if found is not None:
        assert found == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-12)


# --- simulated studies --------------------------------------------------------------------------------------------


def _ends(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The intervals of many studies at once; checked below to be the program's own."""
    n = samples.shape[1]
    half = stats.t.ppf(0.975, n - 1) * samples.std(axis=1, ddof=1) / math.sqrt(n)
    return samples.mean(axis=1) - half, samples.mean(axis=1) + half


def test_the_vectorised_intervals_are_those_of_the_program() -> None:
    samples = np.random.default_rng(0).normal(size=(50, 5))
    low, high = _ends(samples)
    for row, a, b in zip(samples, low, high, strict=True):
        interval = mean_interval(row.tolist())
        assert (interval.low, interval.high) == (pytest.approx(a), pytest.approx(b))


@pytest.mark.parametrize("n", [3, 5, 8])
def test_coverage_of_gaussian_studies(n: int, capsys: pytest.CaptureFixture[str]) -> None:
    low, high = _ends(np.random.default_rng(n).normal(0.3, 1.0, size=(STUDIES, n)))
    gaussian = float(np.mean((low < 0.3) & (high > 0.3)))
    low, high = _ends(np.random.default_rng(n).exponential(1.0, size=(STUDIES, n)))
    skewed = float(np.mean((low < 1.0) & (high > 1.0)))
    with capsys.disabled():
        sys.stdout.write(
            f"\ncoverage in {STUDIES} studies, n = {n}: Gaussian {gaussian:.3f}, exponential {skewed:.3f}\n"
        )
    assert 0.93 <= gaussian <= 0.97


# --- medians and failures -----------------------------------------------------------------------------------------


def test_a_median_interval_is_made_of_order_statistics() -> None:
    """Ten seeds at 5 %: the sign test allows for one exception (2 · 11 / 1024), so the second smallest and largest."""
    found = median_interval([5.0, 1.0, 9.0, 3.0, 7.0, 2.0, 8.0, 4.0, 10.0, 6.0])
    assert (found.median, found.low, found.high, found.n) == (5.5, 2.0, 9.0, 10)
    few = median_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (few.median, few.low, few.high) == (3.0, None, None), "2 / 32 is more than 5 %: five seeds have none"
    other = found.times(-1.0)
    assert (other.median, other.low, other.high) == (-5.5, -9.0, -2.0)


@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_coverage_of_the_median(draw: str) -> None:
    samples = getattr(np.random.default_rng(5), draw)(size=(2000, 12))
    truth = 0.0 if draw == "normal" else math.log(2)
    held = [(found := median_interval(row.tolist())).low < truth < found.high for row in samples]  # type: ignore[operator]
    assert np.mean(held) >= 0.95


def test_failures_by_hand() -> None:
    """Two of twenty: the share with which two or fewer are seen in 5 % of studies is 28 %."""
    advantages = [0.0] * 18 + [-0.3, -0.01]
    found = failures(advantages, range(100, 120), margin=0.01)
    assert (found.seeds, found.count, found.n) == ((118, 119), 2, 20)
    assert found.at_most == pytest.approx(0.2826, abs=1e-4)
    assert stats.binom.cdf(2, 20, found.at_most) == pytest.approx(0.05)
    assert (found.worst, found.worst_seed) == (-0.3, 118)
    assert failures([-1.0, -1.0], (0, 1), 0.5).at_most == 1.0
