"""The command line with a fault inside: DRILL_FAULT says which call of what does not return. For tests/drill.py."""

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def at_call(number: int, fault: Callable[[], None], function: Callable[..., Any], after: bool) -> Callable[..., Any]:
    """`function`, with the fault before or after its call of this number."""
    calls = 0

    def disturbed(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and not after:
            fault()
        result = function(*args, **kwargs)
        if calls == number and after:
            fault()
        return result

    return disturbed


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "results")


def from_call(number: int, function: Callable[..., Any], error: Callable[[], Exception]) -> Callable[..., Any]:
    """`function`, which fails from its call of this number on."""
    calls = 0

    def disturbed(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= number:
            raise error()
        return function(*args, **kwargs)

    return disturbed


def step_clock(seconds: float, number: int, after: bool) -> None:
    """From the start, or at the call of this number that writes something down."""
    offset, clock = 0.0 if after else seconds, time.time

    def step() -> None:
        nonlocal offset
        offset = seconds

    time.time = lambda: clock() + offset
    os.fsync = at_call(number, step, os.fsync, after)


def install(kind: str, number: int, after: bool) -> None:
    match kind:
        case "clock back" | "clock forward":
            step_clock(-3600.0 if kind == "clock back" else 3600.0, number, after)
        case "mlflow away":
            from mlflow import MlflowClient

            for name in ("log_batch", "create_run", "log_artifact", "search_runs"):
                away = from_call(number, getattr(MlflowClient, name), lambda: ConnectionError("nobody answers"))
                setattr(MlflowClient, name, away)
        case "sqlite read-only":
            from sqlalchemy import event
            from sqlalchemy.engine import Engine

            event.listen(Engine, "connect", lambda connection, _: connection.execute("PRAGMA query_only=ON"))
        case "rename":
            Path.replace = at_call(number, die, Path.replace, after)  # type: ignore[method-assign]
        case "mlflow":
            from mlflow import MlflowClient

            for name in ("log_batch", "create_run", "log_artifact"):
                setattr(MlflowClient, name, at_call(number, die, getattr(MlflowClient, name), after))
        case "full disk":
            os.fsync = at_call(number, full, os.fsync, after)
        case _:
            raise ValueError(kind)


def main(words: list[str]) -> None:
    if fault := os.environ.pop("DRILL_FAULT", ""):
        kind, number, after = fault.split(":")
        install(kind, int(number), after == "after")
    from harness import cli

    cli.main(words)


if __name__ == "__main__":
    main(sys.argv[1:])
