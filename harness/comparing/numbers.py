"""Numbers as a reader wants them: as many digits as the interval supports."""

import math
from collections.abc import Sequence

from harness.statistics import Interval, MedianInterval
from harness.text.shown import counted

MINUS = "−"
ROUNDING = 1e-12  # of sums; nothing that we measure is as small
WIDEST_RATIO = 100  # high ÷ low: an interval of more does not even give the order of magnitude


def plain(value: float, digits: int = 3) -> str:
    """`digits` significant digits, no exponent between 0.0001 and a million: 0.0042, 17.7, 1,234."""
    if abs(value) < ROUNDING:
        return "0"
    if not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}".replace("-", MINUS)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}".replace("-", MINUS)


def mean_and_spread(interval: Interval) -> str:
    """`17.7 ± 0.4`: the half-width decides how many digits; the mean alone where there is no interval."""
    half = interval.half_width
    if half is None:
        text = plain(interval.mean, 4)
        return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
    decimals = _decimals(half)
    return f"{_fixed(interval.mean, decimals)} ± {_fixed(half, decimals)}"


def signed_and_spread(interval: Interval) -> str:
    """`−0.0064 ± 0.0044`, of a difference; one that is rounded to zero has no sign."""
    text = mean_and_spread(interval)
    return f"+{text}" if interval.mean > 0 and text.partition(" ")[0].strip("0.") else text


def duration(seconds: float) -> str:
    """`40 seconds`, `20 minutes`, `3 hours`, `2.5 days`: roughly."""
    for unit, length, most in (("second", 1, 90), ("minute", 60, 90), ("hour", 3600, 36)):
        if (count := round(seconds / length)) < most:
            return counted(max(1, count), unit)
    return f"{seconds / 86400:.2g} days"


def inverse(interval: Interval) -> Interval:
    """Of a ratio, seen from the other side."""
    low, high = (None if end is None else 1 / end for end in (interval.high, interval.low))
    return Interval(mean=1 / interval.mean, low=low, high=high, n=interval.n)


def signed(interval: Interval, most_decimals: int = 8) -> str:
    """`+0.0031 (−0.0008 to +0.0070)`, of a difference; without an interval where that is a point, as of a median."""
    if interval.low is None or interval.high is None or interval.high - interval.low < ROUNDING:
        return _signed(interval.mean, 4)
    decimals = min(most_decimals, _decimals((interval.high - interval.low) / 2, two_digits=True))
    ends = f"{_signed(interval.low, decimals)} to {_signed(interval.high, decimals)}"
    return f"{_signed(interval.mean, decimals)} ({ends})"


def signed_median(found: MedianInterval | None) -> str:
    """The same of a median, which is often all but 0; `–` of none."""
    if found is None:
        return "–"
    return signed(Interval(mean=found.median, low=found.low, high=found.high, n=found.n), most_decimals=4)


def gain(advantage: Interval) -> str:
    """`0.0031 (0.0008 to 0.0054)`, of an advantage whose sign is in the words around it."""
    return signed(advantage).replace("+", "")


def loss(advantage: Interval) -> str:
    """The same of a disadvantage."""
    low, high = (None if end is None else -end for end in (advantage.high, advantage.low))
    return gain(Interval(mean=-advantage.mean, low=low, high=high, n=advantage.n))


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


def seeds_named(seeds: Sequence[int]) -> str:
    """`seed 3`; `seeds 0, 2 to 5`."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    said = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ("seed " if len(seeds) == 1 else "seeds ") + ", ".join(said)


def ratio(value: float) -> str:
    """Two significant digits below 10, whole numbers beyond: 0.83, 6.1, 12, 140."""
    if value >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 0.995 else f"{value:.2f}" if value >= 0.095 else f"{value:.2g}"


def ratio_with_ends(interval: Interval) -> str:
    """`6.1× (4.8–7.9)`; a decimal more where fewer make the interval look like a point, or a ratio like none.

    An interval of several orders of magnitude, as two seeds give it, says only that there are too few of them.
    """
    known = [end for end in (interval.mean, interval.low, interval.high) if end is not None]
    if len(known) == 3 and known[2] > WIDEST_RATIO * known[1]:
        return f"{ratio(interval.mean)}× (needs more seeds)"
    shown = [ratio(value) for value in known]
    if shown[0] == "1.0" or (len(shown) == 3 and shown[1] == shown[2]):
        decimals = 2 if interval.mean < 9.95 else 1
        shown = [f"{value:,.{decimals}f}" for value in known]
    return f"{shown[0]}× ({shown[1]}–{shown[2]})" if len(shown) == 3 else f"{shown[0]}×"


def _decimals(half: float, two_digits: bool = False) -> int:
    """Two digits of the half-width when it starts with 1 or 2, else one: more would be noise."""
    magnitude = math.floor(math.log10(half))
    digits = 1 if two_digits or half / 10**magnitude < 2.95 else 0
    return min(8, max(0, digits - magnitude))


def _fixed(value: float, decimals: int) -> str:
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", MINUS)  # + 0.0: zero has no sign


def _signed(value: float, decimals: int) -> str:
    text = _fixed(value, decimals)
    return f"+{text}" if round(value, decimals) > 0 else text
