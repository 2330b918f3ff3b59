"""The results folder: whole files or none, a ledger that survives a torn line, and who may continue it."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.methods import load_method
from harness.options import RunOptions
from harness.running.ledger import Ended, Started
from harness.running.runner import make_units, run_units
from harness.running.store import UnitFolder, read_units
from harness.schema.records import UnitPlan
from harness.text.files import write_atomically
from tests.rehearsed import make_unit, run, small_space


def folder_and_plan(out: Path, **options: Any) -> tuple[UnitFolder, UnitPlan]:
    unit = make_unit(out, "grid", **options)
    return unit.folder, unit.plan


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "file.json"
    write_atomically(path, "old")

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("harness.running.store.os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "new, and longer")
    assert path.read_text() == "old"


def test_bytes_and_text_arrive_as_they_are(tmp_path: Path) -> None:
    write_atomically(tmp_path / "b", b"\x00\xff")
    write_atomically(tmp_path / "t", "d_opt ≈ 9")
    assert (tmp_path / "b").read_bytes() == b"\x00\xff"
    assert (tmp_path / "t").read_text(encoding="utf-8") == "d_opt ≈ 9"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "t"]


def test_a_torn_last_line_is_left_out_and_the_next_one_stands_by_itself(tmp_path: Path) -> None:
    folder, _ = folder_and_plan(tmp_path)
    folder.append(Started(trial="t000", coresident=1))
    with (folder.path / "ledger.jsonl").open("a") as file:
        file.write('{"event": "report", "tri')
    assert [event.event for event in folder.events()] == ["start"]
    folder.append(Ended(trial="t000", status="finished", driver_seconds=0.0))
    assert [event.event for event in folder.events()] == ["start", "end"]


def test_a_tear_inside_a_character_is_left_out_too(tmp_path: Path) -> None:
    folder, _ = folder_and_plan(tmp_path)
    folder.append(Started(trial="t000", coresident=1))
    whole = Ended(trial="t000", status="failed", error="d_opt ≈ 9 …", driver_seconds=0.0).model_dump_json().encode()
    with (folder.path / "ledger.jsonl").open("ab") as file:
        file.write(whole[: whole.index("…".encode()) + 1])
    assert [event.event for event in folder.events()] == ["start"]


def three_lines(out: Path) -> tuple[UnitFolder, list[bytes]]:
    folder, _ = folder_and_plan(out)
    for number in range(3):
        folder.append(Started(time=1.5, trial=f"t{number:03d}", coresident=1))
    return folder, (folder.path / "ledger.jsonl").read_bytes().splitlines(keepends=True)


DAMAGES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "a line that is no event": (lambda lines: [*lines, b'{"event":"paused","time":1.0,"trial":"t000"}\n'], 4),
    "a line that is no JSON, in the middle": (lambda lines: [lines[0], b"{torn\n", *lines[1:]], 2),
    "a line that is no text": (lambda lines: [b"\xff\xfe\n", *lines[1:]], 1),
    "half of a character in a line": (lambda lines: [lines[0], lines[1].replace(b"t001", b"t\xc3"), lines[2]], 2),
    "an empty line": (lambda lines: [*lines, b"\n"], 4),
    "the first line gone": (lambda lines: lines[1:], 1),
    "a middle line gone": (lambda lines: [lines[0], lines[2]], 2),
    "a line twice": (lambda lines: [*lines, lines[-1]], 4),
    "two lines exchanged": (lambda lines: [lines[0], lines[2], lines[1]], 2),
    "a number changed": (lambda lines: [lines[0], lines[1].replace(b'"coresident":1', b'"coresident":2'), lines[2]], 2),
    "a space added": (lambda lines: [lines[0], lines[1].replace(b",", b", ", 1), lines[2]], 2),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_line_that_is_not_as_it_was_written_is_one_sentence_and_nothing_is_appended(
    tmp_path: Path, damage: str
) -> None:
    folder, lines = three_lines(tmp_path)
    change, line = DAMAGES[damage]
    damaged = b"".join(change(lines))
    (folder.path / "ledger.jsonl").write_bytes(damaged)
    with pytest.raises(UserError, match=rf"ledger\.jsonl line {line} is damaged: .*; use --fresh"):
        list(folder.events())
    with pytest.raises(UserError, match=rf"line {line} is damaged"):
        make_unit(tmp_path, "grid").folder.append(Started(trial="t003", coresident=1))
    assert (folder.path / "ledger.jsonl").read_bytes() == damaged


def test_the_ledger_of_another_unit_does_not_pass_for_ones_own(tmp_path: Path) -> None:
    _, lines = three_lines(tmp_path)
    other = make_unit(tmp_path, "grid", seed=1).folder
    (other.path / "ledger.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(UserError, match=r"seed-1/ledger\.jsonl line 1 is damaged"):
        list(other.events())


@given(st.data())
def test_any_changed_byte_is_noticed_or_tears_the_last_line(tmp_path_factory: Any, data: st.DataObject) -> None:
    folder, lines = three_lines(tmp_path_factory.mktemp("ledger"))
    whole = b"".join(lines)
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != whole[at]))
    (folder.path / "ledger.jsonl").write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
    if at == len(whole) - 1:  # the end of the last line
        assert len(list(folder.events())) == 2
    else:
        with pytest.raises(UserError, match="is damaged"):
            list(folder.events())


def test_a_write_that_fails_half_way_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, lines = three_lines(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    end = Ended(trial="t000", status="finished", driver_seconds=0.0)
    with monkeypatch.context() as patch:
        patch.setattr("harness.running.store.os.fsync", full)
        with pytest.raises(OSError, match="no space"):
            folder.append(end)
    assert (folder.path / "ledger.jsonl").read_bytes() == b"".join(lines)
    folder.append(end)
    assert [event.event for event in folder.events()] == ["start", "start", "start", "end"]


def test_a_number_that_json_does_not_know_is_not_written(tmp_path: Path) -> None:
    folder, _ = folder_and_plan(tmp_path)
    with pytest.raises(ValueError, match="finite"):
        folder.append(Ended(trial="t000", status="finished", driver_seconds=float("nan")))
    assert list(folder.events()) == []


def test_the_same_plan_continues_and_another_is_refused_with_the_difference(tmp_path: Path) -> None:
    folder, plan = folder_and_plan(tmp_path)
    folder.append(Started(trial="t000", coresident=1))
    folder.claim(plan, fresh=False)
    assert len(list(folder.events())) == 1
    other = plan.model_copy(update={"space": small_space(network={"kind": "fc", "width": 5}), "concurrency": 1})
    with pytest.raises(UserError) as refused:
        folder.claim(other, fresh=False)
    assert "space.network.width: 4 → 5" in str(refused.value)
    assert "concurrency: None → 1" in str(refused.value)
    assert "--fresh" in str(refused.value)
    assert folder.read_plan() == plan


def test_margins_and_description_do_not_make_it_another_search(tmp_path: Path) -> None:
    folder, plan = folder_and_plan(tmp_path)
    told_anew = small_space(description="Told anew.", margins={"accuracy": 0.5})
    folder.claim(plan.model_copy(update={"space": told_anew}), fresh=False)


def test_fresh_moves_aside_and_deletes_nothing(tmp_path: Path) -> None:
    folder, plan = folder_and_plan(tmp_path)
    for number in range(3):  # within one second, so that the names would collide
        folder.append(Started(trial=f"run {number}", coresident=1))
        folder.claim(plan, fresh=True)
        assert list(folder.events()) == []
    moved = sorted(folder.path.parent.glob("seed-0.moved-*"))
    ledgers = [(path / "ledger.jsonl").read_text() for path in moved]
    assert sorted(json.loads(line)["trial"] for line in ledgers) == ["run 0", "run 1", "run 2"]
    assert len(read_units(tmp_path, "small")[0]) == 1


def test_a_damaged_plan_is_one_sentence(tmp_path: Path) -> None:
    folder, plan = folder_and_plan(tmp_path)
    (folder.path / "plan.json").write_text('{"space": 1}')
    with pytest.raises(UserError, match=r"plan\.json is damaged, or was written by another version"):
        folder.claim(plan, fresh=False)


def test_one_damaged_unit_does_not_hide_the_others(tmp_path: Path) -> None:
    run(tmp_path, "ldn")
    damaged = run(tmp_path, "grid")
    (damaged.folder.path / "result.json").write_text("{")
    units, problems = read_units(tmp_path, "small")
    assert [unit.plan.method for unit in units] == ["ldn"]
    assert len(problems) == 1 and "grid" in problems[0]


def test_an_unfinished_unit_reads_as_such(tmp_path: Path) -> None:
    run(tmp_path, "grid", max_steps=8)
    [unit], problems = read_units(tmp_path, "small")
    assert unit.result is None and unit.trials == () and problems == []


# --- finished units whose files do not belong together ------------------------------------------------------------


def finished(out: Path) -> Path:
    run(out, "grid", seed=1)
    return run(out, "grid").folder.path


def foreign_result(folder: Path) -> None:
    shutil.copy(folder.with_name("seed-1") / "result.json", folder)


def foreign_plan(folder: Path) -> None:
    shutil.copy(folder.with_name("seed-1") / "plan.json", folder)


def other_settings(folder: Path) -> None:
    """A plan that could be this unit's, and is not the one its result is of."""
    plan = json.loads((folder / "plan.json").read_text())
    plan["concurrency"] = 2
    (folder / "plan.json").write_text(json.dumps(plan))


def foreign_trials(folder: Path) -> None:
    shutil.copy(folder.with_name("seed-1") / "trials.jsonl", folder)


def all_foreign(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("seed-1"), folder)


def short_trials(folder: Path) -> None:
    lines = (folder / "trials.jsonl").read_text().splitlines(keepends=True)
    (folder / "trials.jsonl").write_text("".join(lines[:-1]))


def no_trials(folder: Path) -> None:
    (folder / "trials.jsonl").unlink()


def torn_trials(folder: Path) -> None:
    (folder / "trials.jsonl").write_bytes((folder / "trials.jsonl").read_bytes()[:-9] + b"\xff")


def better_result(folder: Path) -> None:
    text = (folder / "result.json").read_text()
    (folder / "result.json").write_text(text.replace('"accuracy": 0.5', '"accuracy": 0.9', 1))


def no_checksum(folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())
    del result["checksum"]
    (folder / "result.json").write_text(json.dumps(result, indent=1))


def empty_result(folder: Path) -> None:
    (folder / "result.json").write_text("")


def no_plan(folder: Path) -> None:
    (folder / "plan.json").unlink()


CHANGES: tuple[tuple[Callable[[Path], None], str], ...] = (
    (foreign_result, r"result\.json is damaged: it belongs to small/grid/seed-1"),
    (foreign_plan, r"plan\.json is damaged: it belongs to small/grid/seed-1"),
    (other_settings, r"result\.json is damaged: it is the result of other settings than plan\.json has"),
    (foreign_trials, "not as they were written"),
    (all_foreign, "it belongs to small/grid/seed-1"),
    (short_trials, r"trials\.jsonl is damaged: it has 6 trials, result\.json says 7"),
    (no_trials, r"trials\.jsonl is damaged: it cannot be read"),
    (torn_trials, r"trials\.jsonl is damaged: it cannot be read"),
    (better_result, "not as they were written"),
    (no_checksum, "not as they were written"),
    (empty_result, r"result\.json is damaged"),
    (no_plan, r"plan\.json is damaged: it is not there"),
)


@pytest.mark.parametrize(("change", "sentence"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_a_finished_unit_that_was_changed_is_a_sentence_in_run_and_compare(
    tmp_path: Path, change: Callable[[Path], None], sentence: str
) -> None:
    folder = finished(tmp_path)
    change(folder)
    unit = make_units([small_space()], {"grid": load_method("grid")[1]}, [0], RunOptions(out=tmp_path))[0]
    if change not in (foreign_plan, other_settings, all_foreign):  # those are refused before, as other settings
        with pytest.raises(UserError, match=sentence):
            run_units([unit], RunOptions(out=tmp_path))
    else:
        with pytest.raises(UserError, match="was made with other settings"):
            run_units([unit], RunOptions(out=tmp_path))
    units, problems = read_units(tmp_path, "small")
    assert [unit.plan.seed for unit in units] == [1]
    if change is not no_plan:  # a folder without a plan is no unit
        [problem] = problems
        assert re.search(sentence, problem)
