"""Where each one-shot loses against the choice of the search that trained every depth: three parts that add up."""

from matplotlib.figure import Figure

from harness.comparing.values import ALL_PARTS, LOSS_PARTS
from harness.reporting.drawing import Drawing, draw, legend_below
from harness.reporting.quality import losses_in_words, paint_losses
from harness.statistics import Interval, mean_interval
from harness.studies.definition import Cell
from harness.studies.figures.lines import WIDE_INCHES, seeds_in_words
from harness.studies.results import StudyResults
from harness.studies.words import name_of


def draw_losses(results: StudyResults) -> Drawing:
    panels = [(cell, rows) for cell in results.cells if (rows := _rows(results, cell))]

    def paint(figure: Figure) -> None:
        row = figure.subplots(1, max(1, len(panels)), squeeze=False)[0]
        for axes, (cell, rows) in zip(row, panels, strict=False):
            paint_losses(axes, rows)
            axes.set_title(name_of(cell))
        legend_below(figure, row[0], columns=4)

    return draw(
        "losses",
        "Where each one-shot loses",
        "Test log-likelihood lost against the choice of the search that trained every depth, in three parts that add "
        f"up, with 95 % t intervals over {seeds_in_words(results)}: the wrong depth was chosen; its weights serve "
        "every depth; depths are averaged. Right of the line is lost.",
        " ".join(f"{name_of(cell)}: {_in_words(rows)}." for cell, rows in panels)
        or "No search over all depths is complete.",
        1.2 + 0.42 * max((len(rows) for _, rows in panels), default=1),
        paint,
        width=WIDE_INCHES,
        png=True,
    )


def _rows(results: StudyResults, cell: Cell) -> list[tuple[str, dict[str, Interval]]]:
    rows = []
    for method in filter(lambda each: _has_weights_of_its_own(results, each), results.methods):
        names = {part: f"{part.replace(' ', '_')}_log_likelihood" for part in LOSS_PARTS}
        found = {part: results.readings(name, cell, method) for part, name in names.items()}
        seeds = list(found[LOSS_PARTS[0]])
        if seeds:
            in_all = [sum(values[seed] for values in found.values()) for seed in seeds]
            parts = {part: mean_interval(list(values.values())) for part, values in found.items()}
            rows.append((method, {**parts, ALL_PARTS: mean_interval(in_all)}))
    return rows


def _has_weights_of_its_own(results: StudyResults, method: str) -> bool:
    """What is retrained has those of a search: it loses nothing but by its depth, as the one-shot does."""
    return results.facts(method).learns_depth and results.plan(method).stage.then in (None, "finetune")


def _in_words(rows: list[tuple[str, dict[str, Interval]]]) -> str:
    return "; ".join(f"{method}: {losses_in_words(parts)}" for method, parts in rows)
