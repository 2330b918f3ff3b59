"""The search that people do by hand: deeper and deeper until it stops paying, then a look around the best."""

import math
from itertools import pairwise
from typing import ClassVar

from harness.methods.base import SearchMethod, SearchPlan
from harness.methods.golden_section import BracketSearcher
from harness.schema.settings import TIE_NATS, Budget, SearchSpace

IN_VAIN = 2  # depths in a row that gain nothing, after which nobody goes deeper


def next_depths(depths: tuple[int, ...], values: dict[int, float]) -> list[int]:
    """The depth to train next, from the values known so far; empty when the search has ended.

    Up: the space's first depth, its second, third, fifth, ninth … and its last, each against the best before it; a gain
    is more than TIE_NATS. Then the gap: between the best (the smallest within a tie) and its nearest trained neighbours
    the middle of the wider side, of equal ones the shallower, until both are the next depths of the space.
    """
    last = len(depths) - 1
    best, in_vain = -math.inf, -1  # the first depth has nothing to gain on
    for step in sorted({0, last, *(2**power for power in range(last.bit_length()))}):
        if depths[step] not in values:
            return [depths[step]]
        in_vain = 0 if values[depths[step]] > best + TIE_NATS else in_vain + 1
        best = max(best, values[depths[step]])
        if in_vain == IN_VAIN:
            break
    known = [index for index, depth in enumerate(depths) if depth in values]
    best = max(values.values())
    place = next(number for number, index in enumerate(known) if values[depths[index]] >= best - TIE_NATS)
    around = known[max(0, place - 1) : place + 2]
    width, low = max(((high - low, low) for low, high in pairwise(around)), default=(0, 0), key=lambda side: side[0])
    return [depths[low + width // 2]] if width > 1 else []


class Ascend(SearchMethod):
    """Depths 0, 1, 2, 4, 8 … until two in a row gain nothing, then the gap around the best; at most `budget.trials`.

    Doubling, as people do by hand, and as Bentley, Yao: An Almost Optimal Algorithm for Unbounded Searching, 1976. In a
    space of other depths its first, second, third, fifth, ninth … stand for those. Stops no trial early. One trial runs
    at a time. Labels: the training set's, and validation's for every step.
    """

    seeded: ClassVar[bool] = False
    most_at_once: ClassVar[int] = 1
    colour: ClassVar[str] = "#A6761D"

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        searcher = BracketSearcher(space.depth.values, next_depths)
        return SearchPlan({}, searcher, num_samples=budget.trials)
