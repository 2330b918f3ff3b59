"""A comparison for the terminal, as markdown, JSON and CSV. Nothing is printed here: that is the command line's."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harness.comparing.costs import leading_cost
from harness.comparing.numbers import inverse, ratio_with_ends, signed_and_spread
from harness.comparing.sentences import COST_WORDS, names_phrase, sizes_phrase
from harness.comparing.tables import (
    TEXT_COLUMNS,
    TableView,
    confidence,
    detail_tables,
    family,
    outcome_of,
    summary_tables,
    verdict_table,
)
from harness.comparing.values import Comparison, Pair, Recommendation
from harness.judging.words import WITHHELD, kind_of, shown
from harness.measures import COMPARED, SIZE, Measure
from harness.statistics import Interval
from harness.text.shown import counted, markdown_text

_STYLES = {"good": "green", "bad": "red", "open": "yellow", "none": ""}
NOTES = 2  # that a run ends with
_MARKS = {"yes": ("✓", "green"), "partly": ("~", "yellow"), "no": ("✗", "red")}


def verdict(comparison: Comparison) -> RenderableType:
    """The answer on one screen: what to do, and a word and a number for every question that was asked."""
    stage = comparison.search
    ours = [pair for pair in stage.pairs if stage.name_of(pair) in comparison.one_shots]
    groups = {"one-shot": ours, "search": [pair for pair in stage.pairs if pair not in ours]}
    tables = [_verdicts(comparison, title, group) for title, group in groups.items() if group]
    footer = Text(f"\n{' '.join(_how_to_read(comparison))}", style="dim")
    who = f" · {_who(comparison)}" if stage.pairs else ""
    title = f"{comparison.space} · {counted(len(comparison.seeds), 'seed')}{who}"
    return Panel(
        Group(
            recommended(comparison.recommendation),
            *tables,
            *([Text(f"\n{sizes}")] if (sizes := sizes_phrase(stage)) else []),
            footer,
        ),
        title=Text(title),
        title_align="left",
        box=box.ROUNDED,
    )


def recommended(recommendation: Recommendation) -> RenderableType:
    """What to do, and below it what that rests on, costs and risks."""
    reasons = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    reasons.add_column(style="dim", no_wrap=True)
    reasons.add_column(ratio=1)
    for word, text in recommendation.reasons.items():
        reasons.add_row(word, Text(text))
    return Group(Text(recommendation.sentence, style="bold"), reasons)


def _who(comparison: Comparison) -> str:
    against = comparison.search.against
    return f"every method against {against}" if against else f"{comparison.reference} against every method"


def _how_to_read(comparison: Comparison) -> Iterator[str]:
    pairs = comparison.search.pairs
    if pairs:
        times = len(comparison.looks.all)
        analyses = f", adjusted for {times} interim analyses" if times > 1 else ""
        yield (
            f"Below each verdict: cost ratio or mean difference ({confidence(comparison.search)} interval{analyses}); "
            "“outside”: seeds that are worse by the margin or more."
        )
    verdicts = [verdict for pair in pairs for verdict in pair.verdicts.values()]
    if verdicts:
        yield family(comparison.search)
    needed = sorted(
        verdict.seeds_needed
        for pair in pairs
        for key, verdict in pair.verdicts.items()
        if verdict.seeds_needed and not (key in pair.differences and pair.rows_rule(key))
    )
    if needed:
        span = f"{needed[0]}" if needed[0] == needed[-1] else f"{needed[0]} to {needed[-1]}"
        yield f"Deciding the open verdicts takes about {span} seeds in total (with a chance of 4 in 5)."
    yield comparison.margins_said
    if said := names_phrase(comparison.full_names):
        yield said


def _verdicts(comparison: Comparison, title: str, pairs: Sequence[Pair]) -> RenderableType:
    """A line of words and a line of numbers for each pair; all of a comparison's have the same widths."""
    cost, measures = leading_cost(comparison.contamination), list(comparison.judged)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=True, header_style="dim")
    labels = map(comparison.search.label_of, comparison.search.pairs)
    table.add_column(title, no_wrap=True, width=min(24, max(map(len, (title, *comparison.methods, *labels)))))

    def share(pair: Pair) -> str:
        found = pair.cost_ratios.get(cost.key)
        return ratio_with_ends(inverse(found)) if found else "not recorded"

    table.add_column(COST_WORDS[cost.key], width=max(18, *(len(share(pair)) for pair in comparison.search.pairs)))
    for measure in measures:
        table.add_column(measure.title, ratio=1)
    for pair in pairs:
        colour = comparison.colours.get(comparison.search.name_of(pair), "")
        table.add_row(
            Text(comparison.search.label_of(pair), style=colour),
            _word_and_number(pair, cost, share(pair)),
            *(_word_and_number(pair, each, signed_and_spread(pair.differences[each.key])) for each in measures),
        )
    return Group(Text(""), table)


def _word_and_number(pair: Pair, measure: Measure, number: str) -> Text:
    word, failed = outcome_of(pair, measure), pair.failures.get(measure.key)
    outside = f"\n{failed.count} of {failed.n} outside" if failed and failed.count and not pair.withheld else ""
    return Text.assemble((shown(word), _STYLES[kind_of(word)]), "\n", number, outside)


def leading_notes(comparison: Comparison) -> RenderableType:
    """What a reader must know first; the rest comes with the tables."""
    notes = [_missing(comparison)] if comparison.missing else []
    notes += [f"not equal between methods: {item.rule}: {item.detail}" for item in comparison.fairness]
    notes += comparison.notes
    more = len(notes) - NOTES
    return _bullets([*notes[:NOTES], *([f"more notes, with the tables: {more}"] if more > 0 else [])])


def summary(comparison: Comparison) -> RenderableType:
    """The tables a person looks for, and what limits them."""
    parts: list[RenderableType] = [rich_table(view, comparison.colours) for view in summary_tables(comparison)]
    if comparison.resolution and comparison.resolution.enough:  # else it is among the notes
        parts.append(_lines("Resolution", [comparison.resolution.sentence]))
    if comparison.missing:
        parts.append(_lines("Missing", [_missing(comparison)]))
    if comparison.fairness:
        listed = [f"{item.rule}: {item.detail}" for item in comparison.fairness]
        parts.append(_lines("Unfair comparison: affected verdicts are withheld", listed))
    parts.append(_lines("Notes", comparison.notes))
    return Group(*parts)


def details(comparison: Comparison) -> RenderableType:
    """Search + refit, equal quality, wall-clock, phases, depths and the checklist."""
    parts: list[RenderableType] = [rich_table(view, comparison.colours) for view in detail_tables(comparison)]
    items = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    items.add_column(width=1)
    items.add_column(ratio=1)
    items.add_column(ratio=1, style="dim")
    for item in comparison.checklist:
        mark, style = _MARKS[item.answer]
        items.add_row(Text(mark, style=style), item.question, Text(item.evidence))
    parts += [Text("NAS best-practice checklist (Lindauer & Hutter)", style="bold"), items, Text("")]
    return Group(*parts)


def rich_table(view: TableView, colours: Mapping[str, str]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for index, column in enumerate(view.columns):
        table.add_column(column, justify="left" if index == 0 or column in TEXT_COLUMNS else "right")
    previous = None
    for row in view.rows:
        name = row[0] if row[0] != previous or view.columns[1] == "n" else ""
        previous = row[0]
        style = colours.get(row[0], "")
        table.add_row(Text(name, style=style), *(_cell(cell) for cell in row[1:]))
    return Group(Text(view.title, style="bold"), table, Padding(Text(view.caption, style="dim"), (0, 0, 1, 0)))


def _cell(cell: str) -> Text:
    return Text(cell, style=_STYLES[kind_of(cell.split(",")[0])])


def _lines(title: str, lines: Sequence[str]) -> RenderableType:
    return Group(Text(title, style="bold"), Padding(_bullets(lines), (0, 0, 1, 0)))


def _bullets(lines: Sequence[str]) -> Table:
    items = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    items.add_column(width=1)
    items.add_column()
    for line in lines:
        items.add_row("•", Text(line))
    return items


def _missing(comparison: Comparison) -> str:
    parts = ["no result yet: " + ", ".join(comparison.missing) + " (the same `harness run` finishes it)"]
    if comparison.unfinished_methods:
        parts.append("no finished unit at all: " + ", ".join(comparison.unfinished_methods))
    return "; ".join(parts)


def as_markdown(comparison: Comparison) -> str:
    lines = [f"# {markdown_text(comparison.space)}: {markdown_text(_who(comparison))}", ""]
    lines += [f"**{markdown_text(comparison.recommendation.sentence)}**", ""]
    lines += [f"- {word}: {markdown_text(text)}" for word, text in comparison.recommendation.reasons.items()] + [""]
    if said := names_phrase(comparison.full_names):
        lines += [markdown_text(said), ""]
    if comparison.search.pairs:
        lines += markdown_table(verdict_table(comparison))
    lines += [f"- {markdown_text(sentence)}" for sentence in comparison.sentences] + [""]
    for view in (*summary_tables(comparison), *detail_tables(comparison)):
        lines += markdown_table(view)
    if comparison.resolution:
        lines += ["## Resolution", "", f"- {markdown_text(comparison.resolution.sentence)}", ""]
    if comparison.missing:
        lines += ["## Missing", "", f"- {markdown_text(_missing(comparison))}", ""]
    lines += ["## Fairness", ""]
    lines += [f"- {markdown_text(item.rule)}: {markdown_text(item.detail)}" for item in comparison.fairness] or [
        "- no difference between the methods' units was found"
    ]
    lines += ["", "## Notes", "", *(f"- {markdown_text(note)}" for note in comparison.notes), ""]
    lines += ["## NAS best-practice checklist (Lindauer & Hutter)", "", "| answer | question | evidence |"]
    lines += ["| --- | --- | --- |"]
    for item in comparison.checklist:
        lines.append(f"| {item.answer} | {markdown_text(item.question)} | {markdown_text(item.evidence)} |")
    return "\n".join(lines) + "\n"


def markdown_table(view: TableView) -> list[str]:
    head = "| " + " | ".join(map(markdown_text, view.columns)) + " |"
    rule = "| --- |" + "".join(" --- |" if column in TEXT_COLUMNS else " ---: |" for column in view.columns[1:])
    rows = ["| " + " | ".join(map(markdown_text, row)) + " |" for row in view.rows]
    return [f"## {markdown_text(view.title)}", "", head, rule, *rows, "", f"*{markdown_text(view.caption)}*", ""]


CSV_COLUMNS = (
    *("costs", "method", "measure", "unit", "seeds", "mean", "low", "high"),
    *("baseline", "paired_seeds", "compared_by", "value", "value_low", "value_high"),
    *("margin", "verdict", "seeds_needed_in_all"),
    *("median", "median_low", "median_high", "failed_seeds", "failed_at_most", "worst_advantage", "worst_seed"),
)


_NOTHING = ("",) * (len(CSV_COLUMNS) - CSV_COLUMNS.index("baseline"))


def as_csv(comparison: Comparison) -> str:
    """A line for each method and measure: mean and interval; for each baseline, ratio or difference and verdict."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for stage in filter(None, (comparison.search, comparison.refit)):
        for row in stage.rows:
            pairs = [pair for pair in stage.pairs if pair.method == row.method]
            for measure in (measure for measure in COMPARED if measure.key in row.values):
                what = (stage.name, row.method, measure.key, measure.unit, len(row.seeds))
                own = (*what, *_ends(row.values[measure.key]))
                writer.writerows([(*own, *_against(pair, measure)) for pair in pairs] or [own + _NOTHING])
    return text.getvalue()


def _against(pair: Pair, measure: Measure) -> tuple[object, ...]:
    """method ÷ baseline of a cost, method − baseline of a quality."""
    found, by = pair.differences.get(measure.key), "difference"
    if measure is SIZE:
        found, by = pair.size_ratio, "ratio"
    if measure.key in pair.cost_ratios:
        found, by = inverse(pair.cost_ratios[measure.key]), "ratio"
    if found is None:
        return _NOTHING
    verdict = pair.size if measure is SIZE else pair.verdicts.get(measure.key)
    word = WITHHELD if pair.withheld else verdict.outcome if verdict else ""
    judged_by = (verdict.margin, word, verdict.seeds_needed) if verdict else (None, word, None)
    median, failed = pair.medians.get(measure.key), pair.failures.get(measure.key)
    middle = (median.median, median.low, median.high) if median else (None,) * 3
    fails = (failed.count, failed.at_most, failed.worst, failed.worst_seed) if failed else (None,) * 4
    told = (*judged_by, *middle, *fails)
    return (pair.baseline, len(pair.seeds), by, *_ends(found), *("" if each is None else each for each in told))


def _ends(found: Interval) -> tuple[object, ...]:
    return tuple("" if value is None else value for value in (found.mean, found.low, found.high))


def as_json(comparison: Comparison) -> str:
    return comparison.model_dump_json(indent=2) + "\n"
