"""Is q the posterior yet? Learnt and exact depth, the gap between them and quality against training length."""

from harness.colours import BLUE, GREEN, VERMILION
from harness.reporting.drawing import Drawing
from harness.studies.figures.lines import Line, Panel, draw_panels
from harness.studies.results import StudyResults

_PANELS = (
    Panel(
        "depth (blocks)",
        (
            Line("{}: d_opt of the learnt q", "d_opt", VERMILION),
            Line("{}: peak of the exact posterior", "d_exact", BLUE, "s", "--"),
        ),
    ),
    Panel("posterior gap (nats)", (Line("{}: log evidence − ELBO", "posterior_gap", GREEN, "D"),)),
    Panel("test log-likelihood (nats)", (Line("{} pruned to d_opt", "log_likelihood", VERMILION, "^"),)),
)


def draw_convergence(results: StudyResults) -> Drawing:
    return draw_panels(
        results,
        _PANELS,
        "convergence",
        "The learnt depth as training goes on",
        "Top: the depth read from the learnt q, and the depth where the exact posterior of the same weights peaks. "
        "Middle: how far the ELBO is below the log evidence of these weights; 0 where q is the exact posterior.",
        legend_columns=2,
    )
