"""MLflow's own server for looking at the results: on 127.0.0.1 only, since it has no login."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from harness.errors import UserError
from harness.running.stopping import ends_at_once
from harness.text.shown import printable, without_secrets
from harness.tracking import one_process
from harness.tracking.address import check_uri, sqlite_file

HOST = "127.0.0.1"
PORT = 5000
LONGEST_START_SECONDS = 120.0


@contextlib.contextmanager
def serving(uri: str, port: int | None = None) -> Iterator[str]:
    """The address of a server that shows `uri` and answers; its processes end with the block, on Ctrl-C too.

    Without a port it takes the first free one from PORT on. A `uri` that is a server already is its own answer.
    """
    check_uri(uri)
    if uri.startswith(("http://", "https://")):
        yield uri
        return
    database = sqlite_file(uri)
    if database and not database.exists():
        raise UserError(f"there is nothing to show yet: {database} does not exist; use `harness run` or `harness sync`")
    if port is None:
        port = _next_free(PORT) or PORT
    check_free(port)
    with tempfile.TemporaryFile() as output, ends_at_once():  # else a polite kill would leave the server behind
        process = subprocess.Popen(
            _command(port, artifacts=database.parent / "mlflow-artifacts" if database else None),
            env=os.environ | _settings(uri),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its own process group: Ctrl-C reaches us, and we end all of it
        )
        try:
            address = f"http://{HOST}:{port}"
            if not _answers(address, process):
                output.seek(0)
                said = without_secrets(output.read().decode(errors="replace"), uri)
                tail = printable(" ".join(said.split()))[-500:]
                raise UserError(f"MLflow's server did not start on {address}; it said: {tail or 'nothing'}")
            yield address
        finally:
            _end(process)


def wait_for_interrupt() -> None:
    """Returns on Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(1)  # signal.pause() would sleep through one that comes just before it


def check_free(port: int) -> None:
    if not _is_free(port):
        free = _next_free(port + 1)
        advice = f"the next free one is {free} (--port {free})" if free else "none above it is free"
        raise UserError(f"port {port} is busy; {advice}")


def _next_free(port: int) -> int | None:
    return next((other for other in range(port, min(port + 1000, 65536)) if _is_free(other)), None)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that was closed a moment ago counts as free
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _command(port: int, artifacts: Path | None) -> list[str]:
    """What is in `artifacts` anybody on this machine may read, write and delete through the server; None: nothing."""
    served = ["--artifacts-destination", str(artifacts)] if artifacts else ["--no-serve-artifacts"]
    address = ["--host", HOST, "--port", str(port)]
    # -P: a file of the user's in this folder may be called `mlflow.py`, say
    return [sys.executable, "-P", one_process.__file__, "server", *address, "--workers", "1", *served]


def _settings(uri: str) -> dict[str, str]:
    """The light settings: a quarter of the memory and half the start of MLflow's defaults."""
    return {
        "MLFLOW_BACKEND_STORE_URI": uri,  # not on the command line, where everybody can read a database's password
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }


def _answers(address: str, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + LONGEST_START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with (
            contextlib.suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(f"{address}/health", timeout=5) as reply,
        ):
            if reply.status == 200:
                return True
        time.sleep(0.2)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
    # The second round also ends workers that outlive a server which stopped in time.
