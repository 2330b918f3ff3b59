"""What is known of a method is in its file: grid's file under another name gives grid's numbers, all of them."""

import shutil

import numpy as np
import pytest

from harness.comparing import Comparison, compare
from harness.comparing.costs import ORDERS, rungs_of, trajectory
from harness.comparing.finished import finished_by_method
from harness.comparing.tables import cost_table, equal_quality_table
from harness.methods import grid, load_method
from harness.schema.records import MethodFacts, Unit
from tests.synthetic import make_units


@pytest.fixture(scope="module")
def units() -> list[Unit]:
    """Run one trial at a time, which limits the modelled wall-clock of searches that adapt and of no others."""
    made = make_units(("ldn", "grid", "random_search", "asha"), range(3), refit=True)
    results = [unit.result.model_copy(update={"concurrency": 1}) for unit in made if unit.result]
    return [unit.model_copy(update={"result": result}) for unit, result in zip(made, results, strict=True)]


@pytest.fixture(scope="module")
def renamed(units: list[Unit], tmp_path_factory: pytest.TempPathFactory) -> list[Unit]:
    """The same records as if a copy of grid's file had made them."""
    copy = tmp_path_factory.mktemp("mine") / "my_grid.py"
    shutil.copy(grid.__file__, copy)
    name, method = load_method(str(copy))
    assert name == "my_grid"
    return [under(unit, name, method.facts()) if unit.plan.method == "grid" else unit for unit in units]


def under(unit: Unit, name: str, facts: MethodFacts) -> Unit:
    assert unit.result is not None
    plan = unit.plan.model_copy(update={"method": name, "facts": facts})
    return Unit(plan=plan, trials=unit.trials, result=unit.result.model_copy(update={"method": name}))


def by_name(comparison: Comparison) -> Comparison:
    return Comparison.model_validate_json(comparison.model_dump_json().replace("my_grid", "grid"))


def test_the_whole_comparison_is_the_same(units: list[Unit], renamed: list[Unit]) -> None:
    ours, theirs = compare(units), compare(renamed)
    assert theirs.methods == ("ldn", "my_grid", "random_search", "asha")
    assert by_name(theirs).search == ours.search
    assert by_name(theirs).refit == ours.refit
    assert by_name(theirs).equal_quality == ours.equal_quality
    assert by_name(theirs).wall_clock == ours.wall_clock
    assert len(set(theirs.wall_clock[1].seconds.values())) == 4
    assert by_name(theirs).depth_checks == ours.depth_checks
    assert by_name(theirs) == ours


def test_so_is_its_anytime_curve(units: list[Unit], renamed: list[Unit]) -> None:
    ours, theirs = finished_by_method(units, "ldn")["grid"], finished_by_method(renamed, "ldn")["my_grid"]
    for one, other in zip(ours, theirs, strict=True):
        own, copied = trajectory(one, rungs_of(ours)), trajectory(other, rungs_of(theirs))
        assert own.cost.shape[0] == ORDERS
        assert np.array_equal(own.cost, copied.cost)
        assert np.array_equal(own.best, copied.best)


def test_tables_speak_of_it_by_its_own_name(renamed: list[Unit]) -> None:
    comparison = compare(renamed)
    table = cost_table(comparison.search, comparison.exhaustive)
    assert table.columns[-1] == "÷ my_grid"
    assert [row[-1] for row in table.rows if row[0] == "my_grid"] == ["1.00"]
    assert "For my_grid and random_search: mean over 1,000 orders" in equal_quality_table(comparison).caption


def test_a_method_that_declares_nothing_gets_the_careful_reading(units: list[Unit]) -> None:
    """Neither averaged over orders nor spread over more devices than it ran with."""
    plain = [
        under(unit, "mine", MethodFacts()) if unit.plan.method == "random_search" else unit
        for unit in units
        if unit.plan.method in ("ldn", "random_search")
    ]
    comparison = compare(plain)
    assert comparison.unordered == ()
    assert comparison.exhaustive is None
    assert len(set(comparison.wall_clock[1].seconds.values())) == 1
