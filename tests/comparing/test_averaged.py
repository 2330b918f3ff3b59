"""A search that depends on its seed is judged by its mean over search seeds; one random depth by that over depths."""

from collections.abc import Sequence
from statistics import fmean

import pytest

from harness.comparing import compare
from harness.measures import ACCURACY, DEVICE_SECONDS, LOG_LIKELIHOOD, TFLOP
from harness.schema.records import Measures, ReplayedSearch, StoppedMeasures, Unit
from tests.synthetic import make_units

SEEDS = range(3)


def of(units: Sequence[Unit], method: str, seed: int) -> Unit:
    return next(unit for unit in units if (unit.plan.method, unit.plan.seed) == (method, seed))


def at_depth(units: Sequence[Unit], seed: int, depth: int) -> Measures:
    result = of(units, "grid", seed).result
    assert result
    return next(each.measures for each in result.final.per_depth_test if each.depth == depth)


def with_choices(unit: Unit, choices: Sequence[ReplayedSearch], stopped: Sequence[StoppedMeasures] = ()) -> Unit:
    assert unit.result
    final = unit.result.final.model_copy(update={"stopped_test": tuple(stopped)})
    result = unit.result.model_copy(update={"replayed_choices": tuple(choices), "final": final})
    return unit.model_copy(update={"plan": unit.plan.model_copy(update={"replayed": True}), "result": result})


def search(unit: Unit, depth: int, stopped: bool = False) -> ReplayedSearch:
    """One that chose this depth and spent a second for each block of it."""
    assert unit.result
    cost = unit.result.cost.model_copy(update={"held_seconds": 1.0 + depth, "devices": 1.0, "tflop": 2.0 * depth + 1})
    return ReplayedSearch(depth=depth, epoch=60, stopped=stopped, cost=cost)


def test_a_replayed_search_is_its_mean_over_search_seeds() -> None:
    units = make_units(("grid", "asha"), SEEDS)
    units = [
        with_choices(u, [search(u, 2), search(u, 2), search(u, 6)]) if u.plan.method == "asha" else u for u in units
    ]
    comparison = compare(units)
    [row] = [row for row in comparison.search.rows if row.method == "asha"]
    for place, seed in enumerate(SEEDS):
        worth = [at_depth(units, seed, depth) for depth in (2, 2, 6)]
        assert row.per_seed[ACCURACY.key][place] == pytest.approx(fmean(each.accuracy for each in worth))
        assert row.per_seed[LOG_LIKELIHOOD.key][place] == pytest.approx(fmean(each.log_likelihood for each in worth))
        assert row.per_seed[DEVICE_SECONDS.key][place] == pytest.approx((3 + 3 + 7) / 3)
        assert row.per_seed[TFLOP.key][place] == pytest.approx((5 + 5 + 13) / 3)
    assert "asha: cost and quality of a seed are means over 3 search seeds" in " ".join(comparison.notes)


def test_a_choice_that_was_stopped_early_is_evaluated_as_it_was_and_named() -> None:
    units = make_units(("grid", "asha"), SEEDS)
    worse = Measures(accuracy=0.1, log_likelihood=-2.0, ece=0.3, brier=0.9)
    as_left = StoppedMeasures(depth=6, epoch=60, measures=worse)
    units = [
        with_choices(u, [search(u, 2), search(u, 6, stopped=True)], [as_left]) if u.plan.method == "asha" else u
        for u in units
    ]
    comparison = compare(units)
    [row] = [row for row in comparison.search.rows if row.method == "asha"]
    assert row.per_seed[ACCURACY.key][0] == pytest.approx((at_depth(units, 0, 2).accuracy + 0.1) / 2)
    assert any("3 of these 6 searches chose a network that was stopped early" in note for note in comparison.notes)


def test_a_stopped_choice_that_nobody_evaluated_leaves_the_one_search_that_ran() -> None:
    units = make_units(("grid", "asha"), SEEDS)
    bare = {(row.method, place): row.per_seed[ACCURACY.key] for place, row in enumerate(compare(units).search.rows)}
    units = [with_choices(u, [search(u, 6, stopped=True)]) if u.plan.method == "asha" else u for u in units]
    comparison = compare(units)
    found = {(row.method, place): row.per_seed[ACCURACY.key] for place, row in enumerate(comparison.search.rows)}
    assert found == bare and any("asha: one search per training seed." in note for note in comparison.notes)


def of_one_trial(unit: Unit) -> Unit:
    """The plan of `random_depth` as its method makes it."""
    plan = unit.plan.model_copy(update={"trials": 1}) if unit.plan.method == "random_depth" else unit.plan
    return unit.model_copy(update={"plan": plan})


def test_one_random_depth_is_enumerated() -> None:
    """By other code: every depth of grid's, each as likely as the others; whatever depth was drawn."""
    units = [of_one_trial(unit) for unit in make_units(("grid", "random_depth"), SEEDS)]
    comparison = compare(units)
    [row] = [row for row in comparison.search.rows if row.method == "random_depth"]
    for place, seed in enumerate(SEEDS):
        grid = of(units, "grid", seed)
        assert grid.result
        total, count = 0.0, 0
        for each in grid.result.final.per_depth_test:
            total, count = total + each.measures.log_likelihood, count + 1
        assert count == len(grid.plan.space.depth.values)
        assert row.per_seed[LOG_LIKELIHOOD.key][place] == pytest.approx(total / count)
        assert row.per_seed[TFLOP.key][place] == pytest.approx(sum(t.cost.tflop for t in grid.trials) / count)
    assert "random_depth: the exact mean over all depths, not one draw." in comparison.notes


def test_without_all_depths_one_draw_is_one_draw_and_that_is_said_once() -> None:
    units = [of_one_trial(unit) for unit in make_units(("ldn", "random_depth"), SEEDS)]
    comparison = compare(units)
    [row] = [row for row in comparison.search.rows if row.method == "random_depth"]
    drawn = of(units, "random_depth", 0).result
    assert drawn and row.per_seed[ACCURACY.key][0] == drawn.final.chosen.accuracy
    assert sum("random_depth: one search per training seed." in note for note in comparison.notes) == 1
