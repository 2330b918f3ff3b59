"""The winner of a unit as an MLflow model: a traced graph that loads without this package."""

from dataclasses import dataclass
from pathlib import Path

import mlflow.pytorch
import torch
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Run
from mlflow.models import ModelSignature, infer_signature
from mlflow.types.schema import ColSpec, DataType, Schema, TensorSpec

NAME = "winner"


@dataclass(frozen=True)
class Winner:
    """A network in its final form and inputs it takes; `module(example)` are class log-probabilities, a row each."""

    module: torch.nn.Module
    example: torch.Tensor  # at least two rows, or the trace would fix the batch size to one
    class_names: tuple[str, ...]  # of the columns of the output
    feature_names: tuple[str, ...] = ()  # of a table: of the columns of the input, in their order


def save(winner: Winner, folder: Path) -> None:
    """Writes the model in MLflow's format. Needs no server: what fails here is the network's fault."""
    module = winner.module.eval()
    with torch.no_grad():
        log_probs = module(winner.example)
    mlflow.pytorch.save_model(
        module,
        folder,
        signature=_signature(winner, log_probs),
        input_example=winner.example.numpy(),
        serialization_format="pt2",
        metadata={"classes": list(winner.class_names), "features": list(winner.feature_names)},
        pip_requirements=[f"torch=={torch.__version__.partition('+')[0]}"],  # given, MLflow need not guess for 8 s
    )


def _signature(winner: Winner, log_probs: torch.Tensor) -> ModelSignature:
    """Rows as a tensor in, the log-probability of each class out, a column under the name of each."""
    inputs = infer_signature(winner.example.numpy()).inputs
    columns: list[ColSpec | TensorSpec] = [ColSpec(DataType.float, name) for name in winner.class_names]
    return ModelSignature(inputs, Schema(columns) if len(set(winner.class_names)) == log_probs.shape[1] else None)


def upload(client: MlflowClient, run: Run, folder: Path) -> str:
    """Logs a saved model with `run` as its source; the URI is for `mlflow.pytorch.load_model` or pyfunc.

    Goes through the client, not through `mlflow.pytorch.log_model`: that one uses the process-wide tracking URI and
    reopens the run.
    """
    logged = client.create_logged_model(
        run.info.experiment_id, NAME, source_run_id=run.info.run_id, model_type="classifier"
    )
    client.log_model_artifacts(logged.model_id, str(folder))
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    client.log_outputs(run.info.run_id, [LoggedModelOutput(logged.model_id, step=0)])
    return str(logged.model_uri)
