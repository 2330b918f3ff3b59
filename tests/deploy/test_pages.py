"""The pages on clusters: what they tell to type is run by a test, or is named at the top among what was not tried."""

import re
import shlex
from pathlib import Path

import pytest

from tests.test_documents import ROOT

PAGES = sorted((ROOT / "docs" / "cluster").glob("*.md"))
TESTS = [ROOT / "tests" / "cluster" / name for name in ("test_ray_up.py", "test_first_job.py", "test_doctor.py")]
TESTS += [ROOT / "tests" / "deploy" / "test_stack.py", *(ROOT / "tests" / "running").glob("test_*.py")]
FROM_PYTHON = {"harness pull": "api.pull("}
SHELL = {"export", "tail"}  # of the shell itself


def commands(page: str) -> list[str]:
    """Of `sh` blocks, and after a `$` in `console` blocks; as `program subcommand`."""
    found = []
    for language, block in re.findall(r"^ *```(sh|console)\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            if language == "sh" or line.strip().startswith("$ "):
                words = shlex.split(line.strip().removeprefix("$ "), comments=True)
                words = [word for word in words if not re.match(r"[A-Z]\w*=", word)]  # settings before a command
                found += [" ".join(words[:2])] if words else []
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_says_what_was_tried_and_runs_nothing_else(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    top = page.partition("\n## ")[0]
    assert "**What has been tried.**" in top and "**Not tried:**" in top
    not_tried = top.partition("**Not tried:**")[2]
    run = re.sub(r"[\"',\s]+", " ", "".join(test.read_text(encoding="utf-8") for test in TESTS))
    asked = commands(page)
    assert asked
    for command in asked:
        program = command.split()[0]
        tested = FROM_PYTHON.get(command, command) in run
        assert program in SHELL or tested or f"`{program}`" in not_tried or f"`{command}`" in not_tried, (
            f"{path.name}: no test runs `{command}`, and it is not among what was not tried"
        )


def test_the_page_that_chooses_leads_to_each() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    assert all(f"(cluster/{path.name})" in page for path in PAGES)
    for place in ("SkyPilot", "Anyscale"):
        assert page.partition(f"## {place}")[2].partition("\n## ")[0].rstrip().endswith("Not tried.")
