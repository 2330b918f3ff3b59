"""Processes that have nothing to import: they are forked from one that has imported torch, Ray, MLflow and the harness.

That takes longer than most of what tests watch a process do, or are about to do to it. No Ray has run in such a process
before. A person starts `harness` as a program; so do `make drill` and the tests of its first seconds.
"""

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.running.stopping import SIGNALS
from tests import warm

ROOT = Path(__file__).parent.parent
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "harness.cli",
        "harness.running.runner",
        "harness.tracking.writer",
        "harness.reporting.html",
        "harness.studies.run",
    ]
)


class Forked:
    """A call in a process and a session of its own; what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        call: Callable[..., None],
        *arguments: Any,
        env: Mapping[str, str],
        cwd: Path = ROOT,
        stdout: Path = Path(os.devnull),
        stderr: Path = Path(os.devnull),
        warm_workers: bool = True,  # of the Rays that it starts, where there is a server for them
    ) -> None:
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **env}
        if not warm_workers:
            variables.pop(warm.ADDRESS, None)
        self._process = _SERVER.Process(target=_become, args=(variables, cwd, (stdout, stderr), call, arguments))
        self._process.start()
        assert self._process.pid
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        self._process.join(0)
        return self.returncode

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self.returncode

    def send_signal(self, how: int) -> None:
        """Nothing where it has ended meanwhile: the caller sees that by its exit code."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)

    def kill(self) -> None:
        if self.poll() is None:
            self.send_signal(signal.SIGKILL)


def harness(*words: str, **how: Any) -> Forked:
    """The command line."""
    return Forked(_command, words, **how)


def _command(words: tuple[str, ...]) -> None:
    from harness.cli import main

    sys.argv = ["harness", *words]
    main()


def _become(
    env: dict[str, str], cwd: Path, prints: tuple[Path, Path], call: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    gc.freeze()  # what was imported need not be looked through again
    os.setsid()
    for how in SIGNALS:
        signal.signal(how, signal.default_int_handler if how == signal.SIGINT else signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, file in enumerate(prints, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    with warm.workers():
        call(*arguments)
