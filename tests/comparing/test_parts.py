"""The parts of a comparison against cases worked out by hand."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.comparing import compare
from harness.comparing.costs import equal_quality, list_schedule, rungs_of, trajectory, wall_clock
from harness.comparing.fairness import differences_between
from harness.comparing.finished import Finished, finished_by_method
from harness.comparing.notes import _on_posterior
from harness.comparing.tables import rank
from harness.comparing.values import Reached
from harness.comparing.yardsticks import depth_check
from harness.methods import parse_methods
from harness.options import RunOptions
from harness.replaying.rehearsal import rehearse
from harness.running.runner import make_units as make_running
from harness.schema.records import Cost, TrialRecord
from tests.methods.test_one_shot import EXITS
from tests.rehearsed import small_space
from tests.synthetic import ENVIRONMENT, RUNGS, make_units


def finished(method: str, seeds: range = range(3), **knobs: object) -> list[Finished]:
    units = make_units((method,), seeds, **knobs)  # type: ignore[arg-type]
    return [Finished(unit.plan, unit.trials, unit.result) for unit in units if unit.result]


def with_trials(unit: Finished, trials: list[TrialRecord]) -> Finished:
    return replace(unit, trials=tuple(trials))


def with_result(unit: Finished, changes: dict[str, object]) -> Finished:
    return replace(unit, result=unit.result.model_copy(update=changes))


def simple_trial(like: TrialRecord, seconds: float, value: float | None, start: float = 0.0) -> TrialRecord:
    """A trial of a given length whose only known value is its last."""
    val = like.val.model_copy(update={"log_likelihood": value}) if like.val and value is not None else None
    cost = Cost(held_seconds=seconds, phases={"train": seconds})
    changes = {"cost": cost, "val": val, "curve": (), "started_at": start, "ended_at": start + seconds}
    return like.model_copy(update=changes)


# --- anytime and equal quality ------------------------------------------------------------------------------------


def test_order_free_cost_agrees_with_the_exact_expectation() -> None:
    """With k trials that reach the target, each of the others comes before all of those with chance 1 / (k + 1)."""
    (unit, *_) = finished("grid")
    like = unit.trials[0]
    seconds, values = [1.0, 2.0, 4.0, 8.0, 16.0], [-0.9, -0.1, None, -0.2, -0.8]
    trials = [simple_trial(like, s, v) for s, v in zip(seconds, values, strict=True)]
    found = trajectory(with_trials(unit, trials)).cost_to_reach(-0.5)
    exact = (2.0 + 8.0) / 2 + (1.0 + 4.0 + 16.0) / 3
    by_brute_force = []
    for order in itertools.permutations(range(5)):
        spent = 0.0
        for index in order:
            spent += seconds[index]
            if index in (1, 3):
                break
        by_brute_force.append(spent)
    assert np.mean(by_brute_force) == pytest.approx(exact)
    assert found == pytest.approx(exact, rel=0.05)
    assert trajectory(with_trials(unit, trials)).cost_to_reach(-0.5) == found  # seeded
    assert trajectory(with_trials(unit, trials)).cost_to_reach(-0.05) is None


def test_trials_side_by_side_are_all_paid_for() -> None:
    """Two trials at once, 4 s and 10 s: when the first ends at 4 s, 8 device-seconds are spent."""
    (unit, *_) = finished("optuna_tpe")
    like = unit.trials[0]
    trials = [simple_trial(like, 4.0, -0.3, start=100.0), simple_trial(like, 10.0, -0.1, start=100.0)]
    curve = trajectory(with_trials(unit, trials))
    assert curve.cost_to_reach(-0.4) == pytest.approx(8.0)
    assert curve.cost_to_reach(-0.2) == pytest.approx(14.0)
    after = [simple_trial(like, 4.0, -0.3, start=100.0), simple_trial(like, 10.0, -0.1, start=104.0)]
    assert trajectory(with_trials(unit, after)).cost_to_reach(-0.4) == pytest.approx(4.0)


def test_without_a_clock_trials_ran_one_after_the_other() -> None:
    (unit, *_) = finished("optuna_tpe")
    like = unit.trials[0]
    trials = [simple_trial(like, 4.0, None), simple_trial(like, 6.0, -0.1)]
    trials = [trial.model_copy(update={"started_at": 0.0, "ended_at": 0.0}) for trial in trials]
    assert trajectory(with_trials(unit, trials)).cost_to_reach(-0.2) == pytest.approx(10.0)


def test_a_scheduler_sees_its_trials_at_the_rungs() -> None:
    units = finished("asha")
    assert rungs_of(units) == set(RUNGS)
    blind = trajectory(units[0])
    seeing = trajectory(units[0], rungs_of(units))
    assert seeing.cost.shape[1] > blind.cost.shape[1]
    assert seeing.cost[0, -1] == pytest.approx(units[0].result.cost.device_seconds)
    for curve in (blind, seeing):
        assert (np.diff(curve.best[0]) >= 0).all()
        assert (np.diff(curve.cost[0]) >= 0).all()


def test_the_incumbent_on_a_grid_of_costs() -> None:
    (unit, *_) = finished("optuna_tpe")
    like = unit.trials[0]
    trials = [simple_trial(like, 4.0, -0.3, start=1.0), simple_trial(like, 6.0, -0.1, start=5.0)]
    best = trajectory(with_trials(unit, trials)).best_at(np.array([1.0, 4.0, 9.0, 10.0, 99.0]))
    assert np.isnan(best[0])
    assert best[1:].tolist() == [-0.3, -0.3, -0.1, -0.1]


def test_replayed_searches_by_hand() -> None:
    """One of three is there at 4, one at 10, one never is and has spent 6: 20 device-seconds for two arrivals."""
    (unit, *_) = finished("optuna_tpe")
    searches = (((4.0, -0.1), (9.0, -0.1)), ((3.0, -0.8), (10.0, -0.2), (12.0, -0.2)), ((6.0, -0.9), (6.0, -0.9)))
    several = replace(unit, result=unit.result.model_copy(update={"replayed_searches": searches}))
    curve = trajectory(several)
    assert curve.cost_to_reach(-0.5) == pytest.approx((4.0 + 10.0 + 6.0) / 2)
    assert curve.cost_to_reach(-0.9) == pytest.approx((4.0 + 3.0 + 6.0) / 3)
    assert curve.cost_to_reach(-0.05) is None
    best = curve.best_at(np.array([5.0, 6.0, 10.0, 99.0]))
    assert np.isnan(best[0])
    assert best[1:].tolist() == pytest.approx([-0.6, -0.4, -0.4])


def test_a_search_whose_trials_are_lost_has_no_curve() -> None:
    (unit, *_) = finished("optuna_tpe")
    curve = trajectory(with_trials(unit, []))
    assert curve.cost_to_reach(-99.0) is None and np.isnan(curve.best_at(np.array([1.0]))).all()


def test_equal_quality_both_ways() -> None:
    ldn, grid = finished("ldn"), finished("grid")
    result = equal_quality(ldn, grid, margin=0.05)
    assert result is not None
    assert result.baseline_reaches.count == result.reference_reaches.count == 3
    for unit, cost in zip(ldn, result.reference_reaches.device_seconds, strict=True):
        assert cost is not None
        assert 0 < cost <= unit.result.cost.device_seconds
    whole = [unit.result.cost.device_seconds for unit in ldn]
    ratios = [c / w for c, w in zip(result.baseline_reaches.device_seconds, whole, strict=True) if c is not None]
    assert result.speed_up is not None
    assert result.speed_up.mean == pytest.approx(float(np.prod(ratios)) ** (1 / 3))


def test_a_target_out_of_reach_is_never_reached() -> None:
    result = equal_quality(finished("ldn", ldn_log_likelihood=5.0), finished("grid"), margin=0.05)
    assert result is not None
    assert result.baseline_reaches.device_seconds == (None, None, None)
    assert result.baseline_reaches.median is None
    assert result.speed_up is None
    assert result.reference_reaches.count == 3


@pytest.mark.parametrize(
    ("values", "median"),
    [((1.0, None, 3.0), 3.0), ((None, None, 3.0), None), ((1.0, 2.0, 4.0, None), 3.0), ((2.0, None), None)],
)
def test_never_counts_as_infinite_in_the_median(values: tuple[float | None, ...], median: float | None) -> None:
    assert Reached(seeds=tuple(range(len(values))), device_seconds=values).median == median


# --- wall-clock ---------------------------------------------------------------------------------------------------


def test_list_scheduling_by_hand() -> None:
    # Two workers: 4 | 3, then 2 goes to the one free at 3 (ends 5), 6 to the one free at 4 (ends 10).
    assert list_schedule([4.0, 3.0, 2.0, 6.0], workers=2) == 10.0
    assert list_schedule([4.0, 3.0, 2.0, 6.0], workers=1) == 15.0
    assert list_schedule([4.0, 3.0, 2.0, 6.0], workers=8) == 6.0
    assert list_schedule([], workers=3) == 0.0


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=12), st.integers(1, 8))
def test_a_schedule_lies_between_its_bounds(durations: list[float], workers: int) -> None:
    makespan = list_schedule(durations, workers)
    least = max(sum(durations) / workers, *durations)
    assert least - 1e-6 <= makespan <= (sum(durations) + (workers - 1) * max(durations)) / workers + 1e-6


def test_adaptive_searches_stay_within_their_concurrency() -> None:
    one_by_one = wall_clock("optuna_tpe", finished("optuna_tpe")).seconds
    assert len(set(one_by_one.values())) == 1
    two = wall_clock("asha", finished("asha")).seconds
    assert two[2] == two[8] != two[1]
    grid = wall_clock("grid", finished("grid")).seconds
    assert grid[1] > grid[2] > grid[4] > grid[8]  # type: ignore[operator]
    golden = [with_result(u, {"concurrency": None}) for u in finished("golden_section")]
    section = wall_clock("golden_section", golden).seconds
    assert section[1] != section[2] == section[8]  # it never has more than two points to try
    ldn = wall_clock("ldn", finished("ldn")).seconds
    assert len(set(ldn.values())) == 1


def test_devices_are_shared_and_never_split() -> None:
    def holding(devices: float) -> list[Finished]:
        units = finished("grid", range(1))
        trials = [
            trial.model_copy(update={"cost": trial.cost.model_copy(update={"devices": devices})})
            for trial in units[0].trials
        ]
        return [with_trials(units[0], trials)]

    assert wall_clock("grid", holding(0.5)).seconds[1] == wall_clock("grid", holding(1.0)).seconds[2]
    assert wall_clock("grid", holding(2.0)).seconds[1] is None
    assert wall_clock("grid", holding(2.0)).seconds[2] == wall_clock("grid", holding(1.0)).seconds[1]


# --- depths -------------------------------------------------------------------------------------------------------


def test_regret_is_a_difference_on_the_measured_curve() -> None:
    ldn, grid = finished("ldn", range(1)), finished("grid", range(1))
    check = depth_check(ldn, grid)
    assert check is not None
    curve = {item.depth: item.measures for item in grid[0].result.final.per_depth_test}
    best = max(measures.log_likelihood for measures in curve.values())
    assert check.log_likelihood_regret.mean == pytest.approx(best - curve[ldn[0].result.d_opt].log_likelihood)
    assert check.network_log_likelihood_regret.mean == pytest.approx(best - ldn[0].result.final.chosen.log_likelihood)
    assert check.nearest_used == ()
    assert check.rank_correlation is not None
    assert check.rank_correlation[0] == pytest.approx(1.0, abs=0.2)
    assert rank(check.model_copy(update={"rank_correlation": (-0.5, None, 0.25)})) == "−0.12 (−0.50 to 0.25)"
    own = depth_check(grid, grid)
    assert own is not None
    assert own.rank_correlation is None


def test_an_untrained_depth_is_compared_with_the_nearest() -> None:
    (unit,), grid = finished("ldn", range(1)), finished("grid", range(1))
    deep = with_result(unit, {"d_opt": 14})
    check = depth_check([deep], grid)
    assert check is not None
    assert check.nearest_used == (0,)
    assert depth_check([deep], finished("asha", range(1))) is None  # no test curve to compare with


# --- fairness -----------------------------------------------------------------------------------------------------


def test_equal_units_are_fair() -> None:
    units = [*finished("ldn"), *finished("grid"), *finished("asha")]
    assert differences_between(units) == []


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("device", "NVIDIA A100", "device"),
        ("machine", "another CPU", "machine"),
        ("threads", 4, "threads"),
        ("code", "deadbee", "code version"),
        ("python", "3.12.1", "Python"),
        ("ray", None, "Ray"),
    ],
)
def test_other_environments_are_listed(field: str, value: object, rule: str) -> None:
    other = ENVIRONMENT.model_copy(update={field: value})
    units = [*finished("ldn"), *finished("grid", environments={"grid": other})]
    assert [item.rule for item in differences_between(units)] == [rule]


def test_other_data_resources_and_settings_are_listed() -> None:
    ldn, grid = finished("ldn"), finished("grid")
    other_split = finished("grid", split_hashes={"grid": "elsewhere"})
    assert [item.rule for item in differences_between([*ldn, *other_split])] == [
        f"training and validation split, seed {seed}" for seed in range(3)
    ]
    more = [with_result(u, {"cpus_per_trial": 4.0}) for u in grid]
    (difference,) = differences_between([*ldn, *more])
    assert (difference.rule, difference.detail) == ("CPUs per trial", "1 (ldn) / 4 (grid)")
    crowd = [with_result(u, {"most_coresident_trials": 9}) for u in grid[:1]]
    assert [d.rule for d in differences_between([*ldn, *grid[1:], *crowd])] == ["most co-resident trials"]
    capped = [with_result(u, {"status": "capped"}) for u in grid[:1]]
    (difference,) = differences_between([*ldn, *capped])
    assert "grid seed 0" in difference.detail


def test_a_method_that_trains_with_settings_of_its_own_is_found() -> None:
    ldn, (grid, *_) = finished("ldn", range(1)), finished("grid", range(1))
    trials = [trial.model_copy(update={"config_hash": "tuned"}) for trial in grid.trials]
    rules = [item.rule for item in differences_between([*ldn, with_trials(grid, trials)])]
    assert len(rules) == 1
    assert rules[0].startswith("settings")
    # ... and so is one depth that another search trained differently.
    rules = [item.rule for item in differences_between([grid, *finished("asha", range(1)), with_trials(grid, trials)])]
    assert "same network, same settings" in rules


def test_a_baseline_that_pays_for_every_head_is_found() -> None:
    """The paper's code ran all d + 1 heads of the fixed-depth network, which inflated its cost."""
    ldn, (grid, *_) = finished("ldn", range(1)), finished("grid", range(1))
    trials = [
        trial.model_copy(
            update={"cost": trial.cost.model_copy(update={"head_passes": trial.cost.samples * (trial.depth + 1)})}
        )
        for trial in grid.trials
    ]
    rules = [item.rule for item in differences_between([*ldn, with_trials(grid, trials)])]
    assert rules == ["head cost rule"]


# --- replayed beside trained ----------------------------------------------------------------------------------------


def test_beside_a_replay_no_method_is_charged_what_does_not_carry_over() -> None:
    units = make_units(("ldn", "asha"), range(2), retried=(("ldn", 0),))
    replayed = [
        unit.model_copy(update={"plan": unit.plan.model_copy(update={"replayed": True})})
        if unit.plan.method == "asha"
        else unit
        for unit in units
    ]
    before, after = (finished_by_method(each, "ldn")["ldn"][0] for each in (units, replayed))
    lost = before.result.cost.phases["checkpoint"] + before.result.cost.phases["lost"]
    assert lost > 0.5
    assert after.result.cost.held_seconds == pytest.approx(before.result.cost.held_seconds - lost)
    assert after.result.cost.phases["checkpoint"] == after.result.cost.phases["lost"] == 0.0
    assert before.result.worker_start_device_seconds > 0 == after.result.worker_start_device_seconds
    [trial] = after.trials
    assert trial.cost.held_seconds == pytest.approx(after.result.cost.held_seconds)
    assert trial.curve[-1].device_seconds == pytest.approx(trial.cost.device_seconds)  # it ends where the trial does
    assert sum(trial.cost.phases.values()) == pytest.approx(trial.cost.held_seconds)
    [note] = [note for note in compare(replayed).notes if note.startswith("Trained")]
    assert note.startswith("Trained: ldn. Replayed from recorded trials, and charged what those trials cost: asha.")
    assert "checkpoints" in note and not any(note.startswith("Trained") for note in compare(units).notes)


def test_rows_of_one_one_shot_method_are_not_one_network(tmp_path: Path) -> None:
    """Their options are part of the network: they differ in the method, and in nothing else."""
    (tmp_path / "equal_exits.py").write_text(EXITS)
    rows = parse_methods(f"{tmp_path / 'equal_exits.py'}:scale=2.0,{tmp_path / 'equal_exits.py'}:scale=3.0")
    units = make_running([small_space()], rows, [0, 1], RunOptions(out=tmp_path))
    for unit in units:
        unit.folder.claim(unit.plan, fresh=False)
    rehearse(units)
    comparison = compare([unit.folder.read() for unit in units])
    assert comparison.methods == ("equal_exits:scale=2.0", "equal_exits:scale=3.0") and comparison.fairness == ()


# --- notes --------------------------------------------------------------------------------------------------------


def test_a_depth_from_a_q_that_is_not_the_posterior_is_told() -> None:
    units = finished("ldn")

    def by_exact(unit: Finished, depth: int | None) -> Finished:
        return with_result(unit, {"final": unit.result.final.model_copy(update={"d_opt_by_exact": depth})})

    same = [by_exact(unit, unit.result.d_opt) for unit in units]
    unknown = [by_exact(unit, None) for unit in units]
    assert list(_on_posterior("ldn", [*same, *unknown])) == []
    depth = units[1].result.d_opt
    [told] = _on_posterior("ldn", [same[0], by_exact(units[1], depth + 2), same[2]])
    assert told.startswith("ldn: on seed 1 the learnt q is not the exact posterior of the same weights")
    assert f"(d_opt / exact: {depth} / {depth + 2})" in told and "posterior.lr" in told
