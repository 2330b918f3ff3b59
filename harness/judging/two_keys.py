"""Verdicts: on which side of 0 and of a margin does the typical seed lie, and does the mean agree?

No method can promise to be right about a mean from ten or twenty seeds: with a method that collapses on one seed in
ten, 35 % of all studies of ten seeds see no collapse. About the median it can be promised, exactly and whatever the
distribution of independent seeds. So a verdict needs two keys, each with Holm's procedure over all questions of a
table:

1. the sign test over seeds: how many are not on the side that is claimed (a tie is not). It alone gives a verdict "on
   most seeds".
2. Student's t test of the mean. Both together give the verdict without that addition.

Since every verdict needs key 1, the chance that any verdict of a table is wrong about the typical seed is at most
LEVEL. `python -m benchmarks verdicts` simulates it, and what becomes of the verdicts when they are read as statements
about the mean.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # not stats, which takes most of a second to import

from harness.judging.words import ON_MOST_SEEDS, UNANSWERED, Outcome, is_plain
from harness.schema.identity import Frozen
from harness.statistics import (
    LEVEL,
    Interval,
    MedianInterval,
    exceptions_allowed,
    has_spread,
    mean_interval,
    median_interval,
)

Array = NDArray[np.float64]
Looks = tuple[int, ...]  # numbers of seeds at which a table is, or would have been, judged; fewer than two: once

SIMULATED: Final = 100_000  # studies, to adjust key 2 for interim analyses
COST_WORDS: Final[tuple[Outcome, Outcome]] = ("cheaper", "dearer")
SIZE_WORDS: Final[tuple[Outcome, Outcome]] = ("smaller", "larger")
TIE: Final = 1e-12  # differences closer than this to a boundary are on it: they come from rounding
MOST_SEEDS: Final = 1000  # beyond this a number of seeds needed is no advice
SURE_ENOUGH: Final = 0.8  # the chance that so many seeds decide
_FUTURES: Final = 200  # simulated, of one question


@dataclass(frozen=True)
class Question:
    """Is a method better or worse than the baseline, and is it worse by the margin or more?"""

    advantages: tuple[float, ...]  # per seed, positive is better; of a cost or a size: log(baseline / method)
    margin: float | None = None  # None: a cost or a size
    words: tuple[Outcome, Outcome] = COST_WORDS  # without a margin: above 0 and below it

    @property
    def boundaries(self) -> tuple[float, ...]:
        return (0.0,) if self.margin is None else (0.0, -self.margin)


class Verdict(Frozen):
    """How a method compares with a baseline in one measure, as far as the seeds tell."""

    outcome: Outcome
    margin: float | None  # by how much it may be worse; None of a cost, which has no margin
    advantage: Interval  # of the mean; positive is better, whatever the measure's own direction; of a cost: logs
    median: MedianInterval  # the same of the median
    seeds_needed: int | None = None  # in all, to decide with a chance of SURE_ENOUGH; None: more than MOST_SEEDS

    @property
    def is_decided(self) -> bool:
        return is_plain(self.outcome)


@dataclass(frozen=True)
class Family:
    """The verdicts of one table. They follow from the intervals at these levels: see `how_verdicts_follow`."""

    verdicts: tuple[Verdict, ...]
    confidence: float  # of the intervals of means: that of the last step that Holm's procedure took
    median_confidence: float
    fewest_seeds: int  # from which on any verdict of it can be given


def judge(questions: Sequence[Question], looks: Looks = ()) -> Family:
    """The verdicts on a table of questions: the chance that any of them is wrong of the typical seed is at most LEVEL.

    Holm's procedure with Shaffer's count, once per key: hypotheses "it is 0" and "it is −margin" are rejected from the
    smallest p on, as long as p ≤ LEVEL / k, where k is the number of questions with a hypothesis left: both hypotheses
    of one question cannot be true, so that many can be, at most. What is rejected is exactly what lies outside the
    intervals of level LEVEL / k of the last step.
    """
    found = certain_sides([(each.advantages, each.boundaries) for each in questions], looks)
    at_mean, at_sign = nominal_mean_level(found.mean_level, looks), nominal_sign_level(found.sign_level, looks)
    fewest = fewest_seeds(len(questions), looks)

    def verdict(question: Question, sign: Array, mean: Array) -> Verdict:
        values = question.advantages
        outcome = outcome_of(sign, mean, None if question.margin is not None else question.words)
        if outcome == "undecided" and float(sign_p(0, len(values), looks)) > found.sign_level:
            outcome = "too few seeds"
        open_ = not is_plain(outcome) and len(values) > 1
        needed = seeds_needed(values, question.boundaries, at_mean, at_sign) if open_ else None
        return Verdict(
            outcome=outcome,
            margin=question.margin,
            advantage=mean_interval(values, at_mean),
            median=median_interval(values, at_sign),
            seeds_needed=None if needed is None else max(needed, fewest if outcome in UNANSWERED else 0),
        )

    said = tuple(verdict(*each) for each in zip(questions, found.by_sign, found.by_mean, strict=True))
    return Family(said, 1 - at_mean, 1 - at_sign, fewest)


# --- the two keys ---------------------------------------------------------------------------------------------------


class Key(NamedTuple):
    """Of each boundary (last axis): a two-sided p, and the side that would be claimed, 1 above and −1 below."""

    p: Array
    side: Array


class Keys(NamedTuple):
    sign: Key
    mean: Key


def keys(values: Array, boundaries: Sequence[float], looks: Looks = ()) -> Keys:
    """Both keys of each boundary; `values` (…, seeds) may be of many questions that share the boundaries."""
    n = values.shape[-1]
    from_boundary = values[..., None, :] - np.asarray(boundaries)[:, None]  # (…, boundaries, seeds)
    not_above, not_below = (from_boundary <= TIE).sum(axis=-1), (from_boundary >= -TIE).sum(axis=-1)
    sign = Key(sign_p(np.minimum(not_above, not_below), n, looks), np.where(not_above <= not_below, 1.0, -1.0))
    mean = from_boundary.mean(axis=-1)
    return Keys(sign, Key(over_looks(_student_p(from_boundary, mean), looks), np.where(mean > 0, 1.0, -1.0)))


def sign_p(exceptions: ArrayLike, n: int, looks: Looks = ()) -> Array:
    """The chance of so few exceptions, on either side, where the median is on the boundary: 2·P(Bin(n, ½) ≤ k).

    With interim analyses: that it is so small at any of them, exactly, by a random walk over exceptions. What could not
    be rejected anyway counts as 1 there.
    """
    p = np.minimum(1.0, 2 * special.bdtr(np.asarray(exceptions, dtype=float), n, 0.5))
    if len(looks) < 2:
        return np.asarray(p)
    steps, chances = _walk(tuple(sorted({*looks, n})))
    at = np.searchsorted(steps, p * (1 + 1e-9), side="right") - 1
    return np.asarray(np.where(p > LEVEL, 1.0, chances[np.maximum(at, 0)]))


@functools.cache
def _walk(looks: Looks) -> tuple[Array, Array]:
    """Every p up to LEVEL that a sign test can have at any of these numbers of seeds, and its chance over all."""
    both_tails = [2 * special.bdtr(np.arange(n // 2 + 1.0), n, 0.5) for n in looks]
    steps = np.unique(np.concatenate([[0.0], *both_tails]))
    steps = steps[steps <= LEVEL]
    return steps, np.array([_chance_of_reaching(float(step), looks) for step in steps])


def _chance_of_reaching(p: float, looks: Looks) -> float:
    going, seeds, reached = np.array([1.0]), 0, 0.0  # the chance of each number of exceptions among studies that go on
    for n in looks:
        more = n - seeds
        going, seeds = np.convolve(going, special.binom(more, np.arange(more + 1)) / 2.0**more), n
        stops = 2 * special.bdtr(np.arange(n + 1.0), n, 0.5) <= p * (1 + 1e-9)
        reached += float(going[stops].sum())
        going = np.where(stops, 0.0, going)
    return min(1.0, 2 * reached)


def fewest_seeds(questions: int, looks: Looks = ()) -> int:
    """From how many seeds on a verdict can be given: when all of them agree."""
    wanted = LEVEL / max(1, questions)
    return next(n for n in range(2, MOST_SEEDS) if sign_p(0, n, looks) <= wanted)


def _student_p(from_boundary: Array, mean: Array) -> Array:
    """Two-sided; without any spread, a mean that is off the boundary is off it for certain."""
    n = from_boundary.shape[-1]
    if n < 2:
        return np.ones_like(mean)
    error = from_boundary.std(axis=-1, ddof=1) / math.sqrt(n)
    spread = np.ptp(from_boundary, axis=-1) > TIE
    p = 2 * special.stdtr(n - 1, -np.abs(mean) / np.where(spread, error, 1.0))
    return np.asarray(np.where(spread, p, np.where(np.abs(mean) > TIE, 0.0, 1.0)))


def over_looks(p: ArrayLike, looks: Looks) -> Array:
    """The chance, where the hypothesis is true, that a p of key 2 this small is seen at any of the interim analyses.

    Whoever compares after every few seeds and stops at the first verdict that pleases is wrong far more often than at
    one comparison: 11.6 % instead of 2.5 % after each of seeds 3 to 20. Simulated with Gaussian differences; where the
    simulation is too small to tell, the bound is their number · p.
    """
    given = np.asarray(p, dtype=float)
    if len(looks) < 2:
        return given
    smallest = _smallest_p(looks)
    seen = np.searchsorted(smallest, given, side="right")
    simulated = np.where(seen >= 20, np.maximum(given, (seen + 1) / smallest.size), 1.0)
    return np.asarray(np.minimum(np.minimum(1.0, len(looks) * given), simulated))


@functools.cache
def _smallest_p(looks: Looks) -> Array:
    """Of many simulated studies in which the hypothesis is true: the smallest p of key 2 at any of them, sorted."""
    data = np.random.default_rng(0).standard_normal((SIMULATED, max(looks)))
    sums, squares = data.cumsum(axis=1), (data**2).cumsum(axis=1)
    smallest = np.ones(SIMULATED)
    for n in looks:
        mean = sums[:, n - 1] / n
        std = np.sqrt((squares[:, n - 1] - n * mean**2) / (n - 1))
        smallest = np.minimum(smallest, 2 * special.stdtr(n - 1, -np.abs(mean) / (std / math.sqrt(n))))
    return np.sort(smallest)


@functools.cache
def nominal_mean_level(level: float, looks: Looks) -> float:
    """The largest p of key 2 that is at most `level` over all interim analyses: the level of their intervals."""
    if len(looks) < 2:
        return level
    smallest = _smallest_p(looks)
    place = math.floor(level * smallest.size) - 1
    simulated = min(level, float(np.nextafter(smallest[place], 0.0))) if place >= 20 else 0.0
    return max(level / len(looks), simulated)


@functools.cache
def nominal_sign_level(level: float, looks: Looks) -> float:
    """The same of key 1."""
    if len(looks) < 2:
        return level
    steps, chances = _walk(looks)
    return float(steps[chances <= level].max(initial=0.0)) or float(2.0 ** -max(looks))


# --- Holm's procedure -----------------------------------------------------------------------------------------------


def holm(p: Array) -> tuple[NDArray[np.bool_], NDArray[np.int_]]:
    """What is rejected, and how many questions have a hypothesis left; `p` (…, questions, hypotheses), NaN: none."""
    studies = p.reshape(-1, p.shape[-2] * p.shape[-1])
    left = (~np.isnan(p)).sum(axis=-1).reshape(len(studies), -1)
    rejected, going, every = np.zeros(studies.shape, bool), np.ones(len(studies), bool), np.arange(len(studies))
    for which in np.argsort(studies, axis=1, kind="stable").T:  # NaNs come last
        going &= studies[every, which] <= LEVEL / np.maximum((left > 0).sum(axis=1), 1)
        if not going.any():
            break
        rejected[every[going], which[going]] = True
        left[every[going], which[going] // p.shape[-1]] -= 1
    return rejected.reshape(p.shape), (left > 0).sum(axis=1).reshape(p.shape[:-2])


def holm_adjusted(p: Sequence[float]) -> list[float]:
    """Of single hypotheses: each is rejected by Holm's procedure at a level if this is at most that level."""
    adjusted, reached = [1.0] * len(p), 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=lambda place: p[place])):
        reached = max(reached, (len(p) - rank) * p[place])
        adjusted[place] = min(1.0, reached)
    return adjusted


class Sides(NamedTuple):
    """On which side of its boundaries each row of a family lies for certain: 1 above, −1 below, 0 not certain."""

    by_sign: Array  # (rows, 2): by key 1
    by_mean: Array  # by key 2
    sign_level: float  # of the last step of Holm's procedure
    mean_level: float


def certain_sides(rows: Sequence[tuple[Sequence[float], Sequence[float]]], looks: Looks = ()) -> Sides:
    """Of rows of values with their boundaries, of which not both can be the truth."""
    found = [keys(np.asarray(values, dtype=float), boundaries, looks) for values, boundaries in rows]
    by_sign, sign_level = _claims([each.sign for each in found])
    by_mean, mean_level = _claims([each.mean for each in found])
    return Sides(by_sign, by_mean, sign_level, mean_level)


def _claims(found: Sequence[Key]) -> tuple[Array, float]:
    """For each question and boundary: 1 above, −1 below, 0 not certain; and the level of the last step."""
    if not found:
        return np.zeros((0, 2)), LEVEL
    p, side = np.full((len(found), 2), np.nan), np.zeros((len(found), 2))
    for row, key in enumerate(found):
        p[row, : len(key.p)], side[row, : len(key.side)] = key
    rejected, left = holm(p)
    return side * rejected, LEVEL / max(1, int(left))


# --- words ----------------------------------------------------------------------------------------------------------


def outcome_of(sign: Array, mean: Array, words: tuple[Outcome, Outcome] | None) -> Outcome:
    """The word for what is certain by both keys; failing that, for what is certain on most seeds.

    `words`: of what has no margin."""
    by_both = _word(np.where(sign == mean, sign, 0.0), words)
    if by_both != "undecided":
        return by_both
    most = _word(sign, words)
    return most if most == "undecided" else cast(Outcome, most + ON_MOST_SEEDS)


def _word(claims: Array, words: tuple[Outcome, Outcome] | None) -> Outcome:
    at_zero, at_margin = claims
    if words is not None:
        return words[0] if at_zero > 0 else words[1] if at_zero < 0 else "undecided"
    if at_zero > 0:
        return "better"
    if at_margin == 0:
        return "worse" if at_zero < 0 else "undecided"
    if at_margin < 0:
        return "worse beyond the margin"
    return "slightly worse" if at_zero < 0 else "as good"


# --- how many seeds it takes ----------------------------------------------------------------------------------------


def seeds_needed(
    values: Sequence[float], boundaries: Sequence[float], mean_level: float, sign_level: float
) -> int | None:
    """The smallest number of seeds, those at hand included, that decides with a chance of SURE_ENOUGH.

    More seeds are simulated, Gaussian, with means and spreads that fit what was seen: both are uncertain, too.
    """
    for most in (100, MOST_SEEDS):
        share = _share_decided(np.asarray(values, dtype=float), boundaries, mean_level, sign_level, most)
        enough = np.flatnonzero(share >= SURE_ENOUGH)
        if enough.size:
            return len(values) + 1 + int(enough[0])
    return None


def _share_decided(
    values: Array, boundaries: Sequence[float], mean_level: float, sign_level: float, most: int
) -> Array:
    """The share of futures that are decided at each number of seeds from one more on, up to `most`."""
    n_now, rng = len(values), np.random.default_rng(0)
    if n_now >= most:
        return np.zeros(0)
    spread = float(values.std(ddof=1)) if has_spread(values) else 0.0
    sigma = spread * np.sqrt((n_now - 1) / rng.chisquare(n_now - 1, (_FUTURES, 1)))
    mean = values.mean() + sigma / math.sqrt(n_now) * rng.standard_normal((_FUTURES, 1))
    more = mean + sigma * rng.standard_normal((_FUTURES, most - n_now))
    n = np.arange(n_now + 1, most + 1)
    quantile, allowed = special.stdtrit(n - 1, 1 - mean_level / 2), _allowed(n, sign_level)
    sums, squares = values.sum() + more.cumsum(axis=1), (values**2).sum() + (more**2).cumsum(axis=1)
    half_width = quantile * np.sqrt(np.maximum(0.0, squares / n - (sums / n) ** 2) / (n - 1))
    decided = np.zeros(more.shape, bool)
    for boundary in boundaries:
        for side in (1.0, -1.0):
            ahead = side * (sums / n - boundary) > np.maximum(half_width, TIE)
            against = (side * (values - boundary) <= TIE).sum() + (side * (more - boundary) <= TIE).cumsum(axis=1)
            decided |= ahead & (against <= allowed)
    return np.asarray(decided.mean(axis=0))


def _allowed(n: NDArray[np.int_], level: float) -> Array:
    """The most exceptions with which a sign test at this level still rejects; −1: not even without any."""
    return np.array([exceptions_allowed(int(each), level) for each in n], dtype=float)
