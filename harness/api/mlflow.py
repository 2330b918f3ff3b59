"""What MLflow is told of results that are on disk."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api.results import Results, Space, load
from harness.errors import UserError
from harness.tracking.background import Destination

if TYPE_CHECKING:
    from harness.tracking.writer import Synced


def log_report(results: Results, to: Destination) -> None:
    """Puts the report into the space's experiment in MLflow, in place of an earlier one."""
    _log_page(results, results.html, to)


def conclude(results: Results, to: Destination) -> None:
    """What only all units together say: means over seeds, and whose network to take home."""
    with contextlib.suppress(UserError):  # units that cannot be compared; whoever asks for the comparison is told
        to.writer().conclude(results.finished, results.comparison)


def sync(space: Space, out: Path, to: Destination) -> "Synced":
    """Writes what MLflow lacks of a space's results, and the report that is there."""
    from harness.tracking.models import model_in
    from harness.tracking.writer import sync as sync_units

    results = load(space, out, None)
    done = sync_units(results.finished, to.uri, model_in(out), to.names)
    if done.warning:
        raise UserError(done.warning)
    conclude(results, to)
    page = out / results.space / "report.html"
    if page.exists():
        _log_page(results, page.read_text(encoding="utf-8"), to)
    return done


def _log_page(results: Results, html: str, to: Destination) -> None:
    to.writer().log_report(results.units[0].plan.space, html)
