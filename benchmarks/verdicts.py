"""How often verdicts are wrong, and how often they decide: simulated studies whose truth is known.

Both keys and Holm's procedure are the program's own. What is claimed is held against the *median* of the differences
over seeds, which is what verdicts promise something about, and the truth lies exactly on a boundary wherever that is
worst. Beside it, labelled as such: the same verdicts read as statements about the mean, and the t test of the mean
alone, which decided up to version 0.2.0.

Differences have standard deviation 1 and share half of their variance, as differences to one baseline do. "Collapse":
on one seed in ten a method loses 30 standard deviations in every quality. "Ties": on seven seeds of ten it has the
baseline's own network. "Recorded": seeds drawn from those of `recorded_seeds.csv`, `ldn` against `grid` on quickstart.
"""

import csv
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from harness.judging.two_keys import Keys, Looks, Question, holm, judge, keys
from harness.statistics import LEVEL, mean_interval

Array = NDArray[np.float64]
LOOKS = (12, 20, 40)
FAMILIES = ((6, 4), (15, 3))  # pairs × measures, the first of them a cost: 24 as in `make compare`, and 45
SEEDS = (10, 12, 20)
STUDIES, BATCH = 4000, 250
MARGIN = 1.0  # in standard deviations of a difference
TRUTHS = {"all equal": (0.0,), "all on the margin": (-MARGIN,), "a third each, and half-way": (0.0, -MARGIN, -0.5)}
COLLAPSES, DEPTH_OF_COLLAPSE = 0.1, 30.0
MEDIAN_OF_TWO_EXPONENTIALS = 1.6783469900166605  # of their sum
RECORDED = Path(__file__).with_name("recorded_seeds.csv")


class Law(NamedTuple):
    """How differences scatter: (studies, pairs, measures, seeds), and where their mean and median are, by measure."""

    draw: Callable[[np.random.Generator, tuple[int, int, int, int]], Array]
    mean: Callable[[int], Array]
    median: Callable[[int], Array]


def _shared(noise: Callable[[np.random.Generator, tuple[int, ...]], Array]) -> Callable[..., Array]:
    def draw(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> Array:
        studies, _, measures, seeds = shape
        return (noise(rng, (studies, 1, measures, seeds)) + noise(rng, shape)) / math.sqrt(2)

    return draw


def _constant(value: float) -> Callable[[int], Array]:
    return lambda measures: np.full(measures, value)


def _qualities(value: float) -> Callable[[int], Array]:
    """0 for the cost, which comes first."""
    return lambda measures: np.where(np.arange(measures) > 0, value, 0.0)


_gaussian = _shared(lambda rng, shape: rng.standard_normal(shape))
_exponential = _shared(lambda rng, shape: rng.standard_exponential(shape) - 1)


def _collapse(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> Array:
    studies, pairs, measures, seeds = shape
    hit = rng.random((studies, pairs, 1, seeds)) < COLLAPSES
    return _gaussian(rng, shape) - DEPTH_OF_COLLAPSE * (hit & (np.arange(measures) > 0)[:, None])


def _ties(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> Array:
    studies, pairs, measures, seeds = shape
    same = (rng.random((studies, pairs, 1, seeds)) < 0.7) & (np.arange(measures) > 0)[:, None]
    return np.where(same, 0.0, np.round(1.8 * _gaussian(rng, shape)))


def _recorded() -> Array:
    """(measures, seeds), each of mean 0 and standard deviation 1."""
    with RECORDED.open(encoding="utf-8") as file:
        rows = np.array([[float(value) for value in list(row.values())[1:]] for row in csv.DictReader(file)]).T
    return np.asarray((rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, ddof=1, keepdims=True))


_seen = _recorded()


def _resampled(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> Array:
    studies, pairs, measures, seeds = shape
    which = rng.integers(0, _seen.shape[1], (studies, pairs, seeds))
    return np.moveaxis(_seen[:measures, which], 0, 2)


_skew = (MEDIAN_OF_TWO_EXPONENTIALS - 2) / math.sqrt(2)
LAWS = {
    "Gaussian": Law(_gaussian, _constant(0), _constant(0)),
    "exponential": Law(_exponential, _constant(0), _constant(_skew)),
    "exponential, mirrored": Law(lambda rng, shape: -_exponential(rng, shape), _constant(0), _constant(-_skew)),
    "collapse on 10 %": Law(
        _collapse,
        _qualities(-COLLAPSES * DEPTH_OF_COLLAPSE),
        _qualities(float(special.ndtri((0.5 - COLLAPSES) / (1 - COLLAPSES)))),
    ),
    "ties": Law(_ties, _constant(0), _constant(0)),
    "recorded": Law(
        _resampled, lambda measures: np.zeros(measures), lambda measures: np.median(_seen[:measures], axis=1)
    ),
}


class Errors(NamedTuple):
    """The share of studies with any wrong verdict."""

    any_word: float  # of the typical seed, those "on most seeds" included: what is promised
    plain: float  # of the typical seed, those without an addition
    plain_of_mean: float  # the same read as statements about the mean: not promised
    student_of_mean: float  # the t test of the mean alone: not promised


def family_errors(
    law: Law, family: tuple[int, int], truths: tuple[float, ...], seeds: int, looks: Looks = (), studies: int = STUDIES
) -> Errors:
    """Of studies that compare until all is decided; pairs take the truths in turn."""
    pairs, measures = family
    truth = np.repeat([truths[pair % len(truths)] for pair in range(pairs)], measures)
    of_mean, of_median = np.tile(law.mean(measures), pairs), np.tile(law.median(measures), pairs)
    rng, counts = np.random.default_rng(1), np.zeros(4)
    for _ in range(0, studies, BATCH):
        noise = law.draw(rng, (BATCH, pairs, measures, max(looks, default=seeds)))
        noise = noise.reshape(BATCH, pairs * measures, -1)
        about_median, about_mean = (noise - at[:, None] + truth[:, None] for at in (of_median, of_mean))
        either = _wrong(about_median, truth, measures, seeds, looks)
        counts += [*either[:2], *_wrong(about_mean, truth, measures, seeds, looks)[1:]]
    return Errors(*(counts / studies).tolist())


def _wrong(data: Array, truth: Array, measures: int, seeds: int, looks: Looks) -> list[float]:
    """How many studies say something wrong: by key 1, by both keys, by key 2 alone."""
    wrong, going = np.zeros((3, len(data)), bool), np.ones((3, len(data)), bool)
    is_cost = np.arange(data.shape[1]) % measures == 0
    for n in looks or (seeds,):
        found = keys(data[..., :n], (0.0, -MARGIN), looks)
        sign, mean = _certain(found, is_cost)
        for rule, claims in enumerate((sign, np.where(sign == mean, sign, 0.0), mean)):
            over = truth[:, None] - np.array([0.0, -MARGIN])
            false = ((claims > 0) & (over <= 1e-9)) | ((claims < 0) & (over >= -1e-9))
            wrong[rule] |= going[rule] & false.any(axis=(1, 2))
            going[rule] &= ~(claims != 0).any(axis=2).all(axis=1)
    return [float(row.sum()) for row in wrong]


def _certain(found: Keys, is_cost: NDArray[np.bool_]) -> Iterator[Array]:
    for key in found:
        p = key.p.copy()
        p[:, is_cost, 1] = np.nan
        yield key.side * holm(p)[0]


def power(distance: float, n: int, verdicts: int) -> tuple[float, float]:
    """Of Gaussian differences: how often both keys, and the t test alone, say of what is inside the margin that it is,
    as the first of so many verdicts."""
    data = np.random.default_rng(3).standard_normal((STUDIES * 2, n)) + distance - MARGIN
    found = keys(data, (-MARGIN,))
    by_t = (found.mean.p <= LEVEL / verdicts) & (found.mean.side > 0)
    by_sign = (found.sign.p <= LEVEL / verdicts) & (found.sign.side > 0)
    return float((by_t & by_sign).mean()), float(by_t.mean())


def settled_by_forecast(distance: float, n: int, studies: int = 400) -> tuple[float, float]:
    """Of studies of one question that are undecided at n seeds: the share that is decided with as many as were advised,
    and how many that are on average."""
    rng, settled = np.random.default_rng(4), 0
    advised: list[int] = []
    while len(advised) < studies:
        values = rng.standard_normal(n) + distance - MARGIN
        verdict = judge([Question(tuple(values), MARGIN)]).verdicts[0]
        if verdict.outcome != "undecided" or (needed := verdict.seeds_needed) is None:
            continue
        more = np.append(values, rng.standard_normal(needed - n) + distance - MARGIN)
        settled += judge([Question(tuple(more), MARGIN)]).verdicts[0].is_decided
        advised.append(needed)
    return settled / studies, float(np.mean(advised))


def covers_fresh_seeds_and_rows(
    seed_effect: float, row_effect: float, seeds: int = 12, rows: int = 400, studies: int = STUDIES
) -> tuple[float, float]:
    """How often a 95 % interval holds the truth, 0, when all seeds are tested on the same rows: with both errors in
    quadrature, and over seeds alone. Effects of seeds and rows are Gaussian and crossed; their sizes are in standard
    errors of the mean, beside a scatter of 1 of each seed on each row."""
    rng, held, held_by_seeds = np.random.default_rng(5), 0, 0
    for _ in range(studies):
        of_seeds = seed_effect * math.sqrt(seeds) * 0.05 * rng.standard_normal((seeds, 1))
        of_rows = row_effect * math.sqrt(rows) * 0.05 * rng.standard_normal(rows)
        differences = of_seeds + of_rows + rng.standard_normal((seeds, rows))
        over_seeds = mean_interval(differences.mean(axis=1).tolist())
        assert over_seeds.half_width is not None
        over_rows = special.ndtri(0.975) * differences.mean(axis=0).std(ddof=1) / math.sqrt(rows)
        held += abs(over_seeds.mean) < math.hypot(over_seeds.half_width, over_rows)
        held_by_seeds += abs(over_seeds.mean) < over_seeds.half_width
    return held / studies, held_by_seeds / studies


def _percent(value: float) -> str:
    return f"{100 * value:5.1f}"


def main() -> Iterator[str]:
    yield f"any wrong verdict in a table, in % of {STUDIES:,} studies; the worst of: {', '.join(TRUTHS)}"
    yield "  about the typical seed (promised: at most 5): with those on most seeds | without"
    yield "  read as the mean (not promised): without those on most seeds | t test of the mean alone, as up to 0.2.0"
    designs = [*((n, ()) for n in SEEDS), (max(LOOKS), LOOKS)]
    worst = 0.0
    for seeds, looks in designs:
        at = f"interim analyses at {', '.join(map(str, looks))}" if looks else f"{seeds} seeds"
        for family in FAMILIES:
            yield f"{family[0] * family[1]} verdicts, {at}:"
            for name, law in LAWS.items():
                rows = [family_errors(law, family, truths, seeds, looks) for truths in TRUTHS.values()]
                found = Errors(*map(max, zip(*rows, strict=True)))
                worst = max(worst, found.any_word)
                yield "  {:22s} {} | {}   [{} | {}]".format(name, *map(_percent, found))
    error = 200 * math.sqrt(LEVEL * (1 - LEVEL) / STUDIES)
    yield f"largest of those that are promised: {100 * worst:.1f} % (± {error:.1f}: two standard errors)"
    yield "inside the margin is said of what is inside it, Gaussian, in %: both tests / t test alone"
    for verdicts in (1, 24):
        for distance in (0.5, 1.0, 2.0):
            shares = [(n, *power(distance, n, verdicts)) for n in (10, 12, 20, 30, 40)]
            listed = ", ".join(f"{100 * both:.0f} / {100 * t:.0f} at {n}" for n, both, t in shares)
            yield f"  {distance:g} standard deviations inside, first of {verdicts}: {listed} seeds"
    yield "fresh seeds and fresh rows inside a 95 % interval, in %: both errors in quadrature / over seeds alone"
    for effects in ((0.3, 3.0), (1.0, 1.0), (2.0, 0.5)):
        both, alone = covers_fresh_seeds_and_rows(*effects)
        yield f"  effect of seeds {effects[0]:g}, of rows {effects[1]:g}: {100 * both:.1f} / {100 * alone:.1f}"
    yield "seeds advised where undecided, and the share decided with that many (said: 4 in 5):"
    for distance in (0.5, 0.75, 1.0):
        for n in (6, 12):
            share, advised = settled_by_forecast(distance, n)
            inside = f"{distance:g} standard deviations inside, {n} seeds so far"
            yield f"  {inside}: {advised:.0f} on average, {100 * share:.0f} %"
