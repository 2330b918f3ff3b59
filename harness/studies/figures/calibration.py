"""Reliability diagrams of the fixed-depth, the pruned and the full network, a row for every data set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.colours import BLUE, VERMILION
from harness.comparing.numbers import plain
from harness.reporting.curves import FEWEST_SAMPLES, pooled_bins
from harness.reporting.drawing import MUTED, Drawing, draw, legend_below
from harness.schema.records import FinalEvaluation, ReliabilityBin, Unit
from harness.studies.definition import Cell
from harness.studies.figures.lines import WIDE_INCHES, cells_by_data_set, seeds_in_words
from harness.studies.readings import Units, deepest_unit, learnt_unit
from harness.studies.results import StudyResults
from harness.studies.words import name_of
from harness.training.evaluate import CLASS_BINS, ECE_BINS, ece_of

Bins = Sequence[ReliabilityBin]


@dataclass(frozen=True)
class Reliability:
    """Of one network of every seed: by its top label, and by all of its class probabilities."""

    network: str
    top: Sequence[Bins]
    classes: Sequence[Bins]

    @property
    def title(self) -> str:
        if not self.top:
            return self.network
        top, classes = (
            plain(float(np.mean([ece_of(bins) for bins in seeds])), 2) for seeds in (self.top, self.classes)
        )
        return f"{self.network}\nECE: {top} top, {classes} all"


def draw_calibration(results: StudyResults) -> Drawing:
    deepest = [max(cells, key=lambda cell: cell.space.depth.max) for cells in cells_by_data_set(results).values()]
    rows = {name_of(cell): _networks(results, cell) for cell in deepest}

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(rows), 3, sharex=True, sharey=True, squeeze=False)
        for line, (name, networks) in zip(panels, rows.items(), strict=True):
            line[0].set_ylabel(f"{name}\nshare that is right")
            for axes, network in zip(line, networks, strict=True):
                _paint(axes, network)
        for axes in panels[-1]:
            axes.set_xlabel("predicted probability")
        legend_below(figure, *panels.flat)

    return draw(
        "calibration",
        "Can the probabilities be believed?",
        f"Reliability on the test set, {seeds_in_words(results)} pooled; below the diagonal: overconfident. Top label: "
        f"confidence of the predicted class, {ECE_BINS} bins. All classes: the probability of every class, "
        f"{CLASS_BINS} bins, as the paper draws it. Expected calibration errors (ECE) are means over seeds; bins of "
        f"fewer than {FEWEST_SAMPLES} probabilities are faint.",
        " ".join(
            f"{name}: " + "; ".join(network.title.replace("\n", ", ") for network in networks) + "."
            for name, networks in rows.items()
        ),
        0.8 + 2.35 * len(rows),
        paint,
        width=WIDE_INCHES,
        png=True,
    )


def _networks(results: StudyResults, cell: Cell) -> tuple[Reliability, Reliability, Reliability]:
    fixed, learnt = (_finals(results, cell, find) for find in (deepest_unit, learnt_unit))
    return (
        Reliability(
            f"fixed depth {cell.space.depth.max}",
            [final.reliability for final in fixed],
            [final.class_reliability for final in fixed],
        ),
        Reliability(
            "LDN pruned to d_opt",
            [final.reliability for final in learnt],
            [final.class_reliability for final in learnt],
        ),
        Reliability(
            "LDN, all depths",
            [final.full_reliability for final in learnt],
            [final.full_class_reliability for final in learnt],
        ),
    )


def _finals(results: StudyResults, cell: Cell, find: Callable[[Units], Unit | None]) -> list[FinalEvaluation]:
    units = map(find, results.of(cell).values())
    return [unit.result.final for unit in units if unit and unit.result]


def _paint(axes: Axes, network: Reliability) -> None:
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls=":", label="perfect calibration")
    for seeds, colour, style, label in (
        (network.classes, BLUE, "s--", "all classes"),
        (network.top, VERMILION, "o-", "top label"),
    ):
        bins = [each for each in pooled_bins(seeds) if each.count]
        sure = [each for each in bins if each.count >= FEWEST_SAMPLES]
        rare = [each for each in bins if each.count < FEWEST_SAMPLES]
        axes.plot(*_points(sure), style, color=colour, mec="white", mew=0.6, ms=5, lw=1.4, label=label)
        axes.plot(*_points(rare), style[0], color=colour, ms=3, alpha=0.4)
    if not network.top:
        axes.text(0.5, 0.5, "not trained", ha="center", color=MUTED)
    axes.set_title(network.title)
    axes.set_aspect("equal")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)


def _points(bins: Bins) -> tuple[list[float], list[float]]:
    return [each.confidence for each in bins], [each.accuracy for each in bins]
