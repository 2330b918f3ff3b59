"""Weights over depths beside networks of a fixed depth: the paper's figures 2, left, and 4, for every one-shot."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.colours import BLUE, VERMILION
from harness.comparing.numbers import plain
from harness.reporting.drawing import WIDTH_INCHES, Drawing, draw, legend_below
from harness.reporting.posterior import DepthBelief, paint_posterior
from harness.studies.definition import Cell
from harness.studies.figures.lines import WIDE_INCHES, seeds_in_words
from harness.studies.readings import fixed_depths
from harness.studies.results import StudyResults
from harness.studies.words import name_of

MOST_STACKED = 3  # panels of one method below each other; more stand in two columns


def draw_posterior(results: StudyResults) -> Drawing:
    """A panel for every cell; with several one-shots a column for every cell and a row for every method."""
    several = len(results.one_shots) > 1
    beliefs = {
        (method, name_of(cell)): belief
        for method in results.one_shots
        for cell in results.cells
        if (belief := _belief(results, cell, method, several))
    }
    rows, columns = _shape(results, len(beliefs))

    def paint(figure: Figure) -> None:
        panels = figure.subplots(rows, columns, squeeze=False)
        places = _places(results, beliefs, panels)
        painted = [axes for key, belief in beliefs.items() for axes in paint_posterior(places[key], belief)]
        for (method, name), axes in places.items():
            titles = [method] * several + [name] * (len(results.cells) > 1)
            axes.set_title(", ".join(titles))
        for axes in panels.flat:
            if axes not in places.values():
                axes.set_axis_off()
        if several:
            for axes in painted:  # what a neighbour says already
                axes.label_outer(remove_inner_ticks=False)
        legend_below(figure, *painted, columns=2)

    return draw(
        "posterior",
        "Which depths the network believes in",
        f"Bars: the learnt weights over depths, mean over {seeds_in_words(results)}, with their range; triangles: "
        "the depth that each seed keeps. Line: what networks of exactly that depth reach on the test set when trained "
        "alone, mean and range. Dashed: the learnt-depth network pruned to d_opt.",
        " ".join(
            _in_words(f"{method}, {name}" if several else name, belief) for (method, name), belief in beliefs.items()
        ),
        0.9 + (2.9 if rows == 1 else (1.6 if several else 2.3) * rows),
        paint,
        width=WIDTH_INCHES if columns == 1 else WIDE_INCHES,
        png=True,
    )


def _shape(results: StudyResults, panels: int) -> tuple[int, int]:
    if len(results.one_shots) > 1:
        return len(results.one_shots), len(results.cells)
    columns = 1 if panels <= MOST_STACKED else 2
    return max(1, -(-panels // columns)), columns


def _places(
    results: StudyResults, beliefs: dict[tuple[str, str], DepthBelief], panels: np.ndarray
) -> dict[tuple[str, str], Axes]:
    if len(results.one_shots) == 1:
        return dict(zip(beliefs, panels.flat, strict=False))
    names = [name_of(cell) for cell in results.cells]
    return {(method, name): panels[results.one_shots.index(method), names.index(name)] for method, name in beliefs}


def _belief(results: StudyResults, cell: Cell, method: str, several: bool) -> DepthBelief | None:
    found = [units[method].trials[0].posterior for units in results.of(cell).values() if method in units]
    weights = [each.q for each in found if each]
    if not weights:
        return None
    fixed: dict[int, list[float]] = {}
    for units in results.of(cell).values():
        for depth, measures in fixed_depths(units).items():
            fixed.setdefault(depth, []).append(measures.log_likelihood)
    return DepthBelief(
        name="network" if several else "LDN",
        q=np.array(weights),
        chosen=[int(depth) for depth in results.readings("d_opt", cell, method).values()],
        pruned=float(np.mean(list(results.readings("log_likelihood", cell, method).values()))),
        fixed=fixed,
        colour=results.colour(method) if several else VERMILION,
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
