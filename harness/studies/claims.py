"""Did the paper's claim hold? A number per seed, the interval of its mean, and the bounds that the claim sets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.comparing.numbers import MINUS, plain, signed
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
    why: str  # the numbers, in words

    @property
    def sentence(self) -> str:
        return f"{self.answer}: {self.says} ({self.why}; paper: {self.claim.paper})"

    @property
    def says(self) -> str:
        return f"{self.about}{self.claim.says}"

    @property
    def about(self) -> str:
        """`exits, digits: `, where the claim is judged for several methods; "" where its words say what it is about."""
        if self.claim.method is None:
            return ""
        place = [data_set_of(self.claim.at[BASE])] if BASE in self.claim.at else []
        return f"{', '.join([self.claim.method, *place])}: "


def judge(results: StudyResults) -> list[Judgement]:
    return [_judge(claim, results) for claim in results.study.claims]


def _judge(claim: Claim, results: StudyResults) -> Judgement:
    """Held: the whole 95 % interval lies inside the bounds. Not held: all of it outside. Else the seeds do not tell."""
    numbers = list(numbers_of(claim, results).values())
    if not numbers:
        return Judgement(claim, "not enough evidence", "it was not run at this scale")
    interval = _interval(claim, numbers)
    low = -np.inf if claim.at_least is None else claim.at_least
    high = np.inf if claim.at_most is None else claim.at_most
    answer: Answer = "not enough evidence"
    if interval.low is not None and interval.high is not None:
        if low <= interval.low and interval.high <= high:
            answer = "held"
        elif interval.high < low or interval.low > high:
            answer = "not held"
    return Judgement(claim, answer, _in_words(claim, interval))


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
    number = _absolute(interval)
    if relative:
        number = f"{interval.mean:+.4g}" if interval.low in (None, interval.high) else signed(interval)
    bounds = [f"at least {claim.at_least:g}"] if claim.at_least is not None else []
    bounds += [f"at most {claim.at_most:g}"] if claim.at_most is not None else []
    few = ", no spread over seeds" if interval.n > 1 and interval.low is None else ""
    text = f"measured {number} over {interval.n} seed{'s' * (interval.n > 1)}{few}; asked for {' and '.join(bounds)}"
    return text.replace("-", MINUS)


def _absolute(interval: Interval) -> str:
    if interval.low is None or interval.high is None or interval.low == interval.high:
        return plain(interval.mean)
    return f"{plain(interval.mean)} ({plain(interval.low)} to {plain(interval.high)})"
