"""The winner of a unit as an MLflow model: a traced graph that loads without this package."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import mlflow.pytorch
import torch
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Run
from mlflow.models import Model, infer_signature

NAME = "winner"


@dataclass(frozen=True)
class Winner:
    """A network in its final form and inputs it takes; `module(example)` are class log-probabilities, a row each."""

    module: torch.nn.Module
    example: torch.Tensor  # at least two rows, or the trace would fix the batch size to one


def log_winner(client: MlflowClient, run: Run, winner: Winner) -> str:
    """Logs the model with `run` as its source and returns its URI, for `mlflow.pytorch.load_model` or pyfunc.

    Goes through the client, not through `mlflow.pytorch.log_model`: that one uses the process-wide tracking URI and
    reopens the run.
    """
    run_id = run.info.run_id
    module = winner.module.eval()
    with torch.no_grad():
        log_probs = module(winner.example)
    logged = client.create_logged_model(run.info.experiment_id, NAME, source_run_id=run_id, model_type="classifier")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        mlflow.pytorch.save_model(
            module,
            path,
            mlflow_model=Model(
                artifact_path=logged.artifact_location,
                run_id=run_id,
                model_uuid=logged.model_id,
                model_id=logged.model_id,
            ),
            signature=infer_signature(winner.example.numpy(), log_probs.numpy()),
            input_example=winner.example.numpy(),
            serialization_format="pt2",
            pip_requirements=[f"torch=={torch.__version__.partition('+')[0]}"],
        )
        client.log_model_artifacts(logged.model_id, str(path))
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
    return str(logged.model_uri)
