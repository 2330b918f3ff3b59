"""Rows and pairs of one cost mode: means per method, ratios and differences of pairs, and their verdicts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.comparing.asked import Asked, Pairs
from harness.comparing.costs import contamination, leading_cost
from harness.comparing.fairness import differences_between
from harness.comparing.finished import ByMethod, Finished, paired
from harness.comparing.values import Contamination, MethodRow, Pair, Stage
from harness.measures import COMPARED, COSTS, QUALITIES, TFLOP, Measure, Outcome, judged
from harness.schema.records import SearchResult
from harness.schema.settings import Margins
from harness.statistics import (
    Question,
    Verdict,
    difference_interval,
    judge,
    level_of_look,
    log_ratios,
    mean_interval,
    ratio_interval,
)

StageName = Literal["search", "search + refit"]
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


def judged_stages(asked: Asked) -> Stages:
    looks = asked.looks.all

    def built(name: StageName, pairs: Pairs) -> Stage:
        return build_stage(name, asked.by_method, pairs, looks)

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
    )


def build_stage(name: StageName, by_method: ByMethod, pairs: Pairs, looks: tuple[int, ...]) -> Stage:
    """Without verdicts: whether seconds can be trusted shows in the pairs, so `with_verdicts` comes after them.

    A quality that some units were not measured by, since they are older than it, is left out for all.
    """

    outcomes = [OUTCOMES[name](unit.result) for units in by_method.values() for unit in units]
    unknown = {each.key for each in QUALITIES if each.of_all(outcome.quality for outcome in outcomes) is None}

    def read(unit: Finished) -> dict[str, float]:
        outcome = OUTCOMES[name](unit.result)
        values = {measure.key: measure.read(outcome) for measure in COMPARED if measure.key not in unknown}
        return {key: value for key, value in values.items() if value is not None}

    rows = tuple(_row(method, units, read) for method, units in by_method.items())
    level = level_of_look(looks)
    found = (_pair(by_method[method], by_method[baseline], read, level) for method, baseline in pairs)
    return Stage(name=name, rows=rows, pairs=tuple(pair for pair in found if pair is not None))


def _row(method: str, units: Sequence[Finished], read: Reader) -> MethodRow:
    read_units = [read(unit) for unit in units]
    known = [measure.key for measure in COMPARED if all(measure.key in values for values in read_units)]
    per_seed = {key: tuple(values[key] for values in read_units) for key in known}
    return MethodRow(
        method=method,
        seeds=tuple(unit.seed for unit in units),
        values={key: mean_interval(values) for key, values in per_seed.items()},
        per_seed=per_seed,
    )


def with_verdicts(stage: Stage, cost: Measure, margins: Margins, looks: tuple[int, ...]) -> Stage:
    """The stage judged. The family of verdicts that hold together (Holm) is: all pairs of the stage that are not
    withheld × (the cost that leads, and every quality with a margin). Nothing else is claimed of a stage."""
    rows = {row.method: row for row in stage.rows}
    questions: dict[tuple[int, str], Question] = {}
    for place, pair in enumerate(stage.pairs):
        if pair.withheld:
            continue
        ours, theirs = (_on_seeds(rows[method], pair.seeds) for method in (pair.method, pair.baseline))
        if cost.key in pair.cost_ratios:
            ratios = log_ratios(theirs[cost.key], ours[cost.key])
            questions[place, cost.key] = Question(tuple(ratios), counted=cost is TFLOP)
        for measure, margin in judged(margins, pair.differences).items():
            sign = 1.0 if measure.better == "higher" else -1.0
            gains = zip(ours[measure.key], theirs[measure.key], strict=True)
            questions[place, measure.key] = Question(tuple(sign * (a - b) for a, b in gains), margin)
    verdicts: list[dict[str, Verdict]] = [{} for _ in stage.pairs]
    for (place, key), verdict in zip(questions, judge(list(questions.values()), looks), strict=True):
        verdicts[place][key] = verdict
    pairs = [pair.model_copy(update={"verdicts": said}) for pair, said in zip(stage.pairs, verdicts, strict=True)]
    return stage.model_copy(update={"pairs": tuple(pairs)})


def _on_seeds(row: MethodRow, seeds: Sequence[int]) -> dict[str, list[float]]:
    places = [row.seeds.index(seed) for seed in seeds]
    return {key: [values[place] for place in places] for key, values in row.per_seed.items()}


def _pair(method: Sequence[Finished], baseline: Sequence[Finished], read: Reader, level: float) -> Pair | None:
    pairs = paired(method, baseline)
    if not pairs:
        return None
    ours = [read(unit) for unit, _ in pairs]
    theirs = [read(unit) for _, unit in pairs]

    def column(values: Sequence[Mapping[str, float]], key: str) -> list[float]:
        return [value[key] for value in values]

    unequal = tuple(differences_between([unit for pair in pairs for unit in pair]))
    withheld = [f"{item.rule}: {item.detail}" for item in unequal]
    if len(pairs) == 1:
        withheld.append("one seed: there is no interval, so there is no verdict")
    return Pair(
        method=method[0].method,
        baseline=baseline[0].method,
        seeds=tuple(unit.seed for unit, _ in pairs),
        confidence=1 - level,
        cost_ratios={
            measure.key: ratio_interval(column(theirs, measure.key), column(ours, measure.key), level)
            for measure in COSTS
            if all(values.get(measure.key, 0.0) > 0 for values in (*ours, *theirs))
        },
        differences={
            measure.key: difference_interval(column(ours, measure.key), column(theirs, measure.key), level)
            for measure in QUALITIES
            if measure.key in ours[0]
        },
        verdicts={},
        unequal=unequal,
        withheld=tuple(withheld),
    )
