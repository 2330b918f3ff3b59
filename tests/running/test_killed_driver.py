"""The real command, disturbed in many ways and given again: it ends like an undisturbed run. `make drill` does more."""

from pathlib import Path

import pytest

from tests.drill import Fault, run, undisturbed

FAULTS = [
    Fault("driver", 0.0),  # before anything was reported
    Fault("worker", 0.25),
    Fault("torn ledger", call=9),  # of a driver that is killed for it, as for the next
    Fault("garbage checkpoint"),
    Fault("driver in final"),
    Fault("mlflow", call=2, after=True),
]


@pytest.mark.slow
def test_killed_and_stopped_and_given_again_it_ends_like_an_undisturbed_run(tmp_path: Path) -> None:
    outcome = run(1, FAULTS, tmp_path, undisturbed(tmp_path))
    assert outcome.wrong == []
    assert outcome.starts >= 4


REPLAY_FAULTS = [
    Fault("rename", call=3),  # by which a ledger appears
    Fault("driver in final"),
]


@pytest.mark.slow
def test_so_does_one_whose_searches_are_replayed(tmp_path: Path) -> None:
    """A replayed ledger appears as a whole, by a rename: killed before it or after it, and in what follows."""
    outcome = run(1, REPLAY_FAULTS, tmp_path, undisturbed(tmp_path, replay=True))
    assert outcome.wrong == []
    assert outcome.starts >= 3
