"""What MLflow is told, as pure functions of the records."""

import pytest

from harness import keys
from harness.comparing import compare
from harness.comparing.numbers import signed_and_spread
from harness.judging.words import shown
from harness.measures import ACCURACY, DETAILS, DEVICE_SECONDS, HEADLINE, USD
from harness.schema.records import CurvePoint, Unit
from harness.tracking.content import (
    COST_GRID_MS,
    Point,
    RunContent,
    _mean_values,
    mean_content,
    rounded,
    search_content,
    thinned,
    trial_content,
)
from tests.synthetic import make_space, make_units


def one(method: str, **knobs: object) -> Unit:
    (unit,) = make_units([method], [0], **knobs)  # type: ignore[arg-type]
    return unit


def values_of(content: RunContent, key: str) -> dict[int, float]:
    return {point.step: point.value for point in content.points if point.key == key}


@pytest.mark.parametrize("method", ["ldn", "grid", "asha"])
def test_a_parent_holds_all_headline_measures_once(method: str) -> None:
    unit = one(method)
    content = search_content(unit)
    assert unit.result
    for measure in HEADLINE:
        assert list(values_of(content, measure.key)) == [0], measure.key
    assert values_of(content, DEVICE_SECONDS.key)[0] == pytest.approx(
        sum(trial.cost.device_seconds for trial in unit.trials), rel=1e-3
    )
    assert values_of(content, ACCURACY.key)[0] == pytest.approx(unit.result.final.chosen.accuracy, rel=1e-3)
    assert content.status == "FINISHED"


def test_a_price_is_a_metric_and_no_price_is_none() -> None:
    unit = one("grid")
    assert unit.result and values_of(search_content(unit), USD.key) == {}
    priced = unit.model_copy(update={"result": unit.result.model_copy(update={"usd_per_hour": 7.2})})
    [dollars] = values_of(search_content(priced), USD.key).values()
    assert dollars == pytest.approx(unit.result.cost.device_seconds * 0.002, rel=1e-3)  # a device-second: 0.2 cents


def test_no_child_uses_a_name_of_the_parent() -> None:
    unit = one("ldn")
    parent = {point.key for point in search_content(unit).points}
    child = {point.key for point in trial_content(unit, 0).points}
    assert parent.isdisjoint(child)


def test_every_metric_has_its_sentence() -> None:
    unit = one("ldn", refit=True)
    known = {measure.key for measure in (*HEADLINE, *DETAILS)} | keys.CURVES.keys()
    for content in (search_content(unit), trial_content(unit, 0)):
        assert content.points
        for point in content.points:
            assert point.key in known or point.key.startswith(keys.COST_PREFIX)


def test_names_tags_and_colour_follow_the_design() -> None:
    unit = one("grid")
    parent, child = search_content(unit), trial_content(unit, 7)
    assert (parent.name, child.name) == ("grid/s0", "grid/s0/t007 d=7")
    assert (parent.tags[keys.TAG_KIND], child.tags[keys.TAG_KIND]) == ("search", "trial")
    assert parent.key != child.key
    replayed = search_content(unit.model_copy(update={"plan": unit.plan.model_copy(update={"replayed": True})}))
    assert (parent.tags[keys.TAG_REPLAYED], replayed.tags[keys.TAG_REPLAYED]) == ("false", "true")
    assert "replayed from recorded ones" in replayed.tags["mlflow.note.content"]
    for content in (parent, child):
        assert content.tags[keys.TAG_SEARCH] == content.params["search"] == "grid"
        assert content.tags[keys.TAG_SEED] == content.params["seed"] == "0"
        assert content.tags["mlflow.runColor"] == unit.plan.facts.colour
    assert parent.params["environment.code"] == "0994e39"
    assert parent.params["split_hash"] == "split0"


def test_status_says_what_became_of_a_trial() -> None:
    unit = one("asha", failed_depths={"asha": [4]})
    for index, trial in enumerate(unit.trials):
        expected = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}[trial.status]
        content = trial_content(unit, index)
        assert content.status == expected
        if trial.status == "failed":
            assert "RuntimeError: loss is nan" in content.tags["mlflow.note.content"]
    assert {trial.status for trial in unit.trials} == {"finished", "stopped", "failed"}


def test_an_unfinished_search_has_no_measures_yet_and_says_so() -> None:
    unfinished = search_content(one("grid", unfinished=[("grid", 0)]))
    assert unfinished.status == "KILLED"
    assert not unfinished.points
    assert "Unfinished" in unfinished.tags["mlflow.note.content"]
    finished = search_content(one("grid"))
    assert finished.fingerprint != unfinished.fingerprint
    assert finished.params.items() >= unfinished.params.items()  # MLflow lets no param change


def test_a_run_fits_one_call_of_mlflow_however_long_its_curve() -> None:
    space = make_space(depth={"min": 0, "max": 300})
    unit = one("ldn", space=space)
    trial = unit.trials[0]
    point = CurvePoint(
        epoch=0, device_seconds=0.0, train_objective=-1.0, val_log_likelihood=-1.0, val_accuracy=0.5, d_opt=3
    )
    curve = tuple(point.model_copy(update={"epoch": epoch, "device_seconds": 0.01 * epoch}) for epoch in range(8000))
    unit = unit.model_copy(update={"trials": (trial.model_copy(update={"curve": curve}),)})
    for content in (search_content(unit), trial_content(unit, 0)):
        assert len(content.points) < 800
        assert len(content.params) < 100
        assert max(len(tag) for tag in content.tags.values()) < 8000
        for key in {point.key for point in content.points}:
            assert len(values_of(content, key)) <= 100
    epochs = list(values_of(trial_content(unit, 0), keys.VAL_ACCURACY))
    assert (epochs[0], epochs[-1]) == (0, 7999)


def test_a_long_traceback_keeps_its_end() -> None:
    unit = one("grid", failed_depths={"grid": [0]})
    trial = unit.trials[0].model_copy(update={"error": "x" * 20_000 + "\nValueError: the end"})
    note = trial_content(unit.model_copy(update={"trials": (trial,)}), 0).tags["mlflow.note.content"]
    assert "ValueError: the end" in note
    assert len(note) < 8000


def test_a_mix_of_code_versions_shows_in_the_params() -> None:
    unit = one("grid")
    other = unit.trials[0].environment.model_copy(update={"code": "1111111+dirty"})
    trials = (unit.trials[0].model_copy(update={"environment": other}), *unit.trials[1:])
    assert search_content(unit.model_copy(update={"trials": trials})).params["environment.code"] == (
        "0994e39, 1111111+dirty"
    )


def test_the_posterior_is_logged_by_depth() -> None:
    unit = one("ldn")
    q = values_of(search_content(unit), keys.DEPTH_POSTERIOR)
    posterior = unit.trials[0].posterior
    assert posterior
    assert list(q) == list(range(len(posterior.q)))
    assert sum(q.values()) == pytest.approx(1, abs=1e-3)
    assert unit.result
    per_depth = {each.depth: each.measures.log_likelihood for each in unit.result.final.per_depth_val}
    assert values_of(search_content(unit), keys.DEPTH_VAL_LOG_LIKELIHOOD) == pytest.approx(per_depth, abs=1e-3)
    for rule, depth in posterior.d_opt_by_rule.items():
        assert values_of(search_content(unit), f"d_opt_by_{rule}") == {0: depth}


def test_the_anytime_curves_of_all_searches_share_their_steps() -> None:
    units = make_units(seeds=range(2))
    curves = [values_of(search_content(unit), keys.ANYTIME_VAL_LOG_LIKELIHOOD) for unit in units]
    for unit, curve in zip(units, curves, strict=True):
        assert unit.result
        steps = list(curve)
        first = COST_GRID_MS.index(steps[0])
        assert steps == COST_GRID_MS[first : first + len(steps)]
        assert steps[-2] <= 1000 * unit.result.cost.device_seconds <= steps[-1]
        values = list(curve.values())
        assert values == sorted(values)
        assert values[-1] == pytest.approx(max(t.val.log_likelihood for t in unit.trials if t.val), abs=1e-3)
    assert len({step for curve in curves for step in curve}) < 0.5 * sum(map(len, curves))


def test_rounded_keeps_four_significant_digits() -> None:
    assert [rounded(value) for value in (12345.6, 0.000123456, -0.98765, 7, 0.0)] == [12350, 0.0001235, -0.9877, 7, 0]


def test_thinned_keeps_the_ends_and_the_order() -> None:
    assert list(thinned(range(5))) == [0, 1, 2, 3, 4]
    some = list(thinned(range(1234)))
    assert len(some) == len(set(some)) == 100
    assert some == sorted(some)
    assert (some[0], some[-1]) == (0, 1233)


def test_a_mean_is_that_of_the_seeds_step_by_step() -> None:
    units = make_units(["grid"], range(3))
    content, each = mean_content(units, compare(units)), [search_content(unit) for unit in units]
    assert (content.key, content.name) == ("synthetic/grid/mean", "grid, mean of 3 seeds")
    assert keys.TAG_SEED not in content.tags and content.tags[keys.TAG_KIND] == keys.KIND_MEAN
    for key in (ACCURACY.key, keys.DEPTH_TEST_LOG_LIKELIHOOD):
        for step, value in values_of(content, key).items():
            assert value == pytest.approx(sum(values_of(one_seed, key)[step] for one_seed in each) / 3, rel=2e-3)
    alone = {(point.key, point.step): point.value for point in mean_content(units[:1], compare(units[:1])).points}
    assert alone == {(point.key, point.step): point.value for point in each[0].points}
    assert mean_content(units[:2], compare(units[:2])).fingerprint != content.fingerprint


def test_a_mean_carries_its_verdicts_with_their_intervals() -> None:
    units = make_units(["ldn", "grid"], range(12))
    comparison = compare(units)
    ours, baseline = (mean_content([u for u in units if u.plan.method == name], comparison) for name in ("ldn", "grid"))
    assert ours.params["against"] == "grid" and ours.params["interval"].endswith(" %")
    [pair] = comparison.search.pairs
    for measure in comparison.judged:
        said = ours.params[f"verdict.{measure.title}"]
        assert said.startswith(shown(pair.verdicts[measure.key].outcome))
        assert signed_and_spread(pair.differences[measure.key]) in said
    assert ours.params["verdict.cost"].startswith("cheaper, 0.21×")
    assert comparison.sentences[0] in ours.tags["mlflow.note.content"].replace("\\", "")
    assert not any(name.startswith("verdict") for name in baseline.params)
    without = mean_content([u for u in units if u.plan.method == "ldn"], compare(units[:12]))
    assert without.fingerprint != ours.fingerprint, "a verdict that changes is written anew"


def test_the_mean_of_the_best_so_far_begins_when_all_have_one_and_stays_when_one_has_ended() -> None:
    def curve(*points: tuple[int, float]) -> list[Point]:
        return [Point(keys.ANYTIME_VAL_LOG_LIKELIHOOD, value, step, 0) for step, value in points]

    found = _mean_values([curve((10, -3.0), (20, -2.0), (40, -1.0)), curve((20, -4.0), (30, -3.0))])
    assert {step: value for (_, step), value in found.items()} == {20: -3.0, 30: -2.5, 40: -2.0}
    assert _mean_values([curve((10, -3.0)), curve()]) == {}, "one seed never had any"
