"""The page of a study and its section of Markdown: claims first, all that is needed to get the numbers again."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.reporting.drawing import Drawing
from harness.studies.claims import as_tables, judge
from harness.studies.page import READING_TABLES, as_markdown, build_page, reading_tables, summary_tables
from harness.studies.readings import READINGS
from harness.studies.results import StudyResults
from tests.reporting.test_report import parsed
from tests.studies.test_figures import make_study
from tests.studies.trained import train_study

COMMAND = "harness study mine --set 'training.lr=0.2' --seeds 2"
DRAWING = Drawing("scan", "A <title>", "A caption of d_opt.", "words", '<svg viewBox="0 0 9 9"></svg>', width=7.4)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> StudyResults:
    folder = tmp_path_factory.mktemp("study")
    study = make_study(folder, {"depth.max": [1, 2]}, "ldn,deepest", ["scan"])
    return train_study(study, folder / "out", folder / "checkpoints", range(2))


def page(results: StudyResults) -> str:
    return build_page(results, judge(results), [DRAWING], COMMAND)


def test_the_page_in_order_and_self_contained(results: StudyResults) -> None:
    html = page(results)
    found = parsed(html)
    assert [name for name in found.ids if name in {"claims", "figures", "tables", "reproduce"}] == [
        "claims",
        "figures",
        "tables",
        "reproduce",
    ]
    assert not {"script", "img", "iframe"} & set(found.tags)
    assert html == page(results)


def test_the_page_says_what_the_paper_says_what_was_found_and_what_was_reduced(results: StudyResults) -> None:
    html = page(results)
    [judgement] = judge(results)
    for text in ("figure 9", "one &amp; only", "9 &lt; 10", judgement.answer, "all of it", "A &lt;title&gt;"):
        assert text in html
    assert judgement.why in html
    assert f"{judgement.answer.capitalize()}: 1" in html or f"{judgement.answer}: 1" in html


def test_how_to_reproduce(results: StudyResults) -> None:
    part = page(results).split('id="reproduce"')[1]
    environment = results.units["depth.max-1"][0]["ldn"].trials[0].environment
    for text in ("--set &#x27;training.lr=0.2&#x27;", environment.torch, environment.python, "0, 1"):
        assert text in part
    assert "8 networks trained in " in part


def test_every_reading_has_a_place_in_the_tables() -> None:
    shown = [reading for table in READING_TABLES.values() for reading in table]
    assert sorted(shown) == sorted(READINGS)


def test_tables_hold_means_of_what_was_measured(results: StudyResults) -> None:
    depth = reading_tables(results)[0]
    assert [row[0] for row in depth.rows] == ["D = 1", "D = 2"]
    assert all(row[1] == "2" for row in depth.rows)
    d_opts = results.readings("d_opt", results.cells[1]).values()
    mean = sum(d_opts) / 2
    assert float(depth.rows[1][depth.columns.index("d_opt")].split(" ")[0]) == pytest.approx(mean)


def test_columns_without_a_number_are_left_out(results: StudyResults) -> None:
    learnt = {c: {s: {"ldn": u["ldn"]} for s, u in by_seed.items()} for c, by_seed in results.units.items()}
    columns = [column for view in reading_tables(replace(results, units=learnt)) for column in view.columns]
    assert "deepest fixed depth" not in columns
    assert "at d_opt" in columns


def test_what_is_missing_is_named(results: StudyResults) -> None:
    units = {cell: dict(by_seed) for cell, by_seed in results.units.items()}
    units["depth.max-2"] = {0: {"ldn": units["depth.max-2"][0]["ldn"]}}
    html = page(replace(results, units=units))
    assert "D = 2, deepest seed 0; D = 2, ldn seed 1; D = 2, deepest seed 1." in html
    assert "Missing:" not in page(results)


def test_markdown_section(results: StudyResults) -> None:
    text = as_markdown(results, judge(results), [DRAWING], COMMAND)
    [judgement] = judge(results)
    assert text.startswith("## mine: A study\n")
    assert f"\n```sh\n{COMMAND}\n```\n" in text
    assert f"- **{judgement.answer}**: one & only (" in text
    assert "paper: 9 &lt; 10)" in text
    assert "](./scan.png)" in text
    assert "*A caption of d\\_opt.*" in text
    assert "Scale small: all of it. Seeds 0, 1." in text
    assert "device-seconds. Made with harness " in text


def test_seeds_that_only_one_cell_was_asked_for_are_not_missing(results: StudyResults) -> None:
    units = {cell: dict(by_seed) for cell, by_seed in results.units.items()}
    units["depth.max-1"][5] = units["depth.max-1"][0]
    html = page(replace(results, units=units))
    assert "Missing:" not in html and "Scale small, seeds: 3 of D = 1, 2 of D = 2." in html
    units["depth.max-1"][6] = {"ldn": units["depth.max-1"][0]["ldn"]}
    assert "D = 1, deepest seed 6." in page(replace(results, units=units))


def test_claims_about_several_methods_are_a_table(tmp_path: Path) -> None:
    study = make_study(tmp_path, {"depth.max": [1, 2]}, "ldn,exits", ["scan"])
    results = train_study(study, tmp_path / "out", tmp_path / "checkpoints", range(2))
    judgements = judge(results)
    assert [judgement.claim.method for judgement in judgements] == ["ldn", "exits"]
    [view] = as_tables(judgements)
    assert view.title == "one & only" and view.columns == ("method", "answer, 2 seeds")
    assert view.rows == tuple((each.claim.method, f"{each.answer}, {each.number}") for each in judgements)
    text = as_markdown(results, judgements, [DRAWING], COMMAND)
    assert "\n### one & only\n\n| method | answer, 2 seeds |\n" in text and "- **" not in text
    [summary] = summary_tables(results)
    assert [row[0] for row in summary.rows] == ["D = 1, ldn", "D = 1, exits", "D = 2, ldn", "D = 2, exits"]
    accuracy = results.readings("accuracy", results.cells[1], "exits").values()
    shown = summary.rows[3][summary.columns.index("accuracy")].split(" ")[0]
    assert float(shown) == pytest.approx(sum(accuracy) / 2, abs=0.1), "the spread decides how many digits are shown"
    html = build_page(results, judgements, [DRAWING], COMMAND)
    assert parsed(html).tags.count("article") == 0 and "D = 2, exits" in html
