"""Which kind of progress a run from Python shows, and the table of a notebook."""

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.running.side_by_side import SideBySide
from harness.terminal import notebook
from harness.terminal.notebook import as_html, in_notebook, notebook_table
from harness.terminal.progress import shown
from tests.rehearsed import make_unit, run
from tests.terminal.test_live_table import together


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A notebook's kernel; gives what its output shows, one item for each time it changes."""
    outputs: list[str] = []

    def display(html: Any, display_id: bool) -> Any:
        assert display_id
        outputs.append(html)
        return SimpleNamespace(update=outputs.append)

    fake = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display, HTML=str))
    return outputs


def test_progress_is_shown_where_it_is_wanted(kernel: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(False) is None
    assert shown(None) is shown(True) is notebook_table
    terminal = SimpleNamespace(get_ipython=lambda: SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", terminal)
    assert not in_notebook()
    assert shown(None) is None and callable(shown(True)), "stderr of a test is no terminal"
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook() and shown(None) is None


def test_a_plain_script_shows_progress_on_stderr_where_that_is_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not in_notebook()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show = shown(None)
    assert show is not None and shown(False) is None
    units = together(run(tmp_path, "grid"))
    with show(units) as refresh:
        refresh()
    printed = capsys.readouterr()
    assert "grid/seed-0" in printed.err and printed.out == "", "stdout is the script's"


def test_a_notebook_has_one_output_that_changes(
    tmp_path: Path, kernel: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    units: SideBySide = together(run(tmp_path, "grid"), make_unit(tmp_path, "ldn"))
    with notebook_table(units) as refresh:
        refresh()
        assert len(kernel) == 1, "not more often than once in SECONDS_BETWEEN"
        monkeypatch.setattr(notebook, "SECONDS_BETWEEN", 0.0)
        refresh()
        assert len(kernel) == 2
    assert len(kernel) == 3, "the last state stays"
    assert kernel[-1].count("<tr>") == 3 and "<td>grid/seed-0</td><td>7/7</td>" in kernel[-1]


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    unit = make_unit(tmp_path, "ldn")
    unit.key = "<b>ldn"
    assert "&lt;b&gt;ldn" in as_html(together(unit), time.monotonic())
