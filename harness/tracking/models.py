"""The network of a unit as an MLflow model: a traced graph and one file of code, which need nothing of this package."""

import re
from collections.abc import Callable
from pathlib import Path

import mlflow.pytorch
import torch
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Run
from mlflow.models import Model, ModelSignature, infer_signature
from mlflow.pyfunc import FLAVOR_NAME, MAIN
from mlflow.types.schema import ColSpec, DataType, Schema, TensorSpec

from harness.records import Unit, UnitPlan
from harness.running.store import UnitFolder
from harness.training.model_file import HandedOver, load_model

CODE = Path(__file__).with_name("depth_search_model.py")
FindModel = Callable[[Unit], HandedOver | None]


def model_in(out: Path) -> FindModel:
    """Looks a unit's network up in the results folder; None where there is none."""

    def found(unit: Unit) -> HandedOver | None:
        path = UnitFolder(out, unit.plan.space.name, unit.plan.method, unit.plan.seed).model_path
        return load_model(path) if path.exists() else None

    return found


def name_of(plan: UnitPlan) -> str:
    """`ldn-quickstart-seed-0`, without what MLflow takes in no name."""
    return re.sub(r"[/:.%\"']", "_", f"{plan.method}-{plan.space.name}-seed-{plan.seed}")


def save(model: HandedOver, folder: Path) -> None:
    """Writes the model in MLflow's format. Needs no server: what fails here is the network's fault.

    `mlflow.pytorch` loads the graph, which gives log-probabilities; `mlflow.pyfunc` loads it through `CODE`, which
    gives probabilities under the names of the classes.
    """
    example = torch.zeros(2, *model.row_shape).numpy()  # two rows: the trace would fix the batch size to one
    classes: list[ColSpec | TensorSpec] = [ColSpec(DataType.float, name) for name in model.class_names]
    mlflow.pytorch.save_model(
        model.eval(),
        folder,
        signature=infer_signature(example),
        input_example=example,
        serialization_format="pt2",
        code_paths=[str(CODE)],
        metadata={
            "classes": list(model.class_names),
            "row_shape": list(model.row_shape),
            "columns": [column.model_dump(mode="json") for column in model.columns],
            "features": [name for column in model.columns for name in column.feature_names],
        },
        pip_requirements=[f"torch=={torch.__version__.partition('+')[0]}"],  # given, MLflow need not guess for 8 s
    )
    saved = Model.load(str(folder))
    saved.flavors[FLAVOR_NAME][MAIN] = CODE.stem
    # Of inputs MLflow would take float32 alone, and of a table no names; the code takes what the data set holds.
    saved.signature = ModelSignature(outputs=Schema(classes))
    saved.save(str(folder / "MLmodel"))


def upload(client: MlflowClient, run: Run, name: str, folder: Path) -> str:
    """Logs a saved model with `run` as its source; the URI is for `mlflow.pyfunc.load_model` or `mlflow.pytorch`.

    Goes through the client, not through `mlflow.pytorch.log_model`: that one uses the process-wide tracking URI and
    reopens the run.
    """
    logged = client.create_logged_model(
        run.info.experiment_id, name, source_run_id=run.info.run_id, model_type="classifier"
    )
    client.log_model_artifacts(logged.model_id, str(folder))
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    client.log_outputs(run.info.run_id, [LoggedModelOutput(logged.model_id, step=0)])
    return str(logged.model_uri)
