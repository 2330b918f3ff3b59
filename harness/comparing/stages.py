"""Rows and pairs of one cost mode: means per method, ratios and differences of pairs, and their verdicts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import numpy as np

from harness.comparing.asked import Asked, Pairs
from harness.comparing.averaged import Searches
from harness.comparing.costs import contamination, leading_cost
from harness.comparing.fairness import differences_between
from harness.comparing.finished import ByMethod, Finished, paired
from harness.comparing.values import Contamination, MethodRow, Pair, Stage
from harness.judging.two_keys import SIZE_WORDS, Looks, Question, Verdict, judge
from harness.measures import ACCURACY, COMPARED, COSTS, LOG_LIKELIHOOD, QUALITIES, SIZE, Measure, Outcome, judged
from harness.schema.records import SearchResult
from harness.schema.settings import Margins
from harness.statistics import (
    LEVEL,
    difference_interval,
    failures,
    log_ratios,
    mean_interval,
    ratio_interval,
)

StageName = Literal["search", "search + refit"]  # that units have outcomes of
OUTCOMES: dict[StageName, Callable[[SearchResult], Outcome]] = {
    "search": Outcome.of_search,
    "search + refit": Outcome.of_refit,
}
Reader = Callable[[Finished], dict[str, float]]


@dataclass(frozen=True)
class Stages:
    """The tables of a comparison with their verdicts, and the cost that these lead with."""

    search: Stage
    usual: Stage  # the search, as it is compared without a named reference
    refit: Stage | None  # None where a unit was not refitted
    doubts: Contamination
    cost: Measure
    searches: Searches


def judged_stages(asked: Asked) -> Stages:
    looks, searches = asked.looks.all, Searches(asked.by_method, asked.exhaustive)

    def built(name: StageName, pairs: Pairs) -> Stage:
        return build_stage(name, asked.by_method, pairs, searches)

    def with_words(stage: Stage) -> Stage:
        return with_verdicts(stage, cost, asked.margins, looks)

    measured = built("search", asked.pairs)
    doubts = contamination(asked.by_method, measured.pairs)
    cost = leading_cost(doubts)
    search = with_words(measured)
    return Stages(
        search=search,
        usual=search if asked.usual_pairs == asked.pairs else with_words(built("search", asked.usual_pairs)),
        refit=with_words(built("search + refit", asked.pairs)) if asked.refitted else None,
        doubts=doubts,
        cost=cost,
        searches=searches,
    )


def build_stage(name: StageName, by_method: ByMethod, pairs: Pairs, searches: Searches | None = None) -> Stage:
    """Without verdicts: whether seconds can be trusted shows in the pairs, so `with_verdicts` comes after them.

    A search stands for the mean over its search seeds where these are known. A quality that some units were not
    measured by, since they are older than it, is left out for all.
    """

    def outcomes_of(unit: Finished) -> list[Outcome]:
        return searches.outcomes(unit) if searches and name == "search" else [OUTCOMES[name](unit.result)]

    outcomes = [outcome for units in by_method.values() for unit in units for outcome in outcomes_of(unit)]
    unknown = {each.key for each in QUALITIES if each.of_all(outcome.quality for outcome in outcomes) is None}

    def read(unit: Finished) -> dict[str, float]:
        alike = outcomes_of(unit)
        found = {each.key: [each.read(outcome) for outcome in alike] for each in COMPARED if each.key not in unknown}
        known = {key: [value for value in values if value is not None] for key, values in found.items()}
        return {key: fmean(values) for key, values in known.items() if len(values) == len(alike)}

    rows = tuple(
        row_of(method, tuple(unit.seed for unit in units), [read(unit) for unit in units])
        for method, units in by_method.items()
    )
    found = (_pair(by_method[method], by_method[baseline], read) for method, baseline in pairs)
    return Stage(name=name, rows=rows, pairs=tuple(pair for pair in found if pair is not None))


def row_of(name: str, seeds: tuple[int, ...], values: Sequence[Mapping[str, float]]) -> MethodRow:
    """`values`: by measure, in the order of the seeds."""
    per_seed = {key: tuple(each) for key, each in columns(values).items()}
    return MethodRow(
        method=name,
        seeds=seeds,
        values={key: mean_interval(values) for key, values in per_seed.items()},
        per_seed=per_seed,
    )


def with_verdicts(stage: Stage, cost: Measure | None, margins: Margins, looks: Looks) -> Stage:
    """The stage judged. The family of verdicts that hold together is: all pairs of the stage that are not withheld ×
    (the cost that leads, where it is a question, and every quality with a margin). The sizes of the networks are a
    family of their own. Nothing else is claimed of a stage.

    Its intervals become those that the verdicts follow from."""
    rows = {row.method: row for row in stage.rows}
    asked: list[dict[str, Question]] = [
        {} if pair.withheld else _questions(rows, pair, cost, margins) for pair in stage.pairs
    ]
    family = judge([question for each in asked for question in each.values()], looks)
    verdicts = iter(family.verdicts)
    said = [{key: next(verdicts) for key in each} for each in asked]
    judged_pairs = (
        _judged(rows, pair, questions, verdicts, 1 - family.confidence)
        for pair, questions, verdicts in zip(stage.pairs, asked, said, strict=True)
    )
    return stage.model_copy(
        update={
            "pairs": _sized(rows, list(judged_pairs), looks),
            "median_confidence": family.median_confidence,
            "fewest_seeds": family.fewest_seeds,
        }
    )


def _sized(rows: Mapping[str, MethodRow], pairs: Sequence[Pair], looks: Looks) -> tuple[Pair, ...]:
    """Which of them hands over the smaller network, where that is known and compared on equal terms."""
    questions: dict[int, Question] = {}
    for place, pair in enumerate(pairs):
        ours, theirs = (on_seeds(rows[method], pair.seeds).get(SIZE.key) for method in (pair.method, pair.baseline))
        if ours and theirs and not pair.withheld and min(*ours, *theirs) > 0:
            questions[place] = Question(tuple(log_ratios(theirs, ours)), words=SIZE_WORDS)
    said = dict(zip(questions, judge(list(questions.values()), looks).verdicts, strict=True))
    return tuple(
        pair.model_copy(update={"size": said[place]}) if place in said else pair for place, pair in enumerate(pairs)
    )


def _questions(
    rows: Mapping[str, MethodRow], pair: Pair, cost: Measure | None, margins: Margins
) -> dict[str, Question]:
    ours, theirs = (on_seeds(rows[method], pair.seeds) for method in (pair.method, pair.baseline))
    found: dict[str, Question] = {}
    if cost is not None and cost.key in pair.cost_ratios:
        found[cost.key] = Question(tuple(log_ratios(theirs[cost.key], ours[cost.key])))
    for measure, margin in judged(margins, pair.differences).items():
        gains = zip(ours[measure.key], theirs[measure.key], strict=True)
        found[measure.key] = Question(tuple(measure.sign * (a - b) for a, b in gains), margin)
    return found


def _judged(
    rows: Mapping[str, MethodRow],
    pair: Pair,
    questions: Mapping[str, Question],
    verdicts: Mapping[str, Verdict],
    level: float,
) -> Pair:
    ours, theirs = (on_seeds(rows[method], pair.seeds) for method in (pair.method, pair.baseline))
    return pair.model_copy(
        update={
            "verdicts": verdicts,
            "medians": {
                measure.key: verdicts[measure.key].median.times(measure.sign)
                for measure in QUALITIES
                if measure.key in verdicts
            },
            "failures": {
                key: failures(question.advantages, pair.seeds, question.margin)
                for key, question in questions.items()
                if question.margin is not None
            },
            **intervals(ours, theirs, level),
        }
    )


def intervals(
    ours: Mapping[str, Sequence[float]], theirs: Mapping[str, Sequence[float]], level: float = LEVEL
) -> dict[str, Any]:
    """Of means, paired by seed, at a level; a cost of nothing has no ratio."""
    return {
        "confidence": 1 - level,
        "cost_ratios": {
            measure.key: ratio_interval(theirs[measure.key], ours[measure.key], level)
            for measure in COSTS
            if all(value > 0 for side in (ours, theirs) for value in side.get(measure.key, (0.0,)))
        },
        "differences": {
            measure.key: difference_interval(ours[measure.key], theirs[measure.key], level)
            for measure in QUALITIES
            if measure.key in ours and measure.key in theirs
        },
    }


def on_seeds(row: MethodRow, seeds: Sequence[int]) -> dict[str, list[float]]:
    places = [row.seeds.index(seed) for seed in seeds]
    return {key: [values[place] for place in places] for key, values in row.per_seed.items()}


def _pair(method: Sequence[Finished], baseline: Sequence[Finished], read: Reader) -> Pair | None:
    pairs = paired(method, baseline)
    if not pairs:
        return None
    unequal = tuple(differences_between([unit for pair in pairs for unit in pair]))
    return Pair(
        method=method[0].method,
        baseline=baseline[0].method,
        seeds=tuple(unit.seed for unit, _ in pairs),
        **intervals(columns([read(unit) for unit, _ in pairs]), columns([read(unit) for _, unit in pairs])),
        verdicts={},
        row_errors=row_errors(pairs),
        unequal=unequal,
        withheld=tuple(f"{item.rule}: {item.detail}" for item in unequal),
    )


def paired_values(
    method: str, baseline: str, seeds: tuple[int, ...], values: Mapping[str, Sequence[Mapping[str, float]]]
) -> Pair:
    """Of values of the same trained networks, in the order of the seeds: nothing can be unequal."""
    return Pair(
        method=method,
        baseline=baseline,
        seeds=seeds,
        **intervals(columns(values[method]), columns(values[baseline])),
        verdicts={},
        unequal=(),
        withheld=(),
    )


def columns(values: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """By measure that all units have."""
    known = [measure.key for measure in COMPARED if all(measure.key in each for each in values)]
    return {key: [each[key] for each in values] for key in known}


# --- the second error: all seeds may be tested on the same rows, and other rows would move them together --------------


def row_errors(pairs: Sequence[tuple[Finished, Finished]]) -> dict[str, float]:
    """Standard errors over test rows of the mean differences, paired by row: s(mean over seeds of a row) / √rows.

    None where a seed has test rows of its own: its error over rows is part of the error over seeds. None either where
    values per row were not kept.
    """
    if not share_their_test_rows([unit for pair in pairs for unit in pair]):
        return {}
    values = [(ours.rows, theirs.rows) for ours, theirs in pairs]
    likelihoods = [a.log_likelihood.astype(float) - b.log_likelihood for a, b in values if a and b]
    correct = [a.correct.astype(float) - b.correct for a, b in values if a and b]
    if not values or len(correct) < len(values) or len(correct[0]) < 2:
        return {}
    return {
        measure.key: float(np.mean(rows, axis=0).std(ddof=1) / np.sqrt(len(rows[0])))
        for measure, rows in ((ACCURACY, correct), (LOG_LIKELIHOOD, likelihoods))
    }


def share_their_test_rows(units: Sequence[Finished]) -> bool:
    hashes = {unit.result.final.test_hash for unit in units}
    return len(hashes) == 1 and None not in hashes
