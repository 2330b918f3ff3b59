"""How the code is laid out, in numbers: to be read before and after a refactoring. Nothing is timed."""

import ast
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import harness

ROOT = Path(harness.__file__).parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def main() -> Iterator[str]:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in trees}
    folders = [path.parent for path in trees]
    widest = max(folders, key=folders.count)
    lengths = sorted(
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.name}")
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS)
    )
    (most, longest), largest = lengths[-1], max(lines, key=lambda path: lines[path])
    yield f"files: {len(trees)}, {sum(lines.values()) / 1000:.1f} kLOC; largest {_named(largest)}: {lines[largest]}"
    yield f"widest folder: {_named(widest)}, {folders.count(widest)} files"
    tenth = statistics.quantiles([length for length, _ in lengths], n=10)[-1]
    yield f"functions: {len(lengths)}, 90 % have at most {tenth:.0f} lines; longest {longest}: {most} lines"
    yield f"imports inside functions: {sum(len(_inner(tree)) for tree in trees.values())}"
    for rule, what in (("C901", "too complex"), ("PLR0913", "too many arguments"), ("SLF001", "private accesses")):
        hits = _hits(rule)
        yield f"{rule}, {what}: {len(hits)} in {len(set(hits))} files"


def _named(path: Path) -> str:
    return str(path.relative_to(ROOT.parent))


def _inner(tree: ast.AST) -> set[int]:
    """The lines of them."""
    inside = (node for function in ast.walk(tree) if isinstance(function, FUNCTIONS) for node in ast.walk(function))
    return {node.lineno for node in inside if isinstance(node, ast.Import | ast.ImportFrom)}


def _hits(rule: str) -> list[str]:
    """The file of each, as ruff finds them."""
    command = [sys.executable, "-m", "ruff", "check", "--select", rule, "--output-format", "json", str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [each["filename"] for each in json.loads(done.stdout)]
