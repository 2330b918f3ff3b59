"""All figures of the report, in the order in which a reader asks; neighbours have about the same height."""

from harness.comparing.finished import ByMethod
from harness.comparing.values import Comparison
from harness.reporting.costs import cost_bars, phases_stacked, wall_clock_lines
from harness.reporting.curves import anytime_curves, reliability, weights_over_depths
from harness.reporting.drawing import Drawing
from harness.reporting.quality import quality_against_cost, quality_against_size, verdict_intervals


def all_figures(by_method: ByMethod, comparison: Comparison) -> list[Drawing]:
    """Those that the records can fill: no weights without a learnt depth, nothing to judge with one method."""
    drawings = (
        cost_bars(comparison),
        phases_stacked(comparison),
        verdict_intervals(comparison),
        quality_against_cost(comparison),
        quality_against_size(comparison),
        anytime_curves(by_method, comparison),
        *weights_over_depths(by_method, comparison),
        reliability(by_method, comparison),
        wall_clock_lines(comparison),
    )
    return [drawing for drawing in drawings if drawing is not None]
