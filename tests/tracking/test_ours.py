"""A good guest: what somebody else has in their MLflow is never touched, and what is ours is known again."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from harness import keys
from harness.comparing import compare
from harness.errors import UserError
from harness.options import RunOptions
from harness.schema.records import Unit
from harness.tracking.background import Destination
from harness.tracking.ours import OLD_VIEW, Names, find_experiment
from harness.tracking.writer import Tracker, sync
from tests.running.results import command
from tests.synthetic import make_space, make_units
from tests.tracking.test_models import handed_over

pytestmark = pytest.mark.slow  # a real database
SPACE = make_space(depth={"min": 0, "max": 4})


def theirs(uri: str, folder: Path, experiment: str = "synthetic", model: str = "synthetic") -> None:
    """An experiment with a run, an artifact and a note, and a registered model with an alias, of the user's own."""
    client = MlflowClient(uri, registry_uri=uri)
    experiment_id = client.create_experiment(experiment, str(folder / "theirs"), {"owner": "them"})
    client.set_experiment_tag(experiment_id, "mlflow.note.content", "Our penguins.")
    run = client.create_run(experiment_id, tags={"who": "them"}, run_name="theirs")
    client.log_metric(run.info.run_id, "accuracy", 0.9)
    client.log_text(run.info.run_id, "weights", "model/weights.txt")
    client.create_registered_model(model, {"owner": "them"}, "Our penguins.")
    for _ in range(2):
        client.create_model_version(model, f"{folder}/theirs/{run.info.run_id}/artifacts/model", run.info.run_id)
    client.set_registered_model_alias(model, "winner", "1")


def rows(uri: str, experiment: str = "synthetic", model: str = "synthetic") -> Mapping[str, list[Any]]:
    """Every row of the database that belongs to that experiment or that model, as it is stored."""
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        [[experiment_id]] = database.execute("select experiment_id from experiments where name = ?", (experiment,))
        runs = [run for (run,) in database.execute("select run_uuid from runs where experiment_id=?", (experiment_id,))]
        found: dict[str, list[Any]] = {}
        for table in tables:
            columns = [row[1] for row in database.execute(f"pragma table_info({table})")]
            for row in database.execute(f"select * from {table}"):
                values = dict(zip(columns, row, strict=True))
                of_model = table.startswith(("registered_model", "model_version")) and values.get("name") == model
                if values.get("experiment_id") == experiment_id or values.get("run_uuid") in runs or of_model:
                    found.setdefault(table, []).append(row)
    return found


def files(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def everything(units: list[Unit], uri: str, folder: Path, names: Names = Names()) -> Tracker:  # noqa: B008
    network = handed_over(folder, "features", seed=0)
    sync(units, uri, lambda unit: network, names)
    tracker = Tracker(uri, names=names)
    tracker.conclude(units, compare(units))
    tracker.log_report(SPACE, "<p>The page.</p>")
    return tracker


def test_an_experiment_and_a_model_of_the_spaces_name_stay_untouched_byte_for_byte(uri: str, tmp_path: Path) -> None:
    theirs(uri, tmp_path)
    before, on_disk = rows(uri), files(tmp_path / "theirs")
    assert len(before["experiment_tags"]) == 2 and len(before["registered_model_aliases"]) == 1
    assert {"runs", "metrics", "tags", "model_versions", "registered_models"} <= before.keys()
    assert everything(make_units(["ldn", "grid"], [0, 1], space=SPACE), uri, tmp_path).warning is None
    assert rows(uri) == before and files(tmp_path / "theirs") == on_disk
    client = MlflowClient(uri, registry_uri=uri)
    ours = client.get_experiment_by_name("depth-search/synthetic")
    assert ours and ours.tags[keys.TAG_OURS] == "synthetic"
    assert client.get_registered_model("depth-search-synthetic").tags == {keys.TAG_OURS: "synthetic"}
    assert client.get_model_version_by_alias("depth-search-synthetic", "winner")


@pytest.mark.parametrize(
    ("names", "flag"),
    [(Names(experiment="synthetic"), "--experiment NAME"), (Names(model="synthetic"), "--model-name NAME")],
)
def test_what_is_somebody_elses_is_refused_with_the_remedy_and_nothing_is_written(
    uri: str, tmp_path: Path, names: Names, flag: str
) -> None:
    theirs(uri, tmp_path)
    database = Path(uri.removeprefix("sqlite:///"))
    before = database.read_bytes()
    tracker = everything(make_units(["ldn"], [0], space=SPACE), uri, tmp_path, names)
    assert tracker.warning and "'synthetic' was not made by this program" in tracker.warning
    assert flag in tracker.warning and f"set its tag {keys.TAG_OURS}" in tracker.warning
    assert database.read_bytes() == before
    with pytest.raises(UserError, match="was not made by this program"):
        Destination(uri, tmp_path, names=names).check_names("synthetic")


def test_the_remedy_works(uri: str, tmp_path: Path) -> None:
    theirs(uri, tmp_path)
    client = MlflowClient(uri, registry_uri=uri)
    experiment = client.get_experiment_by_name("synthetic")
    assert experiment
    client.set_experiment_tag(experiment.experiment_id, keys.TAG_OURS, "yes")
    names = Names(experiment="synthetic", model="another")
    assert everything(make_units(["ldn"], [0], space=SPACE), uri, tmp_path, names).warning is None
    assert client.get_registered_model("another") and not client.get_experiment_by_name("depth-search/synthetic")


def test_an_experiment_of_an_earlier_version_goes_on_being_used(uri: str) -> None:
    """Up to 0.2.0 it had the bare name, our view and no tag."""
    client = MlflowClient(uri, registry_uri=uri)
    experiment_id = client.create_experiment("synthetic", tags={OLD_VIEW: "{}"})
    client.create_run(experiment_id, tags={keys.TAG_KIND: keys.KIND_SEARCH, keys.TAG_UNIT_KEY: "synthetic/ldn/seed-7"})
    units = make_units(["ldn"], [0], space=SPACE)
    assert sync(units, uri).warning is None
    assert client.get_experiment_by_name("depth-search/synthetic") is None
    assert client.get_experiment(experiment_id).tags[keys.TAG_OURS] == "synthetic"
    client.create_run(experiment_id, tags={"who": "them"})
    found = find_experiment(client, Names(), "synthetic")
    assert found and found.experiment_id == experiment_id, "by now it has our tag"


def test_one_that_an_earlier_version_wrote_into_is_still_theirs(uri: str, tmp_path: Path) -> None:
    theirs(uri, tmp_path)
    client = MlflowClient(uri, registry_uri=uri)
    experiment = client.get_experiment_by_name("synthetic")
    assert experiment
    client.set_experiment_tag(experiment.experiment_id, OLD_VIEW, "{}")
    before = rows(uri)
    assert everything(make_units(["ldn"], [0], space=SPACE), uri, tmp_path).warning is None
    assert rows(uri) == before


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"experiment": " "}, "experiment must be a name of at most 200 characters"),
        ({"experiment": "a\x1bb"}, "experiment must be a name"),
        ({"model_name": "a/b"}, "model_name must be a name of at most 200 characters, without / and :; got 'a/b'"),
    ],
)
def test_a_name_that_mlflow_cannot_take_is_refused(asked: dict[str, str], rule: str) -> None:
    with pytest.raises(UserError, match=rule):
        RunOptions.of(**asked)


def test_a_run_into_somebody_elses_experiment_ends_before_it_begins(uri: str, tmp_path: Path) -> None:
    theirs(uri, tmp_path, experiment="penguins")
    words = ("run", "quickstart", "--methods", "ldn", "--tracking-uri", uri, "--experiment", "penguins")
    done = command(tmp_path, *words)
    assert done.returncode == 2 and "--experiment NAME" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "results").exists()
