"""The live table and the plain lines, drawn from units at every stage."""

import io
import signal
import time
from pathlib import Path

import pytest
from rich.console import Console

from harness.replaying.rehearsal import rehearse, unimodal
from harness.running.replay import unused_experiment
from harness.running.side_by_side import SideBySide
from harness.running.stopping import STOPPING
from harness.running.unit import RunningUnit
from harness.terminal.live_table import AROUND, HINT, live_table, summary, table
from tests.rehearsed import make_unit, run
from tests.running.results import wait_for


def together(*units: RunningUnit) -> SideBySide:
    return SideBySide(units, 2, 0, None, None, lambda unit: None)


def drawn(*units: RunningUnit) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(table(together(*units), rows=20))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def row(text: str, key: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(key)).split()


def test_a_row_for_every_unit_whatever_its_state(tmp_path: Path) -> None:
    waiting, done = make_unit(tmp_path, "ldn"), run(tmp_path, "grid")
    searching = run(tmp_path, "golden_section", max_steps=9)
    broken = make_unit(tmp_path, "asha")
    broken.failure = "no trial is left"
    text = drawn(waiting, searching, done, broken)
    assert row(text, "ldn/seed-0") == ["ldn/seed-0", "0/1", "0.0", "waiting"]
    _, trials, running, _, best, depth, state = row(text, "golden_section/seed-0")
    assert (trials, running, depth, state) == ("1/4", "1", "2", "searching")
    assert best == f"{unimodal(2, 50):.4f}"
    assert row(text, "grid/seed-0")[1] == "7/7" and row(text, "grid/seed-0")[-2:] == ["5", "complete"]
    assert row(text, "asha/seed-0")[-1] == "failed"


def test_a_trial_that_waits_for_a_worker_does_not_run(tmp_path: Path) -> None:
    unit = make_unit(tmp_path, "grid")
    made = SideBySide([unit], 2, 2, None, None, lambda unit: None)
    made.prepare(unused_experiment(str(tmp_path / "ray")))
    first, *waiting = iter(made.next_trial, None)
    assert first is not None and len(waiting) == 3
    assert row(drawn(unit), "grid/seed-0") == ["grid/seed-0", "0/7", "0.0", "searching"]
    made.on_start(first.trial_id)
    assert row(drawn(unit), "grid/seed-0") == ["grid/seed-0", "0/7", "1", "0.0", "searching"]


def test_more_units_than_lines_show_those_at_work_and_count_the_rest(tmp_path: Path) -> None:
    done = [run(tmp_path, "ldn", seed=seed) for seed in range(3)]
    waiting = [make_unit(tmp_path, "ldn", seed=seed) for seed in range(3, 9)]
    at_work = run(tmp_path, "golden_section", max_steps=9)
    made = together(*done, at_work, *waiting)
    console = Console(file=io.StringIO(), width=100, height=3 + AROUND, force_terminal=True)
    with live_table(made, console) as refresh:
        refresh()
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "golden_section/seed-0" in text and "and 1 complete, 6 waiting" in text and HINT in text
    assert "…" not in text  # what Live puts in place of lines that do not fit


def test_a_stop_is_told_at_once_and_the_table_stays(tmp_path: Path) -> None:
    """Also while the run is too busy to draw: Live asks by itself."""
    made = together(run(tmp_path, "golden_section", max_steps=9))
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    assert isinstance(console.file, io.StringIO)
    with live_table(made, console):
        made.stop.ask(signal.SIGINT)
        wait_for(lambda: STOPPING in console.file.getvalue(), "the sentence")  # type: ignore[attr-defined]
    last = console.file.getvalue().rpartition("best val LL")[2]
    assert "golden_section/seed-0" in last and STOPPING in last and HINT not in last
    assert "\x1b[2K" not in last  # nothing is wiped out after the last drawing


def test_the_tasks_after_the_choice_have_their_own_state(tmp_path: Path) -> None:
    steps = rehearse([make_unit(tmp_path / "whole", "ldn", refit=True)])
    states = [
        row(drawn(run(tmp_path / str(stop), "ldn", refit=True, max_steps=stop)), "ldn/seed-0")[-1]
        for stop in range(steps)
    ]
    assert list(dict.fromkeys(states)) == ["waiting", "searching", "refit", "test"]


def test_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    unit = run(tmp_path, "grid")
    unit.logs["t001"].status, unit.logs["t001"].error = "failed", "Traceback …\nMemoryError: all of it is gone"
    broken = make_unit(tmp_path, "asha")
    broken.failure = "the method raised ValueError: no"
    console = Console(file=io.StringIO(), width=200)
    with live_table(together(unit, broken), console) as refresh:
        refresh()
        refresh()
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for once in ("grid/seed-0: complete", "MemoryError: all of it is gone", "ledger.jsonl", "raised ValueError: no"):
        assert text.count(once) == 1, once


def test_a_silence_and_a_workers_warning_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit, other = run(tmp_path, "grid", max_steps=4), run(tmp_path, "ldn", max_steps=4)
    for each in (unit, other):  # a storage that is away is so for all of them
        each.logs["t000"].warnings.append("its checkpoint is gone; the trial starts over")
    made = together(unit, other)
    monkeypatch.setattr(made, "heard_at", time.monotonic() - 61)
    console = Console(file=io.StringIO(), width=200)
    with live_table(made, console) as refresh:
        refresh()
        refresh()
        monkeypatch.setattr(made, "heard_at", time.monotonic())
        refresh()
        monkeypatch.setattr(made, "heard_at", time.monotonic() - 99)
        refresh()
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.count("nothing happened for 61 s: waiting for") == text.count("nothing happened for 99 s") == 1
    assert text.count("grid/seed-0 t000: its checkpoint is gone; the trial starts over") == 1
    assert text.count("is gone") == 1
    assert "waiting for" in summary(made, 0.0)  # of the live table, and in a notebook


def test_a_terminal_gets_the_live_table(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with live_table(together(run(tmp_path, "ldn")), console) as refresh:
        refresh()
    assert isinstance(console.file, io.StringIO)
    assert "best val LL" in console.file.getvalue()
