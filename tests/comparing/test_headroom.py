"""Is a search needed at all? The rules that do not search, read off the networks of all depths, and what is said."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from harness.comparing import Comparison, compare
from harness.comparing.finished import Finished
from harness.comparing.headroom import (
    CONSTANT,
    DEEPEST,
    RANDOM,
    AllDepths,
    OneDepth,
    all_depths_of,
    best_constant_depths,
    headroom,
)
from harness.comparing.sentences import in_all
from harness.comparing.tables import summary_tables
from harness.comparing.values import Headroom, MethodRow
from harness.measures import DEPTH, DEVICE_SECONDS, EPOCHS, QUALITIES, TFLOP
from harness.schema.records import NOT_CARRIED_OVER, Cost, Measures, Unit
from harness.schema.settings import TIE_NATS, Margins
from tests.synthetic import make_space, make_units

MARGINS = Margins()
DEPTHS = range(9)


def found_in(comparison: Comparison) -> Headroom:
    assert comparison.headroom is not None
    return comparison.headroom


def row(found: Headroom, name: str) -> MethodRow:
    [one] = [each for each in found.stage.rows if each.method == name]
    return one


def in_turn(units: Sequence[Unit]) -> list[Finished]:
    return [Finished(unit.plan, unit.trials, unit.result) for unit in units if unit.result]


def made_up(curve: Mapping[int, float], seeds: int, scatter: float, stream: int) -> list[AllDepths]:
    """Seeds on which a depth is worth `curve` and some scatter, on validation and test; accuracy follows."""
    rng = np.random.default_rng(stream)

    def network(depth: int) -> OneDepth:
        worth, on_test = (curve[depth] + rng.normal(0, scatter) for _ in range(2))
        test = Measures(accuracy=min(1.0, 0.95 + on_test / 4), log_likelihood=on_test, ece=0.02, brier=0.1)
        return OneDepth(Cost(held_seconds=1.0 + depth, tflop=1.0, epochs=10), worth, test)

    drawn = [{depth: network(depth) for depth in curve} for _ in range(seeds)]
    return [AllDepths(seed, at, max(at, key=lambda depth: at[depth].validation)) for seed, at in enumerate(drawn)]


# --- exactness ----------------------------------------------------------------------------------------------------


def test_a_random_depth_is_enumerated() -> None:
    """By other code: an array over seeds and depths."""
    units = make_units(("grid", "ldn"), range(4))
    found = row(found_in(compare(units)), RANDOM)
    grids = [unit for unit in in_turn(units) if unit.method == "grid"]
    for quality in QUALITIES:
        values = np.array([[quality.of(each.measures) for each in unit.result.final.per_depth_test] for unit in grids])
        assert values.shape == (4, 11)
        np.testing.assert_allclose(found.per_seed[quality.key], values.mean(axis=1), rtol=1e-12)
    seconds = np.array([[trial.cost.device_seconds for trial in unit.trials] for unit in grids])
    np.testing.assert_allclose(found.per_seed[DEVICE_SECONDS.key], seconds.sum(axis=1) / 11, rtol=1e-12)
    assert found.per_seed[DEPTH.key] == (5.0,) * 4


def test_the_search_and_the_deepest_are_what_was_trained() -> None:
    """The search's row is that of the comparison; the deepest network's is that of a unit that trains it alone."""
    comparison = compare(make_units(("grid", "deepest"), range(4)))
    found = found_in(comparison)
    rows = {each.method: each for each in comparison.search.rows}
    for ours, theirs in ((row(found, "grid"), rows["grid"]), (row(found, DEEPEST), rows["deepest"])):
        for key, values in ours.per_seed.items():
            np.testing.assert_allclose(values, theirs.per_seed[key], rtol=1e-12, err_msg=key)


def test_what_a_rule_costs_is_its_share_of_the_search() -> None:
    found = found_in(compare(make_units(("grid",), range(4))))
    assert found.cost_shares[RANDOM] == pytest.approx(1 / 11)
    seconds = [row(found, name).per_seed[DEVICE_SECONDS.key] for name in (DEEPEST, "grid")]
    ratios = np.array(seconds[0]) / np.array(seconds[1])
    assert found.cost_shares[DEEPEST] == pytest.approx(float(np.exp(np.log(ratios).mean())))


def test_gains_are_the_search_minus_the_rule() -> None:
    found = found_in(compare(make_units(("grid",), range(6))))
    assert found.best_rule == DEEPEST
    for key, gain in found.gains.items():
        ours, theirs = (row(found, name).values[key].mean for name in ("grid", DEEPEST))
        assert gain.mean == pytest.approx(ours - theirs)
        assert gain.low is not None and gain.high is not None and gain.low < gain.mean < gain.high


@pytest.mark.parametrize("stream", range(20))
def test_leaving_one_out_never_sees_its_own_seed(stream: int) -> None:
    """Whatever a seed's own values are, its constant depth stays, and it is the one the others like best."""
    rng = np.random.default_rng(stream)
    seeds = made_up({depth: float(rng.normal(0, 0.05)) for depth in DEPTHS}, 5, 0.1, stream)
    chosen = best_constant_depths(seeds)
    validation = np.array([[seed.at[depth].validation for depth in DEPTHS] for seed in seeds])
    for place, seed in enumerate(seeds):
        others = np.delete(validation, place, axis=0).mean(axis=0)
        assert chosen[place] == int(np.argmax(others >= others.max() - TIE_NATS))
        own = {depth: replace(each, validation=float(rng.normal(0, 100))) for depth, each in seed.at.items()}
        changed = [replace(each, at=own) if each is seed else each for each in seeds]
        assert best_constant_depths(changed)[place] == chosen[place]


def test_the_best_constant_depth_is_shown_and_never_judged() -> None:
    found = found_in(compare(make_units(("grid",), range(10))))
    assert row(found, CONSTANT).seeds == tuple(range(10))
    assert [pair.method for pair in found.stage.pairs] == [DEEPEST, RANDOM]
    assert not any(CONSTANT in each.method for each in found_in(compare(make_units(("grid",), [0]))).stage.rows)


def test_the_rules_are_a_family_of_their_own() -> None:
    """More methods beside them make no verdict on them harder, and they make none on methods harder."""
    alone, among = (compare(make_units(methods, range(9))) for methods in (("grid",), ("grid", "ldn", "asha")))
    assert found_in(alone) == found_in(among)
    verdicts = [each for pair in found_in(alone).stage.pairs for each in pair.verdicts]
    assert sorted(verdicts) == sorted(2 * ["test_accuracy", "test_log_likelihood", "test_ece"]), "no cost: a part of it"


def test_replayed_and_live_give_the_same_rows() -> None:
    """But for what does not carry over to a replay, which is in no replayed cost."""
    live = make_units(("grid",), range(6))
    stripped = [
        unit.model_copy(
            update={
                "trials": tuple(t.model_copy(update={"cost": t.cost.without(NOT_CARRIED_OVER)}) for t in unit.trials),
                "result": unit.result
                and unit.result.model_copy(update={"cost": unit.result.cost.without(NOT_CARRIED_OVER)}),
            }
        )
        for unit in live
    ]
    replayed = [unit.model_copy(update={"plan": unit.plan.model_copy(update={"replayed": True})}) for unit in stripped]
    asha = [
        unit.model_copy(update={"plan": unit.plan.model_copy(update={"replayed": True})})
        for unit in make_units(("asha",), range(6))
    ]
    [once, again, beside] = [found_in(compare(units)) for units in (stripped, replayed, [*live, *asha])]
    assert once == again == beside
    measured = found_in(compare(live))
    for ours, theirs in zip(measured.stage.rows, once.stage.rows, strict=True):
        for key in (TFLOP.key, EPOCHS.key, DEPTH.key, *(quality.key for quality in QUALITIES)):
            assert ours.per_seed[key] == theirs.per_seed[key]


# --- the outcomes -------------------------------------------------------------------------------------------

FLAT = dict.fromkeys(DEPTHS, -0.1)
PEAKED = {depth: -0.1 - 0.02 * (depth - 4) ** 2 for depth in DEPTHS}


@pytest.mark.parametrize(
    ("curve", "outcome", "begins"),
    [(FLAT, "no search is needed", "No search is needed: "), (PEAKED, "search pays", "Search pays: ")],
)
def test_simulated_studies_get_the_right_words(curve: Mapping[int, float], outcome: str, begins: str) -> None:
    found = [headroom(made_up(curve, 12, 0.012, study), "grid", MARGINS) for study in range(100)]
    said = [each for each in found if each and each.outcome == outcome and each.sentence.startswith(begins)]
    assert len(said) >= 95, [each.sentence for each in found if each and each not in said]


def test_where_nothing_is_worth_a_search_noise_does_not_make_it_so() -> None:
    """So noisy that little can be decided: whatever is said for a search is said in error."""
    found = [headroom(made_up(FLAT, 12, 0.06, study), "grid", MARGINS) for study in range(100)]
    wrong = [each.sentence for each in found if each and each.outcome in ("search pays", "search is better")]
    assert len(wrong) <= 5, wrong


def test_better_by_an_open_amount_is_said_as_such() -> None:
    """Ahead on every seed, by about the margin: the sign is certain, the margin is not."""
    rng = np.random.default_rng(0)
    [*seeds] = made_up({0: -1.0, 1: -0.1, 2: -0.1}, 12, 0.0, 0)
    changed = []
    for seed in seeds:
        behind = -0.1 - abs(rng.normal(0.06, 0.03))
        test = seed.at[2].test.model_copy(update={"log_likelihood": behind})
        deepest = replace(seed.at[2], validation=behind, test=test)
        changed.append(AllDepths(seed.seed, {**seed.at, 2: deepest}, 1))
    found = headroom(changed, "grid", MARGINS)
    assert found and found.outcome == "search is better" and found.rule == DEEPEST
    assert found.sentence.startswith("A search is better than none: the deepest network, at 0.50 of grid's cost, is ")
    assert found.seeds_needed is not None and in_all(found.seeds_needed) in found.sentence
    [pair] = [each for each in found.stage.pairs if each.method == DEEPEST]
    assert pair.verdicts["test_log_likelihood"].outcome == "worse"


def test_what_is_not_decided_says_how_many_seeds() -> None:
    """Four seeds of six questions cannot decide anything; more of the same do, and not only as many as any verdict."""
    few, noisy = (
        headroom(made_up(FLAT, 4, 0.012, 0), "grid", MARGINS),
        headroom(made_up(FLAT, 9, 0.06, 1), "grid", MARGINS),
    )
    assert few and noisy and few.outcome == noisy.outcome == "not decided"
    assert few.seeds_needed is not None and few.seeds_needed >= few.stage.fewest_seeds > 4
    assert f"about {few.seeds_needed} seeds in all (4 in 5) would decide." in few.sentence
    assert few.sentence.startswith("Whether a search is needed is not decided: ")
    assert noisy.seeds_needed is None or noisy.seeds_needed > 9
    enough = headroom(made_up(FLAT, max(12, few.seeds_needed), 0.012, 0), "grid", MARGINS)
    assert enough and enough.outcome == "no search is needed"


def test_one_quality_beyond_the_margin_is_enough_to_lose() -> None:
    """Calibration that is at its margin, and would take forever, does not matter where the log-likelihood decides."""
    rng = np.random.default_rng(0)
    seeds = []
    for seed in range(12):
        shallow, deep = rng.normal(-0.1, 0.001), -0.12 - abs(rng.normal(0.02, 0.02))
        at = {
            depth: OneDepth(
                Cost(held_seconds=1.0, tflop=1.0, epochs=1),
                worth,
                Measures(accuracy=0.9, log_likelihood=worth, ece=ece + rng.normal(0, 0.01), brier=0.1),
            )
            for depth, worth, ece in ((0, shallow, 0.02), (1, deep, 0.04), (2, deep, 0.04))
        }
        seeds.append(AllDepths(seed, at, 0))
    found = headroom(seeds, "grid", MARGINS)
    assert found and found.outcome == "search is better"
    assert found.seeds_needed is not None and found.seeds_needed < 100


def test_one_seed_cannot_tell() -> None:
    found = headroom(made_up(FLAT, 1, 0.012, 0), "grid", MARGINS)
    assert found and found.outcome == "not decided" and "one seed cannot tell" in found.sentence


def test_where_deep_networks_fail_a_random_depth_may_be_the_better_rule() -> None:
    found = headroom(made_up({0: -0.1, 1: -0.1, 2: -0.1, 3: -2.0}, 12, 0.002, 0), "grid", MARGINS)
    assert found and found.best_rule == RANDOM and found.outcome == "search pays"


# --- what is not there --------------------------------------------------------------------------------------------


def notes_on_it(comparison: Comparison) -> list[str]:
    return [note for note in comparison.notes if "search is needed" in note or "nothing to search" in note]


def test_without_a_network_of_every_depth_that_is_said_once() -> None:
    comparison = compare(make_units(("ldn", "asha", "random_search"), range(3)))
    assert comparison.headroom is None and len(notes_on_it(comparison)) == 1
    assert comparison.recommendation.sentence.startswith("Not decided whether to search: no method here trained every")


def test_seeds_with_a_failed_depth_are_left_out_and_named() -> None:
    whole, broken = make_units(("grid",), range(6)), make_units(("grid",), [6], failed_depths={"grid": [3]})
    comparison = compare([*whole, *broken])
    assert row(found_in(comparison), RANDOM).seeds == tuple(range(6))
    assert notes_on_it(comparison) == ["Whether a search is needed is judged without seed 6, where a depth is missing."]
    nothing = compare(broken)
    assert nothing.headroom is None and len(notes_on_it(nothing)) == 1


def test_a_network_that_was_not_evaluated_or_diverged_is_missing() -> None:
    [unit] = in_turn(make_units(("grid",), [0]))
    assert all_depths_of(unit) is not None
    final = unit.result.final
    untested = final.model_copy(update={"per_depth_test": final.per_depth_test[:-1]})
    assert all_depths_of(replace(unit, result=unit.result.model_copy(update={"final": untested}))) is None
    val = unit.trials[2].val
    assert val
    diverged = unit.trials[2].model_copy(update={"val": val.model_copy(update={"log_likelihood": float("nan")})})
    assert all_depths_of(replace(unit, trials=(*unit.trials[:2], diverged, *unit.trials[3:]))) is None


def test_a_space_of_one_depth_has_nothing_to_search() -> None:
    comparison = compare(make_units(("grid", "ldn"), range(3), space=make_space(depth={"min": 4, "max": 4})))
    assert comparison.headroom is None
    assert notes_on_it(comparison) == ["The space has one depth, 4: there is nothing to search."]


def test_results_of_a_version_with_fewer_measures_are_judged_by_those() -> None:
    units = make_units(("grid",), range(9))
    older = []
    for unit in units:
        assert unit.result
        final = unit.result.final
        tests = tuple(
            each.model_copy(update={"measures": each.measures.model_copy(update={"ece": None})})
            for each in final.per_depth_test
        )
        changed = final.model_copy(update={"per_depth_test": tests})
        older.append(unit.model_copy(update={"result": unit.result.model_copy(update={"final": changed})}))
    comparison = compare(older)
    assert "test_ece" not in found_in(comparison).gains and summary_tables(comparison)
