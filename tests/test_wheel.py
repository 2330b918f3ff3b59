"""The wheel, installed into an environment of its own and used outside the clone."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.test_notebook import FEWER, QUICK

CLONE = Path(__file__).parent.parent


def _run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that holds the wheel and nothing else.

    The wheel's dependencies are lent to it by the interpreter that runs the tests: a line in a .pth file puts its
    packages behind the environment's own, and leaves out the clone that it may have installed as editable.
    """
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, cwd=CLONE)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env/bin/python"
    (site,) = (folder / "env/lib").glob("python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    options = ("--no-deps", "--no-index", "--quiet", "--disable-pip-version-check")
    _run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, cwd=folder)
    return python.parent


@pytest.mark.slow
def test_the_wheel_works_outside_the_clone(installed: Path, tmp_path: Path) -> None:
    where = _run(installed / "python", "-c", "import harness; print(harness.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    listed = _run(installed / "harness", "list", cwd=tmp_path)
    shipped = sorted(path.stem for path in (CLONE / "search_spaces").glob("*.yaml"))
    assert [name for name in shipped if name not in listed.split()] == []

    replayed = _run(
        installed / "harness", "replay", "quickstart", "--search-seeds", "1", "--format", "md", cwd=tmp_path
    )
    assert "Recordings: the table that ships with the harness" in replayed and "| grid | replayed |" in replayed

    options = ("--method", "ldn", "--set", "training.max_epochs=40")
    record = json.loads(_run(installed / "harness", "trial", "quickstart", *options, "--json", cwd=tmp_path))["record"]
    assert record["cost"]["epochs"] == 40 and record["status"] == "finished"
    assert record["environment"]["code"] == record["environment"]["harness"], "a wheel has a version, not a commit"
    assert list(tmp_path.iterdir()) == [], "nothing is left behind in the working folder"


NOTEBOOK = """
import nbclient, nbformat
notebook = nbformat.read("example.ipynb", as_version=4)
notebook.cells.append(nbformat.v4.new_code_cell("harness.__file__"))
nbclient.NotebookClient(notebook, timeout=280).execute()
nbformat.write(notebook, "executed.ipynb")
"""


@pytest.mark.slow
def test_the_notebook_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    source = (CLONE / "docs" / "examples" / "example.ipynb").read_text(encoding="utf-8")
    (tmp_path / "example.ipynb").write_text(FEWER.sub(QUICK, source), encoding="utf-8")
    _run(installed / "python", "-c", NOTEBOOK, cwd=tmp_path)
    cells = [cell for cell in nbformat.read(tmp_path / "executed.ipynb", 4).cells if cell.cell_type == "code"]
    run, frame, verdicts, scatter, network, report, where = cells
    [file] = _data(where)
    assert Path(file["text/plain"].strip("'")).is_relative_to(installed.parent), "the kernel used another harness"
    assert (tmp_path / "results" / "quickstart" / "report.html").exists()
    live, shown = _data(run)
    assert "grid/seed-1" in live["text/html"] and "complete" in live["text/html"], "the live table's last state"
    assert shown["text/html"].count("<tr") == 5 and shown["text/plain"].startswith("<Results of quickstart")
    assert "test_accuracy" in _data(frame)[0]["text/html"]
    assert "margin" in _data(verdicts)[0]["text/html"]
    assert all("image/png" in _data(cell)[-1] for cell in (scatter, network))
    assert "report.html" in _data(report)[0]["text/plain"]
    assert not [output for cell in cells for output in cell.outputs if "name" in output], "printed"


def _data(cell: Any) -> list[Any]:
    """What a cell displays, in order; not what it prints."""
    return [output.data for output in cell.outputs if "data" in output]
