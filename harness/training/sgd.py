"""Stochastic gradient descent as torch has it, without torch's compiler.

An optimiser imports the compiler, only to tell it to stay away: more than a second of each worker's start, for
something that is never used unless a space asks for it.
"""

import inspect
from typing import Any

import torch


def _plain(name: str) -> Any:
    """A method of torch's, as it is below the decorators that speak to the compiler."""
    return inspect.unwrap(getattr(torch.optim.SGD, name))


class SGD(torch.optim.SGD):
    """To the bit `torch.optim.SGD`: its own methods do the work."""

    add_param_group = _plain("add_param_group")
    zero_grad = _plain("zero_grad")
    step = torch.no_grad()(_plain("step"))
