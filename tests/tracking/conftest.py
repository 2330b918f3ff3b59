"""A fresh sqlite file costs MLflow two seconds of migrations, so it is made once and copied."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from harness.tracking.writer import Tracker

    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    Tracker(f"sqlite:///{path}").client.search_experiments()
    return path


@pytest.fixture
def uri(empty_database: Path, tmp_path: Path) -> str:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"
