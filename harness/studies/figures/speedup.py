"""Forward-pass time that pruning saves, against D, a line for every data set."""

import numpy as np
from matplotlib.figure import Figure

from harness.colours import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from harness.comparing.numbers import plain
from harness.reporting.drawing import MARKERS, MUTED, Drawing, draw, legend_below
from harness.studies.figures.lines import (
    Line,
    cells_by_data_set,
    paint_line,
    points_of,
    seeds_in_words,
    setting_axis,
    setting_of,
)
from harness.studies.results import StudyResults

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)


def draw_speedup(results: StudyResults) -> Drawing:
    key, groups = setting_of(results), cells_by_data_set(results)
    measured, blocks = (
        {group: _percent(points_of(results, cells, key, reading)) for group, cells in groups.items()}
        for reading in ("forward_saving", "blocks_saved")
    )

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for index, group in enumerate(groups):
            colour = _COLOURS[index % len(_COLOURS)]
            label = group or "measured"
            paint_line(axes, measured[group], Line(label, "forward_saving", colour, MARKERS[index % len(MARKERS)]))
            means = [float(np.mean(seeds)) for seeds in blocks[group].values()]
            axes.plot(list(blocks[group]), means, ls="--", lw=1.1, color=colour)
        axes.plot([], [], ls="--", lw=1.1, color=MUTED, label="left-out blocks alone, 1 − d_opt ÷ D")
        axes.axhline(0, color=MUTED, lw=0.8)
        setting_axis(axes, key, [float(cell.values[key]) for cell in results.cells])
        axes.set_ylabel("forward-pass time saved (%)")
        legend_below(figure, axes, columns=2)

    parts = "; ".join(
        f"{group or 'saved'}: "
        + (", ".join(f"{plain(float(np.mean(seeds)))} % at {value:g}" for value, seeds in points.items()) or "no time")
        for group, points in measured.items()
    )
    return draw(
        "speedup",
        "Forward-pass time that pruning saves",
        "1 − time of the learnt-depth network pruned to d_opt ÷ time of all its D blocks, timed in turns, per test "
        f"sample: mean over {seeds_in_words(results)}, range as a band, single seeds as dots. Dashed: what the blocks "
        "left out would save if nothing else took time.",
        f"Saved on average: {parts}.",
        3.3,
        paint,
        png=True,
    )


def _percent(points: dict[float, list[float]]) -> dict[float, list[float]]:
    return {value: [100 * share for share in seeds] for value, seeds in points.items()}
