"""Did the paper's claim hold? A number per seed, and on which side of the claim's bounds the typical seed lies."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.comparing.numbers import MINUS, plain, signed
from harness.comparing.tables import TableView
from harness.judging.two_keys import certain_sides, fewest_seeds
from harness.statistics import Interval, mean_interval
from harness.studies.definition import BASE, Cell, Claim
from harness.studies.results import StudyResults
from harness.studies.words import data_set_of

Plain = Literal["held", "not held"]
Answer = Plain | Literal["held on most seeds", "not held on most seeds", "not enough evidence"]
_ON_MOST_SEEDS: dict[Plain, Answer] = {"held": "held on most seeds", "not held": "not held on most seeds"}
ANSWERS: tuple[Answer, ...] = (
    "held",
    "held on most seeds",
    "not held",
    "not held on most seeds",
    "not enough evidence",
)
_ON_THE_BOUND = 1e-9
_TOGETHER = (
    "The answers of this table hold together for the typical seed (sign test, Holm: wrong in at most 5 % of cases); "
    "the mean agrees unless it says “on most seeds”."
)


@dataclass(frozen=True)
class Judgement:
    claim: Claim
    answer: Answer
    measured: Interval | None  # of the mean, at the level of its family; None: what it speaks of was not run
    fewest_seeds: int = 0  # from which on a claim of its family can be answered

    @property
    def why(self) -> str:
        """The numbers, in words."""
        if self.measured is None:
            return "it was not run at this scale"
        seeds = f"{self.measured.n} seed{'s' * (self.measured.n > 1)}"
        few = f", too few of {self.fewest_seeds} that it takes" if self.measured.n < self.fewest_seeds else ""
        return f"measured {self.number} over {seeds}{few}; asked for {self.bounds}"

    @property
    def number(self) -> str:
        """With its interval."""
        return "not run" if self.measured is None else _in_words(self.claim, self.measured)

    @property
    def bounds(self) -> str:
        least, most = self.claim.at_least, self.claim.at_most
        bounds = [f"at least {least:g}"] if least is not None else []
        bounds += [f"at most {most:g}"] if most is not None else []
        return " and ".join(bounds).replace("-", MINUS)

    @property
    def sentence(self) -> str:
        return f"{self.answer}: {self.says} ({self.why}; paper: {self.claim.paper})"

    @property
    def says(self) -> str:
        return f"{self.about}{self.claim.says}"

    @property
    def about(self) -> str:
        """`exits, digits: `, where the claim is judged for several methods; "" where its words say what it is about."""
        return f"{', '.join(filter(None, (self.claim.method, self.place)))}: " if self.claim.method else ""

    @property
    def place(self) -> str:
        """The data set; "" where it speaks of none, or of all."""
        return data_set_of(self.claim.at[BASE]) if BASE in self.claim.at else ""


def judge(results: StudyResults) -> list[Judgement]:
    """By the two keys that judge comparisons. The rows of one claim, methods and places, are a family."""
    found: dict[int, Judgement] = {}
    claims = list(enumerate(results.study.claims))
    for _, group in itertools.groupby(sorted(claims, key=lambda each: _family(each[1])), lambda each: _family(each[1])):
        places, rows = zip(*group, strict=True)
        found |= dict(zip(places, _judge(rows, results), strict=True))
    return [found[place] for place, _ in claims]


def _family(claim: Claim) -> tuple[bool, str]:
    return claim.method is None, claim.says


def _judge(claims: Sequence[Claim], results: StudyResults) -> Iterator[Judgement]:
    numbers = [list(numbers_of(claim, results).values()) for claim in claims]
    known = [(values, _bounds(claim)) for claim, values in zip(claims, numbers, strict=True) if values]
    sides = certain_sides(known)
    fewest, rows = fewest_seeds(len(known)), iter(zip(sides.by_sign, sides.by_mean, strict=True))
    for claim, values in zip(claims, numbers, strict=True):
        if not values:
            yield Judgement(claim, "not enough evidence", None)
            continue
        sign, mean = next(rows)
        both, most = (_answer(claim, each) for each in (np.where(sign == mean, sign, 0.0), sign))
        answer = both or (_ON_MOST_SEEDS[most] if most else "not enough evidence")
        yield Judgement(claim, answer, mean_interval(values, sides.mean_level), fewest)


def _bounds(claim: Claim) -> list[float]:
    """A value on a bound keeps to it."""
    found = [] if claim.at_least is None else [claim.at_least - _ON_THE_BOUND]
    return found if claim.at_most is None else [*found, claim.at_most + _ON_THE_BOUND]


def _answer(claim: Claim, sides: Iterable[float]) -> Plain | None:
    """From the side of each bound on which it lies for certain."""
    inside = ([1.0] if claim.at_least is not None else []) + ([-1.0] if claim.at_most is not None else [])
    if any(side == -wanted for side, wanted in zip(sides, inside, strict=False)):
        return "not held"
    return "held" if all(side == wanted for side, wanted in zip(sides, inside, strict=False)) else None


def numbers_of(claim: Claim, results: StudyResults) -> dict[int, float]:
    """seed → the claim's number; seeds that lack a network it speaks of are left out."""
    cells = [cell for cell in results.cells if cell.holds(claim.at) and _from_start(cell, claim)]
    values = [_less(_numbers(claim, cell, results), _reference(claim, cell, results)) for cell in cells]
    complete = set.intersection(*(set(each) for each in values)) if values else set()
    if not claim.over:
        return {seed: float(np.mean([each[seed] for each in values])) for seed in sorted(complete)}
    settings = [float(cell.values[claim.over]) for cell in cells]
    if len(set(settings)) < 2:
        return {}
    return {seed: _fitted_change(settings, [each[seed] for each in values], claim.log) for seed in sorted(complete)}


def _from_start(cell: Cell, claim: Claim) -> bool:
    return not claim.over or claim.start is None or float(cell.values[claim.over]) >= claim.start


def _numbers(claim: Claim, cell: Cell, results: StudyResults) -> dict[int, float]:
    own = _of_method(claim, claim.method, cell, results)
    if claim.than is None:
        return own
    other = _of_method(claim, claim.than, cell, results)
    if claim.ratio:
        return {seed: own[seed] / other[seed] for seed in own if other.get(seed)}
    return _less(own, other)


def _of_method(claim: Claim, method: str | None, cell: Cell, results: StudyResults) -> dict[int, float]:
    numbers = results.readings(claim.of, cell, method)
    return _less(numbers, results.readings(claim.minus, cell, method)) if claim.minus else numbers


def _reference(claim: Claim, cell: Cell, results: StudyResults) -> dict[int, float] | None:
    """The same number in the cell that `versus` names, all else equal; None where the claim has no such cell."""
    if not claim.versus:
        return None
    wanted = {**cell.values, **claim.versus}
    other = next((each for each in results.cells if each.holds(wanted)), None)
    return _numbers(claim, other, results) if other else {}


def _less(first: dict[int, float], second: dict[int, float] | None) -> dict[int, float]:
    if second is None:
        return first
    return {seed: first[seed] - second[seed] for seed in first if seed in second}


def _fitted_change(settings: Sequence[float], values: Sequence[float], log: bool) -> float:
    """The change of the least-squares line from the smallest to the largest setting."""
    x = np.log(settings) if log else np.asarray(settings)
    slope = np.polyfit(x - x.mean(), values, 1)[0]
    return float(slope * np.ptp(x))


def _in_words(claim: Claim, interval: Interval) -> str:
    relative = not claim.ratio and bool(claim.minus or claim.than or claim.versus or claim.over)
    low, high = interval.low, interval.high
    if low is None or high is None or low == high:
        return f"{interval.mean:+.4g}".replace("-", MINUS) if relative else plain(interval.mean)
    return signed(interval) if relative else f"{plain(interval.mean)} ({plain(low)} to {plain(high)})"


# --- claims about several methods -----------------------------------------------------------------------------------


def by_itself(judgements: Sequence[Judgement]) -> list[Judgement]:
    return [judgement for judgement in judgements if judgement.claim.method is None]


def as_tables(judgements: Sequence[Judgement]) -> list[TableView]:
    """A table for every claim that is judged for several methods: a row for each of them, a column for each place."""
    several = [judgement for judgement in judgements if judgement.claim.method is not None]
    return [_table(list(group)) for _, group in itertools.groupby(several, key=lambda each: each.claim.says)]


def _table(group: Sequence[Judgement]) -> TableView:
    cells = {(each.claim.method or "", each.place): each for each in group}
    methods, places = (list(dict.fromkeys(key[at] for key in cells)) for at in (0, 1))
    bounds = list(dict.fromkeys(each.bounds for each in group))
    counts = {place: {each.measured.n for each in group if each.place == place and each.measured} for place in places}
    return TableView(
        title=group[0].claim.says,
        caption=f"Asked for {'; '.join(bounds)}. Paper: {group[0].claim.paper}. {_TOGETHER}",
        columns=("method", *(f"{place or 'answer'}{_seeds(counts[place])}" for place in places)),
        rows=tuple(
            (method, *(f"{cells[method, place].answer}, {cells[method, place].number}" for place in places))
            for method in methods
        ),
    )


def _seeds(counts: set[int]) -> str:
    if not counts:
        return ""
    few, many = min(counts), max(counts)
    return f", {few if few == many else f'{few} to {many}'} seed{'s' * (many > 1)}"
