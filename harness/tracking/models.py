"""A unit's network as an MLflow model: its `model.pt` and two files of code, which need nothing of this package."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import mlflow.pyfunc
import torch
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Run
from mlflow.models import Model, ModelSignature
from mlflow.types.schema import ColSpec, DataType, Schema, TensorSpec

from harness.models import resnet
from harness.running.store import UnitFolder
from harness.schema.records import Unit, UnitPlan
from harness.scratch import scratch_folder
from harness.training.model_file import load_model

LOADER = Path(__file__).with_name("depth_search_classifier.py")
NETWORK = "depth_search_resnet.py"  # what the loader imports harness/models/resnet.py as
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
    loaded = load_model(model)
    classes: list[ColSpec | TensorSpec] = [ColSpec(DataType.float, name) for name in loaded.class_names]
    about = {
        "network": loaded.settings.model_dump(mode="json"),
        "classes": list(loaded.class_names),
        "row_shape": list(loaded.row_shape),
        "columns": [column.model_dump(mode="json") for column in loaded.columns],
        "features": [name for column in loaded.columns for name in column.feature_names],
    }
    with scratch_folder() as code:
        shutil.copy(str(resnet.__file__), code / NETWORK)
        mlflow.pyfunc.save_model(
            folder,
            loader_module=LOADER.stem,
            data_path=str(model),
            code_paths=[str(LOADER), str(code / NETWORK)],
            # Of inputs MLflow would take float32 alone, and of a table no names; the code takes what the data set has.
            mlflow_model=Model(signature=ModelSignature(outputs=Schema(classes)), metadata=about),
            pip_requirements=[f"torch=={torch.__version__.partition('+')[0]}"],  # given, MLflow need not guess for 8 s
        )


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
