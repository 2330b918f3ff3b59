"""Readings against the setting that varies, mean and range over seeds: what most figures of the studies are made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from harness.comparing.numbers import plain
from harness.reporting.drawing import MARKERS, PLAIN, WIDTH_INCHES, Drawing, draw, legend_below, plain_axis
from harness.studies.definition import BASE, Cell
from harness.studies.results import StudyResults
from harness.studies.words import axis_of, data_set_of
from harness.text.shown import counted

LOG_SPAN = 30  # an axis whose values span more than this is logarithmic
MOST_TICKS = 8  # that a column has room for
WIDE_INCHES = 7.4  # of a page with margins: for figures of several columns
Points = Mapping[float, Sequence[float]]  # value of the setting → the seeds' numbers


@dataclass(frozen=True)
class Line:
    label: str  # {} stands for the network's name
    reading: str
    colour: str
    marker: str = "o"
    dashes: str = "-"
    method: str | None = None  # whose reading it is; None: the first one-shot's


@dataclass(frozen=True)
class Panel:
    axis: str  # what is drawn, with its unit
    lines: tuple[Line, ...]  # the first in front
    shown: Callable[[float], float] = float  # of a reading: 1 − accuracy for an error


def setting_of(results: StudyResults) -> str:
    """The setting along the x axis."""
    assert results.study.axis is not None, "checked when the study was loaded"
    return results.study.axis


def cells_by_data_set(results: StudyResults) -> dict[str, list[Cell]]:
    """What the data set is called ("" where none varies) → its cells."""
    groups: dict[str, list[Cell]] = {}
    for cell in results.cells:
        base = cell.values.get(BASE)
        groups.setdefault(data_set_of(base) if base is not None else "", []).append(cell)
    return groups


def points_of(
    results: StudyResults, cells: Sequence[Cell], key: str, reading: str, method: str | None = None
) -> dict[float, list[float]]:
    found = {float(cell.values[key]): list(results.readings(reading, cell, method).values()) for cell in cells}
    return {value: numbers for value, numbers in sorted(found.items()) if numbers}


def seeds_in_words(results: StudyResults) -> str:
    counts = [len(results.of(cell)) for cell in results.cells]
    few, many = min(counts), max(counts)
    return counted(many, "seed") if few == many else f"{few} to {many} seeds"


def paint_line(axes: Axes, points: Points, line: Line, behind: int = 0) -> None:
    """The seeds' mean as a line, their range as a band, each of them as a faint dot.

    `behind` how many lines it lies: its larger markers show where those in front cover it.
    """
    if not points:
        return
    means = [float(np.mean(seeds)) for seeds in points.values()]
    lows, highs = [min(seeds) for seeds in points.values()], [max(seeds) for seeds in points.values()]
    axes.fill_between(list(points), lows, highs, color=line.colour, alpha=0.13, lw=0)
    singles = [(value, number) for value, seeds in points.items() for number in seeds]
    axes.plot(*zip(*singles, strict=True), ".", color=line.colour, ms=4.5, alpha=0.5, mew=0)
    axes.plot(
        list(points),
        means,
        marker=line.marker,
        ls=line.dashes,
        color=line.colour,
        mec="white",
        mew=0.6,
        ms=5 + 2.5 * behind,
        zorder=3 - behind / 10,
        label=line.label,
    )


def setting_axis(axes: Axes, key: str, values: Sequence[float]) -> None:
    """Ticks where networks were trained, as far as there is room; a log axis where the values ask for it."""
    log = _spans_decades(values)
    axes.set_xscale("log" if log else "linear")
    ticks = sorted(set(values))
    axes.xaxis.set_major_locator(FixedLocator(ticks[:: 1 if len(ticks) <= MOST_TICKS else 2]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(PLAIN)
    axes.set_xlabel(f"{axis_of(key)}, log scale" if log else axis_of(key))


def draw_panels(
    results: StudyResults, panels: Sequence[Panel], name: str, title: str, caption: str, legend_columns: int = 3
) -> Drawing:
    """The panels below each other, a column for every data set; each line for each one-shot method, in its colour."""
    key = setting_of(results)
    panels = [replace(panel, lines=_for_each_method(results, panel.lines)) for panel in panels]
    groups = cells_by_data_set(results)
    values = [float(cell.values[key]) for cell in results.cells]
    points = {
        (group, panel, line): {
            value: [panel.shown(number) for number in numbers]
            for value, numbers in points_of(results, cells, key, line.reading, line.method).items()
        }
        for group, cells in groups.items()
        for panel in panels
        for line in panel.lines
    }

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(panels), len(groups), sharex=True, sharey="row", squeeze=False)
        for axes_row, panel in zip(grid, panels, strict=True):
            shown = []
            for axes, group in zip(axes_row, groups, strict=True):
                for behind, line in enumerate(panel.lines):
                    paint_line(axes, points[group, panel, line], line, behind)
                    shown += [number for seeds in points[group, panel, line].values() for number in seeds]
            _y_axis(axes_row[0], shown)  # the row's others share it
            axes_row[0].set_ylabel(panel.axis.replace(" (", "\n("))
        for axes, group in zip(grid[0], groups, strict=True):
            axes.set_title(group)
        for axes in grid[-1]:
            setting_axis(axes, key, values)
        figure.align_ylabels()
        legend_below(figure, *grid.flat, columns=legend_columns)

    described = ". ".join(_in_words(group, panel, line, found) for (group, panel, line), found in points.items())
    return draw(
        name,
        title,
        f"{caption} Lines: mean over {seeds_in_words(results)}; bands: their range; dots: single seeds.",
        f"{described}.",
        0.9 + 1.5 * len(panels),
        paint,
        width=WIDTH_INCHES if len(groups) == 1 else WIDE_INCHES,
        png=True,
    )


def _for_each_method(results: StudyResults, lines: Sequence[Line]) -> tuple[Line, ...]:
    if len(results.one_shots) <= 1:
        return tuple(replace(line, label=line.label.format("LDN")) for line in lines)
    return tuple(
        replace(
            line,
            label=line.label.format(method),
            colour=results.colour(method),
            marker=MARKERS[(MARKERS.index(line.marker) + place) % len(MARKERS)],
            method=method,
        )
        for line in lines
        for place, method in enumerate(results.one_shots)
    )


def _y_axis(axes: Axes, numbers: Sequence[float]) -> None:
    if numbers and _spans_decades(numbers):
        plain_axis(axes, "y", log=True)
    elif numbers and all(number == round(number) for number in numbers):
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.set_ylim(bottom=0)


def _spans_decades(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) > LOG_SPAN * min(values)


def _in_words(group: str, panel: Panel, line: Line, points: Points) -> str:
    means = ", ".join(f"{plain(float(np.mean(seeds)))} at {value:g}" for value, seeds in points.items())
    return f"{f'{group}, ' if group else ''}{panel.axis}, {line.label}: {means or 'not measured'}"
