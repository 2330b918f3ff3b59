"""MLflow's command line, with a server in this process: by itself it starts a second one, which imports all again.

The only place that touches a private name of MLflow's:

| name                     | for what                  |          | without it                                         |
| ------------------------ | ------------------------- | -------- | -------------------------------------------------- |
| mlflow.server._exec_cmd  | no second process         | optional | `harness ui` starts as MLflow does: 5.5 s, not 3.1 |
"""

import importlib
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def main() -> None:
    importlib.import_module("uvicorn")  # first: where MLflow sees no such module, it refuses no foreign hosts
    server: Any = importlib.import_module("mlflow.server")
    if hasattr(server, "_exec_cmd"):
        server._exec_cmd = _become
    importlib.import_module("mlflow.cli").cli(prog_name="mlflow")


def _become(command: Sequence[str], *, extra_env: Mapping[str, str], **_: Any) -> None:
    """What a child with this command line, `python -m module …`, and these variables would be."""
    module, *words = command[2:]
    os.environ.update(extra_env)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    main()
