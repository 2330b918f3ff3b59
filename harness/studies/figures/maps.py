"""The function of a learnt-depth network at single depths, a row for every value of the setting."""

from collections.abc import Sequence

import numpy as np

from harness.reporting.drawing import Drawing
from harness.studies.definition import Cell
from harness.studies.figures.planes import POINTS_SHOWN, Row, depths_shown, draw_rows, maps_of, marginal_map
from harness.studies.networks import load_network
from harness.studies.readings import learnt_unit
from harness.studies.results import StudyResults
from harness.studies.words import name_of

MOST_ROWS = 6
DEPTHS = 7


def draw_maps(results: StudyResults, storage: str) -> Drawing:
    seed = results.seeds[0]
    rows, gone, chosen = [], [], []
    for cell in _spread(results.cells):
        trained = load_network(learnt_unit(results.of(cell).get(seed, {})), results.out, storage)
        if trained is None:
            gone.append(name_of(cell))
            continue
        depths = depths_shown(cell.space.depth.max, DEPTHS)
        rows.append(Row(name_of(cell), trained.data, [*maps_of(trained, depths), marginal_map(trained)]))
        chosen.append(f"{name_of(cell)}: d_opt = {trained.d_opt}")
    return draw_rows(
        "maps",
        "The function that each depth has learnt",
        f"Seed {seed}. p(class 1) over the input plane, read from one learnt-depth network at single depths d, not "
        "marginalised; framed: its prediction over the depths it keeps. Dots: training points, at most "
        f"{POINTS_SHOWN}; x₁ and x₂ have the same range.",
        rows,
        chosen,
        gone,
    )


def _spread(cells: Sequence[Cell]) -> list[Cell]:
    """All, or so many of them from the first to the last."""
    places = np.linspace(0, len(cells) - 1, min(MOST_ROWS, len(cells)))
    return [cells[round(float(place))] for place in places]
