"""The one table of measures covers the records, and every view takes its columns from it."""

import io
import json

import pytest
from rich.console import Console

from harness.comparing import compare
from harness.comparing.render import as_json
from harness.comparing.tables import difference_table, quality_table
from harness.measures import BALANCED_ACCURACY, COMPARED, DETAILS, HEADLINE, QUALITIES, USD, Outcome
from harness.schema.records import Measures
from harness.schema.settings import Margins
from harness.studies.page import READING_TABLES
from harness.studies.readings import READINGS
from harness.terminal.trial_view import view
from harness.training.one_trial import TrialReport
from tests.synthetic import make_units

ALL = {measure.key: measure for measure in (*COMPARED, *HEADLINE, *DETAILS)}


def test_every_recorded_quality_and_every_margin_has_a_row() -> None:
    measured = [quality.key for quality in (*QUALITIES, BALANCED_ACCURACY)]
    assert measured == [f"test_{field}" for field in Measures.model_fields]
    assert {quality.margin for quality in QUALITIES} - {None} == set(Margins.model_fields)


def test_a_key_and_a_sentence_for_each() -> None:
    listed = [*dict.fromkeys((*COMPARED, *HEADLINE, *DETAILS))]
    assert len(listed) == len(ALL)
    assert all(measure.says.endswith(".") and measure.title for measure in listed)


def test_one_reader_serves_the_search_and_the_refit() -> None:
    (unit,) = make_units(("grid",), [0], refit=True)
    result = unit.result
    assert result and result.refit
    search, refit = Outcome.of_search(result), Outcome.of_refit(result)
    seconds = ALL["cost_device_seconds"]
    assert seconds.read(search) == result.cost.device_seconds
    assert seconds.read(refit) == result.cost.device_seconds + result.refit.cost.device_seconds
    for quality in QUALITIES:
        assert quality.read(search) == quality.of(result.final.chosen)
        assert quality.read(refit) == quality.of(result.refit.test)
        assert ALL[f"refit_{quality.key}"].read(search) == quality.of(result.refit.test)
    (bare,) = make_units(("grid",), [0])
    assert bare.result
    assert ALL["refit_device_seconds"].read(Outcome.of_search(bare.result)) is None
    with pytest.raises(ValueError, match="grid seed 0 has no refit"):
        Outcome.of_refit(bare.result)


def test_every_view_has_its_columns() -> None:
    comparison = compare(make_units(("ldn", "grid"), range(2)))
    titles = [quality.title for quality in QUALITIES]
    assert list(quality_table(comparison.search, None).columns[-len(titles) :]) == titles
    judged = [quality.title for quality in QUALITIES if quality.margin]
    assert [row[1] for row in difference_table(comparison.search, comparison).rows] == judged
    values = json.loads(as_json(comparison))["search"]["rows"][0]["values"]
    assert list(values) == [
        measure.key for measure in COMPARED if measure not in (USD, BALANCED_ACCURACY)
    ]  # not recorded there
    for quality in QUALITIES:
        for pattern in ("{}", "full_{}", "threshold_{}", "expected_{}", "deepest_{}", "best_fixed_{}"):
            assert pattern.format(quality.field) in READINGS
        assert any(title.startswith(f"Test {quality.title}") for title in READING_TABLES)


def test_a_trial_in_the_terminal_has_its_columns() -> None:
    (unit,) = make_units(("ldn",), [0])
    console = Console(file=io.StringIO(), width=120)
    console.print(view(TrialReport(record=unit.trials[0], d_opt=5, val_jitter=0.0123)))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert all(quality.title in text for quality in QUALITIES)
    assert "jitters by 0.012 nats" in text and "differ by less than 0.037 cannot be told apart" in " ".join(
        text.split()
    )
