"""What MLflow is told of results that are on disk."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api.results import Results, Space, load
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.tracking.writer import Synced


def log_report(results: Results, uri: str) -> None:
    """Puts the report into the space's experiment in MLflow, in place of an earlier one."""
    _log_page(results, results.html, uri)


def conclude(results: Results, uri: str) -> None:
    """What only all units together say: means over seeds, and whose network to take home."""
    from harness.tracking.writer import Tracker

    with contextlib.suppress(UserError):  # units that cannot be compared; whoever asks for the comparison is told
        Tracker(uri).conclude(results.finished, results.comparison)


def sync(space: Space, out: Path, uri: str) -> "Synced":
    """Writes what MLflow lacks of a space's results, and the report that is there."""
    from harness.tracking.models import model_in
    from harness.tracking.writer import sync as sync_units

    results = load(space, out, None)
    done = sync_units(results.finished, uri, model_in(out))
    if done.warning:
        raise UserError(done.warning)
    conclude(results, uri)
    page = out / results.space / "report.html"
    if page.exists():
        _log_page(results, page.read_text(encoding="utf-8"), uri)
    return done


def _log_page(results: Results, html: str, uri: str) -> None:
    from harness.tracking.writer import Tracker

    Tracker(uri).log_report(results.units[0].plan.space, html)
