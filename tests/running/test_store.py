"""The results folder: whole files or none, a ledger that survives a torn line, and who may continue it."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.records import UnitPlan
from harness.running.ledger import Ended, Started
from harness.running.store import UnitFolder, read_units, write_atomically
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
    folder.mend()
    folder.mend()  # harmless where nothing is torn
    folder.append(Ended(trial="t000", status="finished", driver_seconds=0.0))
    assert [event.event for event in folder.events()] == ["start", "end"]


def test_a_tear_inside_a_character_is_left_out_too(tmp_path: Path) -> None:
    folder, _ = folder_and_plan(tmp_path)
    folder.append(Started(trial="t000", coresident=1))
    whole = Ended(trial="t000", status="failed", error="d_opt ≈ 9 …", driver_seconds=0.0).model_dump_json().encode()
    with (folder.path / "ledger.jsonl").open("ab") as file:
        file.write(whole[: whole.index("…".encode()) + 1])
    assert [event.event for event in folder.events()] == ["start"]


def test_a_line_that_is_whole_but_unknown_is_one_sentence(tmp_path: Path) -> None:
    folder, _ = folder_and_plan(tmp_path)
    folder.append(Started(trial="t000", coresident=1))
    with (folder.path / "ledger.jsonl").open("a") as file:
        file.write('{"event": "paused", "time": 1.0, "trial": "t000"}\n')
    with pytest.raises(
        UserError, match=r"ledger\.jsonl line 2 is damaged, or was written by another version; use --fresh"
    ):
        list(folder.events())


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
