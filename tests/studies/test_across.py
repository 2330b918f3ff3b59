"""The verdict across spaces: worked out by hand, against enumeration, and as the comparison of each space says it."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.comparing import compare
from harness.comparing.stages import paired_values, row_of, with_verdicts
from harness.comparing.values import HeadroomOutcome, Stage
from harness.errors import UserError
from harness.measures import DEVICE_SECONDS, LOG_LIKELIHOOD, TFLOP
from harness.schema.settings import Margins
from harness.studies.across import Across, OnSpace, across, across_cells, as_markdown, space_tables, tables
from harness.studies.definition import load_study
from harness.studies.figures.across import draw_across
from harness.studies.page import as_markdown as as_section
from harness.studies.page import build_page
from harness.studies.results import StudyResults
from tests.studies.test_definition import written
from tests.synthetic import make_space, make_units

SEEDS = tuple(range(10))
FAMILY = tuple("abcdef")


def on_space(
    name: str,
    methods: Mapping[str, tuple[float, Sequence[float]]],
    headroom: HeadroomOutcome | None = None,
    **size: int,
) -> OnSpace:
    """`methods`: cost ÷ that of the search over every depth, and log-likelihood − its, on each seed."""

    def values(share: float, gains: Sequence[float]) -> list[dict[str, float]]:
        return [{DEVICE_SECONDS.key: 10 * share, LOG_LIKELIHOOD.key: gain - 1} for gain in gains]

    seeds = tuple(range(len(next(iter(methods.values()))[1])))
    found = {"whole": values(1.0, [0.0] * len(seeds)), **{row: values(*each) for row, each in methods.items()}}
    stage = Stage(
        name="search",
        rows=tuple(row_of(row, seeds, each) for row, each in found.items()),
        pairs=tuple(paired_values(row, "whole", seeds, found) for row in methods),
    )
    judged = with_verdicts(stage, DEVICE_SECONDS, Margins(accuracy=0.01, log_likelihood=0.02, ece=0.02), ())
    facts = {"depths": 9, "epochs": 100, "rows": 200, **size}
    return OnSpace(space=name, **facts, headroom=headroom, cost=DEVICE_SECONDS.key, stage=judged)


def test_the_whole_view_by_hand() -> None:
    """Ten seeds: those that agree are certain in a table of six verdicts. The margin is 0.02 nats."""
    lost, level, split = [-0.5] * 10, [-0.0012] * 10, [0.3, -0.1] * 5
    found = across(
        [
            on_space("large", {"a": (0.4, level), "b": (0.1, lost), "c": (1.5, level)}, "search pays", depths=49),
            on_space("small", {"a": (0.2, level), "b": (0.2, split), "c": (1.5, level)}, "no search is needed"),
            on_space("medium", {"a": (0.3, lost), "b": (0.3, lost)}, "search pays", depths=13, rows=1_000),
        ],
        ["a", "b"],
        {"lacking": "there is no file"},
        DEVICE_SECONDS,
    )
    a, b, c = found.methods
    assert a.standings == {"large": "matches", "small": "matches", "medium": "worse"}
    assert b.standings == {"large": "worse", "small": "undecided", "medium": "worse"}
    assert (a.failures, b.failures) == ({"medium": 10}, {"large": 10, "small": 5, "medium": 10})
    assert (a.cost_ratio, a.regret) == pytest.approx((0.3, 0.0012))  # medians of 0.4, 0.2, 0.3 and 0.0012, 0.0012, 0.5
    assert (b.cost_ratio, b.regret) == pytest.approx((0.2, 0.5))  # of 0.1, 0.2, 0.3 and 0.5, −0.1, 0.5
    assert (c.cost_ratio, c.regret, c.everywhere) == (pytest.approx(1.5), pytest.approx(0.0012), False), "not on medium"
    assert found.front == ("b", "a", "whole"), "b costs least, a loses less, whole loses nothing"
    assert found.sentence == (
        "a matches whole on 2 of 3 spaces, the most of the declared methods, at a median of 0.30 of its cost, and is "
        "worse on 1; 3 spaces are too few for a sign test of 2 methods, which needs at least 7; a search pays on 2, no "
        "search is needed on 1."
    )
    by_method, test, pays = tables(found)
    assert by_method.columns == (
        *("method", "spaces", "matches", "worse", "undecided", "fails on seeds of", "÷ whole", "lost", "front"),
    )
    assert by_method.rows == (
        ("a", "3", "2", "1", "0", "1", "0.30", "0.0012", "yes"),
        ("b", "3", "0", "2", "1", "3", "0.20", "0.50", "yes"),
        ("c", "2", "2", "0", "0", "0", "1.5", "0.0012", "–"),
    )
    assert test.rows == (
        ("a", "3", "0", "3", "0.250", "0.500", "too few spaces"),
        ("b", "3", "1", "2", "1.000", "1.000", "too few spaces"),
    )
    assert pays.columns == ("space", "depths", "epochs", "rows", "is a search needed?", "a", "b")
    assert pays.rows == (
        ("small", "9", "100", "200", "no search is needed", "80 % / 0.0012", "80 % / −0.10"),
        ("medium", "13", "100", "1,000", "search pays", "70 % / 0.50", "70 % / 0.50"),
        ("large", "49", "100", "200", "search pays", "60 % / 0.0012", "90 % / 0.50"),
    )
    assert found.pays == (
        "a: it matches whole and costs less on 2 of 3 spaces, with 9 to 49 depths, 100 epochs and 200 rows; there it "
        "saved 60 to 80 %.",
        "b: on none of 3 spaces does it match whole and cost less.",
        "Number of depths: 9 to 49 were seen; nothing is known below 9, between 13 and 49 or above 49.",
        "Number of epochs: 100 only; nothing is known of any other.",
        "Number of rows: 200 to 1,000 were seen; nothing is known below 200, between 200 and 1,000 or above 1,000.",
    )
    assert [view.title for view in space_tables(found)] == [
        "large, 10 seeds, search pays",
        "small, 10 seeds, no search is needed",
        "medium, 10 seeds, search pays",
    ]
    assert "worse beyond the margin" in space_tables(found)[2].rows[0][2]
    assert "- not judged: lacking: there is no file" in as_markdown(found)
    assert Across.model_validate_json(found.model_dump_json()) == found


def test_a_beaten_method_is_not_on_the_front_nor_one_that_the_search_beats() -> None:
    found = across(
        [
            on_space(
                "one", {"a": (0.5, [0.0] * 2), "b": (0.6, [-0.1] * 2), "c": (2.0, [-0.1] * 2), "d": (3.0, [0.1] * 2)}
            )
        ],
        [],
        {},
        DEVICE_SECONDS,
    )
    assert found.front == ("a", "d"), "a beats b and the search, which beats c; d gains"
    assert [row[-1] for row in tables(found)[0].rows] == ["yes", "no", "no", "yes"]
    assert found.sign_tests == () and "none is tested over spaces" in tables(found)[0].caption
    assert found.sentence.startswith("Of all methods none is shown to match whole on any of 1 space")


def test_what_was_not_compared_on_equal_terms_counts_for_nothing() -> None:
    spaces = [on_space("one", {"a": (0.5, [-0.1] * 3)}), on_space("two", {"a": (0.3, [-0.3] * 3)})]
    [pair] = spaces[1].stage.pairs
    unequal = pair.model_copy(update={"withheld": ("machine",), "verdicts": {}})
    spaces[1] = spaces[1].model_copy(update={"stage": spaces[1].stage.model_copy(update={"pairs": (unequal,)})})
    found = across(spaces, ["a"], {}, DEVICE_SECONDS)
    [a], [test] = found.methods, found.sign_tests
    assert a.standings == {"one": "undecided", "two": "withheld"}
    assert (a.cost_ratio, a.regret, a.everywhere, test.spaces) == (pytest.approx(0.5), pytest.approx(0.1), False, 1)
    assert "withheld" in tables(found)[0].columns and tables(found)[-1].rows[1][-1] == "–"


@pytest.mark.parametrize("n", range(1, 10))
def test_the_sign_test_is_that_of_enumeration(n: int) -> None:
    """Over all ways in which n signs can fall, the share of those that are at least as uneven."""
    ways = [abs(sum(signs)) for signs in itertools.product((1, -1), repeat=n)]
    for ahead in range(n + 1):
        gains = [0.1] * ahead + [-0.1] * (n - ahead)
        [test] = across(
            [on_space(f"s{place}", {"a": (0.5, [gain])}) for place, gain in enumerate(gains)], ["a"], {}, DEVICE_SECONDS
        ).sign_tests
        uneven = Fraction(sum(way >= abs(2 * ahead - n) for way in ways), len(ways))
        assert (test.ahead, test.behind, test.spaces) == (ahead, n - ahead, n)
        assert test.p == test.p_holm == pytest.approx(float(uneven))
        wanted = ("better" if 2 * ahead > n else "worse") if uneven <= 0.05 else "undecided"
        assert test.answer == (wanted if n >= 6 else "too few spaces")


def test_holm_over_all_that_were_declared_run_or_not() -> None:
    """Eight spaces, p = 2/256 where all agree and 2·(1 + 8)/256 where one does not; six methods: ×6, then ×5, …"""
    signs = {"a": "--------", "b": "-------+", "c": "++++++++", "d": "----++++", "e": "---00000"}
    gains = {"-": -0.1, "+": 0.1, "0": 0.0}
    spaces = [
        on_space(f"s{place}", {row: (0.5, [gains[sign[place]]]) for row, sign in signs.items()}) for place in range(8)
    ]
    found = across(spaces, FAMILY, {}, DEVICE_SECONDS)
    p = [2 / 256, 18 / 256, 2 / 256, 1.0, 1.0, 1.0]
    assert [test.p for test in found.sign_tests] == pytest.approx(p)
    assert [test.p_holm for test in found.sign_tests] == pytest.approx([12 / 256, 72 / 256, 12 / 256, 1.0, 1.0, 1.0])
    assert [test.answer for test in found.sign_tests] == [
        *("worse", "undecided", "better", "undecided", "undecided", "too few spaces"),
    ]
    assert [(test.ahead, test.behind, test.level) for test in found.sign_tests[-2:]] == [(0, 3, 5), (0, 0, 0)]
    assert "; c is better and a is worse than whole in log-likelihood over spaces (sign test)" in found.sentence


# --- of a study -----------------------------------------------------------------------------------------------------


def study_results(folder: Path, methods: str = "ldn,asha,grid", **units: Any) -> StudyResults:
    """Two spaces of synthetic units, and one whose file is no space."""
    for name, depth in (("one", 6), ("two", 10)):
        space = make_space(name=name, depth={"min": 0, "max": depth})
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(space.model_dump(mode="json", exclude={"name"})))
    (folder / "torn.yaml").write_text("depth: {")
    bases = [str(folder / f"{name}.yaml") for name in ("one", "two", "torn")]
    scales = {"small": {"vary": {"base": bases}, "seeds": 3}}
    file = written(folder, methods=methods, across=["ldn"], figures=["tradeoff"], claims=[], scales=scales, base=None)
    study = load_study(file, "small")
    by_cell: dict[str, Any] = {}
    for cell in study.cells:
        for unit in make_units(methods.split(","), range(3), space=cell.space, **units):
            if unit.result:
                by_cell.setdefault(cell.space.name, {}).setdefault(unit.plan.seed, {})[unit.plan.method] = unit
    return StudyResults(study, folder, by_cell, {"torn": study.broken[bases[2]]})


def test_each_cell_says_what_its_own_comparison_says(tmp_path: Path) -> None:
    results = study_results(tmp_path)
    found = across_cells(results)
    assert found and [space.space for space in found.spaces] == ["one", "two"]
    for cell, space in zip(results.cells, found.spaces, strict=True):
        compared = compare([unit for units in results.of(cell).values() for unit in units.values()])
        assert space.stage.pairs == compared.search.pairs and compared.headroom
        assert space.headroom == compared.headroom.outcome
        assert (space.depths, space.epochs, space.rows) == (len(cell.space.depth.values), 1000, 200)
    assert found.search == "grid" and list(found.not_judged) == ["torn"]
    page = build_page(results, [], [], "harness study mine", found)
    assert 'id="across"' in page and page.count("Not run:") == page.count("Not judged:") == 1
    assert found.sentence in page and "<h3>two, " in page
    section = as_section(results, [], [], "harness study mine", found)
    assert f"\n**{found.sentence}**\n" in section.replace("\\", "") and "\n### When does it pay?\n" in section


def test_where_seconds_of_one_space_are_in_doubt_ratios_are_of_operations(tmp_path: Path) -> None:
    results = study_results(tmp_path)
    slow = make_units(("ldn", "asha", "grid"), range(3), space=results.cells[0].space, seconds_factor={"ldn": 3.0})
    units = {seed: {unit.plan.method: unit for unit in slow if unit.plan.seed == seed} for seed in range(3)}
    found = across_cells(replace(results, units={**results.units, "one": units}))
    assert found and found.cost == TFLOP.key
    assert [space.cost for space in found.spaces] == [TFLOP.key, DEVICE_SECONDS.key]


def test_a_cell_without_a_search_over_every_depth_is_named(tmp_path: Path) -> None:
    results = study_results(tmp_path)
    without = {seed: {"ldn": units["ldn"]} for seed, units in results.units["two"].items()}
    only = {seed: {"grid": units["grid"]} for seed, units in results.units["two"].items()}
    for units, why in ((without, "no seed of a method that trains every depth is complete"), (only, "no seed beside")):
        found = across_cells(replace(results, units={**results.units, "two": units}))
        assert found and [space.space for space in found.spaces] == ["one"]
        assert found.not_judged["two"].startswith(why)
    told = replace(results, units={**results.units, "two": {}}, reasons={"two": "all 7 trials failed"})
    found = across_cells(told)
    assert found and found.not_judged == {"two": "all 7 trials failed"}
    assert across_cells(replace(results, units={})) is None


def test_it_is_no_question_where_no_space_varies_or_nothing_trains_every_depth(tmp_path: Path) -> None:
    study = load_study(written(tmp_path), "small")
    assert across_cells(StudyResults(study, tmp_path, {})) is None
    results = study_results(tmp_path)
    assert across_cells(replace(results, study=replace(results.study, methods="ldn,asha"))) is None


# --- what a study may declare, and a space that cannot be loaded ------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"across": ["ldn", "elastic", "exits", "udn", "asha", "deepest", "ascend"]},
            "across must list different methods, at most 6, which are tested over spaces; got ldn, elastic, exits",
        ),
        ({"across": ["ldn", "ldn"]}, "across must list different methods"),
        ({"across": ["elastc"]}, "across lists 'elastc', which is not among its methods (did you mean 'elastic'?)"),
        ({"across": ["grid"]}, "across lists grid, which the others are held against"),
        ({"methods": "ldn,elastic"}, "needs base to vary and nothing else, and a method that trains every depth"),
        ({"scales": {"small": {"vary": {"depth.max": [2, 4]}, "seeds": 1}}}, "across needs base to vary"),
    ],
)
def test_what_cannot_be_tested_over_spaces_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    methods = "ldn,elastic,exits,udn,asha,deepest,ascend,grid"
    scales = {"small": {"vary": {"base": ["quickstart", "digits"]}, "seeds": 1}}
    sound = {"methods": methods, "across": ["ldn"], "figures": ["tradeoff"], "claims": [], "scales": scales}
    assert load_study(written(tmp_path, **sound), "small").file.across == ("ldn",)
    with pytest.raises(UserError) as error:
        load_study(written(tmp_path, **{**sound, **changes}), "small")
    assert said in str(error.value)


def test_a_space_that_cannot_be_loaded_is_left_out_and_a_mistake_of_the_study_is_not(tmp_path: Path) -> None:
    torn = tmp_path / "torn.yaml"
    torn.write_text("description: no data\n")

    def study(*bases: str, **scale: Any) -> Any:
        scales = {"small": {"vary": {"base": list(bases)}, "seeds": 1, **scale}}
        return load_study(written(tmp_path, figures=["posterior"], claims=[], scales=scales), "small")

    found = study("quickstart", str(torn))
    assert [cell.space.name for cell in found.cells] == ["quickstart"]
    assert list(found.broken) == [str(torn)] and "data, network and depth are required" in found.broken[str(torn)]
    for bases, said in (
        (["quickstart", "quickstrat"], "unknown search space 'quickstrat'"),
        (["quickstart", str(tmp_path / "gone.yaml")], "gone.yaml"),
        ([str(torn)], "data, network and depth are required"),
    ):
        with pytest.raises(UserError, match=said):
            study(*bases)
    with pytest.raises(UserError, match=r"unknown key 'training\.lrr'"):
        study("quickstart", str(torn), set={"training.lrr": 1})


def test_what_is_written_can_be_read_elsewhere(tmp_path: Path) -> None:
    found = across_cells(study_results(tmp_path))
    assert found
    read = json.loads(found.model_dump_json())
    assert read["methods"][0]["standings"].keys() == {"one", "two"} and read["sentence"] == found.sentence


def test_the_figure_says_what_is_on_the_front(tmp_path: Path) -> None:
    results = study_results(tmp_path)
    found = across_cells(results)
    assert found
    drawing = draw_across(found, results)
    assert f"On the front: {', '.join(found.front)}." in drawing.description
    assert all(f">{name}<" in drawing.svg for name in ("ldn", "asha", "grid", "log-likelihood lost (nats)"))
