"""What each method costs and what its network is worth, both beside the search that trains every depth."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.comparing.numbers import plain, signed
from harness.measures import LOG_LIKELIHOOD
from harness.reporting.drawing import MARKERS, MUTED, Drawing, draw, legend_below, plain_axis
from harness.statistics import Interval, mean_interval
from harness.studies.definition import Cell
from harness.studies.figures.lines import WIDE_INCHES, seeds_in_words
from harness.studies.results import StudyResults
from harness.studies.words import name_of

PANEL_INCHES, LEGEND_LINE_INCHES, LEGEND_COLUMNS = 3.2, 0.19, 4


@dataclass(frozen=True)
class Point:
    """Of one method in one cell, over the seeds that both it and the exhaustive search have."""

    cost: float  # mean ratio of TFLOP
    gain: Interval  # of the test log-likelihood, in nats


def draw_tradeoff(results: StudyResults) -> Drawing:
    yardstick = next((method for method in results.methods if results.facts(method).exhaustive), None)
    panels = [(cell, _points(results, cell, yardstick)) for cell in results.cells] if yardstick else []

    def paint(figure: Figure) -> None:
        row = figure.subplots(1, max(1, len(panels)), squeeze=False)[0]
        for axes, (cell, points) in zip(row, panels, strict=False):
            _paint(axes, cell, points, results)
        row[0].set_ylabel("test log-likelihood − that of the\nsearch over all depths (nats)")
        legend_below(figure, *row, columns=LEGEND_COLUMNS)

    return draw(
        "tradeoff",
        "What one run costs and what its network is worth",
        f"Each method beside {yardstick or 'a search over all depths, which was not run'}: its floating-point "
        f"operations as a share of that one's, and its test log-likelihood less that one's; means over "
        f"{seeds_in_words(results)}, paired by seed, with the 95 % interval of the difference. Shaded: the margin of "
        "the space on either side of equal.",
        " ".join(f"{name_of(cell)}: {_in_words(points)}." for cell, points in panels)
        or "No search over all depths is complete.",
        PANEL_INCHES + LEGEND_LINE_INCHES * math.ceil(len(results.methods) / LEGEND_COLUMNS),
        paint,
        width=WIDE_INCHES,
        png=True,
    )


def _points(results: StudyResults, cell: Cell, yardstick: str) -> dict[str, Point]:
    found = {}
    for method in results.methods:
        costs, gains = (_paired(results, cell, reading, method, yardstick) for reading in ("tflop", "log_likelihood"))
        if gains:
            ratios = [own / other for own, other in costs]
            differences = [own - other for own, other in gains]
            found[method] = Point(sum(ratios) / len(ratios), mean_interval(differences))
    return found


def _paired(results: StudyResults, cell: Cell, reading: str, method: str, other: str) -> Sequence[tuple[float, float]]:
    own, others = (results.readings(reading, cell, each) for each in (method, other))
    return [(own[seed], others[seed]) for seed in own if seed in others]


def _paint(axes: Axes, cell: Cell, points: Mapping[str, Point], results: StudyResults) -> None:
    margin = LOG_LIKELIHOOD.margin_in(cell.space.margins) or 0.0
    axes.axhline(0, color=MUTED, lw=0.8)
    axes.axhspan(-margin, margin, color=MUTED, alpha=0.12, lw=0)
    for method, point in points.items():
        half = point.gain.half_width
        axes.errorbar(
            point.cost,
            point.gain.mean,
            yerr=half,
            fmt=MARKERS[results.methods.index(method) % len(MARKERS)],
            color=results.colour(method),
            mec="white",
            mew=0.6,
            ms=7,
            capsize=2.5,
            lw=1.2,
            label=method,
        )
    axes.set_title(name_of(cell))
    axes.set_xlabel("TFLOP ÷ those of all depths")
    plain_axis(axes, "x", log=True)


def _in_words(points: Mapping[str, Point]) -> str:
    return "; ".join(
        f"{method} at {plain(point.cost, 2)} of the cost, {signed(point.gain)} nats" for method, point in points.items()
    )
