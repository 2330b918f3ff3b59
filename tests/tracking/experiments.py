"""The experiment that tests look at."""

from harness.tracking.writer import Tracker
from tests.synthetic import make_space


def experiment_of(tracker: Tracker) -> str:
    """The id of the experiment of `make_space()`, which a report creates."""
    tracker.log_report(make_space(), "<p>report</p>")
    return str(tracker.client.get_experiment_by_name(make_space().name).experiment_id)
