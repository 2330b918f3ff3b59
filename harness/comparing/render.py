"""A comparison for the terminal, as markdown and as JSON. Nothing is printed here: that is the command line's."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harness.comparing.tables import TEXT_COLUMNS, TableView, detail_tables, summary_tables
from harness.comparing.values import Comparison
from harness.text.shown import markdown_text

_OUTCOME_STYLES = {
    **dict.fromkeys(("better", "as good", "identical"), "green"),
    **dict.fromkeys(("worse", "worse beyond the margin"), "red"),
    **dict.fromkeys(("slightly worse", "undecided", "withheld"), "yellow"),
}
_MARKS = {"yes": ("✓", "green"), "partly": ("~", "yellow"), "no": ("✗", "red")}


def summary(comparison: Comparison) -> RenderableType:
    """The tables a person looks for, what limits them, and the verdict last, where a terminal shows it."""
    parts: list[RenderableType] = [rich_table(view, comparison.colours) for view in summary_tables(comparison)]
    if comparison.resolution and comparison.resolution.enough:  # else it is among the notes
        parts.append(_lines("Resolution", [comparison.resolution.sentence]))
    if comparison.missing:
        parts.append(_lines("Missing", [_missing(comparison)]))
    if comparison.fairness:
        listed = [f"{item.rule}: {item.detail}" for item in comparison.fairness]
        parts.append(_lines("Not equal between methods; the verdicts it touches are withheld", listed))
    parts.append(_lines("Notes", comparison.notes))
    verdict = Group(Text(comparison.headline, style="bold"), _bullets(comparison.sentences))
    parts.append(Panel(verdict, title=f"Verdict · {comparison.space}", title_align="left", box=box.ROUNDED))
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
    return Text(cell, style=_OUTCOME_STYLES.get(cell.split(",")[0], ""))


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
    lines = [f"# {markdown_text(comparison.space)}: {markdown_text(comparison.reference)} against the searches", ""]
    lines += [f"**{markdown_text(comparison.headline)}**", ""]
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


def as_json(comparison: Comparison) -> str:
    return comparison.model_dump_json(indent=2) + "\n"
