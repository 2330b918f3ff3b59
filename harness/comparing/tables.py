"""The tables of a comparison as plain text cells; terminal, markdown and HTML draw the same ones."""

from dataclasses import dataclass

from harness import keys
from harness.comparing.finished import COSTS, DEPTH, QUALITIES
from harness.comparing.numbers import mean_and_spread, plain, ratio_with_ends, signed
from harness.comparing.sentences import seeds_needed
from harness.comparing.stages import margin_of
from harness.comparing.values import Comparison, MethodRow, Pair, Reached, Stage
from harness.records import PHASES
from harness.spaces import Margins

TEXT_COLUMNS = frozenset({"measure", "verdict"})


@dataclass(frozen=True)
class TableView:
    """First column: names, left-aligned as TEXT_COLUMNS are; the rest are numbers."""

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def cost_table(stage: Stage) -> TableView:
    grid = next((row.values[keys.COST_DEVICE_SECONDS].mean for row in stage.rows if row.method == "grid"), None)

    def of_grid(row: MethodRow) -> tuple[str, ...]:
        return (f"{row.values[keys.COST_DEVICE_SECONDS].mean / grid:.2f}",) if grid else ()

    return TableView(
        title=f"Cost, {stage.name}",
        caption="Mean over seeds ± half of the 95 % t interval. Workers are shared by all methods, so their start is "
        "no search's cost; with it, it falls on whichever came first. ÷ grid: mean device-seconds over grid's.",
        columns=("method", "n", *(measure.title for measure in COSTS), *(("÷ grid",) if grid else ())),
        rows=tuple(
            (
                row.method,
                str(len(row.seeds)),
                *(mean_and_spread(row.values[measure.key]) for measure in COSTS),
                *of_grid(row),
            )
            for row in stage.rows
        ),
    )


def ratio_table(stage: Stage, reference: str) -> TableView:
    return TableView(
        title=f"Cost of each search ÷ {reference}'s, {stage.name}",
        caption="Geometric mean of ratios paired by seed, with the 95 % t interval; above 1 where "
        f"{reference} is cheaper.",
        columns=("baseline", "n", *(measure.title for measure in COSTS)),
        rows=tuple(
            (
                pair.baseline,
                str(len(pair.seeds)),
                *(
                    ratio_with_ends(pair.cost_ratios[measure.key]) if measure.key in pair.cost_ratios else "–"
                    for measure in COSTS
                ),
            )
            for pair in stage.pairs
        ),
    )


def quality_table(stage: Stage) -> TableView:
    measures = (DEPTH, *QUALITIES)
    return TableView(
        title=f"Chosen depth and quality on the test set, {stage.name}",
        caption="Mean over seeds ± half of the 95 % t interval. Accuracy and log-likelihood (nats): higher is better; "
        "ECE and Brier: lower.",
        columns=("method", "n", *(measure.title for measure in measures)),
        rows=tuple(
            (row.method, str(len(row.seeds)), *(mean_and_spread(row.values[measure.key]) for measure in measures))
            for row in stage.rows
        ),
    )


def difference_table(stage: Stage, reference: str, margins: Margins) -> TableView:
    """One line per baseline and judged measure."""
    rows = []
    for pair in stage.pairs:
        for measure in QUALITIES:
            margin = margin_of(margins, measure.key)
            if margin is not None:
                difference = signed(pair.differences[measure.key])
                rows.append((pair.baseline, measure.title, difference, f"{margin:g}", _outcome(pair, measure.key)))
    return TableView(
        title=f"{reference} minus each baseline, {stage.name}",
        caption="Paired by seed, with 95 % t intervals. Non-inferior: the worse end lies inside the margin. ECE: "
        "negative is good.",
        columns=("baseline", "measure", "difference", "margin", "verdict"),
        rows=tuple(rows),
    )


def _outcome(pair: Pair, key: str) -> str:
    verdict = pair.verdicts.get(key)
    if pair.withheld:
        return "withheld" if pair.unequal else "one seed"
    if verdict is None:
        return "–"
    return f"inconclusive, {seeds_needed(verdict)}" if verdict.outcome == "inconclusive" else verdict.outcome


def equal_quality_table(comparison: Comparison) -> TableView:
    reference = comparison.reference
    return TableView(
        title="Cost at equal quality (a lower bound: an oracle stops the search at the right moment)",
        caption="Device-seconds until the best validation log-likelihood came within "
        f"{comparison.margins.log_likelihood:g} nats of the other's final value: seeds that got there, and the median. "
        "Grid and random_search: mean over 1,000 orders of their trials.",
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


def _count(reached: Reached) -> str:
    return f"{reached.count} of {len(reached.seeds)}"


def _median(reached: Reached) -> str:
    return "never" if reached.median is None else plain(reached.median)


def wall_clock_table(comparison: Comparison) -> TableView:
    devices = list(comparison.wall_clock[0].seconds)
    return TableView(
        title="Wall-clock, modelled",
        caption="Seconds on w devices, scheduled from recorded trial durations, mean over seeds; not measured on w "
        "devices. Adaptive searches use at most the concurrency they ran with; a trial is never spread.",
        columns=("method", *(f"w = {count}" for count in devices)),
        rows=tuple(
            (item.method, *("does not fit" if value is None else plain(value) for value in item.seconds.values()))
            for item in comparison.wall_clock
        ),
    )


def ledger_table(comparison: Comparison) -> TableView:
    ledgers = comparison.ledgers
    lines = {phase: [item.phases[phase] for item in ledgers] for phase in PHASES}
    lines["search cost"] = [item.total for item in ledgers]
    lines["worker start"] = [item.worker_start for item in ledgers]
    lines["search cost with worker start"] = [item.total + item.worker_start for item in ledgers]
    if all(item.refit is not None for item in ledgers):
        lines["refit"] = [item.refit or 0.0 for item in ledgers]
    lines["final evaluation"] = [item.final_eval for item in ledgers]
    lines["driver (seconds)"] = [item.driver_seconds for item in ledgers]
    lines["queue (seconds)"] = [item.queue_seconds for item in ledgers]
    return TableView(
        title="Where the device time went",
        caption="Device-seconds, mean over seeds. The phases add up to the search cost; the lines below stand outside.",
        columns=("phase", *(item.method for item in ledgers)),
        rows=tuple((name, *map(plain, values)) for name, values in lines.items()),
    )


def depth_table(comparison: Comparison) -> TableView:
    """Only where grid ran."""
    rows = []
    for check in comparison.depth_checks:
        known = [value for value in check.rank_correlation or () if value is not None]
        rows.append(
            (
                check.method,
                mean_and_spread(check.log_likelihood_regret),
                mean_and_spread(check.accuracy_regret),
                mean_and_spread(check.network_log_likelihood_regret),
                f"{sum(known) / len(known):.2f} ({min(known):.2f} to {max(known):.2f})" if known else "–",
            )
        )
    return TableView(
        title="Chosen depth against the measured curve of all depths (analysis only)",
        caption="Regret on the test set against the best depth of the grid: of the stand-alone network at the chosen "
        "depth, and of the method's own network. ρ: Spearman, validation log-likelihood per depth of the LDN "
        "against stand-alone networks, mean (range) over seeds.",
        columns=("method", "depth: nats", "depth: accuracy", "network: nats", "rank ρ"),
        rows=tuple(rows),
    )


def summary_tables(comparison: Comparison) -> list[TableView]:
    return _stage_tables(comparison.search, comparison)


def detail_tables(comparison: Comparison) -> list[TableView]:
    tables = [] if comparison.refit is None else _stage_tables(comparison.refit, comparison)
    if comparison.equal_quality:
        tables.append(equal_quality_table(comparison))
    tables += [wall_clock_table(comparison), ledger_table(comparison)]
    return [*tables, depth_table(comparison)] if comparison.depth_checks else tables


def _stage_tables(stage: Stage, comparison: Comparison) -> list[TableView]:
    reference = comparison.reference
    if not stage.pairs:
        return [cost_table(stage), quality_table(stage)]
    return [
        cost_table(stage),
        ratio_table(stage, reference),
        quality_table(stage),
        difference_table(stage, reference, comparison.margins),
    ]
