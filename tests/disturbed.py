"""The command line with a fault inside: DRILL_FAULT says which call of what does not return. For tests/drill.py."""

import errno
import os
import signal
import sys
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


def install(kind: str, number: int, after: bool) -> None:
    match kind:
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
