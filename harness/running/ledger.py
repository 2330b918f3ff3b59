"""The ledger: every event of a unit, and what its events say of each trial.

Live runs and runs that continue read the same events in the same way. A trial may start several times; every stay on
a worker is an attempt, and all of its time is paid for.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from harness.running.messages import AnyTask, Facts, Report, RetrainTask, Task, seen_by_search
from harness.schema.identity import Frozen
from harness.schema.records import (
    PHASES,
    Attempt,
    Cost,
    Count,
    CurvePoint,
    Environment,
    FinalEvaluation,
    NonNegative,
    Progress,
    TrialConfig,
    TrialRecord,
)
from harness.schema.upgrade import upgraded_event

Status = Literal["finished", "stopped", "failed"]

# --- time -----------------------------------------------------------------------------------------------------------

LOOK_SECONDS, GAP_SECONDS = 0.5, 5.0  # between two looks at the clocks; what is no look any more, but a gap
_WAITING = ("checkpoint", "other")  # phases in which a worker waits for its driver
_AWAKE_OR_NOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_clock(not_before: float = 0.0) -> Callable[[], float]:
    """Seconds since the epoch as they are now, and from now on whatever is done to the machine's clock.

    A run that continues gives the last moment in its ledger: a clock that was set back meanwhile goes on from there.
    """
    began = max(time.time(), not_before) - time.monotonic()
    return lambda: began + time.monotonic()


class Watch:
    """Notices that this process did not run for a while: it was stopped, or the machine slept.

    Looked at all the time, by a thread: a driver that is only busy is no gap. What finds a gap first is no matter.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = self._clocks()
        self._gap = (0.0, 0.0)

    @staticmethod
    def _clocks() -> tuple[float, float]:
        return time.monotonic(), time.clock_gettime(_AWAKE_OR_NOT)

    def look(self) -> None:
        with self._lock:
            before, self._last = self._last, self._clocks()
            awake, passed = (now - then for now, then in zip(self._last, before, strict=True))
            if passed > GAP_SECONDS:
                stopped, asleep = self._gap
                slept = max(0.0, passed - awake)  # the two clocks are read one after the other
                self._gap = stopped + awake, asleep + slept

    def take_gap(self) -> tuple[float, float]:
        """Seconds since this was asked last in which the process was stopped, and in which the machine slept."""
        self.look()
        with self._lock:
            gap, self._gap = self._gap, (0.0, 0.0)
        return gap


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    watch, ended = Watch(), threading.Event()

    def look_on() -> None:
        while not ended.wait(LOOK_SECONDS):
            watch.look()

    threading.Thread(target=look_on, name="watch", daemon=True).start()
    try:
        yield watch
    finally:
        ended.set()


# --- events ---------------------------------------------------------------------------------------------------------


class _Event(Frozen):
    time: float = Field(default_factory=time.time)  # of a unit's clock, where it is given


class Begun(_Event):
    """The unit's first line: its id in the checkpoint store."""

    event: Literal["begin"] = "begin"
    id: str


class Suggested(_Event):
    """A trial, the refit or the final evaluation is to run."""

    event: Literal["suggest"] = "suggest"
    trial: str
    task: Task


class Answered(_Event):
    """A depth that was proposed again is answered from its complete record, at no cost."""

    event: Literal["answered"] = "answered"
    trial: str
    depth: Count
    by: str


class Started(_Event):
    """An attempt began on a worker."""

    event: Literal["start"] = "start"
    trial: str
    coresident: Count  # trials that ran then, this one included


class Reported(_Event):
    event: Literal["report"] = "report"
    trial: str
    report: Report
    coresident: Count


class Suspended(_Event):
    """While it was on a worker, its driver was stopped, or the driver's machine slept: nobody could answer it."""

    event: Literal["suspended"] = "suspended"
    trial: str
    stopped_seconds: NonNegative
    asleep_seconds: NonNegative  # they do not show in the times of events


class Died(_Event):
    """Its worker died; the trial is tried again."""

    event: Literal["died"] = "died"
    trial: str


class Interrupted(_Event):
    """Its driver was told to stop, and says so itself; or had died: found by the run that continues."""

    event: Literal["interrupted"] = "interrupted"
    trial: str
    asked: bool = False  # the driver was told to stop


class Ended(_Event):
    event: Literal["end"] = "end"
    trial: str
    status: Status
    error: str | None = None
    driver_seconds: float  # of the unit, so far


class Chosen(_Event):
    """What the search chose; from here on the test set may be opened."""

    event: Literal["choice"] = "choice"
    chosen: str
    d_opt: Count
    epochs: Count  # the chosen trial's best one
    capped: bool  # the cost limit ended the search


TrialEvent = Started | Reported | Suspended | Died | Interrupted | Ended
Event = Begun | Suggested | Answered | TrialEvent | Chosen
_EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def parse_event(line: str) -> Event:
    return _EVENTS.validate_json(upgraded_event(line))


# --- what they say of a trial ---------------------------------------------------------------------------------------


@dataclass
class AttemptLog:
    started_at: float
    ended_at: float | None = None
    last_seen: float = 0.0
    ended: str = "interrupted"
    asked: bool = False  # its driver was told to stop
    epoch: int = 0  # that it has reported
    host: str = ""
    worker_start: tuple[float, float] = (0.0, 0.0)  # seconds before and after the worker was handed the trial
    resumed_from: Cost | None = None  # what the checkpoint had cost that it began with; None: it died before reporting
    begun_with: Cost = field(default_factory=Cost)  # the same, by its worker's clock
    gap: tuple[float, float] = (0.0, 0.0)  # seconds in which its driver was stopped, and in which the machine slept
    stopped: float = 0.0  # of those in which its driver was stopped: in which it waited for it
    in_vain: float = 0.0  # seconds of work in a checkpoint of its own that was not taken

    @property
    def clock_seconds(self) -> float:
        """From the moment a worker that was ready was handed the trial to its end, by the driver's clock."""
        ended_at = self.last_seen if self.ended_at is None else self.ended_at
        return max(0.0, ended_at - self.started_at - self.worker_start[1])

    @property
    def seen_seconds(self) -> float:
        """That it held its devices, as the driver saw it: not while it waited for a driver that did not run."""
        return max(0.0, self.clock_seconds - self.stopped)

    @property
    def suspended_seconds(self) -> float:
        return self.stopped + self.gap[1]

    def suspend(self, stopped: float, asleep: float) -> None:
        """All of it, unless the next report says that its worker had something to do meanwhile."""
        self.gap = self.gap[0] + stopped, self.gap[1] + asleep
        self.stopped += stopped

    def waited(self, cost: Cost) -> float:
        """Seconds of what its worker reports as its cost in which it waited for a driver that did not run.

        One that trained on until it needed an answer waited for less than the gap. What lies between the worker's
        report and the moment the driver heard it was waiting, too.
        """
        waited = max(0.0, _waiting(cost) - _waiting(self.begun_with))
        under_way = max(0.0, self.clock_seconds - (cost.held_seconds - self.begun_with.held_seconds))
        self.stopped = min(self.gap[0], waited + under_way)
        return min(sum(self.gap), waited)


def _waiting(cost: Cost) -> float:
    return sum(cost.phases.get(phase, 0.0) for phase in _WAITING)


def _without_waiting(cost: Cost, seconds: float) -> Cost:
    """A worker does not know that its driver was suspended; what it waited is in no cost."""
    phases, left = dict(cost.phases), seconds
    for phase in _WAITING:
        taken = min(left, phases.get(phase, 0.0))
        if taken:
            phases[phase], left = phases[phase] - taken, left - taken
    return cost.model_copy(update={"held_seconds": max(0.0, cost.held_seconds - seconds + left), "phases": phases})


@dataclass
class TrialLog:
    """What is known of one trial (or of a unit's refit or final evaluation)."""

    name: str
    task: AnyTask
    suggested_at: float
    attempts: list[AttemptLog] = field(default_factory=list)
    progress: Progress | None = None
    work: Cost = field(default_factory=Cost)  # that the next attempt would build on
    curve: dict[int, CurvePoint] = field(default_factory=dict)
    facts: Facts | None = None
    final: FinalEvaluation | None = None
    kept: bool = True  # its checkpoint is of its last report, as far as it has ended
    told_to_stop: bool = False  # by the unit's scheduler
    status: Status | None = None
    ended_at: float = 0.0
    error: str | None = None
    answered_by: str | None = None
    warnings: list[str] = field(default_factory=list)  # of its workers
    _now: float = 0.0  # of its last event; a ledger of before may have times that go back
    _suspended: list[tuple[float, float]] = field(default_factory=list)  # by a worker's clock, and until then suspended

    @property
    def config(self) -> TrialConfig:
        return self.task.config

    @property
    def depth(self) -> int:
        return self.task.config.depth

    def apply(self, event: TrialEvent) -> None:
        attempt = self.attempts[-1] if self.attempts else None
        now = self._now = max(event.time, self._now)
        match event:
            case Started():
                self.attempts.append(AttemptLog(started_at=now, last_seen=now))
            case Reported():
                self._hear(event.report, now)
            case Suspended():
                if attempt and attempt.ended_at is None:
                    attempt.suspend(event.stopped_seconds, event.asleep_seconds)
                    attempt.last_seen = now if attempt.resumed_from else attempt.last_seen
            case Died():
                if attempt and attempt.ended_at is None:
                    attempt.ended, attempt.ended_at = event.event, now
            case Interrupted():
                if attempt and attempt.ended_at is None:
                    # Of a worker that has not said a word, nobody knows how long it took to start.
                    seen = event.asked and attempt.resumed_from is not None
                    attempt.ended, attempt.asked = event.event, event.asked
                    attempt.ended_at = now if seen else attempt.last_seen
            case Ended():
                self.status, self.ended_at, self.error = event.status, now, event.error
                if attempt and attempt.ended_at is None:
                    attempt.ended, attempt.ended_at = event.status, now

    def _hear(self, report: Report, now: float) -> None:
        attempt = self.attempts[-1]
        attempt.last_seen = now
        said = (report.warning, report.facts.warning if report.facts else "")
        self.warnings += [warning for warning in said if warning]
        if report.facts:
            self.facts = report.facts
            attempt.host, attempt.worker_start = report.facts.host, report.facts.worker_start
            begun_with = report.facts.resumed_from
            attempt.begun_with, attempt.epoch = begun_with, begun_with.epochs
            attempt.resumed_from = self.work = _without_waiting(begun_with, self._suspended_until(begun_with))
            if (not_taken := report.facts.not_taken) and len(self.attempts) > 1:
                before = self.attempts[-2]
                before.in_vain = max(0.0, not_taken.held_seconds - before.begun_with.held_seconds)
        if report.progress:
            attempt.epoch = report.progress.epoch
            self.progress, self.kept = self._as_it_worked(attempt, report.progress), report.kept
            self.work = self.progress.cost
            if self.progress.point:
                self.curve[self.progress.point.epoch] = self.progress.point
        self.final = report.final or self.final

    def _as_it_worked(self, attempt: AttemptLog, told: Progress) -> Progress:
        """What a worker tells, without what it waited for a driver that did not run."""
        seconds = self._suspended_until(attempt.begun_with) + attempt.waited(told.cost)
        self._suspended.append((told.cost.held_seconds, seconds))
        if not seconds:
            return told
        cost = _without_waiting(told.cost, seconds)
        spent = (told.cost.held_seconds - cost.held_seconds) * told.cost.devices
        point = told.point and told.point.model_copy(
            update={"device_seconds": max(0.0, told.point.device_seconds - spent)}
        )
        return told.model_copy(update={"cost": cost, "point": point})

    def _suspended_until(self, begun_with: Cost) -> float:
        """Of what a checkpoint had cost, by its worker's clock: seconds that were in no cost."""
        known = [seconds for held, seconds in self._suspended if held <= begun_with.held_seconds]
        return known[-1] if known else 0.0

    @property
    def is_running(self) -> bool:
        """On a worker."""
        return self.is_open and bool(self.attempts) and self.attempts[-1].ended_at is None

    @property
    def is_open(self) -> bool:
        """Suggested, and neither ended nor answered: a run that continues takes it up again."""
        return self.status is None and self.answered_by is None

    @property
    def has_reported_its_end(self) -> bool:
        if isinstance(self.task, RetrainTask):
            return bool(self.progress and self.progress.epoch >= self.task.epochs)
        return self.final is not None or bool(self.progress and self.progress.stop_reason)

    @property
    def outcome(self) -> Status:
        """What its own reports say: it failed (the loss), it finished, or else it was stopped by a scheduler."""
        if self.progress and self.progress.stop_reason == "failed":
            return "failed"
        return "finished" if self.has_reported_its_end else "stopped"

    @property
    def crashed(self) -> bool:
        """It ended without a report that says so."""
        return self.status == "failed" and self.outcome != "failed"

    def seen_by_search(self) -> dict[str, Any]:
        """The last report as searchers and schedulers get it, with its number: Tune's own counts retries too."""
        return {"training_iteration": len(self.curve)} | (seen_by_search(self.progress) if self.progress else {})

    def held_seconds(self) -> float:
        """Asked for all the time while it runs, so no record is made for it."""
        return sum(held for _, held, _ in self._held_and_kept())

    def _held_and_kept(self) -> list[tuple[AttemptLog, float, float]]:
        """An attempt was held for as long as the driver saw it, and no less than the work it left behind took.

        A killed driver sees less: the worker went on and wrote a checkpoint that nobody reported.
        """
        pairs = zip(self.attempts, self._kept_seconds(), strict=True)
        return [(attempt, max(attempt.seen_seconds, kept, attempt.in_vain), kept) for attempt, kept in pairs]

    def attempt_records(self) -> tuple[Attempt, ...]:
        records = []
        last = len(self.attempts) - 1
        for number, (attempt, held, kept) in enumerate(self._held_and_kept()):
            came_to_nothing = (number < last or attempt.resumed_from is None) and not self._was_taken_up(number)
            records.append(
                Attempt(
                    host=attempt.host,
                    resumed_from_epoch=attempt.resumed_from.epochs if attempt.resumed_from else 0,
                    held_seconds=held,
                    lost_seconds=held - kept if came_to_nothing else 0.0,
                    worker_start_seconds=sum(attempt.worker_start),
                    suspended_seconds=attempt.suspended_seconds,
                    ended=attempt.ended,  # type: ignore[arg-type]  # checked by the record
                    tail_unknown=attempt.ended == "interrupted" and not attempt.asked,
                )
            )
        return tuple(records)

    def _was_taken_up(self, number: int) -> bool:
        """Whether an attempt that ended with its driver, as it was told to, went on where it had reported last."""
        attempt, later = self.attempts[number], self.attempts[number + 1 :]
        found = (each.resumed_from.epochs for each in later if each.resumed_from)
        return attempt.asked and all(epochs >= attempt.epoch for epochs in found)

    def _kept_seconds(self) -> list[float]:
        """The seconds of each attempt whose work the trial's outcome rests on; they sum to `work.held_seconds`.

        An attempt's work was kept as far as every later one found it in the checkpoint that it resumed from. Of one
        that died before it reported, it is not known what it found: it gets what those before it cannot have done.
        """
        kept = [0.0] * len(self.attempts)
        reached, undecided = self.work.held_seconds, len(self.attempts)  # by the attempts before `undecided`
        for number in reversed(range(len(self.attempts))):
            found = self.attempts[number].resumed_from
            if found is None and number > 0:
                continue
            begun_with = found.held_seconds if found else 0.0
            rest = max(0.0, reached - begun_with)
            for each in range(number, undecided):
                is_last = each == undecided - 1
                kept[each] = rest if is_last else min(rest, self.attempts[each].seen_seconds)
                rest -= kept[each]
            reached, undecided = min(reached, begun_with), number
        return kept

    def cost(self, devices: float) -> Cost:
        """Held time as the driver saw it; phases as the worker measured them; what is left is lost or other."""
        held = self.held_seconds()
        lost = sum(attempt.lost_seconds for attempt in self.attempt_records())
        named = {phase: self.work.phases.get(phase, 0.0) for phase in PHASES if phase not in {"lost", "other"}}
        rest = max(0.0, held - lost - sum(named.values()))
        if self.crashed:
            lost, rest = lost + rest, 0.0  # nothing came of the time after its last report
        phases = {**named, "lost": lost, "other": rest}
        return self.work.model_copy(update={"held_seconds": held, "devices": devices, "phases": phases})

    def record(self, devices: float) -> TrialRecord:
        last = self.progress or _nothing_reported(self.error)
        if self.status == "failed" and last.stop_reason != "failed":
            last = last.model_copy(update={"stop_reason": "failed", "val": None, "posterior": None})
        return TrialRecord.of(
            self.name,
            self.config,
            self.facts.split_hash if self.facts else "",
            last,
            self.facts.environment if self.facts else _UNKNOWN,
            cost=self.cost(devices),
            attempts=self.attempt_records(),
            curve=tuple(point for _, point in sorted(self.curve.items())),
            started_at=self.attempts[0].started_at if self.attempts else self.suggested_at,
            ended_at=self.ended_at,
            queue_seconds=max(0.0, self.attempts[0].started_at - self.suggested_at) if self.attempts else 0.0,
            error=self.error or last.error,
        )


_UNKNOWN = Environment(
    harness="", code="", python="", torch="", ray=None, machine="unknown", device="unknown", threads=0
)


def _nothing_reported(error: str | None) -> Progress:
    return Progress(
        epoch=0,
        stop_reason="failed",
        best_epoch=0,
        train_objective=None,
        val=None,
        posterior=None,
        depth_changed_late=None,
        cost=Cost(),
        point=None,
        error=error,
    )
