"""The smallest depth within so many nats of the best: of searches and one-shots, from the same trials."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.comparing import compare
from harness.comparing.finished import Finished
from harness.comparing.headroom import all_depths_of
from harness.errors import UserError
from harness.methods import load_method
from harness.methods.base import SearchMethod, SearchPlan, smallest_within
from harness.schema.records import FIXED_DEPTH, Posterior, TrialConfig, TrialRecord, Unit
from harness.schema.settings import TIE_NATS, Budget, SearchSpace
from harness.spaces import with_overrides
from harness.training.final import evaluate_on_test
from harness.training.train import run_trial
from tests.synthetic import make_space, make_units
from tests.tiny import config, spirals

VALUES = {0: -0.6, 2: -0.115, 4: -0.1, 6: -0.1 + 5e-5, 8: -0.109}
BY_WITHIN = {0.0: 6, TIE_NATS: 4, 0.01: 4, 0.02: 2, 0.6: 0, 1000.0: 0}
GRID = load_method("grid")[1]


def trials(values: dict[int, float]) -> list[TrialRecord]:
    """Finished ones, as a search is told of them."""
    [unit] = make_units(("grid",), [0])
    assert unit.trials[0].val
    made = unit.trials[0]
    return [
        made.model_copy(
            update={
                "trial_id": f"t{depth}",
                "depth": depth,
                "val": made.val and made.val.model_copy(update={"log_likelihood": value}),
            }
        )
        for depth, value in values.items()
    ]


@pytest.mark.parametrize("within", BY_WITHIN)
def test_a_search_takes_the_smallest_depth_within_so_many_nats_of_the_best(within: float) -> None:
    known = trials(VALUES)
    chosen, depth = GRID.choice(known, within)
    assert (chosen.depth, depth) == (BY_WITHIN[within],) * 2
    assert smallest_within([VALUES[2 * place] for place in range(5)], within) == BY_WITHIN[within] // 2, "by other code"


def test_the_default_is_the_tie_rule_of_before() -> None:
    known = trials(VALUES)
    assert GRID.choice(known, TIE_NATS)[0] is GRID.select(known)
    assert make_space().choice_within == TIE_NATS


def test_of_several_networks_of_that_depth_the_best_is_taken() -> None:
    first, *others = trials({4: -0.12, 6: -0.1})
    assert first.val
    again = first.model_copy(
        update={"trial_id": "again", "val": first.val.model_copy(update={"log_likelihood": -0.11})}
    )
    assert GRID.choice([first, again, *others], 0.05)[0].trial_id == "again"


def one_shot(rule: Any, values: Sequence[float], d_opt: int) -> TrialRecord:
    [unit] = make_units(("ldn",), [0])
    posterior = Posterior(
        q=(0.2,) * len(values),
        rule=rule,
        d_opt=d_opt,
        d_opt_by_rule={"argmax": 3},
        val_log_likelihoods=tuple(values) if rule == "validation" else (),
    )
    return unit.trials[0].model_copy(update={"posterior": posterior})


def test_a_one_shot_that_chooses_by_validation_chooses_again_from_its_depths() -> None:
    values = [-0.6, -0.12, -0.11, -0.1, -0.3]
    elastic = load_method("elastic")[1]
    assert elastic.choice([one_shot("validation", values, 3)], 0.02)[1] == 1
    assert elastic.choice([one_shot("validation", values, 3)], TIE_NATS)[1] == 3
    assert elastic.choice([one_shot("validation", values, 4)], 0.02)[1] == 4, "it chose in its own way"
    assert load_method("ldn")[1].choice([one_shot("threshold", values, 3)], 0.02)[1] == 3, "a posterior keeps its rule"


def test_a_method_that_selects_in_its_own_way_stays_with_that() -> None:
    class Last(SearchMethod):
        def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
            return GRID.plan(space, budget, seed)

        def select(self, trials: Sequence[TrialRecord]) -> TrialRecord:
            return trials[-1]

    assert Last().choice(trials(VALUES), 0.02)[1] == 8


# --- what it is part of ---------------------------------------------------------------------------------------------


def test_it_is_part_of_the_plan_and_not_of_a_trial() -> None:
    """So recordings serve both; and a posterior, which does not choose by it, is the same search."""
    space = make_space()
    other = with_overrides(space, ["choice_within=0.02"])
    for kind in (FIXED_DEPTH, "elastic"):
        assert TrialConfig.of(space, kind, 4, 0).hash == TrialConfig.of(other, kind, 4, 0).hash
    for method, same in (("grid", False), ("elastic", False), ("ldn", True)):
        [one], [two] = (make_units((method,), [0], space=each) for each in (space, other))
        assert (one.plan.hash == two.plan.hash) == same, method


def test_the_same_recordings_serve_every_choice(tmp_path: Path) -> None:
    """The shipped recordings of quickstart: the same trials at the same cost, and smaller networks."""
    replays = [
        harness.replay("quickstart", ["grid", "golden_section"], search_seeds=1, choice_within=within, out=tmp_path)
        for within in (None, TIE_NATS, 0.02)
    ]
    by_default, tie, wide = (
        [one for one in json.loads(each.model_dump_json())["methods"] if not one["trained"]] for each in replays
    )
    assert set(replays[2].left_out) == {"elastic", "ldn"} and not replays[1].left_out, "they chose when they ran"
    assert by_default == tie
    for before, after in zip(tie, wide, strict=True):
        assert before["on"][0]["device_seconds"] == after["on"][0]["device_seconds"]
        mean = [sum(int(depth) * count for depth, count in each["on"][0]["depths"].items()) for each in (before, after)]
        assert mean[1] < mean[0]


# --- comparing --------------------------------------------------------------------------------------------------------


def test_fairness_compares_it_between_methods_that_choose_by_validation() -> None:
    wide = with_overrides(make_space(), ["choice_within=0.02"])
    units = [
        *make_units(("grid", "ldn"), range(10)),
        *make_units(("random_search",), range(10), space=wide),
    ]
    comparison = compare(units)
    withheld = {pair.method: pair.withheld for pair in comparison.search.pairs}
    assert withheld["random_search"] == (
        "choice of depth by validation: the smallest depth within 0.0001 nats of the best (grid) / the smallest depth "
        "within 0.02 nats of the best (random_search)",
    )
    assert not withheld["ldn"]


def wide_choice(within: str) -> list[Unit]:
    return make_units(("grid",), range(10), space=with_overrides(make_space(), [f"choice_within={within}"]))


def test_one_that_no_depth_can_lose_is_accepted_with_a_note() -> None:
    notes = [
        [note for note in compare(wide_choice(within)).notes if "choice_within" in note] for within in ("0.02", "5")
    ]
    assert not notes[0]
    [note] = notes[1]
    assert note.startswith("choice_within, 5 nats, is more than what lies between the best and the worst depth")
    assert all_depths_of(Finished(*(getattr(wide_choice("5")[0], name) for name in ("plan", "trials", "result"))))


@pytest.mark.parametrize("given", ["-0.01", ".nan", ".inf", "much"])
def test_what_is_no_distance_is_refused_in_a_sentence(given: str) -> None:
    with pytest.raises(UserError, match="choice_within"):
        with_overrides(make_space(), [f"choice_within={given}"])


def test_a_replay_refuses_it_as_well(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="choice_within"):
        harness.replay("quickstart", "grid", choice_within=-1.0, out=tmp_path)


# --- a posterior, by validation ---------------------------------------------------------------------------------------


def test_a_posterior_may_choose_by_validation() -> None:
    """Its weights are what they were; the depth is that of the best validation value, the choice again within more."""
    by_q, by_validation = (
        config("ldn", 3, max_epochs=10, posterior={"rule": rule}) for rule in ("argmax", "validation")
    )
    data = spirals(by_q)
    first, second = (run_trial(each, data) for each in (by_q, by_validation))
    one, two = first.progress.posterior, second.progress.posterior
    assert one and two and one.q == two.q and not one.val_log_likelihoods
    assert two.rule == "validation" and two.d_opt == two.d_opt_by_rule["validation"]
    assert two.d_opt == smallest_within(two.val_log_likelihoods, TIE_NATS)
    final = evaluate_on_test(second.network, two.d_opt, by_validation, data)
    for alone, value in zip(final.per_depth_val, two.val_log_likelihoods, strict=True):
        assert alone.measures.log_likelihood == pytest.approx(value, abs=1e-6)
    assert final.d_opt_by_exact is None and final.posterior_gap_nats is not None
    space = make_space(posterior={"rule": "validation"})
    [unit] = make_units(("ldn",), [0], space=space)
    assert unit.plan.chooses_by_validation and not make_units(("ldn",), [0])[0].plan.chooses_by_validation
