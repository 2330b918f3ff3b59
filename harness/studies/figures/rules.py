"""Which rule to prune by: the paper's comparison on images, five rows, a column for every data set."""

from collections.abc import Callable

from harness.colours import BLUE, GREEN, PURPLE, VERMILION
from harness.reporting.drawing import Drawing
from harness.studies.figures.lines import Line, Panel, draw_panels
from harness.studies.results import StudyResults


def _threshold(reading: str) -> Line:
    return Line("{}, threshold", reading, VERMILION)


def _expected(reading: str) -> Line:
    return Line("{}, expected", reading, GREEN, "D", "-.")


def _quality(axis: str, reading: str, shown: Callable[[float], float] = float) -> tuple[Panel, Panel]:
    """The pruned network beside the fixed depth, then the rules among themselves."""
    fixed = Line("fixed depth D", f"deepest_{reading}", BLUE, "s", "--")
    full = Line("{}, all depths", f"full_{reading}", PURPLE, "^", ":")
    return (
        Panel(axis, (_threshold(f"threshold_{reading}"), fixed), shown),
        Panel(axis, (_threshold(f"threshold_{reading}"), _expected(f"expected_{reading}"), full), shown),
    )


_PANELS = (
    Panel("depth (blocks)", (_threshold("d_threshold"), _expected("d_expected"))),
    *_quality("test log-likelihood (nats)", "log_likelihood"),
    *_quality("test error (%)", "accuracy", lambda accuracy: 100 * (1 - accuracy)),
)


def draw_rules(results: StudyResults) -> Drawing:
    return draw_panels(
        results,
        _PANELS,
        "rules",
        "Pruning by threshold, by expected depth, or not at all",
        "Row 1: the depth that each rule keeps. Rows 2 and 4: the network pruned by the threshold rule beside a "
        "network of fixed depth D. Rows 3 and 5: the rules among themselves.",
        legend_columns=4,
    )
