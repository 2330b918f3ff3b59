"""Units handed over during a run are written by its end."""

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.tracking.background import BackgroundTracker
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


def test_closing_says_when_the_server_was_not_there(tmp_path: Path) -> None:
    tracker = BackgroundTracker("http://127.0.0.1:1", tmp_path, at_once=True)
    for unit in make_units(["ldn"], [0, 1]):
        tracker.put(unit)
    assert "harness sync" in str(tracker.close())


def test_a_bad_address_is_refused_before_the_run_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tracking URI"):
        BackgroundTracker("./mlruns", tmp_path, at_once=False)
