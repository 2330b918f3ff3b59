"""Did the paper's claim hold? A number per seed, the interval of its mean, and the bounds that the claim sets."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.comparing.numbers import MINUS, plain, signed
from harness.comparing.tables import TableView
from harness.statistics import Interval, mean_interval
from harness.studies.definition import BASE, Cell, Claim
from harness.studies.readings import COUNTED
from harness.studies.results import StudyResults
from harness.studies.words import data_set_of

Answer = Literal["held", "not held", "not enough evidence"]


@dataclass(frozen=True)
class Judgement:
    claim: Claim
    answer: Answer
    measured: Interval | None  # None: what it speaks of was not run

    @property
    def why(self) -> str:
        """The numbers, in words."""
        if self.measured is None:
            return "it was not run at this scale"
        seeds = f"{self.measured.n} seed{'s' * (self.measured.n > 1)}"
        few = ", no spread over seeds" if self.measured.n > 1 and self.measured.low is None else ""
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
    return [_judge(claim, results) for claim in results.study.claims]


def _judge(claim: Claim, results: StudyResults) -> Judgement:
    """Held: the whole 95 % interval lies inside the bounds. Not held: all of it outside. Else the seeds do not tell."""
    numbers = list(numbers_of(claim, results).values())
    if not numbers:
        return Judgement(claim, "not enough evidence", None)
    interval = _interval(claim, numbers)
    low = -np.inf if claim.at_least is None else claim.at_least
    high = np.inf if claim.at_most is None else claim.at_most
    answer: Answer = "not enough evidence"
    if interval.low is not None and interval.high is not None:
        if low <= interval.low and interval.high <= high:
            answer = "held"
        elif interval.high < low or interval.low > high:
            answer = "not held"
    return Judgement(claim, answer, interval)


def _interval(claim: Claim, numbers: Sequence[float]) -> Interval:
    """Of the mean. What is counted and the same in every seed is known, where a measured number would be suspect."""
    found = mean_interval(numbers)
    if found.low is None and found.n > 1 and claim.of in COUNTED:
        return Interval(mean=found.mean, low=found.mean, high=found.mean, n=found.n)
    return found


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
        caption=f"Asked for {'; '.join(bounds)}. Paper: {group[0].claim.paper}.",
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
