"""Units side by side: whose turn it is, the limit on units, the limit on cost."""

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.tune.experiment import Trial

from harness.backends import ray_door
from harness.running.ledger import Chosen, Ended, Interrupted, Started
from harness.running.replay import unused_experiment
from harness.running.search import GO_ON, STOP
from harness.running.side_by_side import Answers, SharedSearch, SideBySide, StopAsked
from harness.running.unit import RunningUnit
from tests.rehearsed import make_unit, run


def together(units: list[RunningUnit], tmp_path: Path, slots: int = 2, queue: int = 0, **more: Any) -> SideBySide:
    """Units ready to be asked."""
    made = SideBySide(
        units,
        slots,
        queue,
        more.pop("parallel_units", None),
        more.pop("max_cost", None),
        more.pop("finish", lambda unit: unit.complete()),
        **more,
    )
    SharedSearch(made).add_configurations([unused_experiment(str(tmp_path / "ray"))])
    return made


def handed_out(made: SideBySide) -> list[str]:
    """Units of the trials that are handed out until nothing more is."""
    trials: list[Trial] = []
    while trial := made.next_trial():
        trials.append(trial)
    return [made.unit_of(trial.trial_id).key for trial in trials]


def test_free_slots_go_to_the_next_unit(tmp_path: Path) -> None:
    units = [make_unit(tmp_path, method) for method in ("ldn", "golden_section", "grid")]
    keys = ["ldn/seed-0", "golden_section/seed-0", "golden_section/seed-0", "grid/seed-0"]
    assert handed_out(together(units, tmp_path, slots=4)) == keys


def test_waiting_trials_are_of_methods_that_learn_nothing_from_waiting(tmp_path: Path) -> None:
    adaptive = together([make_unit(tmp_path, "optuna_tpe")], tmp_path, slots=2, queue=2)
    fixed = together([make_unit(tmp_path, "grid")], tmp_path, slots=2, queue=2)
    assert len(handed_out(adaptive)) == 2
    assert len(handed_out(fixed)) == 4


def test_parallel_units(tmp_path: Path) -> None:
    units = [make_unit(tmp_path, method) for method in ("ldn", "grid", "random_search")]
    assert handed_out(together(units, tmp_path, slots=9, parallel_units=1)) == ["ldn/seed-0"]
    units = [make_unit(tmp_path / "two", method) for method in ("ldn", "grid", "random_search")]
    assert set(handed_out(together(units, tmp_path, slots=99, parallel_units=2))) == {"ldn/seed-0", "grid/seed-0"}


def test_the_cost_limit_is_for_all_units_and_counts_units_of_earlier_runs(tmp_path: Path) -> None:
    units = [make_unit(tmp_path, "ldn"), make_unit(tmp_path, "grid")]
    made = together(units, tmp_path, max_cost=10.0, cost_before=9.0)
    assert handed_out(made) == ["ldn/seed-0", "grid/seed-0"]
    for unit in units:
        [trial_id] = unit.live
        unit.clock = lambda: 100.0
        made.on_start(trial_id)
        unit.clock = lambda: 100.6
        made.on_death(trial_id)
    assert made.device_seconds == pytest.approx(9.0 + 2 * 0.6)
    assert handed_out(made) == []
    assert all(unit.capped for unit in units)


def test_a_run_has_searched_when_only_final_evaluations_are_left(tmp_path: Path) -> None:
    done, failed, chooses = run(tmp_path, "ldn"), make_unit(tmp_path, "grid"), make_unit(tmp_path, "asha")
    failed.failure = "it raised"
    made = together([chooses], tmp_path)
    made.units += [done, failed]
    assert not made.has_searched
    chooses.choice = Chosen(chosen="t000", d_opt=1, epochs=1, capped=False)
    assert made.has_searched
    refitted = make_unit(tmp_path, "random_search", refit=True)
    refitted.choice = chooses.choice
    made.units.append(refitted)
    assert not made.has_searched, "the time of a refit counts, too"


def test_a_result_that_cannot_be_written_fails_its_unit_only(tmp_path: Path) -> None:
    def finish(unit: RunningUnit) -> None:
        if unit.plan.method == "ldn":
            raise OSError("the storage is away")
        unit.complete()

    for method in ("ldn", "grid"):
        (run(tmp_path, method).folder.path / "result.json").unlink()  # all is in the ledger but the result
    again = [make_unit(tmp_path, "ldn"), make_unit(tmp_path, "grid")]
    made = together(again, tmp_path, finish=finish)
    assert made.is_finished
    assert again[0].failure == "its result could not be written: OSError: the storage is away"
    assert again[1].result is not None
    assert run(tmp_path, "ldn").result is not None  # the next run writes it


def test_a_run_that_is_told_to_stop_waits_for_running_reports_and_starts_nothing(tmp_path: Path) -> None:
    unit = make_unit(tmp_path, "grid")
    made = together([unit], tmp_path, slots=2, queue=2)
    search = SharedSearch(made)
    first, second, waiting = (search.next_trial() for _ in range(3))
    assert first and second and waiting
    made.on_start(first.trial_id)
    made.on_start(second.trial_id)
    made.stop.say = lambda sentence: None
    made.stop.ask(signal.SIGTERM)
    assert search.next_trial() is None
    made.on_interrupt(first.trial_id)  # it has reported
    assert search.next_trial() is None
    made.on_complete(second.trial_id)  # it has ended
    with pytest.raises(StopAsked):
        search.next_trial()
    *_, interrupted, ended = unit.folder.events()
    assert isinstance(interrupted, Interrupted) and (interrupted.trial, interrupted.asked) == ("t000", True)
    assert isinstance(ended, Ended) and ended.trial == "t001"
    again = run(tmp_path, "grid")  # the one that was interrupted and the one that waited are taken up
    assert again.result is not None and again.result.trials == 7


def test_a_stop_waits_for_reports_no_longer_than_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = make_unit(tmp_path, "grid")
    made = together([unit], tmp_path, slots=2)
    first = made.next_trial()
    assert first
    made.on_start(first.trial_id)
    made.stop.say = lambda sentence: None
    made.stop.ask(signal.SIGTERM)
    made.leave_if_told()
    monkeypatch.setattr("harness.running.stopping.PATIENCE_SECONDS", 0.0)
    with pytest.raises(StopAsked):
        made.leave_if_told()
    last = list(unit.folder.events())[-1]
    assert isinstance(last, Interrupted) and last.asked and not unit.live


def test_a_long_silence_names_what_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units = [make_unit(tmp_path, "grid"), make_unit(tmp_path, "ldn")]
    made = together(units, tmp_path, slots=2, queue=1)
    first, *_ = iter(made.next_trial, None)
    assert first is not None
    made.on_start(first.trial_id)
    assert made.waits_for() is None
    made.heard_at -= 61
    said = made.waits_for() or ""
    assert said.startswith("nothing happened for 61 s: waiting for grid/seed-0 t000 to report, a worker for grid/")
    for unit in units:
        unit.live.clear()
    assert (made.waits_for() or "").endswith("grid/seed-0 to propose a trial, ldn/seed-0 to propose a trial")
    for unit in units:
        unit.failure = "over"
    assert made.waits_for() is None


# --- answers --------------------------------------------------------------------------------------------------------


class Loop:
    """Tune's loop as `Answers` sees it: trials that have reported, and what is answered when."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trials: int, units: int = 1) -> None:
        self.happened: list[str] = []
        self.others = 0  # reports that are here and not yet taken
        self.units = [make_unit(tmp_path, "grid", seed=seed) for seed in range(units)]
        self.trials: list[Any] = [
            SimpleNamespace(trial_id=str(number), status="RUNNING", worker=number) for number in range(trials)
        ]
        self.answers = Answers(cast(SideBySide, self))
        self.running = {trial.trial_id for trial in self.trials}
        monkeypatch.setattr("harness.running.store.os.fsync", lambda _: self.happened.append("on disk"))
        monkeypatch.setattr(ray_door, "can_answer_later", lambda _: True)
        monkeypatch.setattr(ray_door, "another_report_is_here", lambda _: self.others > 0)
        monkeypatch.setattr(ray_door, "worker_of", lambda trial: trial.worker)
        monkeypatch.setattr(ray_door, "answer", lambda _, trial, decision: self.happened.append(trial.trial_id))

    def unit_of(self, trial_id: str) -> Any:
        return self.units[int(trial_id) % len(self.units)]

    def report(self, number: int, decision: str = GO_ON) -> str:
        folder = self.unit_of(str(number)).folder
        folder.append(Started(trial=f"t00{number}", coresident=1), and_commit=False)
        return self.answers.wait_for(None, self.trials[number], decision)

    def take(self) -> list[str]:
        self.answers.give()
        happened, self.happened = self.happened, []
        return happened


def test_reports_that_wait_share_one_write_and_are_answered_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(tmp_path, monkeypatch, trials=4)
    for number in range(4):
        loop.others = 3 - number
        assert loop.report(number) == "NOOP"
        assert loop.take() == ([] if number < 3 else ["on disk", "0", "1", "2", "3"])
    assert loop.take() == []


def test_each_ledger_that_waits_is_written_before_any_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(tmp_path, monkeypatch, trials=4, units=2)
    for number in range(3):
        loop.report(number)
    assert loop.take() == ["on disk", "on disk", "0", "1", "2"]


def test_a_trial_that_trains_alone_is_answered_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(tmp_path, monkeypatch, trials=1)
    loop.others = 1  # nobody asks
    loop.report(0)
    assert loop.take() == ["on disk", "0"]


def test_a_trial_that_is_to_stop_is_told_so_after_its_report_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(tmp_path, monkeypatch, trials=2)
    loop.report(0)
    assert loop.report(1, STOP) == STOP and loop.happened == ["on disk"]
    assert loop.take() == ["on disk", "0"], "what was on disk already needs no other write"


def test_a_worker_that_died_while_its_trial_waited_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(tmp_path, monkeypatch, trials=3)
    for number in range(3):
        loop.report(number)
    loop.trials[0].worker, loop.trials[1].status = "another", "PENDING"
    assert loop.take() == ["on disk", "2"]


def test_a_ray_that_cannot_answer_later_is_answered_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(tmp_path, monkeypatch, trials=2)
    monkeypatch.setattr(ray_door, "can_answer_later", lambda _: False)
    assert loop.report(0) == GO_ON and loop.happened == ["on disk"] and loop.take() == ["on disk"]
