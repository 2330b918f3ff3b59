"""Units written to the results folder and read back give the same answer; a damaged one costs only itself."""

import re
from pathlib import Path

import pytest

from harness.comparing import compare
from harness.errors import UserError
from harness.running.store import UnitFolder, read_units
from harness.schema.records import Unit
from tests.synthetic import make_units


def write(out: Path, units: list[Unit]) -> None:
    for unit in units:
        folder = UnitFolder(out, unit.plan.space.name, unit.plan.method, unit.plan.seed)
        folder.claim(unit.plan, fresh=False)
        if unit.result is not None:
            folder.complete(unit.trials, unit.result)


def test_the_folder_gives_the_same_comparison(tmp_path: Path) -> None:
    units = make_units(("grid", "ldn"), range(3))
    write(tmp_path, units)
    found, problems = read_units(tmp_path, "synthetic")
    assert problems == []
    assert compare(found) == compare(units)


@pytest.mark.parametrize("damage", ["", "{", '{"space": "synthetic"}', "NaN"])
def test_a_damaged_result_is_named_and_the_others_compared(tmp_path: Path, damage: str) -> None:
    write(tmp_path, make_units(("grid", "ldn"), range(3)))
    path = UnitFolder(tmp_path, "synthetic", "grid", 1).path / "result.json"
    if damage == "NaN":  # one measure is not finite, all else is as it was
        damage = re.sub(r'"accuracy":\s*[\d.]+', '"accuracy": NaN', path.read_text(encoding="utf-8"), count=1)
        assert "NaN" in damage
    path.write_text(damage, encoding="utf-8")
    found, problems = read_units(tmp_path, "synthetic")
    comparison = compare(found, problems=problems)
    assert comparison.search.pairs[0].seeds == (0, 2)
    assert "seed-1" in comparison.notes[0]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one finished unit"):
        compare(read_units(tmp_path, "synthetic")[0])
