"""Ray workers that have little to import: forked from a process that has torch, wherever Ray would start a new one.

A worker's imports take three seconds, more than most tests' training. Ray itself is the real one: it starts this file
in place of its own `default_worker.py`, which then runs in a fork. Ray is not imported before the fork: it reads its
environment when it is.
"""

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ADDRESS = "HARNESS_WARM_WORKERS"  # of the socket; Ray hands the variable on to what it starts
CHECKPOINT_SECONDS = "HARNESS_TEST_CHECKPOINT_SECONDS"  # for workers that need not train for long to leave several
OF_RAY = (  # what Ray and Tune import
    *("fsspec", "google.protobuf.json_format", "google.protobuf.struct_pb2", "jsonschema", "msgpack", "pandas"),
    *("pyarrow.dataset", "pyarrow.parquet", "requests", "rich.layout", "tqdm.auto", "wcwidth"),
)


@contextlib.contextmanager
def server() -> Iterator[None]:
    """A process that forks workers, for Rays of this process and of those that it starts; one is enough for all."""
    import subprocess
    import tempfile

    if ADDRESS in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        address = str(Path(folder, "socket"))
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen([sys.executable, "-m", "tests.warm", address], cwd=ROOT, env=environment)
        os.environ[ADDRESS] = address
        try:
            yield
        finally:
            os.environ.pop(ADDRESS, None)
            process.kill()
            process.wait()


@contextlib.contextmanager
def workers() -> Iterator[None]:
    """Rays that this process starts meanwhile get such workers, if there is a server."""
    import ray._private.parameter

    from tests.running.results import wait_for

    params: Any = ray._private.parameter.RayParams
    update = params.update_if_absent

    def with_warm_workers(given: Any, **values: Any) -> None:
        update(given, **values | ({"worker_path": __file__} if "worker_path" in values else {}))

    if ADDRESS in os.environ:
        wait_for(Path(os.environ[ADDRESS]).exists, "the process that forks workers")
        params.update_if_absent = with_warm_workers
    try:
        yield
    finally:
        params.update_if_absent = update


def asked_by() -> dict[int, int]:
    """The process that Ray started, of each worker that was forked in its place."""
    if ADDRESS not in os.environ:
        return {}
    notes = Path(os.environ[ADDRESS]).parent.glob("[0-9]*")
    return {int(note.name): int(note.read_text()) for note in notes}


def serve(address: str) -> None:
    """Forks a worker for each that Ray wants."""
    import gc
    import importlib

    for module in (*OF_RAY, "sklearn.linear_model", "harness.training.final", "harness.training.train"):
        importlib.import_module(module)
    gc.freeze()  # a worker's own imports take half as long if the collector does not look through all this
    assert "ray" not in sys.modules
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(64)
    os.rename(f"{address}.new", address)  # noqa: PTH104 - a socket
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    listener.settimeout(10)
    tests = os.getppid()
    while os.getppid() == tests:  # else they were killed
        try:
            asked, _ = listener.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become(asked, Path(address).parent)
        asked.close()


def ask() -> None:
    """As a worker that Ray starts: somebody else is to be it."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[ADDRESS])
        told = {"asking": os.getpid(), "path": sys.path[1:], "cwd": str(Path.cwd()), "words": sys.argv[1:]}
        message = json.dumps(told | {"environment": dict(os.environ)}).encode()
        socket.send_fds(server, [len(message).to_bytes(4, "big")], [0, 1, 2])
        server.sendall(message)
        server.recv(1)  # until the worker ends: whoever looks for Ray's processes finds this one in its place


def _become(asked: socket.socket, notes: Path) -> None:
    length, files, _, _ = socket.recv_fds(asked, 4, 3)
    missing, parts = int.from_bytes(length, "big"), list[bytes]()
    while missing:
        parts.append(asked.recv(missing))
        missing -= len(parts[-1])
    told = json.loads(b"".join(parts))
    note = notes / f".{os.getpid()}"
    note.write_text(str(told["asking"]))
    note.rename(notes / str(os.getpid()))  # only now: nobody may find it empty
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(told["cwd"])
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.path[1:] = told["path"]
    import gc
    import runpy

    gc.disable()  # while the rest is imported
    import ray

    from harness.running import worker

    gc.freeze()
    gc.enable()
    worker.CHECKPOINT_SECONDS = float(os.environ.get(CHECKPOINT_SECONDS, worker.CHECKPOINT_SECONDS))
    program = Path(ray.__file__).parent / "_private" / "workers" / "default_worker.py"
    sys.argv = [str(program), *told["words"]]
    runpy.run_path(str(program), run_name="__main__")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    ask() if len(sys.argv) > 2 else serve(sys.argv[1])
