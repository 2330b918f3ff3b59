"""Puts the answer of `make compare` into the README, word for word as it is printed.

`python docs/tools/collect_readme.py RESULTS` reads the records that `make compare` left in the folder RESULTS and keeps
their comparison in docs/tools/first_run.json. Without RESULTS the comparison that is kept is printed again.
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console

import harness
from harness.comparing.render import verdict
from harness.comparing.values import Comparison

ROOT = Path(__file__).parents[2]
README, KEPT = ROOT / "README.md", Path(__file__).with_name("first_run.json")
BLOCK = re.compile(r"(<!-- first run -->\n).*?(<!-- end of first run -->)", re.DOTALL)
WIDTH = 100
LAST = "│ Below each verdict"  # how to read the table: the page on verdicts has it


def main(folders: list[str]) -> None:
    for folder in folders:
        KEPT.write_text(kept(harness.load_results(space(), folder).comparison), encoding="utf-8")
    README.write_text(BLOCK.sub(rf"\1{block(first_run())}\2", README.read_text(encoding="utf-8")), encoding="utf-8")


def space() -> str:
    """That `make compare` runs, as the Makefile says."""
    return _of_makefile("SPACE")


def methods() -> list[str]:
    return _of_makefile("COMPARED").split(",")


def _of_makefile(name: str) -> str:
    found = re.search(rf"^{name} := (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"the Makefile has no {name}"
    return found[1]


def kept(comparison: Comparison) -> str:
    """What is printed, and what that follows from; the rest only takes room."""
    none: dict[str, object] = dict.fromkeys(("equal_quality", "wall_clock", "phases", "depth_checks", "classes"), ())
    return comparison.model_copy(update={**none, "notes": (), "checklist": ()}).model_dump_json() + "\n"


def first_run() -> Comparison:
    return Comparison.model_validate_json(KEPT.read_text(encoding="utf-8"))


def block(comparison: Comparison) -> str:
    console = Console(width=WIDTH, file=io.StringIO(), record=True)
    console.print(verdict(comparison))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    end = next(place for place, line in enumerate(lines) if line.startswith(LAST))
    shown = [line.removeprefix("│ ").removesuffix("│").rstrip() for line in lines[1 : end - 1]]
    return "\n".join(["```text", *(line.removeprefix("│") for line in shown), "```", ""])


if __name__ == "__main__":
    main(sys.argv[1:])
