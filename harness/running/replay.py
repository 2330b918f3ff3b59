"""Searches on a simulated clock: trials that are not trained report to their units as so many devices would have it.

Where the reports come from is the caller's business: a rehearsal makes them up, a replay has them from trials that
were trained once (`Recording`). Units, searches, ledgers and records are those of a live run. No real time enters, so
the same search comes out on every machine.
"""

import contextlib
import functools
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import field_validator
from ray import tune
from ray.tune.experiment import Experiment, Trial

from harness.errors import UserError
from harness.methods.base import SearchMethod
from harness.running.ledger import (
    Died,
    Ended,
    Event,
    Interrupted,
    Reported,
    Started,
    Suggested,
    Suspended,
    TrialLog,
    steady_clock,
)
from harness.running.messages import AnyTask, Facts, Report, TrainTask
from harness.running.search import STOP, plan_of
from harness.running.side_by_side import SideBySide
from harness.running.store import UnitFolder
from harness.running.unit import RunningUnit
from harness.schema.curves import incumbents, rungs_of
from harness.schema.identity import Frozen
from harness.schema.records import (
    FIXED_DEPTH,
    NOT_CARRIED_OVER,
    REPLAYED_SEARCHES,
    WALL_CLOCK_DEVICES,
    Cost,
    Count,
    NonNegative,
    Progress,
    ReplayedSearch,
    TrialConfig,
    UnitPlan,
)
from harness.schema.settings import SearchSpace
from harness.training.cost import total

# --- the clock ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """What a trial reports, each with the seconds since its start, and how long its end takes after the last one."""

    reports: Iterator[tuple[float, Report]]
    tail_seconds: float = 0.0


_REPORT, _END = 0, 1


def simulate(
    together: SideBySide, course_of: Callable[[AnyTask], Course], *, begin: float = 0.0, max_steps: int | None = None
) -> int:
    """Runs prepared units until nothing runs and nothing more is proposed; `max_steps` "kills" the driver before.

    Of what happens at the same moment, reports come first, then ends, then starts, each in the order of suggestion: a
    method that is asked has heard all that was known by then. `begin` is what the clock shows at first, unless a
    ledger that is continued has shown later times. Returns the number of steps: reports and ends.
    """
    now, steps = max([begin, *map(_last_seen, together.units)]), 0
    events: list[tuple[float, int, int]] = []  # when, what, whose turn
    running: dict[int, tuple[Trial, Course, float]] = {}  # with the moment of its start
    reports: dict[int, Report] = {}  # the next one of each
    for unit in together.units:
        unit.clock = lambda: now

    def schedule(turn: int) -> None:
        _, course, started = running[turn]
        after, report = next(course.reports, (0.0, None))
        if report:
            reports[turn] = report
            heapq.heappush(events, (started + after, _REPORT, turn))
        else:
            heapq.heappush(events, (now + course.tail_seconds, _END, turn))

    while steps != max_steps:
        if events and events[0][0] <= now:
            steps += 1
            _, what, turn = heapq.heappop(events)
            trial, course, _ = running[turn]
            if what == _END:
                del running[turn]
                together.on_complete(trial.trial_id)
            elif together.on_report(trial.trial_id, reports.pop(turn)) == STOP:
                heapq.heappush(events, (now + course.tail_seconds, _END, turn))
            else:
                schedule(turn)
        elif len(running) < together.slots and (started := together.next_trial()):
            turn = together.turn[started.trial_id]
            together.on_start(started.trial_id)
            running[turn] = started, course_of(together.task_of(started.trial_id)), now
            schedule(turn)
        elif events:
            now = events[0][0]
        else:
            break
    return steps


def _last_seen(unit: RunningUnit) -> float:
    """The latest moment in a ledger that is continued."""
    logs = unit.logs.values()
    seen = [log.ended_at for log in logs] + [attempt.last_seen for log in logs for attempt in log.attempts]
    return max(seen, default=0.0)


def unused_experiment(folder: str) -> Experiment:
    """Tune makes trials of an experiment only; nothing of it is used here, and nothing is trained."""
    tune.register_trainable("harness-simulated", _never_called)
    experiment = Experiment("simulated", run="harness-simulated", storage_path=folder)
    experiment.spec = {"run": experiment.spec["run"]}  # Tune copies and parses the rest for every trial
    return experiment


def _never_called(config: dict[str, Any]) -> None:
    raise AssertionError("nothing is trained on a simulated clock")


# --- recordings -----------------------------------------------------------------------------------------------------


class Recording(Frozen):
    """A fixed-depth trial that was trained to its own end: by patience, at the cap, or because its loss failed.

    It holds what carries over to another search. Workers' starts, time lost in crashes and the checkpoint phase do
    not: how often a trial is saved depends on the clock.
    """

    depth: Count
    seed: Count
    config_hash: str
    unit: str  # with `trial`, the key of its checkpoint
    trial: str
    started_at: float
    coresident: Count  # most trials that ran beside it, itself included, when its seconds were measured
    facts: Facts
    progress: tuple[Progress, ...]
    tail_seconds: NonNegative  # that its device was held beyond what its worker measured
    kept: bool = True  # its checkpoint is of its end; else that did not arrive, and there is one of before or none

    @field_validator("progress")
    @classmethod
    def _is_complete(cls, progress: tuple[Progress, ...]) -> tuple[Progress, ...]:
        if not progress or progress[-1].stop_reason is None:
            raise ValueError("its last report is not the trial's end: what would have come is not known")
        return progress

    @classmethod
    def of(cls, log: TrialLog, told: Sequence[Reported], devices: float) -> "Recording":
        assert log.facts is not None and log.progress is not None
        cost = log.cost(devices)
        return cls(
            depth=log.depth,
            seed=log.config.seed,
            config_hash=log.config.hash,
            unit=log.task.unit,
            trial=log.task.trial,
            started_at=log.attempts[0].started_at,
            coresident=max(event.coresident for event in told),
            facts=log.facts.model_copy(update={"worker_start": (0.0, 0.0), "resumed_from": Cost(), "warning": ""}),
            progress=tuple(_carried_over(event.report.progress) for event in told if event.report.progress),
            tail_seconds=max(0.0, cost.held_seconds - cost.phases["lost"] - log.progress.cost.held_seconds),
            kept=log.kept,
        )

    def reports(self) -> tuple[tuple[float, Report], ...]:
        """Each with the seconds since the trial's start."""
        told = [(each.cost.held_seconds, Report(progress=each)) for each in self.progress[:-1]]
        end = self.progress[-1]
        return (0.0, Report(facts=self.facts)), *told, (end.cost.held_seconds, Report(progress=end, kept=self.kept))


class Recordings:
    """Those of one seed, by depth, made with the settings that the space has: checked once, for many replays."""

    def __init__(self, space: SearchSpace, seed: int, recordings: Iterable[Recording]) -> None:
        self.by_depth = {each.depth: each for each in recordings}
        self.configs = {depth: TrialConfig.of(space, FIXED_DEPTH, depth, seed) for depth in self.by_depth}
        for depth, each in self.by_depth.items():
            if each.config_hash != self.configs[depth].hash:
                raise UserError(
                    f"the recording of depth {depth}, seed {seed}, was made with other settings than {space.name} has: "
                    "it belongs to another schedule, network or data set"
                )
        self._reports = {depth: each.reports() for depth, each in self.by_depth.items()}
        self.began = min((each.started_at for each in self.by_depth.values()), default=0.0)

    def course(self, depth: int) -> Course:
        return Course(iter(self._reports[depth]), self.by_depth[depth].tail_seconds)


def _carried_over(progress: Progress) -> Progress:
    cost = progress.cost.without(NOT_CARRIED_OVER)
    point = progress.point and progress.point.model_copy(update={"device_seconds": cost.device_seconds})
    return progress.model_copy(update={"cost": cost, "point": point})


def recordings_in(folder: UnitFolder) -> Iterator[Recording]:
    """The trials of a unit's ledger that can stand for themselves in other searches."""
    plan = folder.read_plan()
    assert plan is not None
    logs: dict[str, TrialLog] = {}
    told: dict[str, dict[tuple[int, bool], Reported]] = {}  # an epoch that was trained again replaces the first one
    for event in folder.events():
        match event:
            case Suggested(task=TrainTask() as task) if task.config.kind == FIXED_DEPTH and not task.config.restart:
                logs[event.trial], told[event.trial] = TrialLog(event.trial, task, event.time), {}
            case Started() | Reported() | Suspended() | Died() | Interrupted() | Ended() if event.trial in logs:
                logs[event.trial].apply(event)
                if isinstance(event, Reported) and event.report.progress and (progress := logs[event.trial].progress):
                    report = event.report.model_copy(update={"progress": progress})
                    as_it_worked = event.model_copy(update={"report": report})
                    told[event.trial][progress.epoch, progress.stop_reason is not None] = as_it_worked
    for name, log in logs.items():
        if log.status and log.has_reported_its_end:
            yield Recording.of(log, list(told[name].values()), plan.devices)


# --- a unit that is replayed ----------------------------------------------------------------------------------------


class ReplayedUnit(RunningUnit):
    """A unit whose search is replayed, in an instant, once its recordings are there. What follows the choice is real.

    The search's ledger appears as a whole, with its choice: a driver that is killed before that has written nothing,
    and one that is killed after it continues like any other.
    """

    def __init__(self, *args: Any, recorder: RunningUnit | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._recorder = recorder  # the unit that trains every depth of this seed; None: `replay` is called with them
        self._is_simulated = False

    def prepare(self, experiment: Experiment) -> None:
        self._experiment = experiment
        if self.folder.storage_key:
            super().prepare(experiment)

    def next_trial(self) -> Trial | None:
        if self._recorder and self.choice is None and not self._is_simulated and not self.is_over:
            if self._recorder.failure:
                raise UserError(f"it has no recordings to be replayed from: {self._recorder.key} failed")
            if self._recorder.given_up or not self._recorder.folder.is_complete:
                self.given_up = self._recorder.given_up
                return None
            self.replay(self._recorded(self._recorder))
        return super().next_trial()

    def _recorded(self, recorder: RunningUnit) -> Recordings:
        return Recordings(self.plan.space, self.plan.seed, recordings_in(recorder.folder))

    def replay(self, recordings: Recordings) -> None:
        """The whole search, up to its choice."""
        self._recordings = recordings
        assert self.plan.concurrency is not None
        together = SideBySide([self], self.plan.concurrency, 0, None, None, lambda unit: None)
        self._is_simulated = True
        try:
            with self.folder.all_at_once():
                super().prepare(self._experiment)
                simulate(together, lambda task: recordings.course(task.config.depth), begin=recordings.began)
                if self.failure:
                    raise UserError(self.failure)  # and the ledger does not appear
        finally:
            self._is_simulated, self.clock = False, steady_clock()

    def on_start(self, trial_id: str, coresident: int) -> None:
        super().on_start(trial_id, self._coresident(trial_id, coresident))

    def on_report(self, trial_id: str, report: Report, coresident: int) -> str:
        return super().on_report(trial_id, report, self._coresident(trial_id, coresident))

    def _coresident(self, trial_id: str, now: int) -> int:
        """Of a replayed trial: when it was recorded, for that is what its seconds depend on."""
        return self._recordings.by_depth[self.task_of(trial_id).config.depth].coresident if self._is_simulated else now

    @property
    def searched_seconds(self) -> float:
        """From the search's first start to its last end, on the simulated clock."""
        logs = self.search_logs()
        return max(log.ended_at for log in logs) - min(log.attempts[0].started_at for log in logs)

    def _replays(self) -> dict[str, Any]:
        if self._recorder is None:
            return {}
        recordings = self._recorded(self._recorder)
        return {
            "replayed_wall_seconds": dict(self._wall_seconds(recordings)),
            "replayed_searches": self._gains_of_others(),
            "replayed_choices": tuple(map(_outcome, self._others)),
        }

    def _wall_seconds(self, recordings: Recordings) -> Iterator[tuple[int, float]]:
        """With more trials at once an adaptive method decides otherwise, so it is replayed for each number."""
        for devices in WALL_CLOCK_DEVICES:
            slots = int(devices / self.plan.devices + 1e-9)
            with contextlib.suppress(UserError):  # it proposed a depth that has no recording
                if slots:
                    plan = self.plan.model_copy(update={"concurrency": slots})
                    yield devices, replayed(plan, self.method, recordings, self._experiment).searched_seconds

    @functools.cached_property
    def _others(self) -> tuple["ReplayedUnit", ...]:
        """One search is one draw: what it costs and what it is worth is a mean over search seeds."""
        if self._recorder is None or not self.method.seeded:
            return ()
        recordings = self._recorded(self._recorder)
        try:
            found = [
                replayed(self.plan, self.method, recordings, self._experiment, seed)
                for seed in range(REPLAYED_SEARCHES)
            ]
        except UserError:  # as above; a mean over the others would leave out what is hard
            return ()
        return tuple(found) if all(each.choice for each in found) else ()

    def _stopped_elsewhere(self) -> tuple[tuple[int, int], ...]:
        stopped = {(each.depth, each.epoch) for each in map(_outcome, self._others) if each.stopped}
        return tuple(sorted(stopped))

    def _gains_of_others(self) -> tuple[tuple[tuple[float, float], ...], ...]:
        searches = [each.records() for each in self._others]
        rungs = rungs_of(trial for trials in searches for trial in trials)
        known = [incumbents(trials, rungs) for trials in searches]
        succeeded = all(math.isfinite(search[-1][1]) for search in known)
        return tuple(map(_gains, known)) if succeeded else ()

    def _follow_up(self) -> Trial | None:
        return None if self._is_simulated else super()._follow_up()

    def _train_task(self, name: str, depth: int, restart: int) -> TrainTask:
        """Its checkpoint is the recording's."""
        if restart:
            raise UserError(
                f"method {self.plan.method} proposed restart {restart}, and recordings are of the first initialisation"
            )
        known = self._recordings.by_depth.get(depth)
        if known is None:
            raise UserError(
                f"method {self.plan.method} proposed depth {depth}, which has no recording on seed {self.plan.seed}; "
                f"recorded are {', '.join(map(str, sorted(self._recordings.by_depth))) or 'none'}"
            )
        return TrainTask(unit=known.unit, trial=known.trial, config=self._recordings.configs[depth])


def _outcome(unit: ReplayedUnit) -> ReplayedSearch:
    """Where a replay ended, and what it spent."""
    assert unit.choice is not None
    log, records = unit.logs[unit.choice.chosen], unit.records()
    assert log.progress is not None
    return ReplayedSearch(
        depth=unit.choice.d_opt,
        epoch=log.progress.epoch,
        stopped=log.status == "stopped",
        cost=total([record.cost for record in records]),
    )


def _gains(known: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Only where the best value becomes better, and the end."""
    before = [(0.0, -math.inf), *known]
    gains = [after for (_, best), after in zip(before, known, strict=False) if after[1] > best]
    return *gains, known[-1]


def replayed(
    plan: UnitPlan,
    method: SearchMethod,
    recordings: Recordings,
    experiment: Experiment,
    search_seed: int | None = None,
) -> ReplayedUnit:
    """A search on recordings that leaves nothing behind; `search_seed` is the plan's seed unless another is given."""
    seed = plan.seed if search_seed is None else search_seed
    search_plan = plan_of(plan.method, method, plan.space, seed)
    folder = _Unwritten(Path(), plan.space.name, plan.method, plan.seed)
    unit = ReplayedUnit(plan.model_copy(update={"trials": search_plan.n_trials}), method, search_plan, folder)
    unit.prepare(experiment)
    unit.replay(recordings)
    return unit


class _Unwritten(UnitFolder):
    """The folder of a unit that leaves nothing behind."""

    def append(self, event: Event, and_commit: bool = True) -> None:
        pass

    def events(self) -> Iterator[Event]:
        return iter(())

    def begin(self) -> str:
        return self.name

    @contextlib.contextmanager
    def all_at_once(self) -> Iterator[None]:
        yield
