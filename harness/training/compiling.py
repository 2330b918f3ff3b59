"""Networks through torch.compile: compiling is a phase of its own, and a network that runs without says so."""

import contextlib
import os
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from harness.errors import UserError
from harness.networks.base import Backbone
from harness.text.shown import one_line
from harness.training.cost import PhaseTimer

PRIVATE_NAMES = ("_compiled_call_impl", "_call_impl")  # of torch.nn.Module
PRIVATE_MODULES = ("torch._dynamo", "torch._functorch", "torch._inductor")
GRAPHS_PER_DEPTH = 8  # of training and validation, with batches of the usual size and of any other, and to spare
BACKEND = "inductor"  # torch's own, which makes machine code


def check_compiler(on_gpu: bool) -> None:
    """Raises UserError where this machine cannot compile: torch makes C++ for processors, Triton C for GPUs."""
    missing = [f"torch.nn.Module.{name}" for name in PRIVATE_NAMES if not hasattr(torch.nn.Module, name)]
    missing += [module for module in PRIVATE_MODULES if find_spec(module) is None]
    if missing:
        raise UserError(
            f"training.compile needs {', '.join(missing)}, which torch {torch.__version__} does not have; install the "
            "torch of constraints.txt, or set training.compile to false"
        )
    variable, usual = ("CC", ("gcc", "clang")) if on_gpu else ("CXX", ("g++",))
    given = os.environ.get(variable)
    names = (given,) if given else usual
    remedy = f"name yours in {variable}, or set training.compile to false"
    if not any(shutil.which(name) for name in names):
        raise UserError(
            f"training.compile needs a {'C' if on_gpu else 'C++'} compiler, and this machine has no "
            f"{' or '.join(names)}; install one (Debian and Ubuntu: apt install g++), {remedy}"
        )
    if not (headers := Path(sysconfig.get_path("include"), "Python.h")).is_file():
        raise UserError(
            f"training.compile needs Python's headers, and there is no {headers}; install them (Debian and Ubuntu: "
            "apt install python3-dev), or set training.compile to false"
        )


def load_compiler() -> None:
    """Torch's compiler is large: its import belongs to the start of a worker."""
    import torch._dynamo
    import torch._inductor.compile_fx  # noqa: F401


@dataclass
class Compilation:
    """What became of it."""

    failure: str = ""  # why the network runs without; empty: it does not, or nobody asked for it


@contextlib.contextmanager
def compiled(backbone: Backbone, timer: PhaseTimer, asked: bool) -> Iterator[Compilation]:
    """Inside the block the backbone runs as one compiled graph for each way it is called, if that was `asked` for.

    Every trial begins with an empty compiler: what other trials of the worker compiled does not count towards its
    limits. It compiles on the trial's own thread, since that is what the trial pays for. Torch keeps machine code on
    the node's disk, so the first trial of a network pays most: compare with and without the phase.
    """
    outcome = Compilation()
    if not asked:
        yield outcome
        return
    check_compiler(on_gpu=next(backbone.parameters()).device.type != "cpu")
    with timer.phase("compile"):
        load_compiler()
        from torch._dynamo import config, reset
        from torch._dynamo.callback import callback_handler
        from torch._functorch import config as gradients
        from torch._inductor import config as inductor

        reset()
    graphs = GRAPHS_PER_DEPTH * (len(backbone.blocks) + 1)
    phases = contextlib.ExitStack()
    with (
        # Depths are asked for by number. Taken for variables, as torch would from the second number on, they are not
        # found again where the network looks for them, and other depths than those are trained.
        config.patch(recompile_limit=graphs, accumulated_recompile_limit=graphs, specialize_int=True),
        # Left for later, a backward pass that cannot be compiled would end the trial: its forward pass had gone well.
        gradients.patch(force_non_lazy_backward_lowering=True),
        inductor.patch(compile_threads=1),
    ):
        callback_handler.register_start_callback(lambda _: phases.enter_context(timer.phase("compile")))
        callback_handler.register_end_callback(lambda _: phases.close())
        backbone._compiled_call_impl = _OrEager(backbone, outcome)
        try:
            yield outcome
        finally:
            backbone._compiled_call_impl = None
            reset()


class _OrEager:
    """Calls the compiled network; where the compiler gives up, notes why and calls the network itself from then on."""

    def __init__(self, backbone: Backbone, outcome: Compilation) -> None:
        self._backbone, self._outcome = backbone, outcome
        # One graph: else parts that cannot be compiled would run without, and nobody would hear of it.
        self._compiled = torch.compile(backbone._call_impl, fullgraph=True, backend=BACKEND)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

        try:
            return self._compiled(*args, **kwargs)
        except (TorchDynamoException, FailOnRecompileLimitHit) as error:
            self._outcome.failure = one_line(f"{type(error).__name__}: {error}", longest=300)
            self._backbone._compiled_call_impl = None
            return self._backbone(*args, **kwargs)
