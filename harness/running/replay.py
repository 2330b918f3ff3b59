"""Searches on a simulated clock: trials that are not trained report to their units as so many devices would have it.

Where the reports come from is the caller's business: a rehearsal makes them up, a replay has them from trials that
were trained once (`Recording`). Units, searches, ledgers and records are those of a live run. No real time enters, so
the same search comes out on every machine.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ray import tune
from ray.tune.experiment import Experiment, Trial

from harness.running.messages import AnyTask, Report, received_task
from harness.running.search import GO_ON, STOP
from harness.running.side_by_side import SideBySide
from harness.running.unit import RunningUnit

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
    now, steps = max(begin, *map(_last_seen, together.units)), 0
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
            elif (decision := together.on_report(trial.trial_id, reports.pop(turn))) == STOP:
                heapq.heappush(events, (now + course.tail_seconds, _END, turn))
            else:
                if decision != GO_ON:
                    _refuse(together.unit_of(trial.trial_id), decision)
                schedule(turn)
        elif len(running) < together.slots and (started := together.next_trial()):
            turn = together.turn[started.trial_id]
            together.on_start(started.trial_id)
            running[turn] = started, course_of(received_task(started.config)), now
            schedule(turn)
        elif events:
            now = events[0][0]
        else:
            break
    return steps


def _refuse(unit: RunningUnit, decision: str) -> None:
    """Ends its unit with a sentence; the trial runs out."""
    unit.failure = unit.failure or (
        f"method {unit.plan.method} answers {decision} to a report, and trials that are not trained can only go on or "
        "stop: a scheduler that pauses trials needs a live run"
    )


def _last_seen(unit: RunningUnit) -> float:
    """The latest moment in a ledger that is continued."""
    logs = unit.logs.values()
    seen = [log.ended_at for log in logs] + [attempt.last_seen for log in logs for attempt in log.attempts]
    return max(seen, default=0.0)


def unused_experiment(folder: str) -> Experiment:
    """Tune makes trials of an experiment only; nothing of it is used here, and nothing is trained."""
    tune.register_trainable("harness-simulated", _never_called)
    return Experiment("simulated", run="harness-simulated", storage_path=folder)


def _never_called(config: dict[str, Any]) -> None:
    raise AssertionError("nothing is trained on a simulated clock")
