"""Claims: the number a claim speaks of, and what an interval says about its bounds."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.studies import results as results_module
from harness.studies.claims import judge, numbers_of
from harness.studies.definition import Claim, load_study
from harness.studies.results import StudyResults
from tests.studies.test_definition import written

DEPTHS, SEEDS = [2, 4, 16], 7
READINGS: dict[str, Callable[[Any], float]] = {
    "d_opt": lambda units: units["depth"] + 0.1 * units["seed"],
    "log_likelihood": lambda units: -0.5 + 0.01 * units["seed"] * (-1) ** units["seed"],
    "ece": lambda units: 0.0 if units["seed"] else 9.0,
    "accuracy": lambda units: 0.9,
    "tflop": lambda units: 3.0,
}
OTHERS = {"grid": 2.0}  # method → what its readings are a multiple of the LDN's


def read(name: str, units: Any, method: str | None = None) -> float:
    return READINGS[name](units) * OTHERS.get(method or "ldn", 1.0)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyResults:
    """Three cells and seven seeds; what a unit would hold is replaced by its place."""
    monkeypatch.setattr(results_module, "read", read)
    scales = {"small": {"vary": {"depth.max": DEPTHS}, "seeds": SEEDS}}
    study = load_study(written(tmp_path, scales=scales), "small")
    units: Any = {
        cell.space.name: {seed: {"depth": depth, "seed": seed} for seed in range(SEEDS)}
        for cell, depth in zip(study.cells, DEPTHS, strict=True)
    }
    return StudyResults(study, tmp_path, units)


def claim(**values: Any) -> Claim:
    return Claim.model_validate({"says": "s", "paper": "p", "of": "d_opt", "at_least": 0.0, **values})


def test_a_mean_over_the_cells_where_it_holds(results: StudyResults) -> None:
    assert numbers_of(claim(), results) == pytest.approx({s: sum(DEPTHS) / 3 + 0.1 * s for s in range(SEEDS)})
    assert numbers_of(claim(at={"depth.max": 4}), results) == pytest.approx({s: 4 + 0.1 * s for s in range(SEEDS)})
    assert numbers_of(claim(at={"depth.max": 5}), results) == {}


def test_a_difference_between_readings_and_between_cells(results: StudyResults) -> None:
    found = numbers_of(claim(minus="accuracy", at={"depth.max": 2}), results)
    assert found == pytest.approx({s: 2 + 0.1 * s - 0.9 for s in range(SEEDS)})
    found = numbers_of(claim(at={"depth.max": 16}, versus={"depth.max": 2}), results)
    assert found == pytest.approx(dict.fromkeys(range(SEEDS), 14.0))
    assert numbers_of(claim(at={"depth.max": 16}, versus={"depth.max": 3}), results) == {}


def test_a_change_over_a_setting_is_that_of_the_fitted_line(results: StudyResults) -> None:
    assert numbers_of(claim(over="depth.max"), results) == pytest.approx(dict.fromkeys(range(SEEDS), 14.0))
    in_logs = numbers_of(claim(over="depth.max", log=True), results)
    # log2 of the depths: 1, 2, 4; least squares by hand: slope 204/42 per doubling
    assert in_logs == pytest.approx(dict.fromkeys(range(SEEDS), 3 * 204 / 42))


@pytest.mark.parametrize(
    ("bounds", "answer"),
    [
        ({"at_least": -1.0, "at_most": 0.0}, "held"),
        ({"at_least": -0.3}, "not held"),
        ({"at_least": -0.5}, "not enough evidence"),
        ({"at_most": -0.9, "at_least": None}, "not held"),
    ],
)
def test_the_interval_decides(results: StudyResults, bounds: dict[str, float], answer: str) -> None:
    """Numbers -0.5, -0.51, -0.48, -0.53, -0.46, -0.55, -0.44: mean -0.496, four of seven at most -0.5."""
    one = claim(of="log_likelihood", **bounds)
    object.__setattr__(results.study, "claims", (one,))
    [judgement] = judge(results)
    assert judgement.answer == answer
    assert "measured" in judgement.sentence and "paper: p" in judgement.sentence


def test_no_network_no_spread_no_verdict(results: StudyResults) -> None:
    claims = (claim(at={"depth.max": 100}), claim(of="accuracy"))
    object.__setattr__(results.study, "claims", claims)
    missing, same = judge(results)
    assert missing.answer == "not enough evidence" and "not run at this scale" in missing.why
    assert same.answer == "held" and "measured 0.900 over 7 seeds" in same.why


def test_few_seeds_say_how_many_it_takes(results: StudyResults) -> None:
    few: Any = {cell: {seed: unit for seed, unit in units.items() if seed < 3} for cell, units in results.units.items()}
    object.__setattr__(results.study, "claims", (claim(of="accuracy"),))
    [judgement] = judge(dataclasses.replace(results, units=few))
    assert judgement.answer == "not enough evidence" and "3 seeds, too few of 6 that it takes" in judgement.why


def test_a_seed_that_decides_the_mean_leaves_most_seeds(results: StudyResults) -> None:
    object.__setattr__(results.study, "claims", (claim(of="ece", at_least=None, at_most=0.1),))
    results = dataclasses.replace(results)
    assert judge(results)[0].answer in ("held on most seeds", "not enough evidence")


def test_a_value_on_the_bound_keeps_to_it(results: StudyResults) -> None:
    object.__setattr__(results.study, "claims", (claim(of="accuracy", at_least=0.9),))
    assert judge(results)[0].answer == "held"


def test_the_rows_of_a_claim_are_a_family(results: StudyResults) -> None:
    """Seven seeds decide one row (2 / 128 < 5 %), and not the first of four."""
    rows = tuple(claim(of="accuracy", methods=(name,)) for name in ("a", "b", "c", "d"))
    object.__setattr__(results.study, "claims", rows)
    assert {judgement.answer for judgement in judge(results)} == {"not enough evidence"}
    object.__setattr__(results.study, "claims", rows[:1])
    assert judge(results)[0].answer == "held"


def test_a_difference_and_a_ratio_between_methods(results: StudyResults) -> None:
    found = numbers_of(claim(methods=("ldn",), than="grid", at={"depth.max": 4}), results)
    assert found == pytest.approx({s: -(4 + 0.1 * s) for s in range(SEEDS)})
    found = numbers_of(claim(methods=("grid",), than="ldn", ratio=True), results)
    assert found == pytest.approx(dict.fromkeys(range(SEEDS), 2.0))
    assert numbers_of(claim(methods=("grid",), minus="accuracy", at={"depth.max": 2}), results) == pytest.approx(
        {s: 2 * (2 + 0.1 * s - 0.9) for s in range(SEEDS)}
    )


@pytest.mark.parametrize(("most", "answer"), [(2.5, "held"), (1.5, "not held")])
def test_what_is_counted_needs_no_spread(results: StudyResults, most: float, answer: str) -> None:
    values = {"of": "tflop", "methods": ("grid",), "than": "ldn", "at_least": None, "at_most": most}
    claims = (claim(**values, ratio=True), claim(**{**values, "at_most": most + 1}))
    object.__setattr__(results.study, "claims", claims)
    ratio, difference = judge(results)
    assert ratio.answer == answer and "measured 2.00 over 7 seeds" in ratio.why
    assert ratio.sentence.startswith(f"{answer}: grid: s (")
    assert difference.answer == ("held" if most == 2.5 else "not held") and "measured +3 over" in difference.why
