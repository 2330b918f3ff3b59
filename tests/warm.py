"""Ray workers that have little to import: forked from a process that has torch, wherever Ray would start a new one.

A worker's imports take three seconds, more than most tests' training. Ray itself is the real one: it starts this file in
place of its own `default_worker.py`, which then runs in a fork. Ray is not imported before: it reads its environment
when it is.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ADDRESS = "HARNESS_WARM_WORKERS"  # of the socket; Ray hands the variable on to what it starts


@contextlib.contextmanager
def workers() -> Iterator[None]:
    """Every Ray that this process starts meanwhile gets such workers."""
    import subprocess
    import tempfile

    from ray._private.parameter import RayParams

    from tests.running.results import wait_for

    update: Any = RayParams.update_if_absent

    def with_warm_workers(params: Any, **values: Any) -> None:
        update(params, **values | ({"worker_path": __file__} if "worker_path" in values else {}))

    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        address = str(Path(folder, "socket"))
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        server = subprocess.Popen([sys.executable, "-m", "tests.warm", address], cwd=ROOT, env=environment)
        try:
            wait_for(lambda: Path(address).exists() or server.poll() is not None, "the process that forks workers")
            os.environ[ADDRESS] = address
            RayParams.update_if_absent = with_warm_workers
            yield
        finally:
            RayParams.update_if_absent = update
            os.environ.pop(ADDRESS, None)
            server.kill()
            server.wait()


def serve(address: str) -> None:
    """Forks a worker for each that Ray wants."""
    import pandas  # noqa: F401 - Tune's
    import pyarrow.fs  # noqa: F401 - Tune's
    import sklearn.linear_model  # noqa: F401 - the final evaluation's

    import harness.training.final
    import harness.training.train  # noqa: F401

    assert "ray" not in sys.modules
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(64)
    os.rename(f"{address}.new", address)  # noqa: PTH104 - a socket
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        asked, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become(asked)
        asked.close()


def ask() -> None:
    """As a worker that Ray starts: somebody else is to be it."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[ADDRESS])
        told = [
            str(len(sys.argv)),
            *sys.argv,
            str(Path.cwd()),
            *(f"{name}={value}" for name, value in os.environ.items()),
        ]
        message = "\0".join(told).encode()
        socket.send_fds(server, [len(message).to_bytes(4, "big")], [0, 1, 2])
        server.sendall(message)


def _become(asked: socket.socket) -> None:
    length, files, _, _ = socket.recv_fds(asked, 4, 3)
    missing, parts = int.from_bytes(length, "big"), list[bytes]()
    while missing:
        parts.append(asked.recv(missing))
        missing -= len(parts[-1])
    asked.close()
    n_words, *rest = b"".join(parts).decode().split("\0")
    words, cwd, variables = rest[: int(n_words)], rest[int(n_words)], rest[int(n_words) + 1 :]
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in variables)
    import runpy

    import ray

    program = Path(ray.__file__).parent / "_private" / "workers" / "default_worker.py"
    sys.argv = [str(program), *words[1:]]
    runpy.run_path(str(program), run_name="__main__")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    ask() if len(sys.argv) > 2 else serve(sys.argv[1])
