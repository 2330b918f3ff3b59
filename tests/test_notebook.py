"""docs/python.md and docs/example.ipynb are run as a reader would run them, with fewer epochs."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
FEWER = re.compile(r"epochs=\d+")


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(encoding="utf-8"), flags=re.DOTALL)


def test_every_run_of_the_page_says_its_epochs() -> None:
    """Or the test below would train for as long as the space says."""
    calls = [call for block in blocks() for call in re.findall(r"harness\.run\(.*", block) if "gird" not in call]
    assert len(calls) == 2 and all(FEWER.search(call) for call in calls)


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    program = FEWER.sub("epochs=40", "\n".join(blocks()))
    check = "assert len(results.frame()) == 4 and set(other.trials().depth) == {0, 1, 2, 3, 4} and page.exists()\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{check}"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(DOCS.parent)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    headline, mistake = done.stdout.splitlines()  # the page prints two lines, the harness none
    assert headline.startswith("ldn needs") or "ldn" in headline
    assert mistake.startswith("unknown method 'gird' (did you mean 'grid'?)")


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    notebook = nbformat.read(DOCS / "example.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = FEWER.sub("epochs=40", cell.source)
    nbclient.NotebookClient(notebook, timeout=400, resources={"metadata": {"path": str(tmp_path)}}).execute()
    run, frame, verdicts, scatter, network, report = [cell for cell in notebook.cells if cell.cell_type == "code"]
    live, shown = _data(run)
    assert "grid/seed-1" in live["text/html"] and "complete" in live["text/html"], "the live table's last state"
    assert shown["text/html"].count("<tr") == 5 and shown["text/plain"].startswith("<Results of quickstart")
    assert "test_accuracy" in _data(frame)[0]["text/html"]
    assert "margin" in _data(verdicts)[0]["text/html"]
    assert all("image/png" in _data(cell)[-1] for cell in (scatter, network))
    assert "report.html" in _data(report)[0]["text/plain"]
    assert not [output for cell in notebook.cells for output in cell.get("outputs", []) if "name" in output], "printed"


def _data(cell: Any) -> list[Any]:
    """What a cell displays, in order; not what it prints."""
    return [output.data for output in cell.outputs if "data" in output]
