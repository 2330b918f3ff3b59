"""What `make docs` writes into pages where a comment asks for it: `<!-- columns -->` becomes a table.

Nothing of this is kept in a file, so it cannot be out of date: columns come from harness/measures.py, commands and
options from the command line itself.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import click

from harness.cli import commands
from harness.measures import QUALITIES, Measure
from harness.reporting.frames import MEASURES

API = "reference/api.html"
_MARKER = re.compile(r"^<!-- (columns|command line) -->$", re.MULTILINE)
_PARAMETER = re.compile(r"(\n|<p>)([a-z_]+): ")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this for every page, before it is made HTML."""
    return _MARKER.sub(lambda marker: "\n".join(GENERATED[marker[1]]()), markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """And this after: a docstring's lines `name: what it is` stay lines of their own."""
    return _PARAMETER.sub(r"\1<br><code>\2</code>: ", html) if page.url == API else html


def columns() -> Iterator[str]:
    """Every column of `results.frame()` that is a measure."""
    yield from ("| column | in tables | unit | better | what it is |", "| --- | --- | --- | --- | --- |")
    yield from map(_row_of, MEASURES.values())
    for quality in QUALITIES:
        says = f"The same measure on the validation set: {quality.title} of the network that was chosen."
        yield f"| `val_{quality.field}` | – | {quality.unit or '–'} | {quality.better or '–'} | {says} |"


def _row_of(measure: Measure) -> str:
    judged = ", judged" if measure.margin else ""
    better = f"{measure.better}{judged}" if measure.better else "–"
    return f"| `{measure.key}` | {measure.title} | {measure.unit or '–'} | {better} | {_cell(measure.says)} |"


def command_line() -> Iterator[str]:
    """Every command with its arguments and options, as `harness COMMAND --help` has them."""
    for name, command in commands.commands.items():
        with click.Context(command, info_name=f"harness {name}") as context:
            options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
            yield from (f"## harness {name}", "", "```text", command.get_usage(context).removeprefix("Usage: "), "```")
            yield from ("", *_paragraphs(command.help), *_paragraphs(command.epilog))
            if options:
                yield from ("| option | default | what it does |", "| --- | --- | --- |")
                yield from (_option_row(option, context) for option in options)
            yield ""


def _paragraphs(text: str | None) -> Iterator[str]:
    """What click keeps as it is, after a `\\b`, is a block of code."""
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        kept = paragraph.startswith("\b")
        yield f"```text\n{inspect.cleandoc(paragraph[1:])}\n```\n" if kept else f"{paragraph}\n"


def _option_row(option: click.Option, context: click.Context) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    default, said = option.get_default(context), _cell(option.help or "")
    known = option.show_default and default is not None and not option.is_flag
    from_shell = f" Also from `{option.envvar}`." if option.envvar else ""
    return f"| `{', '.join(option.opts)}{value}` | {f'`{default}`' if known else '–'} | {said}{from_shell} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


GENERATED: dict[str, Callable[[], Iterator[str]]] = {"columns": columns, "command line": command_line}
