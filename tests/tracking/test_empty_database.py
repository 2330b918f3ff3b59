"""The copied tables are the ones that MLflow makes."""

import sqlite3
from pathlib import Path

import pytest
from mlflow import MlflowClient

from harness.tracking.empty_database import cache_folder, fill_if_empty


def tables(database: Path) -> list[list[str]]:
    """What each table, index and trigger is made of; MLflow writes a table's constraints in any order."""
    with sqlite3.connect(database) as connection:
        made = connection.execute("select type || name || coalesce(sql, '') from sqlite_master").fetchall()
        version = connection.execute("select version_num from alembic_version").fetchall()
    return sorted(sorted(line.strip(" ,\n)") for line in text.splitlines()) for [text] in [*made, *version])


@pytest.mark.slow
def test_the_tables_are_those_that_mlflow_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own, copied = tmp_path / "own.db", tmp_path / "copied.db"
    MlflowClient(f"sqlite:///{own}").search_experiments()
    fill_if_empty(copied)
    assert tables(copied) == tables(own)
    [made] = cache_folder().iterdir()
    [default] = MlflowClient(f"sqlite:///{copied}").search_experiments()
    assert default.name == "Default"
    before = made.read_bytes()
    fill_if_empty(tmp_path / "again.db")
    assert (tmp_path / "again.db").read_bytes() == before, "made once, and nobody writes into it"


def test_one_that_has_something_in_it_is_left_alone(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    database.write_text("somebody's")
    fill_if_empty(database)
    assert database.read_text() == "somebody's"


def test_without_a_cache_mlflow_does_it_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    fill_if_empty(tmp_path / "mlflow.db")
    assert not (tmp_path / "mlflow.db").exists()
