"""Where MLflow keeps things: which addresses are valid, and one process at a time in a sqlite file."""

import contextlib
import fcntl
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError


@dataclass(frozen=True)
class Experiment:
    name: str
    note: str  # Markdown, shown above its runs


SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql", "databricks")
LONGEST_WAIT_SECONDS = 120.0


def check_uri(uri: str) -> str:
    """The address itself when MLflow can track there; a bare path would be MLflow's retired file store."""
    scheme = uri.partition(":")[0].partition("+")[0]
    if scheme not in SCHEMES or (scheme == "sqlite" and not uri.startswith("sqlite:///")):
        raise UserError(
            "a tracking URI must be a sqlite file (sqlite:///path/mlflow.db), a server (http://host:port) or a "
            f"database ({', '.join(SCHEMES[3:])}); got {uri!r}"
        )
    return uri


def shown(text: str) -> str:
    """An address, or a message that holds one, without the user name and password in it."""
    return re.sub(r"//[^/\s@]+@", "//", text)


def sqlite_file(uri: str) -> Path | None:
    return Path(uri.removeprefix("sqlite:///")).absolute() if uri.startswith("sqlite:///") else None


@contextlib.contextmanager
def exclusive(uri: str) -> Iterator[None]:
    """Lets one process in at a time when `uri` is a sqlite file: two that create its tables at once break it."""
    database = sqlite_file(uri)
    if database is None:  # servers and real databases look after themselves
        yield
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    with database.with_name(f"{database.name}.lock").open("w") as lock:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another process has held {lock.name} for two minutes") from None
                time.sleep(0.05)
        yield  # closing the file releases the lock, also when this process dies
