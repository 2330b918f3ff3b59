"""The one class that a Python file defines: a method's or a network's, ours or a user's own."""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

from harness.errors import UserError, blaming

AnyClass = TypeVar("AnyClass")


def only_class_in(
    module: ModuleType, base: type[AnyClass], source: str, check: Callable[[type[AnyClass], str], None]
) -> type[AnyClass]:
    """Its only subclass of `base`, which must be complete; `check` raises UserError for what else is wrong with it."""
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, base) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        names = ", ".join(sorted(each.__name__ for each in found)) or "none"
        raise UserError(f"{source} must define exactly one subclass of {base.__name__}; found {names}")
    [only] = found
    with blaming(f"{source}: {only.__name__} cannot be checked", only):
        check(only, source)
    if inspect.isabstract(only):
        raise UserError(f"{source}: {only.__name__} does not define {_missing(only)}")
    return only


def _missing(abstract: type) -> str:
    """The abstract methods that it leaves open, with their arguments."""
    names = sorted(getattr(abstract, "__abstractmethods__", ()))
    arguments = {name: list(inspect.signature(getattr(abstract, name)).parameters)[1:] for name in names}
    return " and ".join(f"{name}({', '.join(arguments[name])})" for name in names)
