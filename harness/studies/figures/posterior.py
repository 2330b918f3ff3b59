"""q(d) beside networks of a fixed depth: the paper's figures 2, left, and 4."""

import numpy as np
from matplotlib.figure import Figure

from harness.colours import BLUE, VERMILION
from harness.comparing.numbers import plain
from harness.reporting.drawing import WIDTH_INCHES, Drawing, draw, legend_below
from harness.reporting.posterior import DepthBelief, paint_posterior
from harness.studies.definition import Cell
from harness.studies.figures.lines import WIDE_INCHES, seeds_in_words
from harness.studies.readings import fixed_depths, learnt_unit, posterior
from harness.studies.results import StudyResults
from harness.studies.words import name_of

MOST_STACKED = 3  # panels below each other; more stand in two columns


def draw_posterior(results: StudyResults) -> Drawing:
    beliefs = {name_of(cell): belief for cell in results.cells if (belief := _belief(results, cell))}
    columns = 1 if len(beliefs) <= MOST_STACKED else 2
    rows = -(-len(beliefs) // columns)

    def paint(figure: Figure) -> None:
        panels = figure.subplots(rows, columns, squeeze=False)
        painted = []
        for axes, (name, belief) in zip(panels.flat, beliefs.items(), strict=False):
            painted += paint_posterior(axes, belief)
            if len(beliefs) > 1:
                axes.set_title(name)
        for axes in panels.flat[len(beliefs) :]:
            axes.set_axis_off()
        legend_below(figure, *painted, columns=2)

    return draw(
        "posterior",
        "Which depths the network believes in",
        f"Bars: the learnt posterior over depths, mean over {seeds_in_words(results)}, with their range; triangles: "
        "the depth that each seed keeps. Line: what networks of exactly that depth reach on the test set when trained "
        "alone, mean and range. Dashed: the learnt-depth network pruned to d_opt.",
        " ".join(_in_words(name, belief) for name, belief in beliefs.items()),
        0.9 + (2.9 if rows == 1 else 2.3 * rows),
        paint,
        width=WIDTH_INCHES if columns == 1 else WIDE_INCHES,
        png=True,
    )


def _belief(results: StudyResults, cell: Cell) -> DepthBelief | None:
    learnt = [units for units in results.of(cell).values() if learnt_unit(units)]
    if not learnt:
        return None
    fixed: dict[int, list[float]] = {}
    for units in results.of(cell).values():
        for depth, measures in fixed_depths(units).items():
            fixed.setdefault(depth, []).append(measures.log_likelihood)
    return DepthBelief(
        name="LDN",
        q=np.array([posterior(units).q for units in learnt]),
        chosen=[int(depth) for depth in results.readings("d_opt", cell).values()],
        pruned=float(np.mean(list(results.readings("log_likelihood", cell).values()))),
        fixed=fixed,
        colour=VERMILION,
        fixed_colour=BLUE,
    )


def _in_words(name: str, belief: DepthBelief) -> str:
    peak = int(belief.q.mean(axis=0).argmax())
    chosen = ", ".join(map(str, belief.chosen))
    best = ""
    if belief.best_fixed:
        best = (
            f"; stand-alone networks are best at depth {belief.best_fixed[0]} with {plain(belief.best_fixed[1])} nats"
        )
    return (
        f"{name}: q(d) peaks on average at depth {peak}, chosen depths per seed {chosen}, the pruned network reaches "
        f"{plain(belief.pruned)} nats{best}."
    )
