"""The verdict across spaces: one space decides nothing about a method.

Spaces are the sample, seeds inside them are not. What is said of a method on a space is what the comparison of that
space says; here it is counted, and tested over spaces.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Literal, Self, get_args

from rich.console import Group, RenderableType
from rich.text import Text

from harness.comparing import compare
from harness.comparing.costs import leading_cost
from harness.comparing.numbers import listed, plain, ratio
from harness.comparing.render import markdown_table, rich_table
from harness.comparing.replays import Replay
from harness.comparing.sentences import COST_WORDS, matches
from harness.comparing.tables import TableView, stage_verdicts
from harness.comparing.values import Headroom, HeadroomOutcome, Pair, Stage
from harness.errors import UserError
from harness.judging.two_keys import TIE, fewest_seeds, holm_adjusted, sign_p
from harness.measures import COSTS, DEVICE_SECONDS, LOG_LIKELIHOOD, QUALITIES, Measure
from harness.methods import parse_methods
from harness.reporting.replays import pareto_front
from harness.running.store import read_looks
from harness.schema.identity import Frozen
from harness.schema.settings import SearchSpace
from harness.statistics import LEVEL
from harness.studies.definition import BASE
from harness.studies.results import StudyResults
from harness.studies.words import name_of
from harness.text.shown import counted, markdown_text

Standing = Literal["matches", "worse", "undecided", "withheld"]
STANDINGS: tuple[Standing, ...] = get_args(Standing)
Answer = Literal["better", "worse", "undecided", "too few spaces"]
_LOST = ("worse", "worse beyond the margin")
_NEEDED: dict[HeadroomOutcome, str] = {
    "search pays": "a search pays",
    "search is better": "a search is better than none",
    "no search is needed": "no search is needed",
    "not decided": "whether a search is needed is not decided",
}
_FACTS = ("depths", "epochs", "rows")  # of a space, on which it may depend whether a method pays
_WIDE = 2.0  # a step from one value that was seen to the next by more than this factor is a gap


class OnSpace(Frozen):
    """What the comparison of one space says, and how large the space is."""

    space: str
    depths: int  # how many
    epochs: int  # that a network is trained for at most
    rows: int  # that train
    headroom: HeadroomOutcome | None  # None: it is not known whether a search is needed
    cost: str  # key of the cost that its verdicts lead with
    stage: Stage  # its pairs, each a method against the search over every depth

    @classmethod
    def of(cls, name: str, space: SearchSpace, rows: int, stage: Stage, cost: Measure, needed: Headroom | None) -> Self:
        return cls(
            space=name,
            depths=len(space.depth.values),
            epochs=space.training.max_epochs,
            rows=rows,
            headroom=needed.outcome if needed else None,
            cost=cost.key,
            stage=stage.model_copy(update={"rows": ()}),
        )

    def pair(self, method: str) -> Pair | None:
        return next((pair for pair in self.stage.pairs if pair.method == method), None)


class OverSpaces(Frozen):
    """A method against the search over every depth, over the spaces that have both."""

    method: str
    standings: dict[str, Standing]  # by space
    failures: dict[str, int]  # space → seeds on which it is worse by a margin or more; only where there is one
    cost_ratio: float | None  # its cost ÷ that search's, median over spaces; None: compared on equal terms on none
    regret: float | None  # log-likelihood lost against that search, median over spaces
    everywhere: bool  # whether both are known on every space: only then can it be on the front

    @property
    def point(self) -> tuple[float, float] | None:
        """Cost ratio and regret."""
        return None if self.cost_ratio is None or self.regret is None else (self.cost_ratio, self.regret)

    def count(self, standing: Standing) -> int:
        return sum(each == standing for each in self.standings.values())


class SignTest(Frozen):
    """Over spaces: is the log-likelihood of a declared method above or below that of the search over every depth?"""

    method: str
    ahead: int  # spaces
    behind: int
    level: int  # neither
    p: float  # exact, two-sided
    p_holm: float  # adjusted for all declared methods
    answer: Answer

    @property
    def spaces(self) -> int:
        return self.ahead + self.behind + self.level


class Across(Frozen):
    """Methods over spaces."""

    search: str  # over every depth: what methods are held against
    cost: str  # key of the cost that ratios are of
    declared: tuple[str, ...]  # before the run, at most `definition.MOST_DECLARED`
    spaces: tuple[OnSpace, ...]
    methods: tuple[OverSpaces, ...]
    front: tuple[str, ...]  # beaten by no other in both cost and regret, the cheapest first; that search among them
    sign_tests: tuple[SignTest, ...]  # of the declared methods
    not_judged: dict[str, str]  # space → why
    sentence: str  # the answer
    pays: tuple[str, ...]  # sentences: where a method paid, and of what nothing is known


class Replays(Frozen):
    """Searches on the recordings of several spaces, each by itself and all together."""

    replays: tuple[Replay, ...]
    across: Across


def across(spaces: Sequence[OnSpace], declared: Sequence[str], not_judged: Mapping[str, str], cost: Measure) -> Across:
    """`spaces`: at least one, each with a pair; `cost`: what ratios are of."""
    search = spaces[0].stage.pairs[0].baseline
    names = list(dict.fromkeys(pair.method for space in spaces for pair in space.stage.pairs))
    points = {name: _point(name, spaces, cost) for name in names}
    everywhere = {name: point for name, (point, n) in points.items() if point and n == len(spaces)}
    front = pareto_front({search: (1.0, 0.0), **everywhere})
    methods = tuple(
        OverSpaces(
            method=name,
            standings={space.space: _standing(pair) for space in spaces if (pair := space.pair(name))},
            failures={
                space.space: failed for space in spaces if (pair := space.pair(name)) and (failed := _failed(pair))
            },
            cost_ratio=point[0] if point else None,
            regret=point[1] if point else None,
            everywhere=name in everywhere,
        )
        for name, (point, _) in points.items()
    )
    tests = _sign_tests(spaces, declared)
    found = Across(
        search=search,
        cost=cost.key,
        declared=tuple(declared),
        spaces=tuple(spaces),
        methods=methods,
        front=tuple(front),
        sign_tests=tests,
        not_judged=dict(not_judged),
        sentence="",
        pays=(),
    )
    return found.model_copy(update={"sentence": _sentence(found), "pays": tuple(_pays(found, cost))})


# --- a method on a space --------------------------------------------------------------------------------------------


def _standing(pair: Pair) -> Standing:
    """Worse: in some quality, of the typical seed and of the mean."""
    if pair.withheld:
        return "withheld"
    if matches(pair):
        return "matches"
    return "worse" if any(verdict.outcome in _LOST for verdict in pair.verdicts.values()) else "undecided"


def _failed(pair: Pair) -> int:
    """Seeds on which some quality is worse by its margin or more."""
    return len({seed for failed in pair.failures.values() for seed in failed.seeds})


def _equal(method: str, spaces: Iterable[OnSpace]) -> dict[str, Pair]:
    """Space → pair, where the two are compared on equal terms."""
    found = {space.space: pair for space in spaces if (pair := space.pair(method))}
    return {space: pair for space, pair in found.items() if not pair.withheld}


def _gain(pair: Pair) -> float:
    """The statistic of a space: the mean over seeds."""
    return pair.differences[LOG_LIKELIHOOD.key].mean


def _share(pair: Pair, cost: Measure) -> float | None:
    """Of the cost of the search over every depth; None where it was not recorded."""
    found = pair.cost_ratios.get(cost.key)
    return 1 / found.mean if found else None


def _point(method: str, spaces: Sequence[OnSpace], cost: Measure) -> tuple[tuple[float, float] | None, int]:
    """Cost ratio and regret, each a median over spaces, and of how many."""
    pairs = _equal(method, spaces).values()
    known = [(share, -_gain(pair)) for pair in pairs if (share := _share(pair, cost)) is not None]
    if not known:
        return None, 0
    shares, regrets = zip(*known, strict=True)
    return (median(shares), median(regrets)), len(known)


# --- over spaces ----------------------------------------------------------------------------------------------------


def _sign_tests(spaces: Sequence[OnSpace], declared: Sequence[str]) -> tuple[SignTest, ...]:
    """The declared methods are the family, those too that were not run: p = 1. A tie counts for neither side."""
    gains = [[_gain(pair) for pair in _equal(method, spaces).values()] for method in declared]
    ahead = [sum(gain > TIE for gain in each) for each in gains]
    behind = [sum(gain < -TIE for gain in each) for each in gains]
    p = [
        float(sign_p(len(each) - max(more, less), len(each))) if each else 1.0
        for each, more, less in zip(gains, ahead, behind, strict=True)
    ]
    adjusted, fewest = holm_adjusted(p), fewest_seeds(len(declared))

    def answer(place: int) -> Answer:
        if adjusted[place] <= LEVEL:
            return "better" if ahead[place] > behind[place] else "worse"
        return "too few spaces" if len(gains[place]) < fewest else "undecided"

    return tuple(
        SignTest(
            method=method,
            ahead=ahead[place],
            behind=behind[place],
            level=len(gains[place]) - ahead[place] - behind[place],
            p=p[place],
            p_holm=adjusted[place],
            answer=answer(place),
        )
        for place, method in enumerate(declared)
    )


# --- in words -------------------------------------------------------------------------------------------------------


def _sentence(found: Across) -> str:
    """The answer in one sentence: who matches most often, what the sign test says, where a search is needed at all."""
    return f"{'; '.join(filter(None, (_leader(found), _tested(found), _searches(found))))}."


def _leader(found: Across) -> str:
    asked = [each for each in found.methods if not found.declared or each.method in found.declared]
    which = "the declared methods" if found.declared else "all methods"
    total = counted(len(found.spaces), "space")
    cheapest = sorted(asked, key=lambda each: math.inf if each.cost_ratio is None else each.cost_ratio)
    best = max(cheapest, key=lambda each: each.count("matches"), default=None)
    if best is None or not best.count("matches"):
        return f"Of {which} none is shown to match {found.search} on any of {total}"
    share = f", at a median of {ratio(best.cost_ratio)} of its cost" if best.cost_ratio is not None else ""
    others = [f"{word} on {n}" for word in STANDINGS[1:] if (n := best.count(word))]
    rest = f", and is {listed(others)}" if others else ""
    most = f", the most of {which}" if len(asked) > 1 else ""
    return f"{best.method} matches {found.search} on {best.count('matches')} of {total}{most}{share}{rest}"


def _tested(found: Across) -> str:
    if not found.sign_tests:
        return ""
    if all(test.answer == "too few spaces" for test in found.sign_tests):
        few, many = len(found.spaces), counted(len(found.declared), "method")
        are = f"{counted(few, 'space')} {'is' if few == 1 else 'are'}"
        return f"{are} too few for a sign test of {many}, which needs at least {fewest_seeds(len(found.declared))}"
    sides: tuple[Answer, ...] = ("better", "worse")
    said = {side: [test.method for test in found.sign_tests if test.answer == side] for side in sides}
    certain = [f"{listed(names)} {'is' if len(names) == 1 else 'are'} {side}" for side, names in said.items() if names]
    if not certain:
        return f"no declared method is shown to differ from {found.search} in log-likelihood over spaces (sign test)"
    return f"{listed(certain)} than {found.search} in log-likelihood over spaces (sign test)"


def _searches(found: Across) -> str:
    outcomes = Counter(space.headroom for space in found.spaces)
    return ", ".join(f"{said} on {outcomes[outcome]}" for outcome, said in _NEEDED.items() if outcomes[outcome])


def _shown(found: Across) -> list[str]:
    """Of whom saving and loss are told: those declared, else those on the front."""
    return list(found.declared) or [name for name in found.front if name != found.search]


def _pays(found: Across, cost: Measure) -> Iterable[str]:
    for method in _shown(found):
        yield _where_it_paid(found, method, cost)
    for fact in _FACTS:
        yield _what_was_seen(fact, sorted({int(getattr(space, fact)) for space in found.spaces}))


def _where_it_paid(found: Across, method: str, cost: Measure) -> str:
    pairs = _equal(method, found.spaces)
    if not pairs:
        return f"{method}: on no space is it compared with {found.search} on equal terms."
    paid = [space for space in found.spaces if space.space in pairs and _is_paid(pairs[space.space])]
    total = f"{len(paid)} of {counted(len(pairs), 'space')}"
    if not paid:
        return f"{method}: on none of {counted(len(pairs), 'space')} does it match {found.search} and cost less."
    facts = [f"{_span([getattr(space, fact) for space in paid])} {fact}" for fact in _FACTS]
    shares = [share for space in paid if (share := _share(pairs[space.space], cost)) is not None]
    saved = f"; there it saved {_span([round(100 * (1 - share)) for share in shares])} %" if shares else ""
    return f"{method}: it matches {found.search} and costs less on {total}, with {listed(facts)}{saved}."


def _is_paid(pair: Pair) -> bool:
    """It matches, and costs less for certain."""
    costs = [pair.verdicts[cost.key].outcome for cost in COSTS if cost.key in pair.verdicts]
    return matches(pair) and costs == ["cheaper"]


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _what_was_seen(fact: str, seen: Sequence[int]) -> str:
    if len(seen) == 1:
        return f"Number of {fact}: {seen[0]:,} only; nothing is known of any other."
    gaps = [f"between {a:,} and {b:,}" for a, b in itertools.pairwise(seen) if b > _WIDE * a]
    unknown = [f"below {seen[0]:,}", *gaps, f"above {seen[-1]:,}"]
    return f"Number of {fact}: {_span(seen)} were seen; nothing is known {', '.join(unknown[:-1])} or {unknown[-1]}."


# --- tables ---------------------------------------------------------------------------------------------------------


def as_tables(found: Across) -> RenderableType:
    """For the terminal: the answer comes first, and what could not be judged."""
    missing = [Text(f"not judged: {name}: {why}") for name, why in found.not_judged.items()]
    views = (rich_table(view, {}) for view in tables(found))
    return Group(Text(f"{found.sentence}\n", style="bold"), *missing, *views)


def as_markdown(found: Across) -> list[str]:
    """Lines: the answer, what could not be judged, and the tables."""
    missing = [f"- not judged: {markdown_text(name)}: {markdown_text(why)}" for name, why in found.not_judged.items()]
    views = (line for view in tables(found) for line in markdown_table(view))
    return [f"**{markdown_text(found.sentence)}**", "", *missing, *([""] if missing else []), *views]


def tables(found: Across) -> list[TableView]:
    """Over all spaces."""
    tests = [_test_table(found)] if found.sign_tests else []
    return [_method_table(found), *tests, _pays_table(found)]


def space_tables(found: Across) -> list[TableView]:
    """Of each space its verdicts, as its comparison says them."""
    views = []
    for space in found.spaces:
        judged = [each for each in QUALITIES if any(each.key in pair.verdicts for pair in space.stage.pairs)]
        cost = next(each for each in COSTS if each.key == space.cost)
        view = stage_verdicts(space.stage, cost, judged)
        seeds = counted(max(len(pair.seeds) for pair in space.stage.pairs), "seed")
        title = ", ".join(filter(None, (space.space, seeds, space.headroom)))
        views.append(replace(view, title=title))
    return views


def _method_table(found: Across) -> TableView:
    withheld = any(each.count("withheld") for each in found.methods)
    standings = STANDINGS if withheld else STANDINGS[:-1]
    what = COST_WORDS[found.cost]

    def row(each: OverSpaces) -> tuple[str, ...]:
        point = (ratio(each.point[0]), plain(each.point[1], 2)) if each.point else ("–", "–")
        front = ("yes" if each.method in found.front else "no") if each.everywhere else "–"
        counts = (str(each.count(standing)) for standing in standings)
        return each.method, str(len(each.standings)), *counts, str(len(each.failures)), *point, front

    return TableView(
        title=f"Over spaces, every method against {found.search}",
        caption=f"On how many spaces it matches {found.search} in every judged quality, is worse in one, or neither is "
        "certain; and on how many it is outside a margin on some seed. "
        f"÷ {found.search}: {what}; lost: log-likelihood in nats, mean over seeds; each the median over spaces. Front: "
        f"no other that ran on every space, nor {found.search} (1 and 0), beats it in both of these; the cheapest "
        f"first: {', '.join(found.front)}. "
        "Counts of verdicts are no test: each space has its own seeds and its own adjustment."
        + ("" if found.declared else " No method was declared, so none is tested over spaces."),
        columns=("method", "spaces", *standings, "fails on seeds of", f"÷ {found.search}", "lost", "front"),
        rows=tuple(row(each) for each in found.methods),
    )


def _test_table(found: Across) -> TableView:
    return TableView(
        title=f"Over spaces, log-likelihood of the declared methods against {found.search}'s",
        caption="Sign test over spaces, exact and two-sided, of the mean over seeds of the difference on each space; "
        f"a tie counts for neither side. p (Holm): adjusted for the {counted(len(found.declared), 'method')} that "
        "were declared. It speaks of spaces like these, as far as they are independent; not of how much is lost.",
        columns=("method", "spaces", "ahead on", "behind on", "p", "p (Holm)", "verdict"),
        rows=tuple(
            (
                test.method,
                str(test.spaces),
                str(test.ahead),
                str(test.behind),
                f"{test.p:.3f}",
                f"{test.p_holm:.3f}",
                test.answer,
            )
            for test in found.sign_tests
        ),
    )


def _pays_table(found: Across) -> TableView:
    shown = _shown(found)
    cost = next(each for each in COSTS if each.key == found.cost)

    def cell(space: OnSpace, method: str) -> str:
        pair = space.pair(method)
        share = _share(pair, cost) if pair and not pair.withheld else None
        return "–" if pair is None or share is None else f"{100 * (1 - share):.0f} % / {plain(-_gain(pair), 2)}"

    return TableView(
        title="When does it pay?",
        caption=f"Saving in {COST_WORDS[found.cost]} / log-likelihood lost in nats, against {found.search}, means over "
        "seeds; negative: costs more / gains. Depths: how many; epochs: at most; rows: that train. What goes with what "
        "over these spaces is no cause: they differ in much else. " + " ".join(found.pays),
        columns=("space", *_FACTS, "is a search needed?", *shown),
        rows=tuple(
            (
                space.space,
                *(f"{getattr(space, fact):,}" for fact in _FACTS),
                space.headroom or "–",
                *(cell(space, method) for method in shown),
            )
            for space in sorted(found.spaces, key=lambda each: tuple(getattr(each, fact) for fact in _FACTS))
        ),
    )


# --- of a study -----------------------------------------------------------------------------------------------------


def across_cells(results: StudyResults) -> Across | None:
    """Each cell compared by itself, then all together.

    None where spaces are not all that varies, where no method of the study trains every depth, and where no cell can be
    judged.
    """
    study = results.study
    if set(study.settings.vary) != {BASE} or not any(each.exhaustive for each in parse_methods(study.methods).values()):
        return None
    found, costs, not_judged = [], [], results.not_run
    for cell in study.cells:
        units = [unit for by_method in results.of(cell).values() for unit in by_method.values()]
        rows = [unit.result.labels_fit for unit in units if unit.result and unit.plan.facts.exhaustive]
        try:
            compared = compare(units, looks=read_looks(results.out, cell.space.name)) if rows else None
        except UserError as error:
            not_judged[name_of(cell)] = str(error)
            continue
        if compared is None or not compared.search.pairs:
            lacking = "beside the method that" if rows else "of a method that"
            why = results.reasons.get(name_of(cell), f"no seed {lacking} trains every depth is complete")
            not_judged[name_of(cell)] = why
            continue
        costs.append(leading_cost(compared.contamination))
        found.append(
            OnSpace.of(name_of(cell), cell.space, round(fmean(rows)), compared.search, costs[-1], compared.headroom)
        )
    if not found:
        return None
    # One cost for all: where seconds of one space are in doubt, what is counted.
    common = next((cost for cost in costs if cost is not DEVICE_SECONDS), DEVICE_SECONDS)
    return across(found, study.file.across, not_judged, common)
