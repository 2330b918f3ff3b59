"""The error over test rows: by hand, its coverage in simulated studies, and old results that have no values per row."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.verdicts import covers_fresh_seeds_and_rows
from harness.comparing import compare
from harness.comparing.finished import Finished
from harness.comparing.stages import row_errors
from harness.comparing.tables import difference_table
from harness.measures import ACCURACY, LOG_LIKELIHOOD
from harness.schema.records import Unit
from harness.schema.rows import RowValues, hash_of, read_rows
from tests.synthetic import make_units

ROWS = 13


def kept(folder: Path, unit: Unit, values: RowValues, test_hash: str = "same") -> Unit:
    """The unit with values per test row beside it."""
    assert unit.result
    path = folder / f"{unit.plan.method}-{unit.plan.seed}.bin"
    path.write_bytes(values.packed())
    final = unit.result.final.model_copy(
        update={"rows_hash": hash_of(values.packed()), "test_hash": test_hash, "n_test": len(values.correct)}
    )
    return unit.model_copy(update={"rows_file": path, "result": unit.result.model_copy(update={"final": final})})


def some(rng: np.random.Generator) -> RowValues:
    return RowValues(rng.normal(size=ROWS).astype(np.float32), rng.random(ROWS) < 0.7)


def with_rows(folder: Path, units: list[Unit], own_rows: bool = False) -> list[Unit]:
    rng = np.random.default_rng(0)
    return [kept(folder, unit, some(rng), f"of {unit.plan.seed}" if own_rows else "same") for unit in units]


def finished(unit: Unit) -> Finished:
    assert unit.result
    return Finished(unit.plan, unit.trials, unit.result, unit.rows_file)


def test_values_per_row_come_back_as_they_were(tmp_path: Path) -> None:
    values = some(np.random.default_rng(1))
    path = tmp_path / "rows.bin"
    path.write_bytes(values.packed())
    assert len(values.packed()) == 4 * ROWS + 2, "float32 and bits"
    found = read_rows(path, ROWS, hash_of(values.packed()))
    assert found and found.correct.tolist() == values.correct.tolist()
    assert found.log_likelihood.tolist() == values.log_likelihood.tolist()
    assert read_rows(path, ROWS, "another") is None and read_rows(tmp_path / "none", ROWS, "another") is None
    path.write_bytes(values.packed()[:-1])
    assert read_rows(path, ROWS, hash_of(values.packed())) is None


def test_the_error_over_rows_by_hand(tmp_path: Path) -> None:
    units = with_rows(tmp_path, make_units(("ldn", "grid"), range(2)))
    ldn, grid = ([finished(unit) for unit in units if unit.plan.method == method] for method in ("ldn", "grid"))
    pairs = list(zip(ldn, grid, strict=True))
    differences = []
    for ours, theirs in pairs:
        assert ours.rows and theirs.rows
        differences.append([float(a) - float(b) for a, b in zip(ours.rows.correct, theirs.rows.correct, strict=True)])
    per_row = [sum(column) / 2 for column in zip(*differences, strict=True)]
    mean = sum(per_row) / ROWS
    by_hand = math.sqrt(sum((each - mean) ** 2 for each in per_row) / (ROWS - 1) / ROWS)
    assert row_errors(pairs)[ACCURACY.key] == pytest.approx(by_hand)
    lost = [(replace(ldn[0], rows_file=None), grid[0]), pairs[1]]
    assert row_errors(lost) == {}, "a seed whose values are lost leaves no error over rows"


def test_where_the_error_over_rows_rules_more_seeds_are_not_advised(tmp_path: Path) -> None:
    units = with_rows(tmp_path, make_units(("ldn", "grid"), range(12), ldn_log_likelihood=-0.03))
    comparison = compare(units)
    [pair] = comparison.search.pairs
    assert pair.rows_rule(LOG_LIKELIHOOD.key) and pair.verdicts[LOG_LIKELIHOOD.key].outcome == "undecided"
    seeds, rows = pair.differences[LOG_LIKELIHOOD.key].half_width, pair.row_half_width(LOG_LIKELIHOOD.key)
    assert seeds and rows and pair.both_errors(LOG_LIKELIHOOD.key) == pytest.approx(math.hypot(seeds, rows))
    table = difference_table(comparison.search, comparison)
    [row] = [row for row in table.rows if row[1] == LOG_LIKELIHOOD.title]
    assert {"± test rows", "± both"} <= set(table.columns) and row[-1] == "undecided, more test rows, not seeds"
    assert ", so more seeds would not help" in comparison.sentences[0]
    [note] = [note for note in comparison.notes if "same 13 rows" in note]
    assert "more seeds do not help, more test rows do" in note


def test_a_test_set_of_each_seeds_own_needs_no_second_error(tmp_path: Path) -> None:
    comparison = compare(with_rows(tmp_path, make_units(("ldn", "grid"), range(4)), own_rows=True))
    assert comparison.search.pairs[0].row_errors == {}
    assert sum("Every seed has a test set of its own" in note for note in comparison.notes) == 1


def test_old_results_compare_and_say_once_what_cannot_be_shown() -> None:
    comparison = compare(make_units(("ldn", "grid", "asha"), range(4)))
    assert sum("kept no values per test row" in note for note in comparison.notes) == 1
    assert "± test rows" not in difference_table(comparison.search, comparison).columns


def test_a_combined_interval_covers_fresh_seeds_and_fresh_rows() -> None:
    """Gaussian effects of seeds, of rows and of both, crossed; 95 % is meant."""
    for seed_effect, row_effect in ((1.0, 1.0), (0.3, 3.0), (2.0, 0.5)):
        both, seeds_only = covers_fresh_seeds_and_rows(seed_effect, row_effect, studies=600)
        assert 0.93 <= both <= 0.985 and seeds_only <= both
    assert covers_fresh_seeds_and_rows(0.3, 3.0, studies=600)[1] < 0.8, "why it is shown"
