"""Writing is idempotent, survives outages, and never raises into a study."""

import logging
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from harness import keys
from harness.colours import colour_of
from harness.comparing import compare
from harness.errors import UserError
from harness.measures import DETAILS, HEADLINE
from harness.schema.records import Unit
from harness.tracking.texts import LONGEST_NOTE, experiment_note
from harness.tracking.writer import Synced, Tracker, sync
from tests.canned import CANNED
from tests.synthetic import facts_of, make_space, make_units
from tests.tracking.experiments import experiment_of

pytestmark = pytest.mark.slow  # a real database
METHODS = ("ldn", "asha")
SMALL = make_space(depth={"min": 0, "max": 4})


def runs_of(uri: str) -> list[Run]:
    client = MlflowClient(uri, registry_uri=uri)
    experiment = client.get_experiment_by_name("depth-search/synthetic")
    assert experiment
    return list(client.search_runs([experiment.experiment_id], max_results=1000))


def kinds(uri: str) -> Counter[str]:
    return Counter(run.data.tags[keys.TAG_KIND] for run in runs_of(uri))


def assert_complete(uri: str, units: list[Unit]) -> None:
    """One parent per unit and one child below it per trial, ended, with each point of each curve once."""
    runs = [run for run in runs_of(uri) if run.data.tags[keys.TAG_KIND] in (keys.KIND_SEARCH, keys.KIND_TRIAL)]
    parents = {run.data.tags[keys.TAG_UNIT_KEY]: run for run in runs if run.data.tags[keys.TAG_KIND] == "search"}
    assert len(runs) == len(units) + sum(len(unit.trials) for unit in units)
    assert not [run for run in runs if run.info.status == "RUNNING"]
    client = MlflowClient(uri, registry_uri=uri)
    for unit in units:
        parent = parents[f"synthetic/{unit.plan.method}/seed-{unit.plan.seed}"]
        below = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
        assert Counter(run.data.params["trial_id"] for run in below) == Counter(t.trial_id for t in unit.trials)
        assert (parent.data.metrics.keys() >= {measure.key for measure in HEADLINE}) == (unit.result is not None)
        for run, key in [(parent, keys.ANYTIME_VAL_LOG_LIKELIHOOD), *((run, keys.VAL_ACCURACY) for run in below)]:
            steps = [metric.step for metric in client.get_metric_history(run.info.run_id, key)]
            assert len(steps) == len(set(steps))
            assert steps or (run is parent and unit.result is None)


def test_writing_again_changes_nothing(uri: str) -> None:
    units = make_units(METHODS, [0, 1], space=SMALL, failed_depths={"asha": [3]})
    assert sync(units, uri) == Synced(written=4, unchanged=0, warning=None)
    assert sync(units, uri) == Synced(written=0, unchanged=4, warning=None)
    assert_complete(uri, units)
    assert Counter(run.info.status for run in runs_of(uri)).keys() == {"FINISHED", "KILLED", "FAILED"}


def test_a_unit_written_unfinished_is_completed_in_place(uri: str) -> None:
    (finished,) = make_units(["grid"], [0])
    part = Unit(plan=finished.plan, trials=finished.trials[:4], result=None)
    tracker = Tracker(uri)
    assert tracker.write_unit(part)
    assert_complete(uri, [part])
    before = {run.info.run_id for run in runs_of(uri)}
    assert tracker.write_unit(finished)
    assert_complete(uri, [finished])
    assert before <= {run.info.run_id for run in runs_of(uri)}
    parent = next(run for run in runs_of(uri) if run.data.tags[keys.TAG_KIND] == keys.KIND_SEARCH)
    assert parent.info.status == "FINISHED"
    assert "Unfinished" not in parent.data.tags["mlflow.note.content"]


@pytest.mark.parametrize("method", ["create_run", "log_batch", "set_terminated", "log_inputs"])
def test_an_outage_in_mid_write_costs_one_warning_and_sync_completes(
    uri: str, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    units = make_units(["ldn", "random_search"], [0], space=SMALL)
    tracker = Tracker(uri)
    original, calls = getattr(tracker.client, method), []

    def fails_after_doing_it(*args: Any, **kwargs: Any) -> Any:
        """The worst case: the server did the work and the answer was lost."""
        calls.append(args)
        result = original(*args, **kwargs)
        if len(calls) == (1 if method == "log_inputs" else 3):
            raise ConnectionError("connection reset by peer")
        return result

    monkeypatch.setattr(tracker.client, method, fails_after_doing_it)
    with caplog.at_level(logging.WARNING):
        for unit in units:
            tracker.write_unit(unit)
        tracker.log_report(units[0].plan.space, "<p>late</p>")
    assert [record.getMessage() for record in caplog.records] == [tracker.warning]
    assert tracker.warning
    assert "connection reset by peer" in tracker.warning
    assert "harness sync" in tracker.warning
    assert sync(units, uri).warning is None
    assert_complete(uri, units)


def test_records_replaced_by_fresh_ones_supersede_and_delete_nothing(uri: str) -> None:
    (old,) = make_units(["random_search"], [0], space=SMALL)
    fresh = old.model_copy(
        update={
            "trials": tuple(
                trial.model_copy(update={"started_at": trial.started_at + 9000, "ended_at": trial.ended_at + 9000})
                for trial in old.trials
            )
        }
    )
    sync([old], uri)
    sync([fresh], uri)
    assert_complete(uri, [fresh])
    assert kinds(uri)[keys.KIND_SUPERSEDED] == 1 + len(old.trials)
    assert sync([fresh], uri).unchanged == 1


def test_a_run_created_twice_by_a_repeated_request_is_kept_once(uri: str) -> None:
    units = make_units(["random_search"], [0])
    sync(units, uri)
    client = MlflowClient(uri, registry_uri=uri)
    for run in runs_of(uri)[:3]:
        client.create_run(run.info.experiment_id, tags=run.data.tags, run_name=run.info.run_name)
    sync(units, uri)
    sync(units, uri)
    assert_complete(uri, units)


def test_units_with_similar_names_are_kept_apart(uri: str) -> None:
    units = make_units(
        ["random_search", "randomXsearch", "it's"], [1, 10], space=make_space(depth={"min": 0, "max": 1})
    )
    sync(units, uri)
    assert sync(units, uri).unchanged == 6
    assert_complete(uri, units)


def test_the_data_set_is_an_input_with_its_hash(uri: str) -> None:
    sync(make_units(["ldn"], [0]), uri)
    parent = next(run for run in runs_of(uri) if run.data.tags[keys.TAG_KIND] == keys.KIND_SEARCH)
    assert parent.inputs is not None
    (data,) = parent.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("spirals", "split0")


def test_every_measure_is_explained_and_artifacts_are_kept_at_an_absolute_path(uri: str) -> None:
    """The headline where one begins, every other one at each search: together they are longer than a note may be."""
    sync(make_units(["ldn"], [0]), uri)
    tracker = Tracker(uri)
    experiment = tracker.client.get_experiment(experiment_of(tracker))
    assert Path(experiment.artifact_location).is_absolute()
    search = next(run for run in runs_of(uri) if run.data.tags[keys.TAG_KIND] == keys.KIND_SEARCH)
    for measure in (*HEADLINE, *DETAILS):
        line = f"`{measure.key}` | {measure.says}"
        assert line in search.data.tags["mlflow.note.content"]
        assert (line in experiment.tags["mlflow.note.content"]) == (measure in HEADLINE)


def test_no_note_of_an_experiment_is_longer_than_mlflow_takes() -> None:
    model = "depth-search-" + "m" * 100
    for made in CANNED.values():
        space = made.units[0].plan.space.model_copy(update={"description": "Rows <b>of</b> [numbers]. " * 400})
        answer = compare(made.units).recommendation
        note = experiment_note(space, model, answer)
        assert len(note) <= LONGEST_NOTE and "- rests on: " in note
        endless = answer.model_copy(update={"reasons": {"rests on": "seeds " * 1000}})
        assert len(experiment_note(space, model, endless)) <= LONGEST_NOTE


def test_an_experiment_deleted_in_the_ui_comes_back(uri: str) -> None:
    tracker = Tracker(uri)
    tracker.client.delete_experiment(experiment_of(tracker))
    assert Tracker(uri).write_unit(make_units(["ldn"], [0])[0])
    assert kinds(uri)[keys.KIND_SEARCH] == 1


def test_one_report_per_space_and_the_newest_shows(uri: str, tmp_path: Path) -> None:
    for text in ("<p>one</p>", "<p>two</p>"):
        tracker = Tracker(uri)
        tracker.log_report(make_space(), text)
        assert tracker.warning is None
    (run,) = runs_of(uri)
    assert run.info.status == "FINISHED"
    path = MlflowClient(uri, registry_uri=uri).download_artifacts(run.info.run_id, "report.html", str(tmp_path))
    assert Path(path).read_text() == "<p>two</p>"


def test_a_server_that_is_not_there_costs_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        with caplog.at_level(logging.WARNING):
            synced = sync(make_units(METHODS, [0, 1]), f"http://user:secret@127.0.0.1:{closed.getsockname()[1]}")
    assert (synced.written, synced.unchanged) == (0, 0)
    assert [record.getMessage() for record in caplog.records] == [synced.warning]
    assert "secret" not in str(synced.warning)


def test_a_file_that_is_no_database_costs_one_warning(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not a database " * 100)
    synced = sync(make_units(["ldn"], [0]), f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert synced.warning
    assert synced.written == 0


def test_a_winner_that_cannot_be_saved_costs_its_model_only(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(unit: Unit) -> None:
        raise FileNotFoundError("no model.pt")

    units = make_units(["ldn"], [0])
    assert sync(units, uri, broken).warning is None
    assert "no model.pt" in caplog.text
    assert_complete(uri, units)


@pytest.mark.parametrize("address", ["./mlruns", "file:///tmp/mlruns", "sqlite://mlflow.db", "ftp://host", ""])
def test_an_address_mlflow_cannot_track_at_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="sqlite:///"):
        Tracker(address)


def test_a_unit_without_trials_waits(uri: str) -> None:
    (unit,) = make_units(["ldn"], [0])
    assert sync([Unit(plan=unit.plan, trials=(), result=None)], uri) == Synced(written=0, unchanged=1, warning=None)


@pytest.mark.parametrize("scheme", ["http", "mysql"])
def test_no_password_is_told_when_nobody_answers(
    scheme: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with caplog.at_level(logging.DEBUG, logger="harness"):
        done = sync(make_units(["ldn"], [0]), f"{scheme}://me:s3cr/t@w0rd@127.0.0.1:9/x?token=t0ken")
    assert done.warning and f"MLflow at {scheme}://127.0.0.1:9/x?*** could not be written" in done.warning
    assert "tracking failed" in caplog.text
    assert not [secret for secret in ("s3cr", "w0rd", "t0ken") if secret in done.warning + caplog.text]


@pytest.mark.parametrize(
    "address", ["http://", "http://host:99999999", "http://[::1", "sqlite:///", "http://ho st", "http://host\x1b"]
)
def test_an_address_without_what_it_needs_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="a tracking URI must be"):
        Tracker(address)


def test_a_description_is_text_in_the_note(uri: str) -> None:
    hostile = "[a](javascript:x) <img> \x1b[31m **b**"
    units = make_units(["ldn"], [0], space=make_space(description=hostile))
    sync(units, uri)
    experiment = MlflowClient(uri).get_experiment_by_name(f"depth-search/{units[0].plan.space.name}")
    assert experiment is not None
    note = experiment.tags["mlflow.note.content"]
    assert "\\[a\\](javascript:x) &lt;img> �\\[31m \\*\\*b\\*\\*" in note and "\x1b" not in note


# --- all units together -------------------------------------------------------------------------------------------


def means(uri: str) -> dict[str, Run]:
    runs = [run for run in runs_of(uri) if run.data.tags[keys.TAG_KIND] == keys.KIND_MEAN]
    return {run.info.run_name: run for run in runs}


def test_every_method_has_a_run_of_means_and_more_seeds_replace_it(uri: str) -> None:
    units = make_units(METHODS, range(3), space=SMALL)
    tracker = Tracker(uri)
    two = [unit for unit in units if unit.plan.seed < 2]
    for _ in range(2):
        tracker.conclude(two, compare(two))
    assert set(means(uri)) == {"ldn, mean of 2 seeds", "asha, mean of 2 seeds"}
    tracker.conclude(units, compare(units))
    assert tracker.warning is None
    found = means(uri)
    assert set(found) == {"ldn, mean of 3 seeds", "asha, mean of 3 seeds"}
    assert kinds(uri)[keys.KIND_SUPERSEDED] == 2, "those of two seeds"
    for run in found.values():
        method = run.data.tags[keys.TAG_SEARCH]
        costs = [unit.result.cost.device_seconds for unit in units if unit.plan.method == method and unit.result]
        assert run.data.metrics["cost_device_seconds"] == pytest.approx(sum(costs) / 3, rel=2e-3)
        assert run.info.status == "FINISHED" and run.data.params["seeds"] == "0, 1, 2"
        assert run.data.tags["mlflow.runColor"] == colour_of(method, facts_of(method).colour)
    # No network was logged, so there is nothing to register.
    assert list(tracker.client.search_registered_models()) == []


def test_the_experiments_note_begins_with_the_answer_and_keeps_it(uri: str) -> None:
    """Also when another tracker writes a report or a unit later; the next conclusion replaces it."""
    units = make_units(["ldn"], [0], space=SMALL)
    comparison = compare(units)

    def note() -> str:
        experiment = MlflowClient(uri).get_experiment_by_name(f"depth-search/{SMALL.name}")
        assert experiment is not None
        return str(experiment.tags["mlflow.note.content"])

    for sentence in ("Search with grid.", "Train *b* and do not search."):
        answer = comparison.recommendation.model_copy(update={"sentence": sentence})
        Tracker(uri).conclude(units, comparison.model_copy(update={"recommendation": answer}))
        Tracker(uri).log_report(SMALL, "<p>The page.</p>")
        Tracker(uri).write_unit(units[0])
        assert note() == experiment_note(SMALL, "depth-search-synthetic", answer)
    assert note().startswith("**Train \\*b\\* and do not search.**\n\n- rests on: 1 seed of ldn\n- costs: ")
    assert note().endswith(experiment_note(SMALL, "depth-search-synthetic"))


def test_a_server_that_fails_costs_no_conclusion_an_error(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("no folder")
    tracker = Tracker(f"sqlite:///{tmp_path}/there/mlflow.db")
    units = make_units(["ldn"], [0], space=SMALL)
    tracker.conclude(units, compare(units))
    assert tracker.warning and "could not be written" in tracker.warning
