"""Units handed over during a run are written by its end."""

import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.options import RunOptions
from harness.running import run
from harness.tracking.background import BackgroundTracker
from tests.running.results import wait_for
from tests.synthetic import make_units
from tests.tracking.test_writer import SMALL, assert_complete


@pytest.mark.parametrize("at_once", [True, False])
def test_what_was_put_is_written_when_it_closes(uri: str, tmp_path: Path, at_once: bool) -> None:
    units = make_units(["ldn", "random_search"], [0], space=SMALL)
    tracker = BackgroundTracker(uri, tmp_path, at_once)
    for unit in units:
        tracker.put(unit)
    assert tracker.close() is None
    assert_complete(uri, units)


def test_begun_it_makes_ready_what_the_first_unit_would_wait_for(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    tracker = BackgroundTracker(f"sqlite:///{database}", tmp_path, at_once=False, needed_next="this")
    tracker.import_ahead()
    assert not database.exists() and "this" not in sys.modules
    tracker.begin()
    wait_for(lambda: database.exists() and "this" in sys.modules, "the database, and what comes next")
    tracker.begin()  # once is enough
    units = make_units(["ldn"], [0], space=SMALL)
    tracker.put(units[0])
    assert tracker.close() is None
    assert_complete(f"sqlite:///{database}", units)


def test_what_cannot_be_imported_ahead_keeps_no_unit_from_being_written(uri: str, tmp_path: Path) -> None:
    units = make_units(["ldn"], [0], space=SMALL)
    tracker = BackgroundTracker(uri, tmp_path, at_once=False, needed_next="no_such_module")
    tracker.begin()
    tracker.put(units[0])
    assert tracker.close() is None
    assert_complete(uri, units)


@pytest.mark.parametrize("at_once", [True, False])
def test_closed_without_a_unit_it_leaves_nothing(tmp_path: Path, at_once: bool) -> None:
    """As after a run that is refused."""
    assert BackgroundTracker(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path, at_once).close() is None
    assert list(tmp_path.iterdir()) == []


def test_closing_says_when_the_server_was_not_there(tmp_path: Path) -> None:
    tracker = BackgroundTracker("http://127.0.0.1:1", tmp_path, at_once=True)
    for unit in make_units(["ldn"], [0, 1]):
        tracker.put(unit)
    assert "harness sync" in str(tracker.close())


def test_a_bad_address_is_refused_before_the_run_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tracking URI"):
        BackgroundTracker("./mlruns", tmp_path, at_once=False)


def test_a_run_that_raises_still_ends_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    class Closing(BackgroundTracker):
        def close(self) -> str | None:
            closed.append(True)
            return super().close()

    def boom(*_: Any) -> None:
        raise UserError("the output folder cannot be written")

    monkeypatch.setattr(run, "run_units", boom)
    listener = Closing(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path, at_once=False)
    with pytest.raises(UserError, match="cannot be written"):
        run.run_and_tell([], RunOptions(out=tmp_path), listener, None, print)
    assert closed == [True]
