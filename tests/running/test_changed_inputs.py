"""Data, a method file or settings that change between runs: said before Ray starts, and never mixed."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.api import load_results
from harness.errors import UserError
from harness.methods import parse_methods
from harness.options import RunOptions
from harness.replaying.recorded import recorded_in
from harness.running import runner, worker
from harness.running.messages import FinalTask, checkpoint_key
from harness.running.runner import RunOutcome, make_units, run_units
from harness.running.store import _sealed
from harness.running.unit import RunningUnit
from harness.schema.identity import code_digest
from harness.schema.settings import SearchSpace
from harness.training.checkpoints import CheckpointStore
from tests.rehearsed import run as rehearsed
from tests.rehearsed import small_space
from tests.running.results import unit_folder
from tests.tiny import config

METHOD = '''
"""A search of my own."""
from ray.tune.search import BasicVariantGenerator
from ray import tune
from harness.methods.base import SearchMethod, SearchPlan


class Mine(SearchMethod):
    """Trains two depths."""

    def plan(self, space, budget, seed):
        return SearchPlan({"depth": tune.grid_search([1, 2])}, BasicVariantGenerator(), num_samples=1)
'''


def write_rows(path: Path, flipped: int = 0) -> None:
    """400 rows whose labels can be told apart, but for those that are flipped; always of the same size and time."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    x = (rng.normal(size=(400, 2)) + 4 * y[:, None]).astype(np.float32)
    y[:flipped] = 1 - y[:flipped]
    np.savez(path, x_train=x, y_train=y)
    os.utime(path, ns=(1, 1))


def a_space(rows: Path, **training: int) -> SearchSpace:
    short = {"max_epochs": 4, "patience": 4, "eval_every": 2, "report_every": 2}
    return small_space(data={"kind": "arrays", "path": str(rows)}, depth={"max": 2}, training=short | training)


def run(out: Path, space: SearchSpace, methods: str = "grid", *seeds: int, fresh: bool = False) -> RunOutcome:
    options = RunOptions(out=out, fresh=fresh)
    return run_units(make_units([space], parse_methods(methods), seeds or [0], options), options)


def written(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def no_ray_starts(*args: object) -> None:
    raise AssertionError("Ray was started")


@pytest.mark.slow
@pytest.mark.usefixtures("one_ray")
def test_what_changes_between_seeds_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, mine, out = tmp_path / "rows.npz", tmp_path / "mine.py", tmp_path / "out"
    write_rows(rows)
    mine.write_text(METHOD)
    methods, space = f"grid,{mine}", a_space(rows)
    assert not run(out, space, methods).failures
    monkeypatch.setattr(runner, "ray_session", no_ray_starts)
    before = written(out)
    # The labels, at the same size and time.
    write_rows(rows, flipped=100)
    with pytest.raises(UserError, match=r"grid seed 0 and grid seed 1 differ in the bytes of the data files: '\w{16}'"):
        run(out, space, methods, 0, 1)
    assert len(run(out, space, methods).results) == 2, "what is complete needs no data"
    with pytest.raises(UserError, match="the bytes of the data files"):
        run(out, space, "random_search")
    (unit_folder(out, "grid", space="small") / "result.json").rename(tmp_path / "result.json")
    with pytest.raises(UserError, match=r"grid/seed-0 was made with other settings, data or files \(data_hash: "):
        run(out, space)
    (tmp_path / "result.json").rename(unit_folder(out, "grid", space="small") / "result.json")
    write_rows(rows)
    # The method: a comment is no change, a depth is.
    mine.write_text(METHOD.replace("A search of my own", "Reworded") + "# a comment\n")
    assert len(run(out, space, methods).results) == 2
    mine.write_text(METHOD.replace("[1, 2]", "[0, 2]"))
    os.utime(mine, ns=(1, 1))
    with pytest.raises(UserError, match=r"mine/seed-0 was made with .*code\.method mine\.py: \w{16} → \w{16}"):
        run(out, space, methods)
    with pytest.raises(UserError, match=r"mine seed 0 and mine seed 1 differ in the code of method mine\.py"):
        run(out, space, str(mine), 1)
    # Settings that no comparison would take.
    with pytest.raises(UserError, match=r"max_epochs: 4 / 6.*; give the same, another --out, or --fresh with all"):
        run(out, a_space(rows, max_epochs=6, patience=6), "grid", 1)
    with pytest.raises(UserError, match=r"mine seed 0 and grid seed 0 differ in training\.max_epochs"):
        run(out, a_space(rows, max_epochs=6, patience=6), "grid", fresh=True)
    assert written(out) == before


def give_plan(unit: RunningUnit, values: dict[str, object]) -> None:
    """Its folder as a run with such a plan would have left it."""
    plan, path = unit.plan.model_copy(update=values), unit.folder.path
    assert unit.result
    (path / "plan.json").write_text(plan.model_dump_json())
    result = unit.result.model_copy(update={"plan_hash": plan.hash}).model_dump_json(indent=1)
    (path / "result.json").write_text(_sealed(result, (path / "trials.jsonl").read_text()))


def test_units_of_other_data_or_code_are_not_compared_and_those_of_earlier_versions_are(tmp_path: Path) -> None:
    units = [rehearsed(tmp_path, "grid", seed=seed) for seed in (0, 1, 2)]
    hashes: list[dict[str, object]] = [
        {"data_hash": "0" * 16, "code": {"method mine.py": "1" * 16}},
        {},
    ]  # what seeds 0 and 1 know

    def with_plans(*known: dict[str, object]) -> None:
        for unit, values in zip(units, known, strict=False):
            give_plan(unit, values)

    with_plans(hashes[0], hashes[1])
    assert len(load_results("small", tmp_path).comparison.seeds) == 3, "of seeds 1 and 2 nothing is known"
    with_plans(hashes[0], hashes[0] | {"data_hash": "2" * 16})
    with pytest.raises(UserError, match="grid seed 0 and grid seed 1 differ in the bytes of the data files"):
        _ = load_results("small", tmp_path).comparison
    with_plans(hashes[0], hashes[0] | {"code": {"method mine.py": "3" * 16}})
    with pytest.raises(UserError, match=r"grid seed 0 and grid seed 1 differ in the code of method mine\.py"):
        _ = load_results("small", tmp_path).comparison


def test_a_plan_of_an_earlier_version_continues_with_the_hash_that_it_has(tmp_path: Path) -> None:
    [unit] = make_units([small_space()], parse_methods("grid"), [0], RunOptions(out=tmp_path))
    assert unit.folder.claim(unit.plan, fresh=False) == unit.plan
    later = unit.plan.model_copy(update={"data_hash": "0" * 16, "code": {"method mine.py": "1" * 16}})
    assert later.hash != unit.plan.hash
    assert unit.folder.claim(later, fresh=False) == unit.plan
    with pytest.raises(UserError, match=r"depth\.max: 6 → 5"):
        unit.folder.claim(later.model_copy(update={"space": small_space(depth={"max": 5})}), fresh=False)


def test_the_test_set_of_changed_files_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rows(tmp_path / "rows.npz")
    data = a_space(tmp_path / "rows.npz").data
    trial = config("ddn", 1).model_copy(update={"data": data})
    one = worker._Worker(trial, CheckpointStore(str(tmp_path)), 1.0, torch.device("cpu"), None, (0.0, 0.0))
    key = checkpoint_key("unit", "t000")
    task = FinalTask(
        unit="unit", config=trial, epochs=1, chosen=key, d_opt=1, others=(), refit_d_opt=None, data_hash="0" * 16
    )
    with pytest.raises(UserError, match=r"are not those that the search was trained on \(.*; put those back"):
        one.final(task)


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ('"""Other."""\nimport os\n\ndef f(x: int) -> int:\n    return x + 1  # more\n', True),
        ("import os\ndef f(x: int) -> int:\n    'about it'\n    return (x + 1)\n", True),
        ("import os\ndef f(x: int) -> int:\n    return x + 1.0\n", False),
        ("import os\ndef f(x: int) -> int:\n    return x + True\n", False),
        ("import sys\ndef f(x: int) -> int:\n    return x + 1\n", False),
        ("import os\ndef g(x: int) -> int:\n    return x + 1\n", False),
        ("import os\ndef f(x: int) -> int:\n    return x + 1\nf(2)\n", False),
        ("import os\ndef f(x: int) -> int:\n    return x\n", False),
    ],
)
def test_the_hash_of_code_is_of_what_it_says(changed: str, same: bool) -> None:
    code = b'"""About."""\nimport os\n\n\ndef f(x: int) -> int:\n    """Adds."""\n    return x + 1\n'
    assert (code_digest(code) == code_digest(changed.encode())) is same


def test_code_as_deep_as_python_takes_has_a_hash() -> None:
    assert code_digest(f"x = {' + '.join(['1'] * 900)}".encode()) != code_digest(b"x = 1")


def test_recordings_of_other_data_are_not_mixed(tmp_path: Path) -> None:
    for seed, known in enumerate(("0" * 16, "1" * 16)):
        give_plan(rehearsed(tmp_path, "grid", seed=seed), {"data_hash": known})
    with pytest.raises(UserError, match="the data files of grid seed 0 and grid seed 1 have other bytes"):
        recorded_in(tmp_path, "small")


def test_the_checklist_says_whose_code_and_which_data(tmp_path: Path) -> None:
    unit = rehearsed(tmp_path, "grid")
    answers = {item.question: item for item in load_results("small", tmp_path).comparison.checklist}
    data, code = "Same data, split", "Is the code of the search methods released?"
    assert "bytes" not in next(item.evidence for name, item in answers.items() if name.startswith(data))
    give_plan(unit, {"data_hash": "0" * 16, "code": {"method mine.py": "1" * 16}})
    answers = {item.question: item for item in load_results("small", tmp_path).comparison.checklist}
    evidence = next(item.evidence for name, item in answers.items() if name.startswith(data))
    assert evidence.startswith("the data files' bytes (hash 0000000000000000)")
    assert answers[code].answer == "partly" and "method mine.py (hash of its code 1111" in answers[code].evidence
