"""MLflow's empty tables, made once for each of its versions and copied: it takes seconds to make them, through all of
its migrations, for every fresh sqlite file.
"""

import contextlib
import os
import shutil
from pathlib import Path

import mlflow


def fill_if_empty(database: Path) -> None:
    """Gives a fresh sqlite file its tables. Where that fails MLflow makes them itself, when it opens the file."""
    if database.exists() and database.stat().st_size:
        return
    with contextlib.suppress(Exception):  # a cache that cannot be written, an MLflow that does it in another way
        partial = database.with_name(f".{database.name}.partial")
        shutil.copyfile(_made_once(), partial)
        partial.replace(database)


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "depth-search-harness"


def _made_once() -> Path:
    made = cache_folder() / f"mlflow-{mlflow.__version__}.db"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        partial = made.with_name(f"{made.name}.{os.getpid()}")
        try:
            _make_tables(partial)
            partial.replace(made)
        finally:
            partial.unlink(missing_ok=True)
    return made


def _make_tables(path: Path) -> None:
    """As `mlflow db upgrade` does for a database that is empty."""
    from mlflow.db import upgrade

    upgrade.main([f"sqlite:///{path}"], standalone_mode=False)
