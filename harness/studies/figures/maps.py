"""The function of a learnt-depth network at single depths, a row for every value of the setting."""

from collections.abc import Sequence

import numpy as np

from harness.report.drawing import Drawing, draw
from harness.studies.definition import Cell
from harness.studies.figures.lines import WIDE_INCHES
from harness.studies.figures.planes import (
    POINTS_SHOWN,
    Row,
    depths_shown,
    height_of,
    maps_of,
    marginal_map,
    paint_rows,
)
from harness.studies.networks import load_network
from harness.studies.results import StudyResults
from harness.studies.words import name_of

MOST_ROWS = 6
DEPTHS = 7


def draw_maps(results: StudyResults, storage: str) -> Drawing:
    seed = results.seeds[0]
    rows, gone, chosen = [], [], []
    for cell in _spread(results.cells):
        trained = load_network(results, cell, "ldn", seed, storage)
        if trained is None:
            gone.append(name_of(cell))
            continue
        depths = depths_shown(cell.space.depth.max, DEPTHS)
        rows.append(Row(name_of(cell), trained.data, [*maps_of(trained, depths), marginal_map(trained)]))
        chosen.append(f"{name_of(cell)}: d_opt = {trained.d_opt}")

    missing = f" No checkpoint is left of: {', '.join(gone)}." if gone else ""
    return draw(
        "maps",
        "The function that each depth has learnt",
        f"Seed {seed}. p(class 1) over the input plane, read from one learnt-depth network at single depths d, not "
        "marginalised; framed: its prediction over the depths it keeps. Dots: training points, at most "
        f"{POINTS_SHOWN}; x₁ and x₂ have the same range.{missing}",
        f"Colour maps of learnt functions. {'; '.join(chosen) or 'No network is left to draw'}.",
        height_of(rows, WIDE_INCHES),
        lambda figure: paint_rows(figure, rows),
        width=WIDE_INCHES,
        png=True,
    )


def _spread(cells: Sequence[Cell]) -> list[Cell]:
    """All, or so many of them from the first to the last."""
    places = np.linspace(0, len(cells) - 1, min(MOST_ROWS, len(cells)))
    return [cells[round(float(place))] for place in places]
