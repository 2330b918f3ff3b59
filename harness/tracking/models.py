"""A unit's network as an MLflow model: its `model.pt` and files of code, which need nothing of this package."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import torch
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Run
from mlflow.models import Model, ModelSignature
from mlflow.types.schema import ColSpec, DataType, Schema, TensorSpec

from harness.data.columns import Column
from harness.errors import UserError
from harness.models import FixedDepthNet
from harness.networks import SOURCE, base, known_source, network_of, own_sources, source_beside
from harness.replaying.method_rules import made_up_rows, shape_for
from harness.running.store import UnitFolder
from harness.schema import identity
from harness.schema.networks import NetworkSettings, OwnNetwork
from harness.schema.records import FIXED_DEPTH, TrialConfig, Unit, UnitPlan
from harness.schema.settings import DigitsData, PosteriorSettings, TrainingSettings
from harness.scratch import scratch_folder
from harness.training.model_file import read_model, save_model
from harness.training.networks import build_network
from harness.training.predict import Predictor

LOADER = Path(__file__).with_name("depth_search_classifier.py")
NETWORK = "depth_search_network.py"  # the file of the network, ours or a user's own
SHARED = {  # what that file imports
    "depth_search_base.py": Path(base.__file__).read_text(encoding="utf-8"),
    "depth_search_identity.py": Path(identity.__file__).read_text(encoding="utf-8"),
}
FindModel = Callable[[Unit], Path | None]


def model_in(out: Path) -> FindModel:
    """Looks a unit's `model.pt` up in the results folder; None where there is none."""

    def found(unit: Unit) -> Path | None:
        path = UnitFolder(out, unit.plan.space.name, unit.plan.method, unit.plan.seed).model_path
        return path if path.exists() else None

    return found


def name_of(plan: UnitPlan) -> str:
    """`ldn-quickstart-seed-0`, without what MLflow takes in no name."""
    return re.sub(r"[/:.%\"']", "_", f"{plan.method}-{plan.space.name}-seed-{plan.seed}")


def save(model: Path, folder: Path) -> None:
    """Writes a `model.pt` in MLflow's format. Needs no server: what fails here is the network's fault.

    `mlflow.pyfunc` loads it through `LOADER`, which gives probabilities under the names of the classes.
    """
    config, content = read_model(model)
    settings, names = config.network, content["class_names"]
    columns = [Column.model_validate_json(column) for column in content["columns"]]
    channels, *size = content["sample_shape"]
    classes: list[ColSpec | TensorSpec] = [ColSpec(DataType.float, name) for name in names]
    about = {
        "network": settings.model_dump(mode="json"),
        "classes": list(names),
        "row_shape": [*size, channels],
        "columns": [column.model_dump(mode="json") for column in columns],
        "features": [name for column in columns for name in column.feature_names],
    }
    own = source_beside(settings, model) if isinstance(settings, OwnNetwork) else known_source(settings)
    with scratch_folder() as code:
        for name, source in {**SHARED, NETWORK: own}.items():
            (code / name).write_text(source, encoding="utf-8")
        mlflow.pyfunc.save_model(
            folder,
            loader_module=LOADER.stem,
            data_path=str(model),
            code_paths=[str(LOADER), *(str(path) for path in sorted(code.iterdir()))],
            # Of inputs MLflow would take float32 alone, and of a table no names; the code takes what the data set has.
            mlflow_model=Model(signature=ModelSignature(outputs=Schema(classes)), metadata=about),
            pip_requirements=[f"torch=={torch.__version__.partition('+')[0]}"],  # given, MLflow need not guess for 8 s
        )


def predicts_elsewhere(settings: NetworkSettings) -> str:
    """Raises UserError where a network of these settings, logged as a model, does not predict the same in a process
    that has not this package."""
    shape = shape_for(settings)
    data = made_up_rows(shape)
    config = TrialConfig(
        kind=FIXED_DEPTH,
        depth=network_of(settings).least_depth() + 1,
        seed=0,
        data=DigitsData(kind="digits"),
        network=settings,
        posterior=PosteriorSettings(),
        training=TrainingSettings(max_epochs=1, patience=1),
    )
    network = build_network(config, shape, data.n_classes).eval()
    assert isinstance(network, FixedDepthNet)
    with scratch_folder() as folder:
        model, rows = folder / "model.pt", folder / "rows.npy"
        save_model(model, network, config.depth, config, data)
        for _, source in own_sources([settings]):
            model.with_name(SOURCE).write_text(source, encoding="utf-8")
        np.save(rows, data.x)
        save(model, folder / "logged")
        command = [sys.executable, "-c", WITHOUT_THIS_PACKAGE, str(folder / "logged"), str(rows)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:]
            raise UserError(f"{' '.join(said)}; the file may import only what is installed where the model is used")
        there = np.array(json.loads(done.stdout.strip().splitlines()[-1]))
        apart = float(np.abs(there - Predictor.load(model).predict_proba(data.x)).max())
    if apart > 1e-5:
        raise UserError(f"its probabilities there differ by {apart:.2g}")
    return f"{len(there)} rows"


WITHOUT_THIS_PACKAGE = """
import json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "harness":
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Absent())
import mlflow.pyfunc, numpy
print(json.dumps(mlflow.pyfunc.load_model(sys.argv[1]).predict(numpy.load(sys.argv[2])).to_numpy().tolist()))
"""


def upload(client: MlflowClient, run: Run, name: str, folder: Path) -> str:
    """Logs a saved model with `run` as its source; the URI is for `mlflow.pyfunc.load_model`.

    Goes through the client, not through `mlflow.pyfunc.log_model`: that one uses the process-wide tracking URI and
    reopens the run.
    """
    logged = client.create_logged_model(
        run.info.experiment_id, name, source_run_id=run.info.run_id, model_type="classifier"
    )
    client.log_model_artifacts(logged.model_id, str(folder))
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    client.log_outputs(run.info.run_id, [LoggedModelOutput(logged.model_id, step=0)])
    return str(logged.model_uri)
