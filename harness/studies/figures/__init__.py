"""The paper's figures from a study's results, one file per kind."""

from collections.abc import Callable

from harness.reporting.drawing import Drawing
from harness.studies.definition import FigureKind
from harness.studies.figures.calibration import draw_calibration
from harness.studies.figures.convergence import draw_convergence
from harness.studies.figures.losses import draw_losses
from harness.studies.figures.maps import draw_maps
from harness.studies.figures.posterior import draw_posterior
from harness.studies.figures.readout import draw_readout
from harness.studies.figures.rules import draw_rules
from harness.studies.figures.scan import draw_scan
from harness.studies.figures.speedup import draw_speedup
from harness.studies.figures.tradeoff import draw_tradeoff
from harness.studies.results import StudyResults

_FROM_RECORDS: dict[FigureKind, Callable[[StudyResults], Drawing]] = {
    "posterior": draw_posterior,
    "scan": draw_scan,
    "convergence": draw_convergence,
    "rules": draw_rules,
    "calibration": draw_calibration,
    "speedup": draw_speedup,
    "tradeoff": draw_tradeoff,
    "losses": draw_losses,
}
_FROM_NETWORKS: dict[FigureKind, Callable[[StudyResults, str], Drawing]] = {"maps": draw_maps, "readout": draw_readout}


def draw_figures(results: StudyResults, storage: str) -> list[Drawing]:
    """The study's figures in its order; `storage` is where the networks' checkpoints are."""
    return [
        _FROM_RECORDS[kind](results) if kind in _FROM_RECORDS else _FROM_NETWORKS[kind](results, storage)
        for kind in results.study.file.figures
    ]
