"""The options of a run as flags of commands: names, types, defaults and help come from `RunOptions`."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from harness.options import RunOptions, flag_of, types_of
from harness.text.files import checked_path

Command = Callable[..., Any]


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, shown in the order given."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


class CheckedPath(click.Path):
    """A path that a file or folder could have: click itself would ask the system about any text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(checked_path(value, param.opts[-1] if param else "a path"), param, ctx)


class OnceCommand(click.Command):
    """A command that refuses an option with two values: click itself would take the last one without a word."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for param in order:
            with_value = isinstance(param, click.Option) and not param.is_flag and not param.multiple
            if with_value and order.count(param) > 1:
                raise click.UsageError(f"{param.opts[-1]} is given {order.count(param)} times; give it once", ctx)
        return super().parse_args(ctx, args)


def flags(*names: str) -> Callable[[Command], Command]:
    """The flags of these options. What their help says after a `;` of a flag that is not among them is left out."""
    return with_options(*(_flag(name, names) for name in names))


def _help(name: str, beside: Sequence[str]) -> str:
    first, *more = " ".join((RunOptions.model_fields[name].description or "").split()).rstrip(".").split("; ")
    known = {_words(each) for each in beside}
    return "; ".join([first, *(each for each in more if known.issuperset(re.findall(r"--[a-z-]+", each)))]) + "."


def _words(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _flag(name: str, beside: Sequence[str]) -> Callable[[Command], Command]:
    field, flag, types = RunOptions.model_fields[name], flag_of(name), types_of(name)
    words, help_text = _words(name), _help(name, beside)
    if bool in types:
        return click.option(words, name, is_flag=True, help=help_text)
    kinds = {int: click.INT, float: click.FLOAT, Path: CheckedPath(path_type=Path, file_okay=False)}
    kind = next((kinds[each] for each in types if each in kinds), click.STRING)
    # A tuple is written as a list, and an empty one is not shown.
    default = (",".join(map(str, field.default)) or None) if isinstance(field.default, tuple) else field.default
    return click.option(
        words,
        name,
        type=kind,
        default=default,
        show_default=default is not None,
        multiple=flag.multiple,
        envvar=flag.envvar,
        metavar=flag.metavar,
        help=help_text,
    )
