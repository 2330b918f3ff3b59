"""Learnt depth and test quality against the setting that varies: the paper's figure 2, right, and its appendix."""

from harness.colours import BLUE, VERMILION
from harness.reporting.drawing import Drawing
from harness.studies.figures.lines import Line, Panel, draw_panels, setting_of
from harness.studies.results import StudyResults
from harness.studies.words import axis_of

_PANELS = (
    Panel("learnt depth d_opt (blocks)", (Line("{} pruned to d_opt", "d_opt", VERMILION),)),
    Panel(
        "test log-likelihood (nats)",
        (
            Line("{} pruned to d_opt", "log_likelihood", VERMILION),
            Line("{}, all depths", "full_log_likelihood", BLUE, "s", "--"),
        ),
    ),
    Panel(
        "test accuracy (%)",
        (
            Line("{} pruned to d_opt", "accuracy", VERMILION),
            Line("{}, all depths", "full_accuracy", BLUE, "s", "--"),
        ),
        lambda accuracy: 100 * accuracy,
    ),
)


def draw_scan(results: StudyResults) -> Drawing:
    axis = axis_of(setting_of(results)).partition(" (")[0]
    return draw_panels(
        results,
        _PANELS,
        "scan",
        f"Learnt depth and quality against {axis}",
        "Top: the depth that the learnt-depth network chooses. Below: its test quality after pruning to that depth "
        "and with all of its depths; where the lines coincide, pruning costs nothing.",
    )
