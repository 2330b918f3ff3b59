"""A logged network loads where this package is not, and predicts the same there, under the names of the classes."""

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from mlflow import MlflowClient

from harness import keys
from harness.comparing import Comparison, compare
from harness.comparing.values import Winner
from harness.data.columns import Column
from harness.data.splits import TrainingData
from harness.models import ChosenNet, DepthMixture, FixedDepthNet, OneShotNet
from harness.schema.records import TrialConfig, Unit
from harness.schema.settings import SearchSpace
from harness.tracking import models
from harness.tracking.writer import Tracker, sync
from harness.training.model_file import save_model
from harness.training.networks import build_network
from harness.training.predict import Predictor
from tests.forked import Forked
from tests.running.results import left_in
from tests.synthetic import make_space, make_units
from tests.tracking.test_writer import SMALL, assert_complete, kinds, runs_of

CLASSES = ("cat", "dog", "owl's")
COLUMNS = (
    Column(name="length", may_be_missing=True, median=2.5),
    Column(name="colour", categories=("1", "blue", "red"), may_be_missing=True, kept=(1, 2)),
    Column(name="wild"),
    Column(name="year", categories=("1999", "2001"), kept=(0, 1)),
)
# As on a machine that never had this package: this interpreter has it installed, so imports of it are refused.
WITHOUT_HARNESS = """
import sys
class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("harness", "tests"):
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Refuses())
try:
    import harness
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("harness can be imported")
"""


def trained_a_little(network: dict[str, Any], sample_shape: tuple[int, ...], seed: int) -> DepthMixture:
    """A learnt-depth network pruned to depth 2, its running statistics and q moved away from their start."""
    space = make_space(network=network, depth={"min": 0, "max": 4})
    built = build_network(TrialConfig.of(space, "ldn", 4, seed), sample_shape, n_classes=3)
    assert isinstance(built, OneShotNet)
    optimiser = torch.optim.SGD(built.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(3):
        x, y = torch.randn(32, *sample_shape, generator=generator), torch.randint(3, (32,), generator=generator)
        optimiser.zero_grad()
        (-built.objective(x, y, n_train=32)).backward()
        optimiser.step()
    return built.pruned(2)


def of_fixed_depth(network: dict[str, Any], sample_shape: tuple[int, ...], seed: int) -> FixedDepthNet:
    config = TrialConfig.of(make_space(network=network, depth={"min": 0, "max": 4}), "ddn", 2, seed)
    built = build_network(config, sample_shape, n_classes=3)
    assert isinstance(built, FixedDepthNet)
    return built


def handed_over(folder: Path, kind: str, fixed: bool = False, seed: int = 0) -> Path:
    """A `model.pt`, with a normalisation that matters."""
    built: Callable[[dict[str, Any], tuple[int, ...], int], ChosenNet] = of_fixed_depth if fixed else trained_a_little
    features = sum(len(column.feature_names) for column in COLUMNS) if kind == "table" else 2
    rows = np.zeros((0, 8, 8, 1) if kind == "images" else (0, features), np.float32)
    mean = np.array([100.0]) if kind == "images" else np.linspace(-1, 1, features)
    std = np.array([50.0]) if kind == "images" else np.linspace(0.5, 2, features)
    settings = {"kind": "conv", "channels": 8} if kind == "images" else {"kind": "fc", "width": 8}
    data = TrainingData(
        x=rows,
        y=np.zeros(0),
        train_rows=np.zeros(0),
        val_rows=np.zeros(0),
        n_classes=3,
        mean=mean.astype(np.float32),
        std=std.astype(np.float32),
        split_hash="",
        class_names=CLASSES,
        columns=COLUMNS if kind == "table" else (),
    )
    network = built(settings, data.sample_shape, seed)
    config = TrialConfig.of(
        make_space(network=settings, depth={"min": 0, "max": 4}), "ddn" if fixed else "ldn", 4, seed
    )
    path = folder / f"{kind}-{seed}-{fixed}.pt"
    save_model(path, network, 2, config, data)
    return path


def rows_for(kind: str, count: int) -> Any:
    """As the data set holds them: doubles, bytes, a table with words, gaps and truth values."""
    rng = np.random.default_rng(0)
    if kind == "images":
        return rng.integers(0, 256, (count, 8, 8, 1), dtype=np.uint8)
    if kind == "features":
        return rng.normal(size=(count, 2))
    return pd.DataFrame(
        {
            "not asked for": rng.normal(size=count),
            "wild": rng.random(count) < 0.5,
            "colour": [("red", "blue", "1", "never seen", None)[place] for place in rng.integers(5, size=count)],
            "year": rng.choice([1999, 2001, 1950], count),
            "length": np.where(rng.random(count) < 0.3, np.nan, rng.normal(size=count)),
        },
        index=pd.RangeIndex(100, 100 + count),
    )


# Its imports take longer than what tests ask of it, so it does each thing in a fork of its own.
ELSEWHERE = """
import json, os, tempfile, traceback
import mlflow.pyfunc, numpy, pandas, torch
for line in sys.stdin:
    folder, script, sys.argv[1:], answer = json.loads(line)
    if os.fork() == 0:
        try:
            os.chdir(folder)
            tempfile.tempdir = folder  # MLflow leaves there what it loads
            os.dup2(os.open(answer, os.O_WRONLY | os.O_CREAT), 1)
            os.dup2(1, 2)
            exec(script, {"sys": sys})
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.wait()[1], flush=True)
"""


@functools.cache
def _elsewhere() -> "subprocess.Popen[str]":
    """A Python without this package; it ends with this process."""
    return subprocess.Popen(
        [sys.executable, "-I", "-c", WITHOUT_HARNESS + ELSEWHERE],
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def in_a_fresh_process(folder: Path, script: str, *arguments: str) -> Any:
    """The JSON that a Python without this package prints last."""
    process, answer = _elsewhere(), folder / "answer.txt"
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps([str(folder), script, arguments, str(answer)]) + "\n")
    process.stdin.flush()
    status = process.stdout.readline()
    said = answer.read_text()
    answer.unlink()
    assert status == "0\n", said[-3000:]
    return json.loads(said.splitlines()[-1])


LOAD = """
import json
import mlflow, numpy as np, pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
rows = pd.read_pickle(sys.argv[2])
model = mlflow.pyfunc.load_model(sys.argv[3])
found = [model.predict(rows), model.predict(rows[:1])]
assert not any(name.startswith("harness") for name in sys.modules)
print(json.dumps([[each.columns.tolist(), each.index.tolist(), each.to_numpy().tolist()] for each in found]))
"""


LOAD_ALL = """
import json
import mlflow, pandas as pd, torch
mlflow.set_tracking_uri(sys.argv[1])
found = []
for place, file in json.loads(sys.argv[2]):
    rows, model = pd.read_pickle(file), mlflow.pyfunc.load_model(place)
    tables = [model.predict(rows), model.predict(rows[:1])]
    found.append([[each.columns.tolist(), each.index.tolist(), each.to_numpy().tolist()] for each in tables])
probabilities = model.get_raw_model()(torch.tensor(rows)).exp()  # of the last one
info = mlflow.models.get_model_info(place)
found.append([probabilities.tolist(), info.signature.outputs.input_names(), info.metadata["classes"]])
assert not any(name.startswith("harness") for name in sys.modules)
print(json.dumps(found))
"""
KINDS = (("images", False), ("table", False), ("features", True), ("images", True), ("features", False))


@pytest.mark.slow
def test_a_network_predicts_the_same_where_this_package_is_not(uri: str, tmp_path: Path) -> None:
    """Of every kind, under the names of the classes; the torch network inside is there to be had, too."""
    units = make_units(["ldn"], range(len(KINDS)), space=SMALL)
    files = {unit.plan.seed: handed_over(tmp_path, *KINDS[unit.plan.seed]) for unit in units}
    for _ in range(2):
        assert sync(units, uri, lambda unit: files[unit.plan.seed]).warning is None
    assert_complete(uri, units)
    places = []
    for unit, (kind, _) in zip(units, KINDS, strict=True):
        name = f"seed-{unit.plan.seed}"
        [parent] = [run for run in runs_of(uri) if run.data.tags.get(keys.TAG_UNIT_KEY) == f"synthetic/ldn/{name}"]
        assert parent.outputs is not None and len(parent.outputs.model_outputs) == 1, "writing again logs no second one"
        pd.to_pickle(rows_for(kind, 7), tmp_path / f"{name}.pkl")
        where = f"runs:/{parent.info.run_id}/ldn-synthetic-{name}"  # method, space and seed
        places.append((where, str(tmp_path / f"{name}.pkl")))
    *found, (probabilities, named, classes) = in_a_fresh_process(tmp_path, LOAD_ALL, uri, json.dumps(places))
    for unit, (kind, _), (several, single) in zip(units, KINDS, found, strict=True):
        expected = Predictor.load(files[unit.plan.seed]).predict_proba(rows_for(kind, 7))
        index = list(range(100, 107)) if kind == "table" else list(range(7))
        assert several[:2] == [list(CLASSES), index] and single[:2] == [list(CLASSES), index[:1]]
        np.testing.assert_allclose(several[2], expected, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(single[2], expected[:1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.sum(several[2], axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-6, atol=1e-7)
    assert named == classes == list(CLASSES)


@pytest.mark.slow
def test_mistaken_rows_are_refused_in_a_sentence(tmp_path: Path) -> None:
    models.save(handed_over(tmp_path, "table"), tmp_path / "table")
    models.save(handed_over(tmp_path, "features"), tmp_path / "features")
    script = """
import json
import mlflow, numpy as np, pandas as pd
said = []
def refused(folder, rows):
    try:
        mlflow.pyfunc.load_model(folder).predict(rows)
    except ValueError as error:
        said.append(str(error))
refused("features", np.zeros((3, 5)))
refused("features", np.zeros((0, 2)))
refused("table", pd.DataFrame({"length": [1.0], "wild": [True]}))
refused("table", pd.DataFrame({"length": [1.0], "wild": [None], "colour": ["red"], "year": [1999]}))
print(json.dumps(said))
"""
    assert in_a_fresh_process(tmp_path, script) == [
        "rows must have shape (N, 2), N at least 1; got (3, 5)",
        "rows must have shape (N, 2), N at least 1; got (0, 2)",
        "the rows must have the columns of the table that was trained on; they lack ['colour', 'year']",
        "column 'wild' must have a value in every row; it is missing in 1",
    ]


def test_a_model_goes_by_method_space_and_seed() -> None:
    [unit] = make_units(["asha"], [7])
    assert models.name_of(unit.plan) == "asha-synthetic-seed-7"
    odd = unit.plan.model_copy(update={"method": "asha:grace_epochs=20", "space": make_space(name="my.space")})
    assert models.name_of(odd) == "asha_grace_epochs=20-my_space-seed-7", "MLflow takes neither . nor : in a name"


# --- the winner ---------------------------------------------------------------------------------------------------


WINNER = "models:/depth-search-synthetic@winner"


def registered(uri: str, space: SearchSpace = SMALL) -> dict[str, Any]:
    """Version → method and seed of the run that it comes from; and where the alias points."""
    client, name = MlflowClient(uri, registry_uri=uri), f"depth-search-{space.name}"
    versions = client.search_model_versions(f"name = '{name}'")
    runs = {each.version: client.get_run(str(each.run_id)).data.tags for each in versions}
    found = {str(version): (tags[keys.TAG_SEARCH], tags[keys.TAG_SEED]) for version, tags in runs.items()}
    return found | {"winner": str(client.get_model_version_by_alias(name, "winner").version)}


@pytest.mark.slow
def test_the_winner_is_registered_under_the_name_of_the_space(uri: str, tmp_path: Path) -> None:
    units = make_units(["ldn", "grid"], [0, 1], space=SMALL)
    networks = {unit.plan.hash: handed_over(tmp_path, "features", seed=seed) for seed, unit in enumerate(units)}

    def network(unit: Unit) -> Path:
        return networks[unit.plan.hash]

    assert sync(units, uri, network).warning is None
    tracker = Tracker(uri)

    def won_by(method: str, seed: int) -> Comparison:
        return compare(units).model_copy(update={"winner": Winner(method=method, seed=seed, why="the cheapest")})

    for _ in range(2):
        tracker.conclude(units, won_by("ldn", 1))
    assert tracker.warning is None
    assert registered(uri) == {"1": ("ldn", "1"), "winner": "1"}, "the same again is the same version"
    tracker.conclude(units, won_by("grid", 0))
    assert registered(uri) == {"1": ("ldn", "1"), "2": ("grid", "0"), "winner": "2"}
    tracker.conclude(units, won_by("ldn", 1))
    assert registered(uri) == {"1": ("ldn", "1"), "2": ("grid", "0"), "winner": "1"}, "the alias goes back"
    assert kinds(uri)[keys.KIND_MEAN] == 2
    rows = rows_for("features", 5)
    pd.to_pickle(rows, tmp_path / "rows.pkl")
    [first, _] = in_a_fresh_process(tmp_path, LOAD, uri, str(tmp_path / "rows.pkl"), WINNER)
    [won] = [unit for unit in units if (unit.plan.method, unit.plan.seed) == ("ldn", 1)]
    np.testing.assert_allclose(first[2], Predictor.load(network(won)).predict_proba(rows), rtol=1e-6, atol=1e-7)


def killed_while_it_uploads(uri: str, model: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "upload", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        sync(make_units(["ldn"], [0]), uri, lambda unit: model)


@pytest.mark.slow
def test_the_copy_of_a_network_that_a_kill_leaves_goes_with_the_next_one(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network may have hundreds of MB, and /tmp is often small."""
    temp, model = tmp_path / "temp", handed_over(tmp_path, "features")
    temp.mkdir()
    killed = Forked(killed_while_it_uploads, uri, model, env={"TMPDIR": str(temp)})
    assert killed.wait(timeout=240) == -signal.SIGKILL
    assert len(list(temp.glob("harness-*/*/model/MLmodel"))) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(temp))
    assert sync(make_units(["ldn"], [0]), uri, lambda unit: model).warning is None
    assert left_in(temp) == []
