"""The size of the network that is handed over: verdicts of their own, in every view, and unknown of old results."""

import csv
import io
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from rich.console import Console

from harness.comparing import Comparison, compare
from harness.comparing.finished import finished_by_method
from harness.comparing.headroom import DEEPEST
from harness.comparing.render import as_csv, as_json, verdict
from harness.comparing.tables import summary_tables
from harness.comparing.values import Pair
from harness.measures import SIZE, SIZES
from harness.reporting.gallery import all_figures
from harness.reporting.html import build_report
from harness.reporting.quality import pareto_front
from harness.schema.records import Unit
from tests.synthetic import make_units

METHODS = ("ldn", "grid", "random_search")


def sized(units: Sequence[Unit], size: Callable[[Unit], int | None]) -> list[Unit]:
    """The same units, whose networks take so many multiply-adds of the deepest one's 1,000."""
    changed = []
    for unit in units:
        assert unit.result
        wanted = size(unit)
        more = {"multiply_adds": wanted, "deepest_multiply_adds": None if wanted is None else 1000}
        final = unit.result.final.model_copy(update=more)
        if wanted is None:
            tests = tuple(each.model_copy(update={"multiply_adds": None}) for each in final.per_depth_test)
            final = final.model_copy(update={"per_depth_test": tests})
        changed.append(unit.model_copy(update={"result": unit.result.model_copy(update={"final": final})}))
    return changed


def pair_of(comparison: Comparison, method: str) -> Pair:
    [one] = [each for each in comparison.search.pairs if each.method == method]
    return one


def by_method(unit: Unit) -> int:
    """ldn: half of grid's on every seed; random_search: larger or smaller, as it happens."""
    rng = np.random.default_rng([unit.plan.seed, len(unit.plan.method)])
    return {"ldn": 300, "grid": 600}.get(unit.plan.method, int(rng.choice([500, 700])))


def test_smaller_larger_and_undecided() -> None:
    comparison = compare(sized(make_units(METHODS, range(10)), by_method))
    ldn, other = (pair_of(comparison, method) for method in ("ldn", "random_search"))
    assert ldn.size and ldn.size.outcome == "smaller" and ldn.size_ratio and ldn.size_ratio.mean == pytest.approx(0.5)
    assert other.size and other.size.outcome == "undecided"
    other_way = compare(sized(make_units(METHODS, range(10)), by_method), "grid")
    [against] = [each for each in other_way.search.pairs if each.baseline == "ldn"]
    assert against.size and against.size.outcome == "larger"
    assert against.size_ratio and against.size_ratio.mean == pytest.approx(2)


def test_sizes_are_a_family_of_their_own() -> None:
    """They make no verdict on cost and quality harder, keep no run going, and hold together by themselves."""
    units = make_units(METHODS, range(10))
    with_sizes, without = compare(sized(units, by_method)), compare(sized(units, lambda unit: None))
    for ours, theirs in zip(with_sizes.search.pairs, without.search.pairs, strict=True):
        assert ours.model_copy(update={"size": None}) == theirs
    assert with_sizes.recommendation.sentence == without.recommendation.sentence
    assert with_sizes.is_decided == without.is_decided
    few = compare(sized(make_units(METHODS, range(4)), by_method))
    assert {pair.size.outcome for pair in few.search.pairs if pair.size} == {"too few seeds"}


def test_withheld_where_the_two_were_not_compared_on_equal_terms() -> None:
    units = sized(make_units(METHODS, range(10), split_hashes={"ldn": "another"}), by_method)
    pair = pair_of(compare(units), "ldn")
    assert pair.withheld and pair.size is None


def test_every_view_shows_it() -> None:
    units = sized(make_units(METHODS, range(10)), by_method)
    comparison = compare(units)
    console = Console(width=200, record=True)
    console.print(verdict(comparison))
    assert "Network size, divided by grid's: ldn 0.50×, smaller." in console.export_text()
    [table] = [each for each in summary_tables(comparison) if each.title == "Size of the network, search"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["ldn"][0] == "0.3" and rows["ldn"][-2:] == ("0.50×", "smaller") and rows["grid"][-1] == "–"
    [line] = [
        row
        for row in csv.DictReader(io.StringIO(as_csv(comparison)))
        if (row["costs"], row["method"], row["measure"]) == ("search", "ldn", SIZE.key)
    ]
    assert (line["compared_by"], line["verdict"]) == ("ratio", "smaller") and float(line["value"]) == pytest.approx(0.5)
    assert Comparison.model_validate_json(as_json(comparison)) == comparison
    report = build_report(units, comparison)
    assert '<span class="badge good">size: smaller</span>' in report
    assert "its network is smaller, 0.50× the size." in report
    names = [each.name for each in all_figures(finished_by_method(units, "ldn"), comparison)]
    assert names.index("size") == names.index("quality") + 1
    assert "ldn" in pareto_front(comparison.search.rows, "test_accuracy", SIZE.key)


def test_results_of_a_version_that_did_not_count_are_compared_as_before() -> None:
    units = sized(make_units(METHODS, range(10)), lambda unit: None)
    comparison = compare(units)
    assert all(pair.size is None for pair in comparison.search.pairs)
    assert not any(each.title.startswith("Size") for each in summary_tables(comparison))
    assert "size" not in [each.name for each in all_figures(finished_by_method(units, "ldn"), comparison)]
    assert comparison.headroom and all(pair.size is None for pair in comparison.headroom.stage.pairs)
    old_and_new = [*units[: len(units) // 2], *make_units(METHODS, range(5, 10))]
    assert compare(old_and_new).search.pairs[0].size is None


def test_a_refit_hands_over_a_fixed_depth() -> None:
    comparison = compare(make_units(("ldn", "grid"), range(10), refit=True))
    assert comparison.refit
    search, refit = ({row.method: row for row in stage.rows} for stage in (comparison.search, comparison.refit))
    assert search["grid"].per_seed[SIZE.key] == refit["grid"].per_seed[SIZE.key]
    heads = [a - b for a, b in zip(search["ldn"].per_seed[SIZE.key], refit["ldn"].per_seed[SIZE.key], strict=True)]
    assert min(heads) > 0, "an output block per depth less"


def test_headroom_says_what_a_search_may_still_be_good_for() -> None:
    found = compare(make_units(("grid",), range(12))).headroom
    assert found and found.outcome == "no search is needed"
    [pair] = [each for each in found.stage.pairs if each.method == DEEPEST]
    assert pair.size and pair.size.outcome == "larger" and pair.size_ratio
    assert "stays within every margin of grid's choice, which is smaller: 0." in found.sentence
    assert SIZE.key in found.stage.rows[0].per_seed and SIZE in SIZES
