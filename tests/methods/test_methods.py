"""What each method promises beyond the conformance kit."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch
from optuna.trial import TrialState
from torch import Tensor

from harness.errors import UserError
from harness.methods import full_name, known_methods, load_method, parse_methods
from harness.methods.ascend import next_depths as ascend_next
from harness.methods.base import FINISHED, METRIC, TIME, SearchPlan
from harness.methods.golden_section import BracketSearcher, next_depths
from harness.methods.optuna_asha import PruningAwareSearch
from harness.methods.random_search import draw_depths
from harness.options import RunOptions
from harness.replaying.rehearsal import made_up_reports
from harness.running.messages import AnyTask
from harness.running.replay import Course, recordings_in, simulate, unused_experiment
from harness.running.runner import make_units
from harness.running.side_by_side import SideBySide
from harness.running.unit import RunningUnit
from harness.schema.identity import hashed
from harness.schema.records import FIXED_DEPTH, TrialConfig
from harness.schema.settings import SearchSpace
from harness.training.environment import environment
from harness.training.networks import build_network
from tests.rehearsed import depths, make_unit, run, small_space


def plan_of(method: str, space: SearchSpace | None = None, seed: int = 0) -> SearchPlan:
    space = space or small_space()
    return load_method(method)[1].plan(space, space.budget, seed)


# --- golden section -----------------------------------------------------------------------------------------------


def searched(values: list[float]) -> dict[int, float]:
    """The depths that golden-section search trains, one after the other, and their values."""
    known: dict[int, float] = {}
    while wanted := next_depths(tuple(range(len(values))), known):
        known[wanted[0]] = values[wanted[0]]
    return known


def fewest_in_the_worst_case(n: int) -> int:
    """k trials suffice for F(k+2) - 1 depths and for no more (Kiefer)."""
    reach, next_reach, trials = 1, 2, 1  # F(3) - 1 = 1, F(4) - 1 = 2, then each is the sum of the two before, plus 1
    while reach < n:
        reach, next_reach, trials = next_reach, reach + next_reach + 1, trials + 1
    return trials


@pytest.mark.parametrize("n", range(1, 60))
def test_golden_section_finds_the_peak_of_every_unimodal_curve(n: int) -> None:
    for peak in range(n):
        for steepness in (0.3, 3.0):  # of the deeper side
            values = [-float(peak - d) if d < peak else -steepness * (d - peak) for d in range(n)]
            known = searched(values)
            assert max(known, key=known.__getitem__) == peak
            assert len(known) <= fewest_in_the_worst_case(n)


def test_golden_section_takes_the_shallow_side_of_a_plateau() -> None:
    known = searched([-1.0, -0.5, -0.2, -0.1, -0.1, -0.1, -0.1, -0.1, -0.1, -0.1, -0.1])
    assert min(depth for depth, value in known.items() if value == -0.1) == 3


def test_golden_section_moves_away_from_a_failed_trial() -> None:
    searcher = BracketSearcher(tuple(range(11)))
    trained = []
    for number in itertools.count():
        suggestion = searcher.suggest(f"trial {number}")
        if not isinstance(suggestion, dict):
            break
        depth = suggestion["depth"]
        trained.append(depth)
        fails = depth >= 6  # too deep for the memory
        result = None if fails else {METRIC: float(depth)}
        searcher.on_trial_complete(f"trial {number}", result=result, error=fails)
    assert 5 in trained


def test_golden_section_offers_two_points_at_once_and_then_waits() -> None:
    searcher = BracketSearcher(tuple(range(11)))
    first, second, third = (searcher.suggest(name) for name in "abc")
    assert first != second and isinstance(first, dict) and isinstance(second, dict)
    assert third is None


# --- ascend -------------------------------------------------------------------------------------------------------


def ascended(values: list[float]) -> list[int]:
    """The depths that `ascend` trains, in order, where depth i is worth values[i]."""
    known: dict[int, float] = {}
    while wanted := ascend_next(tuple(range(len(values))), known):
        [depth] = wanted
        assert depth not in known
        known[depth] = values[depth]
    return list(known)


def by_hand(values: list[float]) -> list[int]:
    """The same, as one would write it down: a walk up, then halving around the best."""
    last, walk, vain = len(values) - 1, [0], 0
    for step in [*(2**k for k in range(20) if 2**k < last), *([last] if last else [])]:
        before = max(values[d] for d in walk)
        walk.append(step)
        vain = 0 if values[step] > before + 1e-4 else vain + 1
        if vain == 2:
            break
    while True:
        top = max(values[d] for d in walk)
        best = min(d for d in walk if values[d] >= top - 1e-4)
        below, above = (
            max([d for d in walk if d < best], default=best),
            min([d for d in walk if d > best], default=best),
        )
        deeper = above - best > best - below
        middle = best + (above - best) // 2 if deeper else below + (best - below) // 2
        if middle in walk:
            return walk
        walk.append(middle)


def test_ascend_on_a_curve_that_can_be_followed() -> None:
    curve = [0.0, 1.0, 2.0, 2.5, 3.0, 3.1, 3.5, 3.4, 3.2, 3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4, 2.3, 2.2, 2.1, 2.0]
    assert ascended(curve) == [0, 1, 2, 4, 8, 16, 19, 12, 6, 5, 7]
    assert ascended([0.5] * 9) == [0, 1, 2], "nothing is gained twice, and the next depth is known"
    assert ascended([0.0, -1.0, -2.0, 5.0, 9.0]) == [0, 1, 2], "two in a row"
    assert ascended([0.0, -1.0, 2.0, 5.0, -9.0]) == [0, 1, 2, 4, 3]
    assert ascended([1.0]) == [0] and ascended([1.0, 2.0]) == [0, 1]


@pytest.mark.parametrize("n", range(1, 8))
def test_ascend_does_on_every_order_of_depths_what_is_done_by_hand(n: int) -> None:
    for curve in itertools.permutations(map(float, range(n))):
        trained = ascended(list(curve))
        assert trained == by_hand(list(curve))
        best = max(trained, key=lambda depth: curve[depth])
        assert {best - 1, best + 1} & set(range(n)) <= set(trained), "the best has both its neighbours beside it"


@pytest.mark.parametrize("n", range(1, 40))
def test_ascend_finds_the_peak_of_every_unimodal_curve(n: int) -> None:
    for peak in range(n):
        for steepness in (0.3, 3.0):  # of the deeper side
            curve = [-float(peak - d) if d < peak else -steepness * (d - peak) for d in range(n)]
            assert peak in ascended(curve)


def test_ascend_goes_no_deeper_when_networks_fail_and_asks_for_one_at_a_time() -> None:
    searcher = BracketSearcher((0, 5, 10, 15, 20, 25, 30, 35, 40), ascend_next)
    trained: list[int] = []
    while isinstance(suggestion := searcher.suggest(name := f"trial {len(trained)}"), dict):
        trained.append(depth := suggestion["depth"])
        assert searcher.suggest("another") is None
        fails = depth >= 20  # too deep for the memory
        searcher.on_trial_complete(name, None if fails else {METRIC: float(depth)}, error=fails)
    assert trained == [0, 5, 10, 20, 40, 15]


# --- deepest, with restarts ---------------------------------------------------------------------------------------


def test_one_restart_is_the_deepest_of_before() -> None:
    _, plain = load_method("deepest")
    [(row, method)] = parse_methods("deepest:restarts=1").items()
    assert row == "deepest" and hashed(method) == hashed(plain) == {} and method.facts() == plain.facts()
    assert plan_of("deepest:restarts=1").param_space == {"depth": 6} and method.can_be_replayed
    before = TrialConfig.of(small_space(), FIXED_DEPTH, 6, 0)
    assert before.restart == 0 and "restart" not in hashed(before)
    assert TrialConfig.model_validate_json(json.dumps(hashed(before))) == before


def test_each_restart_draws_weights_of_its_own_and_the_first_has_everybodys() -> None:
    def weights(restart: int, seed: int = 0) -> Tensor:
        config = TrialConfig.of(small_space(), FIXED_DEPTH, 2, seed, restart=restart)
        return torch.cat([p.detach().flatten() for p in build_network(config, (2,), 2).parameters() if p.dim() > 1])

    assert torch.equal(weights(0), weights(0)) and torch.equal(weights(2), weights(2))
    drawn = [*map(weights, range(4)), weights(0, seed=1), weights(1, seed=1)]
    assert all(not torch.equal(one, other) for one, other in itertools.combinations(drawn, 2))


def _complete(unit: RunningUnit) -> None:
    unit.complete()


@pytest.mark.parametrize("best", range(3))
def test_the_best_restart_on_validation_is_chosen_and_all_are_paid(tmp_path: Path, best: int) -> None:
    unit = make_unit(tmp_path, "deepest:restarts=3")
    values = {restart: -0.5 - 0.1 * abs(restart - best) for restart in range(3)}

    def reports(task: AnyTask) -> Course:
        return Course(made_up_reports(task, lambda depth, epoch: values[task.config.restart]))

    together = SideBySide([unit], 1, 0, None, None, _complete)
    together.prepare(unused_experiment(str(tmp_path)))
    simulate(together, reports)
    assert unit.result and unit.result.chosen_trial == f"t00{best}" and unit.result.d_opt == 6
    assert [(trial.depth, trial.restart) for trial in unit.records()] == [(6, 0), (6, 1), (6, 2)]
    assert (unit.result.trials, unit.result.duplicates, unit.result.cost.epochs) == (3, 0, 150)
    assert unit.plan.facts.validation == "chooses" and unit.result.labels_chosen_with
    assert [recording.config_hash for recording in recordings_in(unit.folder)] == [unit.plan.trial_config(6).hash]


def test_restarts_are_trained_where_other_searches_are_replayed(tmp_path: Path) -> None:
    methods = parse_methods("deepest,deepest:restarts=2,ascend")
    units = make_units([small_space()], methods, [0], RunOptions(out=tmp_path, replay=True))
    assert {unit.plan.method: unit.plan.replayed for unit in units} == {
        "grid": False,
        "deepest:restarts=2": False,
        "deepest": True,
        "ascend": True,
    }


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("deepest:restarts=0", "restarts should be greater than or equal to 1; got 0"),
        ("deepest:restarts=-2", "restarts should be greater than or equal to 1; got -2"),
        ("deepest:restarts=many", "restarts"),
    ],
)
def test_restarts_below_one_are_refused(given: str, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        load_method(given)


# --- asha and optuna ----------------------------------------------------------------------------------------------


def told_study(epochs_until_stop: int | None) -> optuna.Study:
    """An Optuna study after one trial that reported at 10, 20 … and was stopped, or else finished at 50."""
    search = plan_of("optuna_asha").search_alg
    assert isinstance(search, PruningAwareSearch)
    assert search.suggest("a") is not None
    for epoch in range(10, (epochs_until_stop or 50), 10):
        result = {METRIC: -1.0 / epoch, TIME: epoch, FINISHED: False, "training_iteration": epoch // 10}
        search.on_trial_result("a", result)
    last = epochs_until_stop or 50
    result = {METRIC: -1.0 / last, TIME: last, FINISHED: epochs_until_stop is None, "training_iteration": last // 10}
    search.on_trial_complete("a", result=result)
    assert search._ot_study is not None
    return search._ot_study


def test_a_stopped_trial_is_pruned_at_its_true_step() -> None:
    [trial] = told_study(epochs_until_stop=30).trials
    assert trial.state == TrialState.PRUNED
    assert trial.last_step == 30
    assert trial.value == -1.0 / 30
    assert set(trial.intermediate_values) == {10, 20, 30}


def test_a_finished_trial_is_complete() -> None:
    [trial] = told_study(epochs_until_stop=None).trials
    assert trial.state == TrialState.COMPLETE and trial.value == -1.0 / 50


def test_a_crashed_trial_is_neither() -> None:
    search = plan_of("optuna_asha").search_alg
    assert isinstance(search, PruningAwareSearch) and search.suggest("a") is not None
    search.on_trial_complete("a", error=True)
    assert search._ot_study is not None
    assert search._ot_study.trials[0].state == TrialState.FAIL


@pytest.mark.parametrize("method", ["asha", "optuna_asha"])
def test_halving_stops_the_worse_trials_and_lets_the_rest_end_by_their_own_rule(tmp_path: Path, method: str) -> None:
    space = small_space(training={"max_epochs": 270, "patience": 270, "eval_every": 10, "report_every": 10})
    unit = run(tmp_path, f"{method}:reduction_factor=2", space, concurrency=1)
    records = unit.records()
    stopped = [record for record in records if record.status == "stopped"]
    finished = [record for record in records if record.status == "finished"]
    assert stopped and finished
    assert {record.stop_reason for record in finished} == {"cap"}
    rungs = {10, 20, 40, 80, 160}
    assert {record.curve[-1].epoch for record in stopped} <= rungs
    assert unit.result is not None and unit.result.trials_by_status["stopped"] == len(stopped)


def test_rungs_begin_at_the_grace_period() -> None:
    scheduler: Any = plan_of("asha:grace_epochs=20").scheduler
    assert min(milestone for milestone, _ in scheduler._brackets[0]._rungs) == 20
    with pytest.raises(UserError, match=r"grace_epochs must not exceed training\.max_epochs = 50; got 51"):
        plan_of("asha:grace_epochs=51")


def test_startup_trials_leave_some_of_the_budget_to_the_model() -> None:
    for trials in (2, 6, 30):
        space = small_space(budget={"trials": trials, "early_stopping_trials": trials})
        search: Any = plan_of("optuna_tpe", space).search_alg
        assert search._sampler._n_startup_trials == max(2, trials // 3)


def test_settings_that_optuna_changed_between_versions_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were they left to the installed version, two installs would run two algorithms."""
    given: list[tuple[str, dict[str, Any]]] = []
    for name in ("TPESampler", "GPSampler"):
        sampler = getattr(optuna.samplers, name)

        def noted(name: str = name, sampler: Any = sampler, **settings: Any) -> Any:
            given.append((name, settings))
            return sampler(**settings)

        monkeypatch.setattr(optuna.samplers, name, noted)
    for method in ("optuna_tpe", "optuna_asha", "optuna_gp"):
        plan_of(method)
    assert [name for name, _ in given] == ["TPESampler", "TPESampler", "GPSampler"]
    for _, settings in given[:2]:
        assert settings["multivariate"] is True and settings["constant_liar"] is True
        assert {"seed", "n_startup_trials"} < set(settings)
    assert set(given[2][1]) == {"seed", "n_startup_trials", "deterministic_objective"}
    assert environment(torch.device("cpu"), small_space().training).optuna == optuna.__version__


def test_random_depth_is_one_depth_of_the_space(tmp_path: Path) -> None:
    space = small_space(depth={"min": 1, "max": 9, "step": 2})
    drawn = [plan_of("random_depth", space, seed).depths for seed in range(40)]
    assert drawn == [plan_of("random_depth", space, seed).depths for seed in range(40)]
    assert {depth for depths in drawn for depth in depths or ()} == {1, 3, 5, 7, 9}
    result = run(tmp_path, "random_depth", space).result
    assert result and result.trials == 1 and result.d_opt in space.depth.values


# --- random search ------------------------------------------------------------------------------------------------


def test_random_depths_come_without_replacement_and_from_the_seed() -> None:
    space = small_space(depth={"min": 1, "max": 9, "step": 2})
    draws = [tuple(draw_depths(space, 4, seed)) for seed in range(50)]
    assert all(len(set(draw)) == 4 and set(draw) <= {1, 3, 5, 7, 9} for draw in draws)
    assert draws == [tuple(draw_depths(space, 4, seed)) for seed in range(50)]
    assert len(set(draws)) > 10
    assert sorted(draw_depths(space, 99, 0)) == [1, 3, 5, 7, 9]


def test_random_search_and_asha_train_different_depths_only(tmp_path: Path) -> None:
    for method in ("random_search", "asha"):
        proposed = depths(run(tmp_path, method))
        assert len(set(proposed)) == len(proposed)


# --- all of them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", known_methods())
def test_a_space_of_one_depth_and_one_with_steps(tmp_path: Path, name: str) -> None:
    for number, depth in enumerate(({"min": 3, "max": 3}, {"min": 1, "max": 9, "step": 4})):
        space = small_space(depth=depth)
        unit = run(tmp_path / str(number), name, space)
        assert unit.failure is None and unit.result is not None
        assert set(depths(unit)) <= set(space.depth.values)


@pytest.mark.parametrize("name", known_methods())
def test_the_docstring_says_what_it_is_and_what_it_stops(name: str) -> None:
    _, method = load_method(name)
    doc = type(method).__doc__ or ""
    assert len(doc.splitlines()[0]) > 20
    assert "stop" in doc.lower()


@pytest.mark.parametrize("name", known_methods())
def test_what_a_name_is_short_for_reads_the_same_from_its_source(name: str) -> None:
    assert full_name(name) == load_method(name)[1].facts().full_name
    if len(name) <= 4 and name not in ("grid",):
        assert full_name(name), "an abbreviation"
