"""A unit from its first suggestion to its result, with made-up trials: duplicates, choice, limits, crashes, replay."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray import tune
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import BasicVariantGenerator, Searcher

from harness.errors import UserError
from harness.methods.base import METRIC, MODE, SearchMethod, SearchPlan
from harness.replaying.rehearsal import made_up_reports, rehearse, unimodal
from harness.running.ledger import Answered
from harness.running.messages import (
    FinalTask,
    RefitTask,
    Report,
    TrainTask,
    received_limit,
    received_task,
)
from harness.running.replay import Recordings, recordings_in, replayed
from harness.running.unit import RunningUnit
from harness.schema.records import Cost, TrialConfig
from harness.schema.settings import Budget, SearchSpace
from tests.rehearsed import depths, events, make_unit, run, small_space


class Scripted(Searcher):
    """Proposes the given depths, whatever happens, and remembers what it was told."""

    def __init__(self, script: Sequence[Any]) -> None:
        super().__init__(metric=METRIC, mode=MODE)
        self.script = list(script)
        self.told: list[Any] = []

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        return {"depth": self.script.pop(0)} if self.script else None

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.told.append(("result", result["epoch"], result["training_iteration"]))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.told.append(("complete", result and result["epoch"], error))


class Script(SearchMethod):
    depths: tuple[Any, ...]
    crash: str | None = None  # the method of the searcher or scheduler that raises

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        searcher, scheduler = Scripted(self.depths), FIFOScheduler()
        if self.crash:

            def crash(*args: Any, **kwargs: Any) -> None:
                raise ZeroDivisionError("the method's own mistake")

            setattr(searcher if hasattr(Scripted, self.crash) else scheduler, self.crash, crash)
        return SearchPlan({}, searcher, scheduler, num_samples=len(self.depths))


def choice(unit: RunningUnit) -> tuple[str, int]:
    assert unit.choice is not None
    return unit.choice.chosen, unit.choice.d_opt


def others(unit: RunningUnit) -> list[tuple[str, int]]:
    """The checkpoints that the final evaluation is told of."""
    task = unit.logs["final"].task
    assert isinstance(task, FinalTask)
    return list(task.others)


def told(unit: Any) -> list[Any]:
    told: list[Any] = unit._search_plan.search_alg.told
    return told


# --- suggestions --------------------------------------------------------------------------------------------------


def test_a_depth_proposed_again_is_answered_from_its_record(tmp_path: Path) -> None:
    unit = run(tmp_path, Script(depths=(2, 2, 4, 2)))
    assert unit.result is not None
    assert unit.result.trials == 2 and unit.result.duplicates == 2
    assert [event for event in events(unit) if event[0] in {"suggest", "answered"}] == [
        *(("suggest", "t000"), ("answered", "t001"), ("suggest", "t002"), ("answered", "t003"), ("suggest", "final")),
    ]
    assert [entry for entry in told(unit) if entry[0] == "complete"] == [("complete", 50, False)] * 4


def test_a_depth_proposed_again_while_it_trains_is_trained_again(tmp_path: Path) -> None:
    unit = run(tmp_path, Script(depths=(2, 2)), slots=2)
    assert unit.result is not None
    assert unit.result.trials == 2 and unit.result.duplicates == 1


class Restarts(Script):
    """Proposes depth 2 from these initialisations."""

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        grid = {"depth": 2, "restart": tune.grid_search(list(self.depths))}
        return SearchPlan(grid, BasicVariantGenerator(random_state=seed))


def test_another_initialisation_is_another_network_and_is_evaluated_as_such(tmp_path: Path) -> None:
    unit = run(tmp_path, Restarts(depths=(1, 0, 1, 2.0)))
    assert unit.failure is None and unit.result is not None
    assert [(trial.depth, trial.restart) for trial in unit.records()] == [(2, 1), (2, 0), (2, 2)]
    assert unit.result.trials == 3 and unit.result.duplicates == 1
    assert [depth for _, depth in others(unit)] == [2], "of a depth, the network that every search has"
    assert others(unit)[0][0].endswith("/t001.pt")
    again = make_unit(tmp_path, Restarts(depths=(1, 0, 1, 2.0)))
    again.prepare(unit._experiment)
    assert again.failure is None and again.choice == unit.choice


@pytest.mark.parametrize("restart", [-1, 0.5, "first", float("nan")])
def test_a_restart_is_a_whole_number(tmp_path: Path, restart: Any) -> None:
    unit = run(tmp_path, Restarts(depths=(restart,)))
    assert unit.failure and "is a whole number from 0" in unit.failure and repr(restart) in unit.failure


def test_recordings_have_no_restarts(tmp_path: Path) -> None:
    recorder = run(tmp_path, "grid")
    recordings = Recordings(small_space(), 0, recordings_in(recorder.folder))
    plan = make_unit(tmp_path / "other", Restarts(depths=(0, 3)), concurrency=1).plan
    with pytest.raises(UserError, match="proposed restart 3, and recordings are of the first initialisation"):
        replayed(plan, Restarts(depths=(0, 3)), recordings, recorder._experiment)


def test_a_stopped_trial_answers_nothing(tmp_path: Path) -> None:
    unit = run(tmp_path, "optuna_asha:reduction_factor=2", concurrency=1)
    answering = [event.by for event in unit.folder.events() if isinstance(event, Answered)]
    assert all(unit.logs[name].status == "finished" for name in answering)


def test_numpy_depths_are_taken_and_arrive_as_numbers(tmp_path: Path) -> None:
    class NumPy(Script):
        def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
            return SearchPlan({}, Scripted([np.int64(3), np.int32(1)]), num_samples=2)

    unit = run(tmp_path, NumPy(depths=()))
    assert unit.failure is None and unit.result is not None
    assert {type(depth) for depth in depths(unit)} == {int}


def test_a_searcher_that_falls_silent_while_nothing_runs_has_finished(tmp_path: Path) -> None:
    class Short(Script):
        def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
            return SearchPlan({}, Scripted([1, 2]), num_samples=9)

    unit = run(tmp_path, Short(depths=()))
    assert unit.result is not None and unit.result.trials == 2


def test_concurrency_limits_the_trials_of_a_unit(tmp_path: Path) -> None:
    assert run(tmp_path / "one", "grid", slots=3, concurrency=1).most_coresident == 1
    assert run(tmp_path / "all", "grid", slots=3).most_coresident == 3


def test_units_planned_in_the_same_moment_share_no_trial_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        hex = "0" * 32

    monkeypatch.setattr("ray.tune.search.basic_variant.uuid.uuid1", Clock)
    units = [make_unit(tmp_path, method, seed=seed) for seed in range(2) for method in ("ldn", "grid", "random_search")]
    rehearse(units, slots=3)
    assert [unit.failure for unit in units] == [None] * 6
    alone = [run(tmp_path / "alone", unit.plan.method, seed=unit.plan.seed) for unit in units]
    assert [depths(unit) for unit in units] == [depths(unit) for unit in alone]


# --- choice and what follows it -----------------------------------------------------------------------------------


def test_the_best_validation_value_is_chosen_and_the_smaller_depth_of_a_tie(tmp_path: Path) -> None:
    assert choice(run(tmp_path / "best", "grid", value=unimodal)) == ("t005", 5)
    tied = run(tmp_path / "tied", "grid", value=lambda depth, epoch: -0.5 - 1e-5 * abs(depth - 5))
    assert choice(tied) == ("t000", 0)


def test_the_choice_is_on_disk_before_the_test_set_is_opened(tmp_path: Path) -> None:
    written = [event for event, name in events(run(tmp_path, "grid")) if event == "choice" or name == "final"]
    assert written[:2] == ["choice", "suggest"]


def test_the_final_evaluation_is_told_of_every_finished_depth(tmp_path: Path) -> None:
    unit = run(tmp_path, "asha:reduction_factor=2", concurrency=1)
    finished = [record for record in unit.records() if record.status == "finished"]
    assert sorted(others(unit)) == sorted((f"{unit.storage_key}/{each.trial_id}.pt", each.depth) for each in finished)
    assert others(run(tmp_path, "ldn")) == []


def test_a_refit_comes_between_choice_and_final_evaluation_and_costs_apart(tmp_path: Path) -> None:
    without, unit = run(tmp_path / "without", "grid"), run(tmp_path / "with", "grid", refit=True)
    assert unit.result is not None and without.result is not None
    order = [name for event, name in events(unit) if event == "start"]
    assert order[-2:] == ["refit", "final"]
    refit = unit.logs["refit"].task
    assert isinstance(refit, RefitTask) and (refit.config.depth, refit.epochs) == (5, 50)
    assert not refit.config.learns_depth
    assert unit.result.trials == without.result.trials == 7
    assert unit.result.cost.epochs == without.result.cost.epochs


@pytest.mark.parametrize("method", ["ldn", "exits", "darts_depth"])  # validation: unused, chooses, fits
def test_a_refit_of_a_one_shot_is_a_fixed_depth_for_the_cap_of_the_space(method: str, tmp_path: Path) -> None:
    unit = run(tmp_path, method, refit=True)
    assert unit.result is not None
    task, final = unit.logs["refit"].task, unit.logs["final"].task
    assert isinstance(task, RefitTask) and isinstance(final, FinalTask)
    assert task.config == TrialConfig.of(unit.plan.space, "ddn", unit.result.d_opt, unit.plan.seed)
    assert task.epochs == unit.plan.space.training.max_epochs
    assert (final.refit, final.refit_d_opt) == (task, unit.result.d_opt)


def test_the_record_says_how_it_was_run(tmp_path: Path) -> None:
    one = run(tmp_path / "one", "optuna_tpe", concurrency=1, gpus_per_trial=0.25).result
    two = run(tmp_path / "two", "optuna_tpe", slots=2).result
    grid = run(tmp_path / "two", "grid", slots=2).result
    assert one and two and grid
    assert (one.concurrency, one.order_dependent, one.cost.devices) == (1, False, 0.25)
    assert (two.concurrency, two.order_dependent, two.cost.devices) == (None, True, 1.0)
    assert not grid.order_dependent
    assert one.labels_fit == 1 and one.labels_chosen_with == 1


# --- limits and failures ------------------------------------------------------------------------------------------


def test_past_the_limit_no_trial_starts_and_the_result_says_so(tmp_path: Path) -> None:
    rehearse([make_unit(tmp_path, "grid")], max_steps=3 * 7 + 2)
    unit = make_unit(tmp_path, "grid")
    unit.capped = True
    rehearse([unit])
    assert unit.result is not None
    assert (unit.result.status, unit.result.trials) == ("capped", 4)  # three had ended, one was open


def test_a_limit_that_cut_nothing_off_is_not_in_the_result(tmp_path: Path) -> None:
    rehearse([make_unit(tmp_path, "grid")], max_steps=7 * 7 - 2)
    unit = make_unit(tmp_path, "grid")
    unit.capped = True
    rehearse([unit])
    assert unit.result is not None
    assert (unit.result.status, unit.result.trials) == ("complete", 7)


def test_a_limit_before_the_first_trial_leaves_the_unit_unfinished(tmp_path: Path) -> None:
    unit = make_unit(tmp_path, "grid")
    unit.capped = True
    rehearse([unit])
    assert unit.is_over and unit.result is None and unit.failure is None
    assert run(tmp_path, "grid").result is not None  # with a higher limit


@pytest.mark.parametrize("where", ["suggest", "on_trial_result", "on_trial_complete", "on_trial_add"])
def test_a_methods_mistake_ends_its_unit_and_not_the_others(tmp_path: Path, where: str) -> None:
    broken, grid = make_unit(tmp_path, Script(depths=(1, 2), crash=where)), make_unit(tmp_path, "grid")
    rehearse([broken, grid], slots=2)
    assert broken.failure == "the method raised ZeroDivisionError: the method's own mistake"
    assert grid.result is not None


def test_a_ledger_that_the_method_cannot_repeat_is_refused(tmp_path: Path) -> None:
    run(tmp_path, Script(depths=(1, 2, 3)), max_steps=10)
    again = make_unit(tmp_path, Script(depths=(1, 2, 3)))
    again._search_plan.search_alg.script = [1, 5, 3]  # type: ignore[union-attr]
    rehearse([again])
    assert "not deterministic in its seed; use --fresh" in (again.failure or "")


def test_when_every_trial_failed_the_unit_fails_with_a_sentence(tmp_path: Path) -> None:
    unit = make_unit(tmp_path, "ldn")
    rehearse([unit], max_steps=3)
    unit.on_error(next(iter(unit.live)), "Boom")
    again = make_unit(tmp_path, "ldn")
    rehearse([again])
    assert "no trial is left to choose from: all 1 failed" in (again.failure or "")


# --- replay -------------------------------------------------------------------------------------------------------


def comparable(unit: Any) -> dict[str, Any]:
    """The result and the trials without times and costs."""
    assert unit.result is not None, unit.failure
    timed = {"cost": True, "cost_without_startup": True, "wall_seconds": True, "driver_seconds": True}
    result = unit.result.model_dump(exclude={**timed, "refit": {"cost"}})
    changing = {"cost", "attempts", "started_at", "ended_at", "queue_seconds"}
    return {"result": result, "trials": [record.model_dump(exclude=changing) for record in unit.records()]}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ldn", "grid", "optuna_tpe", "asha", "optuna_asha", "golden_section"])
def test_killed_at_any_step_and_continued_it_ends_the_same(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.running.store.os.fsync", lambda descriptor: None)
    space = small_space(depth={"max": 4})
    undisturbed = make_unit(tmp_path / "whole", method, space, concurrency=1, refit=True)
    steps = rehearse([undisturbed])
    for stop in range(steps):
        out = tmp_path / str(stop)
        run(out, method, space, concurrency=1, refit=True, max_steps=stop)
        assert comparable(run(out, method, space, concurrency=1, refit=True)) == comparable(undisturbed), stop


def test_killed_again_and_again(tmp_path: Path) -> None:
    for _ in range(100):
        unit = run(tmp_path, "golden_section", concurrency=1, max_steps=8)
        if unit.result:
            break
    assert comparable(unit) == comparable(run(tmp_path / "whole", "golden_section", concurrency=1))


def test_finished_trials_are_not_trained_again(tmp_path: Path) -> None:
    run(tmp_path, "grid", max_steps=3 * 7 + 2)  # three trials ended, the fourth is open
    unit = run(tmp_path, "grid")
    starts = [name for event, name in events(unit) if event == "start"]
    assert starts.count("t002") == 1 and starts.count("t003") == 2
    attempts = unit.records()[3].attempts
    assert [attempt.ended for attempt in attempts] == ["interrupted", "finished"]
    assert attempts[0].tail_unknown


def test_a_trial_whose_end_was_reported_but_not_written_is_not_trained_again(tmp_path: Path) -> None:
    run(tmp_path, "grid", max_steps=6)  # facts and five epochs: the last report is in, the end is not
    unit = run(tmp_path, "grid")
    assert [name for event, name in events(unit) if event == "start"].count("t000") == 1


def test_a_trial_whose_worker_dies_after_it_was_told_to_stop_has_stopped(tmp_path: Path) -> None:
    """Tune tries it again, and would train it on: the scheduler has decided, and hears of no epoch twice."""

    class AtTwenty(FIFOScheduler):
        def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
            return self.STOP if result["epoch"] == 20 else self.CONTINUE

    class Stopped(Script):
        def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
            return SearchPlan({}, Scripted(self.depths), AtTwenty(), num_samples=1)

    unit = make_unit(tmp_path, Stopped(depths=(3,)))
    rehearse([unit], max_steps=0)
    trial = unit.next_trial()
    assert trial is not None
    reports = [report for _, report in made_up_reports(unit.task_of(trial.trial_id), unimodal)]
    unit.on_start(trial.trial_id, coresident=1)
    decisions = [unit.on_report(trial.trial_id, report, coresident=1) for report in reports[:3]]
    assert decisions == ["CONTINUE", "CONTINUE", "STOP"]
    unit.on_death(trial.trial_id)
    [record] = unit.records()
    said = events(unit)
    unit.on_start(trial.trial_id, coresident=1)
    assert unit.on_report(trial.trial_id, reports[0], coresident=1) == "STOP"
    unit.on_complete(trial.trial_id)
    assert unit.records() == (record,) and events(unit) == said
    assert (record.status, record.cost.epochs, record.val) == ("stopped", 20, reports[2].progress.val)  # type: ignore[union-attr]
    assert sum(record.cost.phases.values()) == pytest.approx(record.cost.held_seconds)


def test_reports_that_repeat_themselves_are_told_once(tmp_path: Path) -> None:
    undisturbed = run(tmp_path / "whole", Script(depths=(3,)))
    run(tmp_path, Script(depths=(3,)), max_steps=4)
    assert told(run(tmp_path, Script(depths=(3,)))) == told(undisturbed)


def test_a_crash_is_replayed_as_a_crash(tmp_path: Path) -> None:
    """Not as its last report: the searcher was told of an error, and must be told of it again."""
    unit = make_unit(tmp_path, Script(depths=(3, 4)))
    rehearse([unit], max_steps=4)
    [trial_id] = unit.live
    unit.on_error(trial_id, "the worker was out of memory")
    again = run(tmp_path, Script(depths=(3, 4)))
    assert told(again)[:4] == told(unit)
    assert told(unit)[-1] == ("complete", None, True)
    assert again.result is not None
    assert again.result.trials_by_status == {"failed": 1, "finished": 1}


def test_a_failed_final_evaluation_is_tried_again_by_the_next_run(tmp_path: Path) -> None:
    steps = rehearse([make_unit(tmp_path / "whole", "ldn")])
    unit = make_unit(tmp_path, "ldn")
    rehearse([unit], max_steps=steps - 2)
    trial = unit.next_trial()
    assert trial is not None and isinstance(received_task(trial.config), FinalTask)
    unit.on_start(trial.trial_id, coresident=1)
    unit.on_error(trial.trial_id, "Boom\nthe disk was full")
    assert "its final task failed" in (unit.failure or "")
    again = run(tmp_path, "ldn")
    assert again.result is not None
    assert [attempt.ended for attempt in again.logs["final"].attempts] == ["failed", "finished"]


def test_a_scheduler_meets_an_open_trial_once(tmp_path: Path) -> None:
    class Counting(FIFOScheduler):
        def __init__(self) -> None:
            super().__init__()
            self.added: list[str] = []

        def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
            self.added.append(received_task(trial.config).trial)

    class Counted(Script):
        def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
            return SearchPlan({}, Scripted(self.depths), Counting(), num_samples=2)

    run(tmp_path, Counted(depths=(3, 4)), max_steps=3)
    unit = run(tmp_path, Counted(depths=(3, 4)))
    assert isinstance(unit.search._scheduler, Counting)
    assert unit.search._scheduler.added == ["t000", "t001"]


def test_a_fresh_unit_does_not_find_the_checkpoints_of_the_one_before(tmp_path: Path) -> None:
    first = run(tmp_path, "ldn")
    continued = make_unit(tmp_path, "ldn")
    rehearse([continued])
    assert continued.storage_key == first.storage_key
    fresh = make_unit(tmp_path, "ldn")
    fresh.folder.claim(fresh.plan, fresh=True)
    rehearse([fresh])
    assert fresh.storage_key != first.storage_key


def test_a_plan_without_trials_is_refused(tmp_path: Path) -> None:
    class Nothing(SearchMethod):
        def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
            return SearchPlan({"depth": tune.grid_search([])}, BasicVariantGenerator(random_state=seed))

    with pytest.raises(UserError, match="method mine plans no trial on small"):
        make_unit(tmp_path, Nothing())


def test_an_end_that_cannot_be_written_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune recovers a trial whose end raised: the unit must still know it then."""
    unit = make_unit(tmp_path, "ldn")
    rehearse([unit], max_steps=3)
    [trial_id] = unit.live

    def full(event: Any, and_commit: bool) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(unit.folder, "append", full)
        with pytest.raises(OSError, match="no space left"):
            unit.on_error(trial_id, "Boom")
    unit.on_death(trial_id)
    unit.on_error(trial_id, "Boom")
    assert unit.logs["t000"].status == "failed" and not unit.live
    unit.on_complete(trial_id)  # Tune may say so of a trial that has ended


@pytest.mark.parametrize("line", range(1, 4))
def test_a_full_disk_is_not_the_methods_mistake(tmp_path: Path, line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever line of the ledger finds no room: the run ends, and the next one goes on."""
    unit = make_unit(tmp_path, "ldn")
    append, written = unit.folder.append, list[Any]()

    def full(event: Any, and_commit: bool = True) -> None:
        written.append(event)
        if len(written) == line:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), unit.folder.path)
        append(event, and_commit)

    monkeypatch.setattr(unit.folder, "append", full)
    with pytest.raises(OSError, match="No space left"):
        rehearse([unit])
    assert unit.failure is None
    assert run(tmp_path, "ldn").result is not None


def test_time_of_the_driver_is_not_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("harness.running.unit.time.perf_counter", lambda: now[0])
    unit = make_unit(tmp_path, "ldn")
    with unit.asking_method():
        now[0] += 1.0
        with unit.asking_method():
            now[0] += 2.0
    with unit.asking_method():
        now[0] += 4.0
    assert unit.driver_seconds == 7.0


def test_a_run_that_continues_takes_no_checkpoint_beyond_the_next_report(tmp_path: Path) -> None:
    """And a trial that dies later, none beyond the report that follows then."""
    first = make_unit(tmp_path, "asha")
    rehearse([first], max_steps=4)  # reports after 10 epochs each
    [open_trial] = [log for log in first.logs.values() if log.is_running]
    assert open_trial.progress and open_trial.progress.epoch >= 10
    reached = open_trial.progress.epoch

    def up_to(unit: RunningUnit) -> int | None:
        return received_limit(unit._trials[open_trial.name].config)

    assert up_to(first) == 10, "that of a trial that is new to it: a driver that was lost may have begun the same one"
    second = make_unit(tmp_path, "asha")
    second.prepare(first._experiment)
    assert up_to(second) == reached + 10
    trial = second.next_trial()
    assert trial and second.live[trial.trial_id] == open_trial.name
    second.on_start(trial.trial_id, 1)
    for _, report in made_up_reports(open_trial.task, unimodal):
        if report.progress and report.progress.epoch == reached + 10:
            second.on_report(trial.trial_id, report, 1)
    second.on_death(trial.trial_id)
    assert up_to(second) == reached + 20 and received_task(trial.config) == open_trial.task


def test_work_in_a_checkpoint_that_was_not_taken_is_charged_as_lost(tmp_path: Path) -> None:
    unit = make_unit(tmp_path, "grid")
    rehearse([unit], max_steps=3)
    [name] = [log.name for log in unit.logs.values() if log.is_running]
    task, told = unit.logs[name].task, list(made_up_reports(unit.logs[name].task, unimodal))
    again = make_unit(tmp_path, "grid")
    again.clock = lambda: 1e6
    again.prepare(unit._experiment)
    trial = again.next_trial()
    assert trial and isinstance(task, TrainTask)
    again.on_start(trial.trial_id, 1)
    facts = told[0][1].facts
    assert facts is not None
    beyond = Cost(held_seconds=123.0, epochs=40)
    again.on_report(trial.trial_id, Report(facts=facts.model_copy(update={"not_taken": beyond})), 1)
    for after, report in told[1:]:
        again.clock = lambda after=after: 1e6 + after  # type: ignore[misc]
        again.on_report(trial.trial_id, report, 1)
    again.on_complete(trial.trial_id)
    first, second = again.logs[name].attempt_records()
    assert first.held_seconds == first.lost_seconds == 123.0 and second.lost_seconds == 0.0
    record = again.logs[name].record(1.0)
    assert record.cost.phases["lost"] == 123.0
    assert record.cost.held_seconds == pytest.approx(123.0 + second.held_seconds)
