"""`harness check results`: complete units against their ledgers, whatever somebody did to either."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli import main
from harness.replaying.conformance import check_results
from harness.running.store import _sealed
from harness.running.unit import RunningUnit
from tests.rehearsed import run

OLD = Path(__file__).parent.parent / "schema"


def resealed(unit: RunningUnit, change: Callable[[str], str], trials: Callable[[str], str] = str) -> None:
    """As by somebody who knows how a seal is made."""
    path = unit.folder.path
    assert unit.result
    lines = trials((path / "trials.jsonl").read_text())
    (path / "trials.jsonl").write_text(lines)
    (path / "result.json").write_text(_sealed(change(unit.result.model_dump_json(indent=1)), lines))


@pytest.mark.parametrize("method", ["ldn", "grid", "asha", "optuna_tpe"])
def test_what_a_run_left_is_as_its_ledger_says(tmp_path: Path, method: str) -> None:
    run(tmp_path, method, refit=True)
    [check] = check_results(tmp_path)
    assert (check.name, check.ok) == (f"small/{method}/seed-0", True), check.detail
    assert check_results(tmp_path / "small" / method / "seed-0") == [check]


def test_results_of_earlier_versions_pass_or_are_left_alone() -> None:
    assert {check.ok for check in check_results(OLD / "version_3")} == {True}
    assert {check.ok for check in check_results(OLD / "version_1")} == {None}


def test_a_run_that_is_not_complete_is_none(tmp_path: Path) -> None:
    run(tmp_path, "grid", max_steps=8)
    [check] = check_results(tmp_path)
    assert check.ok is None and "unfinished" in check.detail


def a_line_less(unit: RunningUnit) -> None:
    ledger = unit.folder.path / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(lines[:5] + lines[6:]))


def the_end_less(unit: RunningUnit) -> None:
    ledger = unit.folder.path / "ledger.jsonl"
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:-3]))


def a_better_accuracy(unit: RunningUnit) -> None:
    resealed(unit, lambda text: text.replace('"accuracy": 0.5', '"accuracy": 0.9'))


def a_better_trial(unit: RunningUnit) -> None:
    def better(text: str) -> str:
        trials = [json.loads(line) for line in text.splitlines()]
        trials[1]["val"]["log_likelihood"] += 0.5
        return "".join(json.dumps(trial, separators=(",", ":")) + "\n" for trial in trials)

    resealed(unit, str, better)


def a_cheaper_search(unit: RunningUnit) -> None:
    resealed(unit, lambda text: re.sub(r'("cost": \{\s+"held_seconds": )[0-9.]+', r"\g<1>0.1", text))


CHANGES: dict[Callable[[RunningUnit], None], str] = {
    a_line_less: r"ledger\.jsonl line 6 is damaged",
    the_end_less: "it has no choice or no final evaluation",
    a_better_accuracy: r"result\.json: .*accuracy is 0\.9, the ledger says 0\.5",
    a_better_trial: r"trials\.jsonl: t001 val\.log_likelihood is ",
    a_cheaper_search: r"result\.json: cost\.held_seconds is 0\.1",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_was_changed_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[RunningUnit], None]
) -> None:
    run(tmp_path, "grid", seed=1)
    change(run(tmp_path, "grid"))
    changed, whole = check_results(tmp_path)
    assert not changed.ok and whole.ok
    assert re.search(CHANGES[change], changed.detail), changed.detail
    with pytest.raises(SystemExit) as end:
        main(["check", str(tmp_path)])
    assert end.value.code == 1
    assert "NO" in capsys.readouterr().out


def test_a_folder_without_results_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["check", str(tmp_path)])
    assert end.value.code == 2 and "there are no results in" in capsys.readouterr().err
