"""Where MLflow keeps things: which addresses are valid, and one process at a time in a sqlite file."""

import contextlib
import fcntl
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from harness.errors import UserError
from harness.text.files import checked_path
from harness.text.shown import printable, redacted


@dataclass(frozen=True)
class Experiment:
    name: str
    note: str  # Markdown, shown above its runs


SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql", "databricks")
LONGEST_WAIT_SECONDS = 120.0


def check_uri(uri: str) -> str:
    """The address itself when MLflow can track there; a bare path would be MLflow's retired file store."""
    scheme = uri.partition(":")[0].partition("+")[0]
    if scheme not in SCHEMES or printable(uri) != uri or not _is_complete(uri, scheme):
        raise UserError(
            "a tracking URI must be a sqlite file (sqlite:///path/mlflow.db), a server (http://host:port) or a "
            f"database ({', '.join(SCHEMES[3:])}); got {redacted(uri)!r}"
        )
    if (database := sqlite_file(uri)) is not None:
        checked_path(database, "the file of a tracking URI")
        if database.is_dir():
            raise UserError(f"the file of a tracking URI must be a file; {database} is a folder")
    return uri


def _is_complete(uri: str, scheme: str) -> bool:
    """Whether the address names what its scheme needs: a file, or a host with at most a valid port."""
    if scheme == "sqlite":
        return uri.startswith("sqlite:///") and uri.removeprefix("sqlite:///").partition("?")[0].strip("/") != ""
    if scheme not in ("http", "https"):
        return "://" in uri or uri == scheme == "databricks"
    try:
        parts = urlsplit(f"//{uri.partition('://')[2].rpartition('@')[2]}")
        return "://" in uri and bool(parts.hostname) and parts.port != 0 and not re.search(r"\s", uri)
    except ValueError:
        return False


def sqlite_file(uri: str) -> Path | None:
    """The file of a sqlite address; None for any other."""
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute() if uri.startswith("sqlite:///") else None


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
