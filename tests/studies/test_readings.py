"""Readings find their networks by what is true of a method, not by what it is called."""

import pytest

from harness.schema.records import Unit
from harness.studies.readings import READINGS, deepest_unit, fixed_depths, learnt_unit, read
from tests.synthetic import make_units


def by_method(*methods: str) -> dict[str, Unit]:
    return {unit.plan.method: unit for unit in make_units(methods, [0])}


def renamed(units: dict[str, Unit]) -> dict[str, Unit]:
    return {
        f"my_{name}": unit.model_copy(update={"plan": unit.plan.model_copy(update={"method": f"my_{name}"})})
        for name, unit in units.items()
    }


def all_readings(units: dict[str, Unit]) -> dict[str, float]:
    found = {}
    for name in READINGS:
        try:
            found[name] = read(name, units)
        except KeyError:
            continue
    return found


@pytest.mark.parametrize("methods", [("ldn", "grid"), ("ldn", "deepest"), ("grid",), ("ldn",)])
def test_names_do_not_matter(methods: tuple[str, ...]) -> None:
    units = by_method(*methods)
    found = all_readings(units)
    assert found
    assert all_readings(renamed(units)) == found


def test_values_are_those_of_the_records() -> None:
    units = by_method("ldn", "grid")
    learnt, searched = units["ldn"].result, units["grid"].result
    assert learnt and searched and learnt.final.full
    assert read("ece", units) == learnt.final.chosen.ece
    assert read("full_brier", units) == learnt.final.full.brier
    curve = {each.depth: each.measures for each in searched.final.per_depth_test}
    assert read("deepest_accuracy", units) == curve[10].accuracy
    best = max(curve.values(), key=lambda measures: measures.log_likelihood)
    assert read("best_fixed_ece", units) == best.ece


def test_the_deepest_network_is_found_by_its_depth() -> None:
    units = by_method("ldn", "asha", "deepest")
    assert learnt_unit(units) is units["ldn"]
    assert deepest_unit(units) is units["deepest"]
    assert deepest_unit(by_method("ldn", "grid", "asha")) is None, "a search over depths is no network of one depth"
    assert set(fixed_depths(by_method("ldn", "deepest"))) == {10}
    assert fixed_depths(by_method("ldn")) == {}


@pytest.mark.parametrize("name", ["deepest_accuracy", "best_fixed_accuracy"])
def test_a_network_that_was_not_trained_has_no_reading(name: str) -> None:
    with pytest.raises(KeyError):
        read(name, by_method("ldn"))


def test_a_reading_speaks_of_the_method_that_is_named() -> None:
    units = by_method("ldn", "ldn_em", "grid")
    assert read("log_likelihood", units) == read("log_likelihood", units, "ldn")
    for name, unit in units.items():
        assert unit.result
        assert read("d_opt", units, name) == unit.result.d_opt
        assert read("ece", units, name) == unit.result.final.chosen.ece
        assert read("tflop", units, name) == unit.result.cost.tflop
        assert read("device_seconds", units, name) == unit.result.cost.device_seconds
    assert read("best_fixed_ece", units, "ldn_em") == read("best_fixed_ece", units, "ldn"), "whoever speaks"
    for name, method in (("posterior_gap", "grid"), ("d_opt", "exits")):
        with pytest.raises(KeyError):
            read(name, units, method)
