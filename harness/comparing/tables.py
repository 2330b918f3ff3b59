"""The tables of a comparison as plain text cells; terminal, markdown and HTML draw the same ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.comparing.costs import ORDERS, leading_cost
from harness.comparing.numbers import (
    MINUS,
    inverse,
    listed,
    mean_and_spread,
    plain,
    ratio_with_ends,
    signed,
    signed_and_spread,
    signed_median,
)
from harness.comparing.sentences import COST_WORDS, seeds_needed, too_few
from harness.comparing.values import (
    ALL_PARTS,
    LOSS_PARTS,
    Comparison,
    DepthCheck,
    Floor,
    Headroom,
    Loss,
    MethodRow,
    Pair,
    Reached,
    Stage,
)
from harness.judging.words import WITHHELD, shown
from harness.measures import (
    ACCURACY,
    BALANCED_ACCURACY,
    COSTS,
    DEPTH,
    DEVICE_SECONDS,
    LOG_LIKELIHOOD,
    QUALITIES,
    SIZE,
    SIZES,
    Better,
    Measure,
    shown_phases,
)
from harness.text.shown import counted

MORE_ROWS = "more test rows, not seeds"
MOST_CLASSES = 30  # of a table
TEXT_COLUMNS = frozenset({"measure", "verdict"})


@dataclass(frozen=True)
class TableView:
    """First column: names, left-aligned as TEXT_COLUMNS are; the rest are numbers."""

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def verdict_table(comparison: Comparison) -> TableView:
    """Every verdict: who is compared with whom, a word for each question, and what was measured."""
    return stage_verdicts(comparison.search, leading_cost(comparison.contamination), list(comparison.judged))


def stage_verdicts(stage: Stage, cost: Measure, judged: Sequence[Measure]) -> TableView:
    """`cost`: the one that its verdicts lead with."""
    sized = (SIZE.title,) if any(pair.size for pair in stage.pairs) else ()

    def share(pair: Pair) -> str:
        found = pair.cost_ratios.get(cost.key)
        return f"{_said(pair, cost)}, {ratio_with_ends(inverse(found))}" if found else "not recorded"

    def quality(pair: Pair, measure: Measure) -> str:
        return f"{_said(pair, measure)}, {signed_and_spread(pair.differences[measure.key])}"

    return TableView(
        title=f"Verdicts, every method against {stage.against}"
        if stage.against
        else "Verdicts, one against each method",
        caption=f"Cost ratio or mean difference, with its {confidence(stage)} interval.",
        columns=("method", COST_WORDS[cost.key], *sized, *(measure.title for measure in judged)),
        rows=tuple(
            (
                stage.label_of(pair),
                share(pair),
                *([_size(pair)] if sized else []),
                *(quality(pair, measure) for measure in judged),
            )
            for pair in stage.pairs
        ),
    )


def _size(pair: Pair) -> str:
    if pair.size is None or pair.size_ratio is None:
        return WITHHELD if pair.withheld else "–"
    return f"{shown(pair.size.outcome)}, {ratio_with_ends(pair.size_ratio)}"


def _said(pair: Pair, measure: Measure) -> str:
    return shown(outcome_of(pair, measure))


def cost_table(stage: Stage, exhaustive: str | None) -> TableView:
    """With a column relative to the method that trains every depth, where one ran."""
    costs = _known(stage)
    whole = next((row.values[DEVICE_SECONDS.key].mean for row in stage.rows if row.method == exhaustive), None)

    def of_whole(row: MethodRow) -> tuple[str, ...]:
        return (f"{row.values[DEVICE_SECONDS.key].mean / whole:.2f}",) if whole else ()

    return TableView(
        title=f"Cost, {stage.name}",
        caption="Mean over seeds ± half of the 95 % t interval. All methods share the workers, so starting them is not "
        "part of any search's cost; “with start” charges it to the first search."
        + (f" ÷ {exhaustive}: mean device-seconds divided by {exhaustive}'s." if whole else ""),
        columns=("method", "n", *(measure.title for measure in costs), *((f"÷ {exhaustive}",) if whole else ())),
        rows=tuple(
            (
                row.method,
                str(len(row.seeds)),
                *(mean_and_spread(row.values[measure.key]) for measure in costs),
                *of_whole(row),
            )
            for row in stage.rows
        ),
    )


def _known(stage: Stage) -> list[Measure]:
    """The costs that every method has: dollars only where a price was given."""
    return [measure for measure in COSTS if all(measure.key in row.values for row in stage.rows)]


def ratio_table(stage: Stage) -> TableView:
    """Of what is compared, against the side that all pairs share: always its own cost below."""
    shared = stage.against or stage.pairs[0].method

    def cell(pair: Pair, measure: Measure) -> str:
        found = pair.cost_ratios.get(measure.key)
        return "–" if found is None else ratio_with_ends(inverse(found) if stage.against else found)

    return TableView(
        title=f"Cost of each method ÷ {shared}'s, {stage.name}",
        caption=f"Geometric mean of ratios paired by seed, with the {confidence(stage)} t interval; above 1 where "
        f"{shared} is cheaper.",
        columns=("method", "n", *(measure.title for measure in _known(stage))),
        rows=tuple(
            (stage.label_of(pair), str(len(pair.seeds)), *(cell(pair, measure) for measure in _known(stage)))
            for pair in stage.pairs
        ),
    )


def confidence(stage: Stage) -> str:
    """Of the intervals of its pairs: 95 %, or more the more verdicts hold together."""
    return _percent(stage.pairs[0].confidence)


def family(stage: Stage) -> str:
    """What all words of a stage promise together; "" where all are withheld."""
    verdicts = [verdict for pair in stage.pairs for verdict in pair.verdicts.values()]
    if not verdicts:
        return ""
    if all(verdict.outcome == "too few seeds" for verdict in verdicts):
        return f"No verdicts: {too_few(stage)}."
    which = f"any of the {len(verdicts)} verdicts" if len(verdicts) > 1 else "the verdict"
    return (
        f"The chance that {which} is wrong about the typical seed (the median) is at most 5 % (sign test, Holm); the "
        "mean agrees unless a verdict says “on most seeds”."
    )


def how_verdicts_follow(stage: Stage) -> str:
    """From the intervals that are printed, to the words."""
    return (
        f"How verdicts follow from the intervals of the mean ({confidence(stage)}) and of the median "
        f"({_percent(stage.median_confidence)}): better, both lie above 0; worse, below 0; as good, above −margin; "
        "worse beyond the margin, below it; “on most seeds”, only the median's does."
    )


def _percent(confidence: float) -> str:
    return f"{100 * confidence:.3g} %"


def quality_table(stage: Stage, floor: Floor | None, checks: Sequence[DepthCheck] = ()) -> TableView:
    """With two lines for what needs no network, where it was measured.

    `checks`: of one-shots, how well they rank the depths, which says whether they can choose at all.
    """
    ranks = {check.method: rank(check).split(" ")[0] for check in checks if check.rank_correlation is not None}
    rows = (*stage.rows, *((floor.linear, floor.guess) if floor else ()))
    balanced = [BALANCED_ACCURACY] if any(map(_is_unbalanced, stage.rows)) else []
    others = [each for each in QUALITIES[1:] if any(each.key in row.values for row in stage.rows)]
    measures = (DEPTH, ACCURACY, *balanced, *others)

    def cell(row: MethodRow, measure: Measure) -> str:
        return mean_and_spread(row.values[measure.key]) if measure.key in row.values else "–"

    return TableView(
        title=f"Chosen depth and quality on the test set, {stage.name}",
        caption="Mean over seeds ± half of the 95 % t interval. Higher is better: "
        f"{_titles(measures, 'higher')}; lower is better: {_titles(measures, 'lower')}."
        + (f" {floor.linear.method}: logistic regression on the same rows, outside all costs." if floor else "")
        + (
            " Rank ρ: Spearman correlation of validation log-likelihood per depth inside the one network with that of "
            "networks trained alone, mean over seeds; near 0 it cannot tell which depth is best."
            if ranks
            else ""
        ),
        columns=("method", "n", *(measure.title for measure in measures), *(("rank ρ",) if ranks else ())),
        rows=tuple(
            (
                row.method,
                str(len(row.seeds)),
                *(cell(row, measure) for measure in measures),
                *((ranks.get(row.method, "–"),) if ranks else ()),
            )
            for row in rows
        ),
    )


def rank(check: DepthCheck) -> str:
    known = [value for value in check.rank_correlation or () if value is not None]
    if not known:
        return "–"
    return f"{sum(known) / len(known):.2f} ({min(known):.2f} to {max(known):.2f})".replace("-", MINUS)


def size_table(stage: Stage) -> TableView:
    """Of the network that is handed over, counted and timed; "–" where it was not timed."""
    measures = [each for each in SIZES if any(each.key in row.values for row in stage.rows)]
    judged = {pair.method: pair for pair in stage.pairs} if stage.against else {}

    def against(row: MethodRow) -> tuple[str, ...]:
        if not judged:
            return ()
        pair = judged.get(row.method)
        ratio = ratio_with_ends(pair.size_ratio) if pair and pair.size_ratio else "–"
        word = shown(pair.size.outcome) if pair and pair.size else WITHHELD if pair and pair.withheld else "–"
        return ratio, word

    def cell(row: MethodRow, measure: Measure) -> str:
        return mean_and_spread(row.values[measure.key]) if measure.key in row.values else "–"

    return TableView(
        title=f"Size of the network, {stage.name}",
        caption="Of the network that is handed over, mean over seeds ± half of the 95 % t interval. Multiply-adds: of "
        "one sample's forward pass, counted; size: divided by those of the space's deepest network. Milliseconds: in "
        "batches of up to 512, the fastest of nine, in turns with the deepest network."
        + (
            f" ÷ {stage.against}: geometric mean of ratios paired by seed. Its verdicts hold together."
            if judged
            else ""
        ),
        columns=(
            "method",
            *(measure.title for measure in measures),
            *((f"÷ {stage.against}", "verdict") if judged else ()),
        ),
        rows=tuple((row.method, *(cell(row, measure) for measure in measures), *against(row)) for row in stage.rows),
    )


def _is_unbalanced(row: MethodRow) -> bool:
    """Whether it makes a difference that classes are not equally frequent."""
    both = zip(row.per_seed[ACCURACY.key], row.per_seed.get(BALANCED_ACCURACY.key, ()), strict=False)
    return any(abs(plain - balanced) > 0.01 for plain, balanced in both)


def _titles(measures: Sequence[Measure], better: Better) -> str:
    found = [measure for measure in measures if measure.better == better]
    return listed([f"{measure.title} ({measure.unit})" if measure.unit else measure.title for measure in found])


def difference_table(stage: Stage, comparison: Comparison) -> TableView:
    """One line per pair and judged measure."""
    rows_known = any(pair.row_errors for pair in stage.pairs)
    rows = [
        (
            stage.label_of(pair),
            measure.title,
            signed(pair.differences[measure.key]),
            *_row_error(pair, measure, rows_known),
            signed_median(pair.medians.get(measure.key)),
            f"{margin:g}",
            _failed(pair, measure),
            _outcome(pair, measure),
        )
        for pair in stage.pairs
        for measure, margin in comparison.judged.items()
        if measure.key in pair.differences
    ]
    lower = [measure.title for measure in comparison.judged if measure.better == "lower"]
    each = "rule" if stage.name == "no search" else "method"
    return TableView(
        title=f"{f'Each {each} − {stage.against}' if stage.against else f'{stage.pairs[0].method} − each method'}, "
        f"{stage.name}",
        caption=" ".join(
            filter(
                None,
                (
                    f"Paired by seed: mean with {confidence(stage)} t interval, median with "
                    f"{_percent(stage.median_confidence)} interval by order statistics. "
                    + ("± test rows: of the mean, over test rows; ± both: with seeds, in quadrature. " * rows_known)
                    + "Failures: seeds on which it is "
                    "worse by the margin or more, and the largest share of all seeds that this allows for (95 %).",
                    family(stage),
                    how_verdicts_follow(stage) if any(pair.verdicts for pair in stage.pairs) else "",
                    comparison.margins_said,
                    f"{listed(lower)}: negative is good." if lower else "",
                ),
            )
        ),
        columns=(
            *(each, "measure", "mean difference"),
            *(("± test rows", "± both") if rows_known else ()),
            *("median", "margin", "outside", "verdict"),
        ),
        rows=tuple(rows),
    )


def outcome_of(pair: Pair, measure: Measure) -> str:
    """The verdict on a measure as JSON has it, or why there is none."""
    return WITHHELD if pair.withheld else pair.verdicts[measure.key].outcome


def _outcome(pair: Pair, measure: Measure) -> str:
    outcome = outcome_of(pair, measure)
    verdict = pair.verdicts.get(measure.key)
    if verdict is None or outcome != "undecided":
        return shown(outcome)
    return f"{shown(outcome)}, " + (MORE_ROWS if pair.rows_rule(measure.key) else seeds_needed(verdict))


def _row_error(pair: Pair, measure: Measure, known: bool) -> tuple[str, ...]:
    """Half-widths over test rows, and over seeds and test rows together."""
    found = (pair.row_half_width(measure.key), pair.both_errors(measure.key))
    return tuple("–" if each is None else plain(each, 2) for each in found) if known else ()


def _failed(pair: Pair, measure: Measure) -> str:
    """`2 of 20, ≤ 28 %`."""
    failed = pair.failures.get(measure.key)
    return f"{failed.count} of {failed.n}, ≤ {100 * failed.at_most:.0f} %" if failed else "–"


def headroom_table(headroom: Headroom) -> TableView:
    """What comes without a search, beside the choice of one. The verdicts on it are a table of their own."""
    rows = headroom.stage.rows
    qualities = [each for each in QUALITIES if each.margin and all(each.key in row.values for row in rows)]
    sized = [SIZE] if all(SIZE.key in row.values for row in rows) else []
    whole = next(row for row in rows if row.method == headroom.search).values[DEVICE_SECONDS.key].mean
    return TableView(
        title="Without a search",
        caption=f"Read off the networks that {headroom.search} trained on "
        f"{counted(len(rows[0].seeds), 'seed')}; mean over seeds ± half of the 95 % t interval. "
        "A random depth: the exact mean over depths. The best constant depth: for each seed the one that is best on "
        "validation on the other seeds; shown, not judged, since its values depend on each other. "
        f"÷ {headroom.search}: mean device-seconds divided by {headroom.search}'s.",
        columns=("rule", f"÷ {headroom.search}", *(each.title for each in (DEPTH, *sized, *qualities))),
        rows=tuple(
            (
                row.method,
                f"{row.values[DEVICE_SECONDS.key].mean / whole:.2f}" if whole else "–",
                *(mean_and_spread(row.values[measure.key]) for measure in (DEPTH, *sized, *qualities)),
            )
            for row in rows
        ),
    )


def equal_quality_table(comparison: Comparison) -> TableView:
    reference = comparison.reference
    return TableView(
        title="Cost at equal quality (the best case: an oracle stops each search at the right moment)",
        caption="Seeds whose best validation log-likelihood came within "
        f"{comparison.margins.log_likelihood:g} nats of the other's final value, and the median device-seconds until "
        "they did; never: on most seeds it did not." + over_orders(comparison.unordered),
        columns=(
            "baseline",
            f"it reaches {reference}",
            "device-s",
            f"÷ {reference}'s cost",
            f"{reference} reaches it",
            "device-s",
        ),
        rows=tuple(
            (
                item.baseline,
                _count(item.baseline_reaches),
                _median(item.baseline_reaches),
                ratio_with_ends(item.speed_up) if item.speed_up else "–",
                _count(item.reference_reaches),
                _median(item.reference_reaches),
            )
            for item in comparison.equal_quality
        ),
    )


def over_orders(unordered: Sequence[str]) -> str:
    """A sentence on methods whose curves are means over orders of their trials; "" where there are none."""
    if not unordered:
        return ""
    whose = "its" if len(unordered) == 1 else "their"
    return f" For {listed(unordered)}: mean over {ORDERS:,} orders of {whose} trials."


def _count(reached: Reached) -> str:
    return f"{reached.count} of {len(reached.seeds)}"


def _median(reached: Reached) -> str:
    return "never" if reached.median is None else plain(reached.median)


def class_table(comparison: Comparison) -> TableView:
    """The classes that are told apart worst come first."""
    by_recall = sorted(
        comparison.classes, key=lambda row: min((r for r in row.recall.values() if r is not None), default=2.0)
    )
    shown = by_recall[:MOST_CLASSES]
    left_out = len(by_recall) - len(shown)
    return TableView(
        title="Recall of each class",
        caption="Share of the class's test samples that the chosen network takes for it, mean over seeds; rows are "
        "those of training, validation and test set together."
        + (f" The {len(shown)} worst of {len(by_recall)} classes are shown." if left_out else ""),
        columns=("class", "rows", *comparison.methods),
        rows=tuple(
            (
                row.name,
                f"{row.rows:,}",
                *("–" if row.recall[method] is None else f"{row.recall[method]:.3f}" for method in comparison.methods),
            )
            for row in shown
        ),
    )


def wall_clock_table(comparison: Comparison) -> TableView:
    devices = list(comparison.wall_clock[0].seconds)
    return TableView(
        title="Wall-clock, modelled",
        caption="Seconds on w devices, scheduled from recorded trial durations, mean over seeds; not measured on w "
        "devices. A replayed search was replayed for each w; another adaptive one uses at most the concurrency it ran "
        "with. A trial is never spread over devices.",
        columns=("method", *(f"w = {count}" for count in devices)),
        rows=tuple(
            (item.method, *("does not fit" if value is None else plain(value) for value in item.seconds.values()))
            for item in comparison.wall_clock
        ),
    )


def phase_table(comparison: Comparison) -> TableView:
    methods = comparison.phases
    lines = {
        phase: [item.device_seconds[phase] for item in methods]
        for phase in shown_phases(item.device_seconds for item in methods)
    }
    lines["search cost"] = [item.total for item in methods]
    lines["worker start"] = [item.worker_start for item in methods]
    lines["search cost with worker start"] = [item.total + item.worker_start for item in methods]
    if all(item.refit is not None for item in methods):
        lines["refit"] = [item.refit or 0.0 for item in methods]
    lines["final evaluation"] = [item.final_eval for item in methods]
    lines["driver (seconds)"] = [item.driver_seconds for item in methods]
    lines["queue (seconds)"] = [item.queue_seconds for item in methods]
    return TableView(
        title="Where the device time went",
        caption="Device-seconds, mean over seeds. The phases add up to the search cost; the lines below it are not "
        "part of it.",
        columns=("phase", *(item.method for item in methods)),
        rows=tuple((name, *map(plain, values)) for name, values in lines.items()),
    )


def depth_table(comparison: Comparison) -> TableView:
    """Only where a method trained every depth."""
    rows = []
    for check in comparison.depth_checks:
        rows.append(
            (
                check.method,
                mean_and_spread(check.log_likelihood_regret),
                mean_and_spread(check.accuracy_regret),
                mean_and_spread(check.network_log_likelihood_regret),
                rank(check),
            )
        )
    return TableView(
        title="Chosen depth against the measured curve of all depths (analysis only)",
        caption=f"Regret on the test set against the best depth that {comparison.exhaustive} trained: of the "
        "stand-alone network at the chosen depth, and of the method's own network. ρ: Spearman correlation of "
        "validation log-likelihood per depth inside a learnt-depth network with that of stand-alone networks, mean "
        f"(range) over seeds.{_nearest_used(comparison.depth_checks)}",
        columns=("method", "depth: nats", "depth: accuracy", "network: nats", "rank ρ"),
        rows=tuple(rows),
    )


def loss_table(comparison: Comparison) -> TableView:
    """Only where a method trained every depth, and there is a one-shot."""
    return TableView(
        title=f"Where each one-shot loses against {comparison.exhaustive}'s choice (analysis only)",
        caption="In nats, and in all in accuracy: mean over seeds ± half of the 95 % t interval, on the test set; "
        "positive is lost, and nothing is judged. With "
        f"{comparison.exhaustive}'s network of each depth: wrong depth, at its own choice − at d_opt; shared weights, "
        "that − the one-shot's d_opt alone; averaging, that − what is handed over. The three add up."
        f"{_nearest_used(comparison.losses)}",
        columns=("method", "n", *LOSS_PARTS, ALL_PARTS, "accuracy"),
        rows=tuple(
            (
                each.method,
                str(len(each.seeds)),
                *(signed_and_spread(each.parts[LOG_LIKELIHOOD.key][part]) for part in (*LOSS_PARTS, ALL_PARTS)),
                signed_and_spread(each.parts[ACCURACY.key][ALL_PARTS]),
            )
            for each in comparison.losses
        ),
    )


def _nearest_used(checks: Sequence[DepthCheck | Loss]) -> str:
    found = [f"{check.method} seed {', '.join(map(str, check.nearest_used))}" for check in checks if check.nearest_used]
    return f" The chosen depth was not trained alone, so the nearest one is used: {'; '.join(found)}." if found else ""


def summary_tables(comparison: Comparison) -> list[TableView]:
    needed = comparison.headroom
    without = [headroom_table(needed), difference_table(needed.stage, comparison)] if needed else []
    lost = [loss_table(comparison)] if comparison.losses else []
    return [*_stage_tables(comparison.search, comparison), *lost, *without]


def detail_tables(comparison: Comparison) -> list[TableView]:
    tables = [] if comparison.refit is None else _stage_tables(comparison.refit, comparison)
    if comparison.equal_quality:
        tables.append(equal_quality_table(comparison))
    if comparison.classes:
        tables.append(class_table(comparison))
    tables += [wall_clock_table(comparison), phase_table(comparison)]
    return [*tables, depth_table(comparison)] if comparison.depth_checks else tables


def _stage_tables(stage: Stage, comparison: Comparison) -> list[TableView]:
    return [
        cost_table(stage, comparison.exhaustive),
        *([ratio_table(stage)] if stage.pairs else []),
        quality_table(stage, comparison.floor, comparison.depth_checks if stage.name == "search" else ()),
        *([size_table(stage)] if any(SIZE.key in row.values for row in stage.rows) else []),
        *([difference_table(stage, comparison)] if stage.pairs else []),
    ]
