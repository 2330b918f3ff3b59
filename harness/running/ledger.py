"""From the events of a unit to its trials' records. Live runs and runs continued after a crash go the same way.

Events: suggest, answered (a depth proposed again), start, report, died (its worker), interrupted (its driver), end,
choice. A trial may start several times; every stay on a worker is an attempt, and all of its time is paid for.
"""

from dataclasses import dataclass, field
from typing import Any

from harness.records import (
    PHASES,
    Attempt,
    Cost,
    CurvePoint,
    Environment,
    Progress,
    TrialConfig,
    TrialRecord,
)


@dataclass
class AttemptLog:
    started_at: float
    ended_at: float | None = None
    last_seen: float = 0.0
    ended: str = "interrupted"
    host: str = ""
    worker_start: tuple[float, float] = (0.0, 0.0)  # seconds before and after the worker was handed the trial
    resumed_from: Cost | None = None  # what the checkpoint had cost that it began with; None: it died without a word

    @property
    def held_seconds(self) -> float:
        """From the moment a worker that was ready was handed the trial to its end."""
        ended_at = self.last_seen if self.ended_at is None else self.ended_at
        return max(0.0, ended_at - self.started_at - self.worker_start[1])


@dataclass
class TrialLog:
    """What is known of one trial (or of a unit's refit or final evaluation)."""

    name: str
    config: dict[str, Any]
    suggested_at: float
    attempts: list[AttemptLog] = field(default_factory=list)
    progress: Progress | None = None
    work: Cost = field(default_factory=Cost)  # that the next attempt would build on
    curve: dict[int, CurvePoint] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    final: str | None = None
    status: str | None = None  # finished, stopped or failed
    ended_at: float = 0.0
    error: str | None = None
    answered_by: str | None = None

    def apply(self, event: dict[str, Any]) -> None:
        attempt = self.attempts[-1] if self.attempts else None
        match event["event"]:
            case "start":
                self.attempts.append(AttemptLog(started_at=event["time"], last_seen=event["time"]))
            case "report":
                self._report(event)
            case "died" | "interrupted":
                if attempt and attempt.ended_at is None:
                    attempt.ended = event["event"]
                    attempt.ended_at = event["time"] if event["event"] == "died" else None
                    if attempt.ended_at is None:
                        attempt.ended_at = attempt.last_seen
            case "end":
                self.status, self.ended_at, self.error = event["status"], event["time"], event.get("error")
                if attempt and attempt.ended_at is None:
                    attempt.ended, attempt.ended_at = event["status"], event["time"]

    def _report(self, event: dict[str, Any]) -> None:
        attempt = self.attempts[-1]
        attempt.last_seen = event["time"]
        payload = event["payload"]
        if facts := payload.get("facts"):
            self.facts = facts
            attempt.host = facts.get("host", "")  # ledgers of older versions do not have it
            attempt.worker_start = tuple(facts["worker_start"])
            attempt.resumed_from = self.work = Cost.model_validate_json(facts["resumed_from"])
        if progress := payload.get("progress"):
            self.progress = Progress.model_validate_json(progress)
            self.work = self.progress.cost
            if self.progress.point:
                self.curve[self.progress.point.epoch] = self.progress.point
        self.final = payload.get("final", self.final)

    @property
    def is_open(self) -> bool:
        """Suggested, and neither ended nor answered: a run that continues takes it up again."""
        return self.status is None and self.answered_by is None

    @property
    def has_reported_its_end(self) -> bool:
        return self.final is not None or bool(self.progress and self.progress.stop_reason)

    @property
    def outcome(self) -> str:
        """What its own reports say: it failed (the loss), it finished, or else it was stopped by a scheduler."""
        if self.progress and self.progress.stop_reason == "failed":
            return "failed"
        return "finished" if self.has_reported_its_end else "stopped"

    def held_seconds(self) -> float:
        return sum(attempt.held_seconds for attempt in self.attempts)

    def attempt_records(self) -> tuple[Attempt, ...]:
        records = []
        for number, attempt in enumerate(self.attempts):
            after = (later.resumed_from for later in self.attempts[number + 1 :] if later.resumed_from)
            following = next(after, None)  # what the next one found in its checkpoint: that much was kept
            if attempt.resumed_from is None:
                lost = attempt.held_seconds
            elif following:
                kept = max(0.0, following.held_seconds - attempt.resumed_from.held_seconds)
                lost = max(0.0, attempt.held_seconds - kept)
            else:
                lost = 0.0
            records.append(
                Attempt(
                    host=attempt.host,
                    resumed_from_epoch=attempt.resumed_from.epochs if attempt.resumed_from else 0,
                    held_seconds=attempt.held_seconds,
                    lost_seconds=lost,
                    worker_start_seconds=sum(attempt.worker_start),
                    ended=attempt.ended,  # type: ignore[arg-type]  # checked by the record
                    tail_unknown=attempt.ended == "interrupted",
                )
            )
        return tuple(records)

    def cost(self, devices: float) -> Cost:
        """Held time as the driver saw it; phases as the worker measured them; what is left is lost or other."""
        held = self.held_seconds()
        lost = sum(attempt.lost_seconds for attempt in self.attempt_records())
        named = {phase: self.work.phases.get(phase, 0.0) for phase in PHASES if phase not in {"lost", "other"}}
        rest = max(0.0, held - lost - sum(named.values()))
        if self.status == "failed" and self.outcome != "failed":
            lost, rest = lost + rest, 0.0  # a crash: nothing came of the time after its last report
        phases = {**named, "lost": lost, "other": rest}
        return self.work.model_copy(update={"held_seconds": held, "devices": devices, "phases": phases})

    def record(self, config: TrialConfig, devices: float) -> TrialRecord:
        last = self.progress or _nothing_reported(self.error)
        if self.status == "failed" and last.stop_reason != "failed":
            last = last.model_copy(update={"stop_reason": "failed", "val": None, "posterior": None})
        return TrialRecord.of(
            self.name,
            config,
            self.facts.get("split_hash", ""),
            last,
            Environment(**self.facts["environment"]) if self.facts else _UNKNOWN,
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
