"""Terminal, markdown and JSON show the same comparison; users' text cannot break them."""

import csv
import io
import json
import re

import pytest
from rich.console import Console, Group, RenderableType

from harness.comparing import compare
from harness.comparing.numbers import (
    mean_and_spread,
    plain,
    ratio,
    ratio_with_ends,
    seeds_named,
    signed,
    signed_and_spread,
)
from harness.comparing.render import as_csv, as_json, as_markdown, details, leading_notes, summary, verdict
from harness.judging.words import shown as word_of
from harness.statistics import Interval
from tests.synthetic import make_units


def shown(renderable: RenderableType, width: int, terminal: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [100, 120])
def test_nothing_is_cut_off(width: int) -> None:
    comparison = compare(make_units(seeds=range(3), refit=True))
    text = "".join(shown(part(comparison), width) for part in (details, summary, verdict, leading_notes))
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width
    for method in comparison.methods:
        assert f"\n{method} " in text
    for heading in ("Cost, search", "Cost, search + refit", "equal quality", "Wall-clock, modelled", "checklist"):
        assert heading in text


SEVEN = ("ldn", "exits", "grid", "random_search", "optuna_tpe", "golden_section", "asha")


@pytest.mark.parametrize("reference", [None, "ldn", "asha"])
def test_a_verdict_on_seven_methods_is_one_screen(reference: str | None) -> None:
    """With what `harness run` prints below it: four lines."""
    comparison = compare(make_units(SEVEN, range(12)), reference)
    text = shown(Group(verdict(comparison), leading_notes(comparison)), 100)
    assert 24 <= len(text.splitlines()) + 4 <= 49
    words = " ".join(text.replace("│", " ").split())
    assert comparison.recommendation.sentence in words and comparison.margins_said in words
    for pair in comparison.search.pairs:
        assert f"│ {comparison.search.label_of(pair)} " in text
        assert all(word_of(each.outcome) in words for each in pair.verdicts.values())


def test_every_word_has_its_number_below_it() -> None:
    comparison = compare(make_units(("ldn", "grid"), range(12)))
    lines = shown(verdict(comparison), 100).splitlines()
    [row] = [place for place, line in enumerate(lines) if line.startswith("│ ldn   ")]
    [pair] = comparison.search.pairs
    words, numbers = lines[row], lines[row + 1]
    assert words.split()[:3] == ["│", "ldn", "cheaper"] and "0.21× (0.2" in numbers
    for key in ("test_accuracy", "test_log_likelihood", "test_ece"):
        number = signed_and_spread(pair.differences[key])
        assert pair.verdicts[key].outcome == words[numbers.index(number) :].split("  ")[0].rstrip()


def test_plain_text_has_no_escape_codes() -> None:
    comparison = compare(make_units(("ldn", "grid"), range(3)))
    assert "\x1b" not in shown(verdict(comparison), 400)
    assert "\x1b[" in shown(verdict(comparison), 120, terminal=True)


def test_one_seed_and_one_method_still_have_a_panel() -> None:
    assert "1 seed is too few" in shown(verdict(compare(make_units(("ldn", "grid"), [0]))), 100)
    assert "add one that does" in shown(verdict(compare(make_units(("ldn",), [0]))), 100)


def test_missing_cells_and_differences_are_shown() -> None:
    units = make_units(("ldn", "grid"), range(3), unfinished=[("grid", 2)], split_hashes={"grid": "x"})
    text = shown(summary(compare(units)), 120)
    assert "no result yet: grid seed 2" in shown(leading_notes(compare(units)), 120)
    assert "no result yet: grid seed 2" in text
    assert "training and validation split, seed 0: split0 (ldn) / x (grid)" in text
    assert "withheld" in text


def test_markup_in_names_is_text() -> None:
    comparison = compare(make_units(("ldn", "[red]x|<b>"), range(2)))
    assert "[red]x|<b>" in shown(summary(comparison), 160)
    markdown = as_markdown(comparison)
    assert "\\[red\\]x\\|&lt;b>" in markdown
    assert "<b>" not in markdown


def test_markdown_tables_are_rectangular() -> None:
    lines = as_markdown(compare(make_units(seeds=range(2), refit=True))).splitlines()
    tables: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("|"):
            tables[-1].append(line)
        elif tables[-1]:
            tables.append([])
    tables = [table for table in tables if table]
    assert len(tables) >= 8
    for table in tables:
        assert len({line.replace("\\|", "").count("|") for line in table}) == 1


def test_json_holds_the_comparison() -> None:
    comparison = compare(make_units(("ldn", "grid"), range(2)))
    values = json.loads(as_json(comparison))
    assert values["sentences"] == list(comparison.sentences)
    assert values["search"]["pairs"][0]["baseline"] == "grid"


def test_numbers_have_as_many_digits_as_they_deserve() -> None:
    assert [plain(value) for value in (0, -4e-15, 0.00421, 17.71, 1234.5, 3e-9)] == [
        "0",
        "0",
        "0.00421",
        "17.7",
        "1,234",
        "3.00e−09",
    ]
    assert [ratio(value) for value in (0.012, 0.5, 0.999, 6.14, 9.96, 141.2)] == [
        "0.012",
        "0.50",
        "1.0",
        "6.1",
        "10",
        "141",
    ]
    assert mean_and_spread(Interval(mean=17.714, low=17.3, high=18.1, n=3)) == "17.7 ± 0.4"
    assert mean_and_spread(Interval(mean=17.714, low=17.614, high=17.814, n=3)) == "17.71 ± 0.10"
    assert mean_and_spread(Interval(mean=0.98765, low=None, high=None, n=1)) == "0.9877"
    assert signed_and_spread(Interval(mean=0.015, low=0.009, high=0.021, n=30)) == "+0.015 ± 0.006"
    assert signed_and_spread(Interval(mean=-0.0064, low=-0.0108, high=-0.0020, n=30)) == "−0.006 ± 0.004"
    assert signed(Interval(mean=-0.046, low=-0.079, high=-0.013, n=3)) == "−0.046 (−0.079 to −0.013)"
    assert signed(Interval(mean=0.0, low=0.0, high=0.0, n=12)) == "0.0000", "a median among ties"
    small = Interval(mean=-0.0083, low=-1.2, high=1.2, n=2)
    assert (signed(small), signed_and_spread(small)) == ("0.0 (−1.2 to +1.2)", "0.0 ± 1.2"), "no sign in front of zero"
    assert ratio_with_ends(Interval(mean=6.1, low=4.8, high=7.9, n=3)) == "6.1× (4.8–7.9)"
    assert ratio_with_ends(Interval(mean=20.1, low=19.8, high=20.4, n=3)) == "20.1× (19.8–20.4)"
    assert ratio_with_ends(Interval(mean=3.51, low=3.49, high=3.53, n=3)) == "3.51× (3.49–3.53)"
    assert ratio_with_ends(Interval(mean=1.03, low=1.01, high=1.06, n=3)) == "1.03× (1.01–1.06)", "not 1.0×"
    assert ratio_with_ends(Interval(mean=1.02, low=None, high=None, n=1)) == "1.02×"


def test_an_interval_of_many_orders_of_magnitude_asks_for_more_seeds() -> None:
    assert ratio_with_ends(Interval(mean=6.1, low=3e-5, high=1.2e6, n=2)) == "6.1× (needs more seeds)"
    assert ratio_with_ends(Interval(mean=6.1, low=1e-300, high=1e300, n=2)) == "6.1× (needs more seeds)"
    assert ratio_with_ends(Interval(mean=6.1, low=0.7, high=60.0, n=2)) == "6.1× (0.70–60)"
    units = make_units(("ldn", "grid"), range(2), seconds_factor={"ldn": 1.0})
    ours = [unit for unit in units if unit.plan.method == "ldn" and unit.result]
    for unit, factor in zip(ours, (0.01, 100.0), strict=True):
        assert unit.result
        cost = unit.result.cost.model_copy(update={"held_seconds": factor * unit.result.cost.held_seconds})
        units[units.index(unit)] = unit.model_copy(update={"result": unit.result.model_copy(update={"cost": cost})})
    comparison = compare(units)
    everywhere = [*comparison.sentences, shown(verdict(comparison), 120), as_markdown(comparison)]
    assert all("needs more seeds" in " ".join(text.split()) for text in everywhere)


def test_what_a_name_is_short_for_is_said_once() -> None:
    comparison = compare(make_units(("ldn", "grid", "asha"), range(3)))
    assert comparison.full_names == {"ldn": "learnt-depth network", "asha": "asynchronous successive halving"}
    panel = " ".join(shown(verdict(comparison), 100).replace("│", " ").split())
    for text in (panel, as_markdown(comparison)):
        assert text.count("ldn: learnt-depth network; asha: asynchronous successive halving.") == 1
    assert compare(make_units(("grid", "deepest"), range(2))).full_names == {}


def test_seeds_in_a_row_are_named_as_one_range() -> None:
    assert [seeds_named(seeds) for seeds in ([3], [1, 0], [9, 0, 2, 3, 4])] == [
        "seed 3",
        "seeds 0, 1",
        "seeds 0, 2 to 4, 9",
    ]


def test_seeds_needed_are_all_of_them_not_more() -> None:
    comparison = compare(make_units(("ldn", "grid"), range(8), ldn_log_likelihood=-0.03))
    [pair] = comparison.search.pairs
    undecided = [said for said in pair.verdicts.values() if said.outcome == "undecided"]
    assert undecided
    panel = " ".join(shown(verdict(comparison), 100).replace("│", " ").split())
    for text in (panel, comparison.sentences[0], as_markdown(comparison)):
        assert re.search(r"\d+ seeds in (all|total)", text), text


def test_a_csv_has_every_number_of_the_comparison() -> None:
    comparison = compare(make_units(("ldn", "grid", "asha"), range(10), refit=True))
    lines = list(csv.DictReader(io.StringIO(as_csv(comparison))))
    assert {line["costs"] for line in lines} == {"search", "search + refit"}
    for stage in (comparison.search, comparison.refit):
        assert stage
        for row in stage.rows:
            own = [line for line in lines if (line["costs"], line["method"]) == (stage.name, row.method)]
            assert {line["measure"]: float(line["mean"]) for line in own} == {k: v.mean for k, v in row.values.items()}
            assert {line["seeds"] for line in own} == {"10"}
    [pair] = [pair for pair in comparison.search.pairs if pair.method == "ldn"]
    of_pair = {line["measure"]: line for line in lines if line["method"] == "ldn" and line["costs"] == "search"}
    cost, accuracy = of_pair["cost_device_seconds"], of_pair["test_accuracy"]
    assert (cost["baseline"], cost["compared_by"], accuracy["compared_by"]) == ("grid", "ratio", "difference")
    assert float(cost["value"]) == pytest.approx(1 / pair.cost_ratios["cost_device_seconds"].mean)
    assert float(cost["value_low"]) == pytest.approx(1 / (pair.cost_ratios["cost_device_seconds"].high or 0))
    assert float(accuracy["value"]) == pair.differences["test_accuracy"].mean
    assert accuracy["verdict"] == pair.verdicts["test_accuracy"].outcome and float(accuracy["margin"]) > 0
    assert cost["verdict"] == "cheaper" and cost["margin"] == ""
    grid = [line for line in lines if line["method"] == "grid"]
    assert grid and all(line["baseline"] == line["verdict"] == "" for line in grid)
    failed, median = pair.failures["test_accuracy"], pair.medians["test_accuracy"]
    assert (int(accuracy["failed_seeds"]), float(accuracy["failed_at_most"])) == (failed.count, failed.at_most)
    assert float(accuracy["median"]) == median.median and cost["median"] == ""


def test_a_csv_of_one_method_against_each_has_a_line_for_each() -> None:
    lines = list(csv.DictReader(io.StringIO(as_csv(compare(make_units(("ldn", "grid", "asha"), range(3)), "ldn")))))
    assert {line["baseline"] for line in lines if line["method"] == "ldn" and line["baseline"]} == {"grid", "asha"}
    one_seed = list(csv.DictReader(io.StringIO(as_csv(compare(make_units(("ldn", "grid"), [0]))))))
    assert {line["verdict"] for line in one_seed if line["measure"] == "test_accuracy"} == {"", "too few seeds"}
    assert {line["low"] for line in one_seed} == {""}
