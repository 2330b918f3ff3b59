"""Checks what the documents say against the repository: `python docs/tools/check_documents.py [FILE.md]...`.

Without a file it checks all of them.

Links, anchors and images exist; `harness` commands parse with the real command line, and the spaces, studies and
methods they name load; `make` targets exist; Python blocks compile; paths in backticks exist. Nothing is run.
"""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click
from markdown_it import MarkdownIt
from markdown_it.token import Token

from harness.cli import commands
from harness.errors import UserError, nearest
from harness.methods import parse_methods
from harness.spaces import load_space
from harness.studies.definition import load_study

ROOT = Path(__file__).resolve().parent.parent.parent
# It tells of earlier versions: only its links must still hold.
HISTORY = (ROOT / "CHANGELOG.md",)
SHELL_OPERATORS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<"})
_PATH = re.compile(r"[\w.-]+/[\w./-]*")
_PLACEHOLDER = re.compile(r"<[^>]*>|…|\b[A-Z]{2,}\b")  # <bucket>, …, NAME: the reader puts in something else


@dataclass(frozen=True)
class Code:
    """A fenced block (with its language) or a piece of text in backticks (language None)."""

    text: str
    line: int  # of its first line of text
    language: str | None = None


@dataclass(frozen=True)
class Document:
    path: Path
    blocks: tuple[Code, ...]
    spans: tuple[Code, ...]
    links: tuple[tuple[str, int], ...]
    anchors: frozenset[str]


Problem = tuple[int, str]  # line, sentence


def main(names: Sequence[str]) -> int:
    """Prints one line per problem; the exit code."""
    found = 0
    for path in [Path(name).resolve() for name in names] or _all_documents():
        document = read(path)
        checks = (link_problems,) if path in HISTORY else CHECKS
        for line, sentence in sorted({problem for check in checks for problem in check(document)}):
            shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            click.echo(f"{shown}:{line}: {sentence}")
            found += 1
    return 1 if found else 0


def _all_documents() -> list[Path]:
    """Every Markdown file that git knows or would add."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [ROOT / name for name in sorted(names) if name and (ROOT / name).exists()]


# --- reading ------------------------------------------------------------------------------------------------------


@cache
def read(path: Path) -> Document:
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))
    blocks = [
        Code(token.content, token.map[0] + 2, token.info.strip())
        for token in tokens
        if token.type == "fence" and token.map
    ]
    inline = [(token, line) for parent in tokens for token, line in _with_lines(parent)]
    spans = [Code(token.content, line) for token, line in inline if token.type == "code_inline"]
    links = [
        (str(target), line)
        for token, line in inline
        if (target := token.attrs.get({"link_open": "href", "image": "src"}.get(token.type, "")))
    ]
    return Document(path, tuple(blocks), tuple(spans), tuple(links), _anchors(tokens))


def _with_lines(parent: Token) -> Iterator[tuple[Token, int]]:
    """The inline tokens of a paragraph, heading or table cell, each with its line."""
    line = parent.map[0] + 1 if parent.map else 0
    for token in parent.children or ():
        yield token, line
        line += token.type in {"softbreak", "hardbreak"}


def _anchors(tokens: Sequence[Token]) -> frozenset[str]:
    """The anchors that GitHub gives the headings; a repeated one gets a number."""
    slugs: list[str] = []
    for before, token in pairwise(tokens):
        if before.type == "heading_open":
            text = "".join(child.content for child in token.children or ())
            slugs.append(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"))
    repeats = [slugs[:number].count(slug) for number, slug in enumerate(slugs)]
    return frozenset(f"{slug}-{n}" if n else slug for slug, n in zip(slugs, repeats, strict=True))


# --- checks -------------------------------------------------------------------------------------------------------


def link_problems(document: Document) -> Iterator[Problem]:
    for target, line in document.links:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue  # the web: not asked
        linked = (document.path.parent / unquote(parts.path)).resolve() if parts.path else document.path
        if not linked.exists():
            yield line, f"the link leads to {target}, which does not exist"
        elif parts.fragment and linked.suffix == ".md" and unquote(parts.fragment) not in read(linked).anchors:
            yield line, f"the link leads to {target}, but {linked.name} has no such heading"


def command_problems(document: Document) -> Iterator[Problem]:
    for text, line in _shell_lines(document):
        shown = text.partition(" #")[0].strip()
        for words in _commands_in(text, "harness"):
            yield from ((line, f"`{shown}`: {problem}") for problem in harness_problems(words))
        for words in _commands_in(text, "make"):
            targets = [word for word in words if not word.startswith("-") and "=" not in word]
            yield from (
                (line, f"`{shown}`: the Makefile has no target {target!r}")
                for target in targets
                if target not in _make_targets()
            )
    for span in document.spans:  # a command may be named without its arguments
        if span.text.startswith("harness "):
            problems = harness_problems(shlex.split(span.text)[1:], may_be_incomplete=True)
            yield from ((span.line, f"`{span.text}`: {problem}") for problem in problems)
        if (named := re.fullmatch(r"make ([a-z-]+)", span.text)) and named[1] not in _make_targets():
            yield span.line, f"`{span.text}`: the Makefile has no target {named[1]!r}"


def python_problems(document: Document) -> Iterator[Problem]:
    for block in document.blocks:
        if block.language == "python":
            try:
                compile(block.text, str(document.path), "exec")
            except SyntaxError as error:
                yield block.line + (error.lineno or 1) - 1, f"this Python does not compile: {error.msg}"


def path_problems(document: Document) -> Iterator[Problem]:
    """A path is one when its first folder is a folder of the repository or of the package."""
    for span in document.spans:
        if not _PATH.fullmatch(span.text):
            continue
        bases = [base for base in (ROOT, ROOT / "harness") if (base / span.text.split("/")[0]).is_dir()]
        if bases and not any((base / span.text).exists() for base in bases):
            yield span.line, f"`{span.text}` does not exist"


CHECKS: tuple[Callable[[Document], Iterator[Problem]], ...] = (
    link_problems,
    command_problems,
    python_problems,
    path_problems,
)


# --- commands -----------------------------------------------------------------------------------------------------


def _shell_lines(document: Document) -> Iterator[tuple[str, int]]:
    """The commands of `sh` blocks, and those after a `$` in `console` blocks; continued lines are joined."""
    for block in document.blocks:
        if block.language not in {"sh", "console"}:
            continue
        text, first = "", 0
        for number, line in enumerate(block.text.splitlines(), start=block.line):
            begins = block.language == "sh" or line.strip().startswith("$ ")
            if not text and not begins:
                continue  # what a command printed
            first = first if text else number
            text += line.strip().removeprefix("$ ")
            if text.endswith("\\"):
                text = text[:-1]
            else:
                yield text, first
                text = ""


def _commands_in(text: str, program: str) -> Iterator[list[str]]:
    """The arguments of each call of the program, also as what `ray job submit` or `ray exec` is to run."""
    if program not in text:
        return
    try:
        words = shlex.split(text, comments=True)
    except ValueError:  # a quote that goes on in the next line: not a command of ours
        return
    for number, word in enumerate(words):
        if word == program and (number == 0 or words[number - 1] in SHELL_OPERATORS | {"--"} or "=" in words[0]):
            rest = words[number + 1 :]
            end = next((i for i, each in enumerate(rest) if each in SHELL_OPERATORS), len(rest))
            yield rest[:end]
        elif word.startswith(f"{program} "):
            yield shlex.split(word)[1:]


def harness_problems(words: Sequence[str], may_be_incomplete: bool = False) -> Iterator[str]:
    """What the command line has against these arguments; no command is run."""
    name, *rest = [word for word in words if word != "--debug"] or ["--help"]  # --debug may stand anywhere
    if name in {"-h", "--help", "--version"}:
        return
    if name not in commands.commands:
        yield f"there is no command {name!r} ({nearest(name, commands.commands)})"
        return
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # --help prints
            context = commands.commands[name].make_context(name, rest)
        with context:
            yield from _name_problems(context)
    except click.exceptions.Exit:  # --help
        return
    except click.MissingParameter as error:
        if not may_be_incomplete:
            yield error.format_message()
    except click.ClickException as error:
        yield error.format_message()


def _name_problems(context: click.Context) -> Iterator[str]:
    """The spaces, studies and methods that are named must load, with the settings that the command changes."""
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        for name in value if isinstance(value, tuple) else (value,):
            if isinstance(name, str) and not _PLACEHOLDER.search(name):
                try:
                    _load(parameter, name, context.params)
                except UserError as error:
                    yield str(error)


def _load(parameter: click.Parameter, name: str, given: Mapping[str, Any]) -> None:
    """Raises UserError when there is no such thing. A file is left alone: the reader writes it."""
    what = (parameter.metavar or "").strip("[].")
    if what == "SPACE" and not name.endswith((".yaml", ".yml", ".json.gz")):
        load_space(name, given.get("set") or ())
    elif what == "STUDY":
        load_study(name, given["scale"], given["vary"], given["set"])
    elif what == "METHOD" or "--methods" in parameter.opts:
        for method in name.split(","):
            if ".py" not in method:
                parse_methods(method)


@cache
def _make_targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
