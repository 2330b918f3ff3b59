"""Many units in one Tune run: they share its workers, so that no device idles because one unit has a single trial.

Tune sees one search algorithm, one scheduler and one callback; each hands what it is asked or told to the unit that
the trial belongs to. Every unit sees only its own trials, as if it were alone.
"""

import errno
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import ray
from ray.tune import Callback
from ray.tune.experiment import Experiment, Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search.search_algorithm import SearchAlgorithm

from harness.backends import ray_door
from harness.errors import MachineError, disk_is_full, full_place
from harness.running.ledger import Watch
from harness.running.messages import AnyTask, Report, received_report
from harness.running.search import GO_ON
from harness.running.stopping import Stop
from harness.running.store import UnitFolder
from harness.running.unit import RunningUnit

SILENCE_SECONDS = 60.0  # after which a run says what it waits for


class StopAsked(Exception):
    """Raised where Tune's loop can be left."""


class SideBySide:
    """The units of a run, in the order in which they get devices: all methods of a seed before the next seed."""

    def __init__(
        self,
        units: Sequence[RunningUnit],
        slots: int,
        queue: int,
        parallel_units: int | None,
        max_cost: float | None,
        finish: Callable[[RunningUnit], None],
        cost_before: float = 0.0,
        stop: Stop | None = None,
    ) -> None:
        self.units = list(units)
        self.make_room(slots, queue)
        self.stop = stop or Stop()
        self._parallel_units = parallel_units or len(self.units)
        self._max_cost = max_cost
        self._finish = finish  # writes the result of a unit that is ready
        self._cost_before = cost_before  # device-seconds of units that were complete already
        self._unit_of: dict[str, RunningUnit] = {}
        self.turn: dict[str, int] = {}  # trial → dispatch order
        self.running: set[str] = set()
        self.saving: list[Any] = []  # what Ray gave for the checkpoints of trials that a stop interrupts
        self.heard_at = time.monotonic()  # when something happened last
        self.watch: Watch | None = None  # of a real run: it notices that the driver did not run
        self._unsettled = True  # something has happened since the last look at what is ready

    def make_room(self, slots: int, queue: int) -> None:
        """The machines of a cluster come and go, and with them what may run."""
        self.slots = slots  # trials that may run at once
        self._queue = queue  # trials that may be waiting: they keep workers warm

    def unit_of(self, trial_id: str) -> RunningUnit:
        return self._unit_of[trial_id]

    def task_of(self, trial_id: str) -> AnyTask:
        return self._unit_of[trial_id].task_of(trial_id)

    def prepare(self, experiment: Experiment) -> None:
        for unit in self.units:
            with unit.asking_method():
                unit.prepare(experiment)

    def next_trial(self) -> Trial | None:
        self._settle()
        live = sum(len(unit.live) for unit in self.units)
        active = [unit for unit in self.units if not unit.is_over][: self._parallel_units]
        for unit in active:
            # A method that learns from results is not asked before a slot is free, and until then no later unit may
            # queue in front of it: methods stay interleaved by seed.
            if live >= self.slots + (0 if unit.plan.facts.adaptive else self._queue):
                break
            trial, self._unsettled = None, True
            with unit.asking_method():
                trial = unit.next_trial()
            if trial:
                self._unit_of[trial.trial_id] = unit
                self.turn[trial.trial_id] = len(self.turn)
                self.heard_at = time.monotonic()
                return trial
        return None

    def _hear_of(self, trial_id: str) -> RunningUnit:
        self.note_gap()
        self.heard_at, self._unsettled = time.monotonic(), True
        return self._unit_of[trial_id]

    def note_gap(self) -> None:
        """Before anything is heard after it: a gap is of the trials that ran then."""
        stopped, asleep = self.watch.take_gap() if self.watch else (0.0, 0.0)
        if stopped or asleep:
            for trial_id in sorted(self.running):
                self._unit_of[trial_id].on_suspended(trial_id, stopped, asleep)

    def waits_for(self) -> str | None:
        """What is waited for, by name, when nothing has happened for a while: what hangs is among it."""
        silent = time.monotonic() - self.heard_at
        if silent < SILENCE_SECONDS or all(unit.is_over for unit in self.units):
            return None
        live = [(unit, trial_id, name) for unit in self.units for trial_id, name in unit.live.items()]
        reports = [
            f"{unit.key} {name} to report{f' from {host}' if (host := unit.host_of(name)) else ''}"
            for unit, trial_id, name in live
            if trial_id in self.running
        ]
        workers = [f"a worker for {unit.key} {name}" for unit, trial_id, name in live if trial_id not in self.running]
        proposals = [f"{unit.key} to propose a trial" for unit in self.units if not unit.is_over and not unit.live]
        waited = reports + workers or proposals
        more = f", and {len(waited) - 4} more" if len(waited) > 4 else ""
        return f"nothing happened for {silent:.0f} s: waiting for {', '.join(waited[:4])}{more}"

    def on_start(self, trial_id: str) -> None:
        unit = self._hear_of(trial_id)
        self.running.add(trial_id)
        unit.on_start(trial_id, len(self.running))

    def on_report(self, trial_id: str, report: Report) -> str:
        return self._hear_of(trial_id).on_report(trial_id, report, len(self.running))

    def on_death(self, trial_id: str) -> None:
        unit = self._hear_of(trial_id)
        self.running.discard(trial_id)
        unit.on_death(trial_id)

    def on_complete(self, trial_id: str) -> None:
        unit = self._hear_of(trial_id)
        self.running.discard(trial_id)
        unit.on_complete(trial_id)

    def on_error(self, trial_id: str, error: str | None) -> None:
        unit = self._hear_of(trial_id)
        self.running.discard(trial_id)
        unit.on_error(trial_id, error)

    def on_interrupt(self, trial_id: str) -> None:
        unit = self._hear_of(trial_id)
        self.running.discard(trial_id)
        unit.on_interrupt(trial_id)

    def leave_if_told(self) -> None:
        """Raises StopAsked once all that ran has reported once more and is kept, or does not in time."""
        if not self.stop.by or (self.running and self.stop.seconds_left):
            return
        for trial_id in sorted(self.running):
            self.on_interrupt(trial_id)
        if self.saving:  # what a worker that has died was to save counts as done, too
            ray.wait(self.saving, num_returns=len(self.saving), timeout=self.stop.seconds_left)
        self._settle()
        raise StopAsked

    def _settle(self) -> None:
        """Writes the results of units that are ready, and lets no trial start past the cost limit.

        Tune asks several times for each report, and there may be hundreds of units.
        """
        if not self._unsettled:
            return
        self._unsettled = False
        for unit in self.units:
            if unit.is_ready:
                try:
                    self._finish(unit)
                except MachineError:  # another run has taken over
                    raise
                except Exception as error:  # a storage that is away, say: the same command tries again
                    if disk_is_full(error):
                        raise
                    unit.failure = f"its result could not be written: {type(error).__name__}: {error}"
        if self._max_cost is not None and self.device_seconds >= self._max_cost:
            for unit in self.units:
                unit.capped = unit.choice is None and not unit.plan.replayed

    @property
    def device_seconds(self) -> float:
        """That were spent: a replayed search is charged for trials, but it trains none."""
        return self._cost_before + sum(unit.device_seconds for unit in self.units if not unit.plan.replayed)

    @property
    def has_searched(self) -> bool:
        """No trial is left whose time counts: what still runs are final evaluations."""
        return all(unit.is_over or (unit.choice and not unit.plan.refit) for unit in self.units)

    @property
    def is_finished(self) -> bool:
        self._settle()
        return all(unit.is_over for unit in self.units)


class Answers:
    """Trials that have reported and wait to go on: one fsync of a ledger for all of them, and no answer before it.

    As many wait as had reported while the loop was busy. One that trains alone is answered at once.
    """

    def __init__(self, together: SideBySide) -> None:
        self._together = together
        self._waiting: list[tuple[Any, Trial, Any, str]] = []  # Tune's controller, trial, its worker, the decision

    def wait_for(self, tune_controller: Any, trial: Trial, decision: str) -> str:
        """What the scheduler says for now."""
        if decision != GO_ON or not ray_door.can_answer_later(tune_controller):
            self._together.unit_of(trial.trial_id).folder.commit()
            return decision
        self._waiting.append((tune_controller, trial, ray_door.worker_of(trial), decision))
        return str(FIFOScheduler.NOOP)

    def give(self) -> None:
        """Unless another report is here already, which then waits, too."""
        if not self._waiting:
            return
        if len(self._together.running) > 1 and ray_door.another_report_is_here(self._waiting[0][0]):
            return
        waiting, self._waiting = self._waiting, []
        folders = list(
            {id(folder): folder for _, trial, _, _ in waiting for folder in [self._folder_of(trial)]}.values()
        )
        if len(folders) == 1:
            folders[0].commit()
        else:  # a file system puts what comes at the same time into one write, too
            with ThreadPoolExecutor(len(folders)) as pool:
                list(pool.map(UnitFolder.commit, folders))
        for tune_controller, trial, worker, decision in waiting:
            if trial.status == Trial.RUNNING and ray_door.worker_of(trial) is worker:  # else it has died meanwhile
                ray_door.answer(tune_controller, trial, decision)

    def _folder_of(self, trial: Trial) -> UnitFolder:
        return self._together.unit_of(trial.trial_id).folder


Show = Callable[[SideBySide], AbstractContextManager[Callable[[], None]]]
"""Shows the units while they run: a context that gives a function to be called now and then."""


class _NotRestored:
    """Tune pickles what it was given, for a restore of its own. Here a run continues by replaying ledgers."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class SharedSearch(_NotRestored, SearchAlgorithm):
    def __init__(self, together: SideBySide) -> None:
        self.together = together

    def add_configurations(self, experiments: Any) -> None:
        self.together.prepare(experiments[0] if isinstance(experiments, list) else experiments)

    @property
    def total_samples(self) -> int:
        return sum(unit.plan.trials for unit in self.together.units)

    def next_trial(self) -> Trial | None:
        self.together.note_gap()
        self.together.leave_if_told()
        return None if self.together.stop.by else self.together.next_trial()

    def is_finished(self) -> bool:
        return self._finished or self.together.is_finished


class SharedScheduler(_NotRestored, FIFOScheduler):
    """First come, first served. A report goes to its unit, whose search decides whether the trial goes on.

    Tune asks the scheduler first, so this is where a unit hears of a report; starts and ends come by the callback.
    """

    def __init__(self, together: SideBySide, answers: Answers, save_now: Callable[[Any], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.together = together
        self._answers = answers
        self._save_now = save_now  # called on a worker: saves what its trial, which has just reported, has reached

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        decision = self.together.on_report(trial.trial_id, received_report(result))
        unit = self.together.unit_of(trial.trial_id)
        if not self.together.stop.by or decision != GO_ON or unit.is_ending(trial.trial_id):
            return self._answers.wait_for(tune_controller, trial, decision)
        unit.folder.commit()
        self.together.saving.append(ray_door.worker_of(trial).execute.remote(self._save_now))
        self.together.on_interrupt(trial.trial_id)
        return str(self.NOOP)  # the trial waits for an answer until its worker ends

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        if self.together.stop.by:
            return None
        ray_door.start_workers_for(tune_controller, self.together.slots)
        # Only live trials: Tune's own version walks through all that ever were, for every step.
        live: list[Trial] = sorted(
            tune_controller.get_live_trials(), key=lambda trial: self.together.turn[trial.trial_id]
        )
        pending = [trial for trial in live if trial.status == Trial.PENDING]
        # A worker that is free again goes to a trial that has none, if there is one. Tune would throw away a worker
        # that is still starting for it, and trials that are shorter than a worker's start would never fill a cluster.
        without = (trial for trial in pending if not ray_door.has_worker(tune_controller, trial))
        return next(without, None) or next(
            (trial for trial in [*pending, *live] if trial.status in (Trial.PENDING, Trial.PAUSED)), None
        )


class SharedCallback(_NotRestored, Callback):
    """Tells units when their trials start and end; now and then looks at the cluster and shows what there is."""

    def __init__(self, together: SideBySide, answers: Answers, keep_up: Callable[[], None], storage: str) -> None:
        self.together = together
        self._answers = answers
        self._keep_up = keep_up
        self._storage = storage  # of checkpoints
        self._next_look = 0.0

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.together.on_start(trial.trial_id)

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.together.on_death(trial.trial_id)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.together.on_complete(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        file = Path(trial.error_file) if trial.error_file else None
        error = file.read_text(errors="replace")[-4000:] if file and file.exists() else None
        if full_place(error or "", self._storage):  # not the trial's fault: the same command continues it
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._storage)
        self.together.on_error(trial.trial_id, error)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        self._answers.give()
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + 0.25
            self._keep_up()
        self.together.leave_if_told()
