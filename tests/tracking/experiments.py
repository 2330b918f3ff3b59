"""The experiment that tests look at."""

from harness.tracking.writer import Tracker
from tests.synthetic import make_space


def experiment_of(tracker: Tracker) -> str:
    """The id of the experiment of `make_space()`, which a report creates."""
    tracker.log_report(make_space(), "<p>report</p>")
    experiment = tracker.client.get_experiment_by_name(f"depth-search/{make_space().name}")
    assert experiment is not None
    return str(experiment.experiment_id)
