"""The simulated clock, against cases worked out by hand; recordings, and units that are replayed from them."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler
from ray.tune.search import BasicVariantGenerator, Searcher

from harness.comparing import compare
from harness.errors import UserError
from harness.methods import known_methods, load_method, parse_methods
from harness.methods.base import METRIC, MODE, TIME, SearchMethod, SearchPlan
from harness.options import RunOptions
from harness.replaying.rehearsal import made_up_progress, made_up_reports, rehearse, unimodal
from harness.running import replay
from harness.running.ledger import Chosen, Reported, Suggested
from harness.running.messages import AnyTask, FinalTask, Report, RetrainTask, TrainTask
from harness.running.replay import (
    Course,
    Recording,
    Recordings,
    ReplayedUnit,
    recordings_in,
    simulate,
    unused_experiment,
)
from harness.running.runner import make_units
from harness.running.side_by_side import SideBySide
from harness.running.store import UnitFolder
from harness.running.unit import RunningUnit
from harness.schema.records import REPLAYED_SEARCHES, Cost, UnitPlan
from harness.schema.settings import Budget, SearchSpace
from tests.rehearsed import events, make_unit, run, small_space

SAID: list[tuple[Any, ...]] = []  # what the method was asked and told, in order


class Listening(Searcher):
    """Proposes depths in a fixed order and writes down when it is asked, and what it hears."""

    def __init__(self, depths: Sequence[int]) -> None:
        super().__init__(metric=METRIC, mode=MODE)
        self.left, self.of = list(depths), dict[str, int]()

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if not self.left:
            return Searcher.FINISHED  # type: ignore[return-value]  # a marker, as Tune wants it
        self.of[trial_id] = self.left.pop(0)
        SAID.append(("asked", self.of[trial_id]))
        return {"depth": self.of[trial_id]}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        SAID.append(("epoch", self.of[trial_id], result[TIME]))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        SAID.append(("end", self.of[trial_id], (result or {})[TIME]))


class Listed(SearchMethod):
    depths: tuple[int, ...]
    halving: bool = False
    decision: ClassVar[str] = FIFOScheduler.CONTINUE

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        SAID.clear()
        rungs = AsyncHyperBandScheduler(
            time_attr=TIME, metric=METRIC, mode=MODE, max_t=50, grace_period=10, reduction_factor=2
        )
        scheduler: Any = rungs if self.halving else Answering(self.decision)
        return SearchPlan({}, Listening(self.depths), scheduler, num_samples=len(self.depths))


class Answering(FIFOScheduler):
    def __init__(self, decision: str) -> None:
        super().__init__()
        self.decision = decision

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        return self.decision


Curve = Sequence[tuple[float, int]]  # (seconds since the start, epoch); the last one is the trial's own end


def replayed(
    out: Path,
    method: SearchMethod,
    curves: Mapping[int, Curve],
    devices: int,
    *,
    values: Mapping[int, float] | None = None,
    tail: float = 0.0,
) -> RunningUnit:
    """The unit after its search on so many devices, each depth with its own curve."""

    def reports(task: TrainTask) -> Iterator[tuple[float, Report]]:
        depth, curve = task.config.depth, curves[task.config.depth]
        value = -float(depth) if values is None else values[depth]
        for number, (after, epoch) in enumerate(curve, start=1):
            reason: Any = None if number < len(curve) else "cap" if epoch == 50 else "patience"
            progress = made_up_progress(False, depth, epoch, value, reason)
            paid = Cost(held_seconds=after, epochs=epoch)
            yield after, Report(progress=progress.model_copy(update={"cost": paid}))

    def course(task: AnyTask) -> Course:
        if isinstance(task, TrainTask):
            return Course(with_facts(task, reports(task)), tail)
        assert isinstance(task, FinalTask)
        return Course(made_up_reports(task, unimodal))

    def with_facts(task: AnyTask, told: Iterator[tuple[float, Report]]) -> Iterator[tuple[float, Report]]:
        yield next(made_up_reports(task, unimodal))
        yield from told

    unit = make_unit(out, method)
    together = SideBySide([unit], devices, 0, None, None, lambda ready: None)
    together.prepare(unused_experiment(str(out / "ray")))
    simulate(together, course)
    return unit


def held(unit: RunningUnit) -> dict[int, tuple[float, float]]:
    """Depth → when it started and when it ended."""
    return {record.depth: (record.started_at, record.ended_at) for record in unit.records()}


def whole(seconds: float) -> Curve:
    """Five reports, evenly spread, to the cap."""
    return [(seconds * number / 5, 10 * number) for number in range(1, 6)]


def test_one_device_one_after_the_other(tmp_path: Path) -> None:
    unit = replayed(tmp_path, Listed(depths=(3, 1)), {3: [(2, 25), (4, 50)], 1: [(1, 25), (2, 50)]}, devices=1)
    assert held(unit) == {3: (0, 4), 1: (4, 6)}
    assert [
        *(("asked", 3), ("epoch", 3, 25), ("epoch", 3, 50), ("end", 3, 50)),
        *(("asked", 1), ("epoch", 1, 25), ("epoch", 1, 50), ("end", 1, 50)),
    ] == SAID
    assert unit.choice is not None and unit.choice.d_opt == 1


def test_two_devices_the_one_that_is_free_first_takes_the_next(tmp_path: Path) -> None:
    """Depth 1 is done at 3, so depth 2 runs from 3 to 8 beside depth 6, and depth 4 begins when 6 is done."""
    curves = {6: whole(7), 1: whole(3), 2: whole(5), 4: whole(2)}
    unit = replayed(tmp_path, Listed(depths=(6, 1, 2, 4)), curves, devices=2)
    assert held(unit) == {6: (0, 7), 1: (0, 3), 2: (3, 8), 4: (7, 9)}
    assert [record.cost.held_seconds for record in unit.records()] == [7, 3, 5, 2]


def test_at_the_same_moment_reports_come_first_then_ends_then_starts(tmp_path: Path) -> None:
    """Depths 2 and 5 end at 4, where depth 3 reports too: whoever is asked then has heard all three."""
    curves = {2: [(2, 25), (4, 50)], 3: [(4, 25), (6, 50)], 5: [(4, 50)], 1: [(1, 50)], 0: [(1, 50)]}
    replayed(tmp_path, Listed(depths=(2, 3, 5, 1, 0)), curves, devices=3)
    assert [
        *(("asked", 2), ("asked", 3), ("asked", 5)),
        ("epoch", 2, 25),  # at 2
        *(("epoch", 2, 50), ("epoch", 3, 25), ("epoch", 5, 50), ("end", 2, 50), ("end", 5, 50)),  # at 4
        *(("asked", 1), ("asked", 0)),
        *(("epoch", 1, 50), ("epoch", 0, 50), ("end", 1, 50), ("end", 0, 50)),  # at 5
        *(("epoch", 3, 50), ("end", 3, 50)),  # at 6
    ] == SAID


def test_ties_go_by_the_order_of_suggestion(tmp_path: Path) -> None:
    curves = {depth: [(5.0, 50)] for depth in (4, 0, 6)}
    replayed(tmp_path, Listed(depths=(6, 0, 4)), curves, devices=3)
    assert [said for said in SAID if said[0] == "end"] == [("end", 6, 50), ("end", 0, 50), ("end", 4, 50)]


def test_patience_frees_a_device_early(tmp_path: Path) -> None:
    curves = {1: [(1, 10), (2, 20)], 2: whole(5), 3: whole(1)}
    unit = replayed(tmp_path, Listed(depths=(1, 2, 3)), curves, devices=2)
    assert held(unit) == {1: (0, 2), 2: (0, 5), 3: (2, 3)}
    assert [record.stop_reason for record in unit.records()] == ["patience", "cap", "cap"]


def test_a_stopped_trial_is_charged_up_to_its_last_report_and_frees_its_device(tmp_path: Path) -> None:
    """Half go on at a rung: at 10 epochs depth 2 is worse than depth 1 was, so it stops at 2 of its 10 seconds."""
    curves, values = {1: whole(5), 2: whole(10), 3: whole(20)}, {1: -1.0, 2: -2.0, 3: -0.5}
    unit = replayed(tmp_path, Listed(depths=(1, 2, 3), halving=True), curves, devices=2, values=values)
    assert [record.status for record in unit.records()] == ["finished", "stopped", "finished"]
    assert held(unit) == {1: (0, 5), 2: (0, 2), 3: (2, 22)}
    assert ("epoch", 2, 10) not in SAID and ("end", 2, 10) in SAID  # as Tune: not as a report, only as an end


def test_the_end_takes_its_time(tmp_path: Path) -> None:
    """Of a trial that finishes and of one that is stopped: the device is held until it has ended."""
    curves, values = {1: whole(5), 2: whole(10)}, {1: -1.0, 2: -2.0}
    unit = replayed(tmp_path, Listed(depths=(1, 2), halving=True), curves, devices=1, values=values, tail=0.5)
    assert held(unit) == {1: (0, 5.5), 2: (5.5, 8)}


def test_eight_devices_start_eight_at_once_and_no_more_than_there_are(tmp_path: Path) -> None:
    curves = {depth: [(1.0 + depth, 50)] for depth in range(7)}
    unit = replayed(tmp_path, Listed(depths=(0, 1, 2, 3, 4, 5, 6)), curves, devices=8)
    assert held(unit) == {depth: (0, 1.0 + depth) for depth in range(7)}
    few = replayed(tmp_path / "few", Listed(depths=(0, 1, 2, 3, 4, 5, 6)), curves, devices=4)
    # 0-3 at once; 0 ends at 1 → 4 until 6; 1 ends at 2 → 5 until 8; 2 ends at 3 → 6 until 10
    assert held(few) == {0: (0, 1), 1: (0, 2), 2: (0, 3), 3: (0, 4), 4: (1, 6), 5: (2, 8), 6: (3, 10)}


def test_on_eight_devices_a_rung_knows_only_who_has_reached_it(tmp_path: Path) -> None:
    """The deeper, the better and the slower: each is the best so far when it reports, so nobody is stopped."""
    curves, values = {depth: whole(5.0 + depth) for depth in range(7)}, {depth: -7.0 + depth for depth in range(7)}
    listed = Listed(depths=tuple(range(7)), halving=True)
    unit = replayed(tmp_path, listed, curves, devices=8, values=values)
    assert {record.status for record in unit.records()} == {"finished"}
    backwards = {depth: whole(12.0 - depth) for depth in range(7)}  # now the best comes first
    unit = replayed(tmp_path / "backwards", listed, backwards, devices=8, values=values)
    assert [record.depth for record in unit.records() if record.status == "finished"] == [6]


@pytest.mark.parametrize("decision", ["PAUSE", "NOOP"])
def test_a_scheduler_that_pauses_trials_is_refused_with_a_sentence(
    tmp_path: Path, decision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Listed, "decision", decision)
    unit = replayed(tmp_path, Listed(depths=(1, 2)), {1: whole(1), 2: whole(1)}, devices=1)
    assert unit.failure is not None and unit.choice is None
    assert f"method mine: its scheduler answers {decision} to a report" in unit.failure


# --- recordings and replayed units ----------------------------------------------------------------------------------

SEARCHES = [name for name in known_methods() if not load_method(name)[1].learns_depth]
SPACE = small_space(depth={"max": 4}, budget={"trials": 3, "early_stopping_trials": 5})


def together(out: Path, *methods: str | SearchMethod, space: SearchSpace = SPACE, **options: Any) -> list[RunningUnit]:
    """Units of a run with --replay, in claimed folders."""
    loaded = dict(load_method(method) if isinstance(method, str) else ("mine", method) for method in methods)
    units = make_units([space], loaded, [0], RunOptions(out=out, replay=True, **options))
    for unit in units:
        unit.folder.claim(unit.plan, fresh=False)
    return units


def outcome(unit: RunningUnit) -> dict[str, Any]:
    """Everything but seconds, and what says that it was replayed."""
    assert unit.result is not None, unit.failure
    timed = {"cost", "wall_seconds", "driver_seconds", "plan_hash", "most_coresident_trials"}
    timed |= {"replayed_wall_seconds", "replayed_searches", "replayed_choices"}
    by_clock = {"cost", "attempts", "started_at", "ended_at", "queue_seconds"}
    trials = [
        (record.model_dump(exclude=by_clock), record.cost.epochs, [event for event, _ in events(unit)])
        for record in unit.records()
    ]
    return {"result": unit.result.model_dump(exclude=timed), "trials": trials}


@pytest.mark.slow
@pytest.mark.parametrize("method", SEARCHES)
def test_every_search_is_replayed_as_it_runs_live(tmp_path: Path, method: str) -> None:
    live = run(tmp_path / "live", method, SPACE, concurrency=1)
    units = together(tmp_path, method)
    rehearse(units)
    assert [unit.plan.replayed for unit in units] == [not unit.plan.facts.exhaustive for unit in units]
    if not live.plan.facts.exhaustive:
        assert outcome(units[-1]) == outcome(live)
    assert units[0].result is not None and units[0].result.trials == 5  # every depth was trained, asked for or not


def test_a_replayed_unit_names_its_recordings_and_is_charged_what_they_cost(tmp_path: Path) -> None:
    grid, replayed = together(tmp_path, "random_search")
    rehearse([grid, replayed])
    tasks = [event.task for event in replayed.folder.events() if isinstance(event, Suggested)]
    sources = {(task.unit, grid.logs[task.trial].depth) for task in tasks if isinstance(task, TrainTask)}
    assert sources == {(grid.storage_key, record.depth) for record in replayed.records()}
    final = tasks[-1]
    assert isinstance(final, FinalTask) and final.unit == replayed.storage_key
    assert final.chosen.startswith(grid.storage_key)
    recorded = {record.depth: record for record in grid.records()}
    for record in replayed.records():
        assert record.cost.held_seconds == pytest.approx(recorded[record.depth].cost.held_seconds)
        assert [point.device_seconds for point in record.curve] == [
            point.device_seconds for point in recorded[record.depth].curve
        ]


def test_a_network_that_was_stopped_early_is_trained_again_to_that_epoch_and_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Listed, "decision", "STOP")
    grid, unit = together(tmp_path, Listed(depths=(1, 2)))
    rehearse([grid, unit])
    assert unit.result is not None and unit.result.trials_by_status == {"stopped": 2}
    retrained = unit.logs["retrained"].task
    assert isinstance(retrained, RetrainTask) and retrained.epochs == 10
    final = unit.logs["final"].task
    assert isinstance(final, FinalTask) and final.chosen == f"{unit.storage_key}/retrained.pt"
    assert unit.result.cost.epochs == 2 * 10


def test_a_recording_whose_last_checkpoint_did_not_arrive_is_trained_on_from_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, unit = together(tmp_path, Listed(depths=(1, 2)))

    def report_at_first(trial_id: str, report: Report, coresident: int) -> str:
        lost = bool(report.progress and report.progress.stop_reason) and grid.task_of(trial_id).config.depth == 2
        return RunningUnit.on_report(grid, trial_id, report.model_copy(update={"kept": not lost}), coresident)

    monkeypatch.setattr(grid, "on_report", report_at_first)
    rehearse([grid, unit], value=lambda depth, epoch: -abs(depth - 2) - 1 / epoch)
    assert unit.result is not None and unit.result.trials_by_status == {"finished": 2} and unit.result.d_opt == 2
    retrained, final = unit.logs["retrained"].task, unit.logs["final"].task
    assert isinstance(retrained, RetrainTask) and isinstance(final, FinalTask)
    assert retrained.begin_with == f"{grid.storage_key}/t002.pt" and retrained.epochs == 50
    assert final.chosen == f"{unit.storage_key}/retrained.pt"
    assert final.others == ((f"{grid.storage_key}/t001.pt", 1),), "what is not there is not looked for"
    assert unit.result.cost.epochs == 2 * 50, "what was trained again is not charged"


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_more_devices_train_the_same_networks_in_less_time(tmp_path: Path, devices: int) -> None:
    grid, unit = together(tmp_path, "random_search", workers=devices)
    rehearse([grid, unit])
    assert unit.result is not None
    assert unit.plan.concurrency == unit.result.concurrency == devices
    rounds = -(-3 // devices)  # three trials of fifty epochs, a second each
    assert unit.result.wall_seconds == pytest.approx(50 * rounds)
    assert unit.result.cost.held_seconds == pytest.approx(150)
    assert not unit.result.order_dependent  # the order is simulated, so it is the same next time


@pytest.mark.slow
@pytest.mark.parametrize("method", ["asha", "golden_section", "random_search"])
def test_wall_clock_on_other_numbers_of_devices_is_replayed(tmp_path: Path, method: str) -> None:
    """The same seconds as a run on so many simulated devices has, decisions that differ there included."""
    grid, unit = together(tmp_path, method)
    rehearse([grid, unit])
    assert grid.result is not None and grid.result.replayed_wall_seconds == {}
    assert unit.result is not None and list(unit.result.replayed_wall_seconds) == [1, 2, 4, 8]
    for devices, seconds in unit.result.replayed_wall_seconds.items():
        other = together(tmp_path / str(devices), method, workers=devices)
        rehearse(other)
        assert other[-1].result is not None and other[-1].result.wall_seconds == pytest.approx(seconds)
    rows = compare([each.folder.read() for each in (grid, unit)]).wall_clock
    assert [row.seconds for row in rows if row.method == method] == [unit.result.replayed_wall_seconds]


@pytest.mark.parametrize("method", ["asha", "optuna_tpe", "random_search"])
def test_what_a_search_knows_by_when_is_replayed_with_other_seeds(tmp_path: Path, method: str) -> None:
    """A row per search seed; the one with the unit's own seed is the unit's own search."""
    grid, unit = together(tmp_path, method)
    rehearse([grid, unit])
    assert unit.result is not None and len(unit.result.replayed_searches) == REPLAYED_SEARCHES
    recordings, experiment = Recordings(SPACE, 0, recordings_in(grid.folder)), unused_experiment(str(tmp_path / "ray"))
    for seed, row in enumerate(unit.result.replayed_searches):
        alone = replay.replayed(unit.plan, unit.method, recordings, experiment, seed).records()
        values = [record.val.log_likelihood for record in alone if record.val]
        assert row[-1] == pytest.approx((sum(record.cost.device_seconds for record in alone), max(values)))
        assert [best for _, best in row[:-1]] == sorted({best for _, best in row})  # each a gain
    own = unit.result.replayed_searches[0]
    assert own[-1] == pytest.approx((unit.result.cost.device_seconds, unit.result.val.log_likelihood))
    assert len({row[-1] for row in unit.result.replayed_searches}) > 1
    choices = unit.result.replayed_choices
    assert len(choices) == REPLAYED_SEARCHES and {each.depth for each in choices} <= set(unit.plan.space.depth.values)
    for choice, row in zip(choices, unit.result.replayed_searches, strict=True):
        assert choice.cost.device_seconds == pytest.approx(row[-1][0]), "what a search spent is told once more"
    read = [each.folder.read() for each in (grid, unit)]
    [note] = [note for note in compare(read).notes if note.startswith("Anytime curves")]
    assert note.startswith(f"Anytime curves and cost at equal quality of {method} are means over 10 replays with other")


def test_a_search_without_a_seed_and_one_that_cannot_be_replayed_have_no_others(tmp_path: Path) -> None:
    units = together(tmp_path, "golden_section", "deepest", ByChance())
    rehearse(units)
    assert [unit.result.replayed_searches for unit in units if unit.result] == [()] * 4
    assert [unit.result.replayed_choices for unit in units if unit.result] == [()] * 4


class ByChance(SearchMethod):
    """Outside the space on every seed but 0."""

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        return SearchPlan({"depth": 1 if seed == 0 else 99}, BasicVariantGenerator(random_state=seed))


def test_trials_of_several_devices_are_scheduled_as_such(tmp_path: Path) -> None:
    grid, unit = together(tmp_path, "random_search", cpus_per_trial=4.0)
    rehearse([grid, unit])
    assert unit.result is not None
    assert unit.result.replayed_wall_seconds == {4: pytest.approx(150), 8: pytest.approx(100)}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["asha", "optuna_tpe"])
def test_killed_at_any_step_the_run_ends_the_same(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.running.store.os.fsync", lambda descriptor: None)
    undisturbed = together(tmp_path / "whole", method)
    steps = rehearse(undisturbed)
    for stop in range(steps):
        rehearse(together(tmp_path / str(stop), method), max_steps=stop)
        again = together(tmp_path / str(stop), method)
        rehearse(again)
        assert outcome(again[-1]) == outcome(undisturbed[-1]), stop


class Killed(BaseException):
    """Nothing in the harness catches it."""


@pytest.mark.slow
def test_killed_at_any_event_of_the_replay_nothing_of_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.running.store.os.fsync", lambda descriptor: None)
    units = together(tmp_path, "asha")
    rehearse(units, max_steps=5 * 7)  # the recordings are there
    append, written = UnitFolder.append, 0

    def kill_at(number: int) -> None:
        def counted(folder: UnitFolder, event: Any, and_commit: bool = True) -> None:
            nonlocal written
            if folder.path == units[-1].folder.path:
                written += 1
                if written == number:
                    raise Killed
            append(folder, event, and_commit)

        monkeypatch.setattr(UnitFolder, "append", counted)

    for number in itertools.count(1):
        written = 0
        kill_at(number)
        replayed = together(tmp_path, "asha")
        try:
            rehearse(replayed)
        except Killed:
            if not any(isinstance(event, Chosen) for event in replayed[-1].folder.events()):
                assert not (replayed[-1].folder.path / "ledger.jsonl").exists()
                continue
        break
    assert number > 20
    monkeypatch.setattr(UnitFolder, "append", append)
    again = together(tmp_path, "asha")
    rehearse(again)
    undisturbed = together(tmp_path / "whole", "asha")
    rehearse(undisturbed)
    assert outcome(again[-1]) == outcome(undisturbed[-1])
    assert not list(again[-1].folder.path.glob(".*partial"))


def test_a_trial_that_was_retried_is_recorded_without_what_was_lost(tmp_path: Path) -> None:
    rehearse([make_unit(tmp_path, "grid", SPACE)], max_steps=7 + 4)  # the second trial has reported three epochs
    grid = run(tmp_path, "grid", SPACE)
    retried = grid.records()[1]
    assert [attempt.ended for attempt in retried.attempts] == ["interrupted", "finished"]
    assert retried.cost.phases["lost"] > 0
    recording = list(recordings_in(grid.folder))[1]
    assert [each.epoch for each in recording.progress] == [10, 20, 30, 40, 50]
    assert recording.tail_seconds == pytest.approx(50 - recording.progress[-1].cost.held_seconds)


def test_a_recording_leaves_out_checkpoints_and_worker_starts(tmp_path: Path) -> None:
    grid = run(tmp_path, "grid", SPACE)
    log = grid.logs["t002"]
    assert log.progress is not None and log.facts is not None
    cost = Cost(held_seconds=10.0, devices=2.0, phases={"train": 7.0, "checkpoint": 3.0})
    point = log.progress.point and log.progress.point.model_copy(update={"device_seconds": 20.0})
    told = Reported(
        trial="t002",
        report=Report(progress=log.progress.model_copy(update={"cost": cost, "point": point})),
        coresident=4,
    )
    log.facts = log.facts.model_copy(update={"worker_start": (1.0, 2.0), "warning": "shown once"})
    recording = Recording.of(log, [told], devices=2.0)
    [progress] = recording.progress
    assert (progress.cost.held_seconds, progress.cost.phases["checkpoint"]) == (7.0, 0.0)
    assert progress.point is not None and progress.point.device_seconds == 2 * 7.0
    assert recording.facts.worker_start == (0.0, 0.0) and not recording.facts.warning
    assert recording.coresident == 4


def test_a_trial_that_crashed_is_no_recording(tmp_path: Path) -> None:
    unit = make_unit(tmp_path, "grid", SPACE)
    rehearse([unit], max_steps=7 + 4)
    unit.on_error(next(iter(unit.live)), "the worker was out of memory")
    grid, broken, other = together(tmp_path, Listed(depths=(3, 1)), "deepest")
    rehearse([grid, broken, other])
    assert [recording.depth for recording in recordings_in(grid.folder)] == [0, 2, 3, 4]
    assert grid.result is not None and other.result is not None
    assert broken.failure == ("method mine proposed depth 1, which has no recording on seed 0; recorded are 0, 2, 3, 4")
    assert not (broken.folder.path / "ledger.jsonl").exists()


def test_without_a_recorder_that_completes_there_is_nothing_to_replay(tmp_path: Path) -> None:
    grid, unit = together(tmp_path, "golden_section")
    grid.failure = "its final task failed"
    rehearse([grid, unit])
    assert unit.failure == "it has no recordings to be replayed from: grid/seed-0 failed"
    grid, unit = together(tmp_path / "capped", "golden_section")
    grid.capped = True  # the cost limit
    rehearse([grid, unit])
    assert grid.given_up and unit.given_up and unit.failure is None


def test_recordings_of_other_settings_are_refused(tmp_path: Path) -> None:
    [grid] = together(tmp_path, "grid")
    rehearse([grid])
    changed = small_space(depth={"max": 4}, training={"max_epochs": 60, "patience": 50, "report_every": 10})
    other = together(tmp_path / "other", "golden_section", space=changed)[-1]
    assert isinstance(other, ReplayedUnit)
    other.prepare(unused_experiment(str(tmp_path / "ray")))
    with pytest.raises(UserError, match=r"the recording of depth \d, seed 0, was made with other settings than small"):
        other.replay(Recordings(changed, 0, recordings_in(grid.folder)))
    assert not (other.folder.path / "ledger.jsonl").exists()


def test_a_live_unit_is_not_mistaken_for_a_replayed_one(tmp_path: Path) -> None:
    live = run(tmp_path, "golden_section", SPACE, concurrency=1)
    with pytest.raises(UserError, match="replayed: False → True"):
        together(tmp_path, "golden_section")
    assert UnitPlan.model_validate_json(live.plan.model_dump_json(exclude={"replayed"})).hash == live.plan.hash


def test_rows_of_one_method_are_replayed_and_kept_apart(tmp_path: Path) -> None:
    rows = parse_methods("asha:grace_epochs=10,asha:grace_epochs=40,asha")
    for _ in range(2):  # the second time everything is complete
        units = make_units([SPACE], rows, [0], RunOptions(out=tmp_path, replay=True))
        assert len({unit.folder.path for unit in units}) == 4  # and the recorder
        for unit in units:
            unit.folder.claim(unit.plan, fresh=False)
        rehearse([unit for unit in units if not unit.folder.is_complete])
        spent = {unit.plan.method: unit.folder.read().result for unit in units}
    early, late = spent["asha:grace_epochs=10"], spent["asha:grace_epochs=40"]
    assert early is not None and late is not None
    assert early.options["grace_epochs"] == 10 and early.cost.epochs < late.cost.epochs
