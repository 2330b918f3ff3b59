"""A unit (one method on one seed) while it runs: suggestions, trials, choice, final evaluation, result.

Everything that happens is appended to the unit's ledger first and then applied. A run that continues applies the
ledger's events again, through the same functions: the search is asked and told the same things in the same order,
finished trials are not trained again, and open ones go on from their checkpoints. No state of Ray's is needed for it.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

from ray.tune.experiment import Experiment, Trial

from harness.errors import MachineError, UserError, brief, disk_is_full, last_line
from harness.methods.base import SearchMethod, SearchPlan
from harness.running.ledger import (
    Answered,
    Begun,
    Chosen,
    Died,
    Ended,
    Event,
    Interrupted,
    Reported,
    Started,
    Status,
    Suggested,
    Suspended,
    TrialEvent,
    TrialLog,
    steady_clock,
)
from harness.running.messages import (
    AnyTask,
    FinalTask,
    RefitTask,
    Report,
    RetrainTask,
    StageTask,
    TrainTask,
    checkpoint_key,
    to_worker,
)
from harness.running.result import (
    ended_records,
    named,
    proposals,
    refit_depth,
    search_result,
    search_trials,
    stage_trials,
)
from harness.running.search import GO_ON, STOP, Search, one_trial
from harness.running.store import UnitFolder
from harness.schema.records import FIXED_DEPTH, SearchResult, TrialConfig, TrialRecord, Unit, UnitPlan

if TYPE_CHECKING:
    from harness.running.side_by_side import Lender, Lent

AnyEvent = TypeVar("AnyEvent", bound=Event)

CLOCK_TOLERANCE = 1.0  # seconds: clocks are corrected by less all the time


class RunningUnit:
    def __init__(
        self, plan: UnitPlan, method: SearchMethod, search_plan: SearchPlan, folder: UnitFolder, cell: str = ""
    ) -> None:
        self.plan, self.method, self.folder = plan, method, folder
        self.key = f"{cell}/{plan.method}/seed-{plan.seed}".lstrip("/")  # `cell`: which of a study's spaces
        self.logs: dict[str, TrialLog] = {}
        self.live: dict[str, str] = {}  # Tune's trial id → our name, of trials that Tune has and that have not ended
        self.choice: Chosen | None = None
        self.capped = False
        self.given_up = False  # the cost limit came before a trial had finished
        self.failure: str | None = None
        self.remark = ""  # to be told once; no failure
        self.result: SearchResult | None = None
        self.driver_seconds = 0.0
        self.most_coresident = 0
        self.clock: Callable[[], float] = steady_clock()  # of its events; a simulated run has another
        self._search_plan = search_plan
        self._trials: dict[str, Trial] = {}  # our name → Tune's trial, of the search's own
        self._handed_out: dict[str, Trial] = {}  # the same of all that was handed to Tune
        self._open: list[str] = []  # of an earlier run, to be taken up again
        self._stage: list[TrialConfig] | None = None  # what follows the one-shot's trial, once that has ended
        self.lenders: tuple[Lender, ...] = ()  # what they have trained is told, and not trained again

    @property
    def planned_depths(self) -> tuple[int, ...] | None:
        """None: its searcher proposes them as it goes."""
        return self._search_plan.depths

    # --- set-up ----------------------------------------------------------------------------------------------------

    def prepare(self, experiment: Experiment) -> None:
        """Gives the search Tune's experiment, then continues from the ledger, if there is one."""
        self._experiment = experiment
        self.storage_key = self.folder.begin()
        self.search = Search(self._search_plan, experiment)
        last = 0.0
        for event in self.folder.events():
            last = max(last, event.time)
            self._happened_before(event)
            if self.failure:
                return
        self._go_on_from(last)
        for log in self.logs.values():
            self._take_up(log)

    def _go_on_from(self, last: float) -> None:
        """The clock of a real run; one that was set back since the last event goes on from there."""
        behind = last - self.clock()
        if behind > 0 and not self.plan.replayed:
            self.clock = steady_clock(not_before=last)
        if behind > CLOCK_TOLERANCE and not self.plan.replayed:
            self.remark = (
                f"this machine's clock stands {behind:,.0f} s before the last line of {self.folder.path}/ledger.jsonl; "
                "its times go on from there"
            )

    def _happened_before(self, event: Event) -> None:
        match event:
            case Begun():
                pass
            case Suggested(task=TrainTask() as task):
                self._enter(self._ask_again(event.trial, task.config.depth, task.config.restart), event, task)
            case Suggested():
                self.logs[event.trial] = TrialLog(event.trial, event.task, event.time)
            case Answered():
                self._answer(self._ask_again(event.trial, event.depth, self.logs[event.by].config.restart), event)
            case Chosen():
                self.choice = event
            case _:
                self._apply(event)

    def _ask_again(self, name: str, depth: int, restart: int) -> Trial:
        trial = self.search.ask()
        proposed = (trial.config.get("depth"), trial.config.get("restart", 0)) if trial else None
        if trial is None or proposed != (depth, restart):
            now = "nothing" if proposed is None else named(*proposed)
            raise UserError(
                f"{self.folder.path} cannot be continued: its ledger has depth {named(depth, restart)} for "
                f"{name}, the method now proposes {now}, so it is not deterministic in its seed; use --fresh to start "
                "over"
            )
        return trial

    def _take_up(self, log: TrialLog) -> None:
        """What an earlier run left open goes on, or ends if the driver died before it could write the end down."""
        if _is_tried_again(log):
            log.status = None  # from what there is
        if not log.is_open:
            return
        if log.told_to_stop or log.has_reported_its_end:
            seen = log.attempts[-1].last_seen
            self._apply(
                self._write(Ended(trial=log.name, status=log.outcome, time=seen, driver_seconds=self.driver_seconds))
            )
            return
        if log.attempts and log.attempts[-1].ended_at is None:
            self._apply(self._write(Interrupted(trial=log.name, time=self.clock())))
        self._limit_checkpoint(log)
        self._open.append(log.name)

    def _limit_checkpoint(self, log: TrialLog) -> None:
        trial = self._handed_out.get(log.name) or self._trials.get(log.name)
        if isinstance(log.task, TrainTask | StageTask) and trial:
            trial.config = to_worker(log.task, up_to=_furthest(log))

    # --- what happens: the same whether it happens now or happened before an interruption ----------------------------

    def _write(self, event: AnyEvent, and_commit: bool = True) -> AnyEvent:
        self.folder.append(event, and_commit)
        return event

    def _enter(self, trial: Trial, event: Suggested, task: TrainTask) -> None:
        """The search's trial becomes one of the unit's."""
        log = self.logs[event.trial] = TrialLog(event.trial, task, event.time)
        # New here, but a driver whose last lines were lost may have begun it: its checkpoint is then ahead of us.
        trial.config = to_worker(task, up_to=_furthest(log))
        self._trials[event.trial] = trial
        self.search.accept(trial)

    def _answer(self, trial: Trial, event: Answered) -> None:
        known = self.logs[event.by]
        self.logs[event.trial] = TrialLog(event.trial, known.task, event.time, answered_by=known.name)
        self.search.answer(trial, known.seen_by_search())

    def _apply(self, event: TrialEvent) -> str:
        """Notes what became of a trial and tells the search; its decision on a report that is news.

        An epoch that is trained again after a crash is no news: the search has heard of it.
        """
        log, decision = self.logs[event.trial], GO_ON
        known = len(log.curve)
        log.apply(event)
        if isinstance(event, Started | Reported):
            self.most_coresident = max(self.most_coresident, event.coresident)
        trial = self._trials.get(event.trial)
        if isinstance(event, Reported) and trial and len(log.curve) > known:
            with self.asking_method():
                decision = self._checked_answer(self.search.tell(trial, log.seen_by_search()))
            log.told_to_stop = decision == STOP
        elif isinstance(event, Ended):
            self.driver_seconds = max(self.driver_seconds, event.driver_seconds)
            if trial:
                with self.asking_method():
                    self.search.tell_end(trial, None if log.crashed else log.seen_by_search())
        return decision

    def _checked_answer(self, decision: str) -> str:
        if decision not in (GO_ON, STOP):
            raise UserError(
                f"method {self.plan.method}: its scheduler answers {brief(str(decision))} to a report, and a trial can "
                f"only go on ({GO_ON}) or stop ({STOP})"
            )
        return decision

    # --- asked by Tune ---------------------------------------------------------------------------------------------

    def next_trial(self) -> Trial | None:
        """The next thing to run: an open trial of an earlier run, a new suggestion, or what follows the choice."""
        if self._open:
            log = self.logs[self._open.pop(0)]
            return self._hand_out(log.name, self._trials.get(log.name) or self._task_trial(log.task, _furthest(log)))
        if self.is_over or (self.choice is None and self._is_full()):
            return None
        if self.choice is None:
            if self._waits_for_a_loan():
                return None
            suggested = None if self.capped else self._suggest() or self._follow_one_shot()
            if suggested or self.live:
                return suggested
            self._choose()  # a search that has nothing to propose while nothing runs has finished
        return self._follow_up() if self.choice else None

    def _hand_out(self, name: str, trial: Trial) -> Trial:
        self.live[trial.trial_id], self._handed_out[name] = name, trial
        return trial

    def _is_full(self) -> bool:
        return self.plan.concurrency is not None and len(self.live) >= self.plan.concurrency

    def _suggest(self) -> Trial | None:
        """A network proposed again is answered from its complete record, at no cost, and the search asked again."""
        while (trial := self.search.ask()) is not None:
            name, (depth, restart) = f"t{len(proposals(self.logs)):03d}", self._checked_network(trial.config)
            complete = (log for log in search_trials(self.logs) if log.status == "finished")
            done = (log for log in complete if (log.depth, log.config.restart) == (depth, restart))
            if known := next(done, None):
                self._answer(trial, self._write(Answered(trial=name, depth=depth, by=known.name, time=self.clock())))
                continue
            task = self._train_task(name, depth, restart)
            if lent := self._lent(task.config):
                task = task.model_copy(update=_where(lent))
                self._enter(trial, self._write(Suggested(trial=name, task=task, time=lent.suggested_at)), task)
                self._hear(name, lent)
                continue
            self._enter(trial, self._write(Suggested(trial=name, task=task, time=self.clock())), task)
            return self._hand_out(name, trial)
        return None

    def _follow_one_shot(self) -> Trial | None:
        """The next trial of what follows a one-shot's own, unless another unit has trained the same."""
        for config in self._stage_left():
            name = f"t{len(search_trials(self.logs)):03d}"
            cut_from = _checkpoint(search_trials(self.logs)[0]) if config.cut else None
            task = StageTask(unit=self.storage_key, trial=name, config=config, cut_from=cut_from)
            if lent := self._lent(config):
                task = task.model_copy(update=_where(lent))
                event = self._write(Suggested(trial=name, task=task, time=lent.suggested_at))
                self.logs[name] = TrialLog(name, task, event.time)
                self._hear(name, lent)
                continue
            event = self._write(Suggested(trial=name, task=task, time=self.clock()))
            self.logs[name] = TrialLog(name, task, event.time)
            return self._hand_out(name, self._task_trial(task, _furthest(self.logs[name])))
        return None

    def _stage_left(self) -> list[TrialConfig]:
        """What of it has not begun; nothing before the one-shot's own trial has ended."""
        if self._stage is None:
            trials = [log for log in search_trials(self.logs) if isinstance(log.task, TrainTask)]
            if self.plan.stage.then is None or not trials or any(log.is_open for log in trials):
                return []
            records = ended_records(self.plan, {log.name: log for log in trials})
            chosen, depth = self.method.choice(records, self.plan.space.choice_within)
            assert chosen.posterior is not None
            ranking = chosen.posterior.val_log_likelihoods or chosen.posterior.q
            self._stage = [self.plan.stage_config(each) for each in self.plan.stage.depths(depth, ranking)]
        return self._stage[len(stage_trials(self.logs)) :]

    def _waits_for_a_loan(self) -> bool:
        """Whether another unit has still to train what comes next here."""
        if not self.lenders or self.capped:
            return False
        first = [] if search_trials(self.logs) else [self.plan.trial_config(self.plan.space.depth.max)]
        return any(lender.may_lend(config) for config in (first or self._stage_left())[:1] for lender in self.lenders)

    def _lent(self, config: TrialConfig) -> "Lent | None":
        return next((lent for lender in self.lenders if (lent := lender.lends(config))), None)

    def _hear(self, name: str, lent: "Lent") -> None:
        """All that was reported of a trial that another unit has trained; its checkpoint is that unit's."""
        events = lent.told_to(name, self.driver_seconds)
        for event in events:
            self.folder.append(event, and_commit=False)
        self.folder.commit()
        for event in events:
            self._apply(event)

    def _train_task(self, name: str, depth: int, restart: int) -> TrainTask:
        return TrainTask(
            unit=self.storage_key,
            trial=name,
            config=self.plan.trial_config(depth, restart),
            rungs=self.search.rungs,
        )

    def _checked_network(self, config: dict[str, Any]) -> tuple[int, int]:
        """Depth and restart as ints: searchers like to propose NumPy's and whole floats, which no record takes."""
        depth, space = config.get("depth"), self.plan.space
        allowed = (space.depth.max,) if self.plan.facts.learns_depth else space.depth.values
        if not isinstance(depth, Real) or depth not in allowed:  # 9.0 is 9: samplers of Tune's like floats
            raise UserError(
                f"method {self.plan.method} proposed depth {depth!r}; the space {space.name} has "
                f"{', '.join(map(str, allowed))}"
            )
        if unknown := set(config) - {"depth", "restart"}:
            raise UserError(
                f"method {self.plan.method} proposed {', '.join(sorted(unknown))}; a method chooses the depth, the "
                "space has the rest"
            )
        restart: Any = config.get("restart", 0)
        if not isinstance(restart, Real) or restart < 0 or not float(restart).is_integer():
            raise UserError(
                f"method {self.plan.method} proposed restart {restart!r}; it is a whole number from 0, the first "
                "initialisation"
            )
        if restart and self.plan.facts.learns_depth:
            raise UserError(f"method {self.plan.method} proposed restart {restart!r}; only fixed depths have restarts")
        return allowed[allowed.index(depth)], int(float(restart))

    def _choose(self) -> None:
        records = self.records()
        if self.capped and not any(record.val for record in records):
            self.given_up = True
            return
        if not proposals(self.logs):
            raise UserError(f"method {self.plan.method} proposed nothing: its searcher ended before its first trial")
        stage = [record for record in records if self.plan.is_of_stage(record)]
        chosen, depth = self.method.choice(stage or records, self.plan.space.choice_within)
        left = not self.search.is_finished and len(proposals(self.logs)) < self.plan.trials
        capped = self.capped and (left or bool(self._stage_left()))
        self.choice = self._write(
            Chosen(
                chosen=chosen.trial_id,
                d_opt=depth,
                epochs=chosen.best_epoch,
                capped=capped,
                time=self.clock(),
            )
        )

    def _follow_up(self) -> Trial | None:
        """The chosen network again if it was not kept, the refit if it was asked for, then the final evaluation."""
        assert self.choice is not None
        if self.live:
            return None
        chosen = self.logs[self.choice.chosen]
        was_kept = _is_kept(chosen)
        task: RetrainTask | RefitTask | FinalTask
        refit = self.logs["refit"].task if "refit" in self.logs else None
        if not was_kept and not self._ended("retrained"):
            assert chosen.progress is not None
            # A recording's checkpoint is of its end or shortly before, so after the epoch at which a replay stopped it.
            own = None if self.plan.replayed and chosen.status == "stopped" else _checkpoint(chosen)
            task = RetrainTask(
                unit=self.storage_key, config=chosen.config, epochs=chosen.progress.epoch, begin_with=own
            )
        elif self.plan.refit and not self._ended("refit"):
            task = self._refit_task(chosen)
        elif not self._ended("final"):
            kept = (log for log in search_trials(self.logs) if _is_kept(log) and not log.config.restart)
            trained = {log.depth: _checkpoint(log) for log in kept}
            others = () if self.plan.facts.learns_depth else tuple((key, depth) for depth, key in trained.items())
            task = FinalTask(
                unit=self.storage_key,
                config=chosen.config,
                epochs=self.choice.epochs,
                chosen=_checkpoint(chosen if was_kept else self.logs["retrained"]),
                cut_from=chosen.task.cut_from if isinstance(chosen.task, StageTask) else None,
                d_opt=self.choice.d_opt,
                deepest=self.plan.space.depth.values[-1],
                others=others,
                stopped=self._stopped_elsewhere(),
                refit_d_opt=refit_depth(self.plan, self.logs["refit"], self.choice) if self.plan.refit else None,
                refit=refit if isinstance(refit, RefitTask) else None,
                data_hash=self.plan.data_hash,
            )
        else:
            return None
        event = self._write(Suggested(trial=task.trial, task=task, time=self.clock()))
        self.logs[task.trial] = TrialLog(task.trial, task, event.time)
        return self._hand_out(task.trial, self._task_trial(task))

    def _stopped_elsewhere(self) -> tuple[tuple[int, int], ...]:
        """Depths and epochs of networks beside the chosen one that a scheduler left, and that are to be evaluated."""
        return ()

    def _refit_task(self, chosen: TrialLog) -> RefitTask:
        """The depth is settled, so all methods alike train a fixed depth: for the chosen trial's best epoch where that
        was one, too; else for the space's cap, since nobody has trained a network of this depth before."""
        assert self.choice is not None
        if chosen.config.kind == FIXED_DEPTH:
            return RefitTask(unit=self.storage_key, config=chosen.config, epochs=self.choice.epochs)
        config = TrialConfig.of(self.plan.space, FIXED_DEPTH, self.choice.d_opt, self.plan.seed)
        return RefitTask(unit=self.storage_key, config=config, epochs=config.training.max_epochs)

    def _ended(self, task: str) -> bool:
        return task in self.logs and self.logs[task].status == "finished"

    def _task_trial(self, task: AnyTask, up_to: int | None = None) -> Trial:
        return one_trial(self._experiment, to_worker(task, up_to if isinstance(task, StageTask) else None))

    # --- told by Tune ----------------------------------------------------------------------------------------------

    def on_start(self, trial_id: str, coresident: int) -> None:
        if trial_id in self.live:
            self._apply(self._write(Started(trial=self.live[trial_id], coresident=coresident, time=self.clock())))

    def on_report(self, trial_id: str, report: Report, coresident: int) -> str:
        """What Tune is to do with the trial, once the folder is committed."""
        if trial_id not in self.live:  # it has ended; this was under way
            return STOP
        name = self.live[trial_id]
        event = Reported(trial=name, report=report, coresident=coresident, time=self.clock())
        return self._apply(self._write(event, and_commit=False))

    def on_suspended(self, trial_id: str, stopped: float, asleep: float) -> None:
        """The driver did not run for a while: what the trial waited then is in no cost."""
        if trial_id in self.live:
            event = Suspended(
                trial=self.live[trial_id], stopped_seconds=stopped, asleep_seconds=asleep, time=self.clock()
            )
            self._apply(self._write(event))

    def on_death(self, trial_id: str) -> None:
        """Its worker died, and Tune tries the trial again; one that was about to end has ended, and is told to stop."""
        if self.is_ending(trial_id):
            self.on_complete(trial_id)
        else:
            log = self.logs[self.live[trial_id]]
            self._apply(self._write(Died(trial=log.name, time=self.clock())))
            self._limit_checkpoint(log)  # else an attempt that continued a run keeps the limit it began with

    def on_interrupt(self, trial_id: str) -> None:
        """The run is told to stop: the one that continues takes the trial up again."""
        if trial_id in self.live:
            self._apply(self._write(Interrupted(trial=self.live[trial_id], asked=True, time=self.clock())))
            del self.live[trial_id]

    def on_complete(self, trial_id: str) -> None:
        """It ended by itself, or as it was told to."""
        if trial_id not in self.live:
            return
        log = self.logs[self.live[trial_id]]
        self._end(trial_id, log.outcome, log.progress.error if log.progress else None)

    def on_error(self, trial_id: str, error: str | None) -> None:
        """It is given up. Tune may say so of a trial that had completed."""
        if trial_id in self.live:
            self._end(trial_id, "failed", error)

    def _end(self, trial_id: str, status: Status, error: str | None) -> None:
        name = self.live[trial_id]
        event = self._write(
            Ended(trial=name, status=status, error=error, driver_seconds=self.driver_seconds, time=self.clock())
        )
        del self.live[trial_id]  # only now: a write that fails is tried again
        self._apply(event)
        if _is_tried_again(self.logs[name]):
            reason = last_line(error or "no error was given")
            self.failure = f"its {name} task failed ({reason}); the same command tries it again"

    @contextlib.contextmanager
    def asking_method(self) -> Iterator[None]:
        """Time in here is the driver's. A method's own mistake ends its unit, not the run."""
        began, counted = time.perf_counter(), self.driver_seconds
        try:
            yield
        except UserError as error:
            self.failure = str(error)
        except MachineError:  # another run has taken over
            raise
        except Exception as error:
            if disk_is_full(error):  # a line of the ledger could not be written: not the method's mistake
                raise
            self.failure = f"the method raised {type(error).__name__}: {error}"
        finally:  # not twice where one such block is inside another
            self.driver_seconds = max(self.driver_seconds, counted + time.perf_counter() - began)

    # --- outcome ---------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.failure is not None or self.given_up

    @property
    def is_ready(self) -> bool:
        """The final evaluation is in, the result not yet written."""
        return not self.is_over and self._ended("final") and not self.live

    def task_of(self, trial_id: str) -> AnyTask:
        """Of a trial that Tune has and that has not ended."""
        return self.logs[self.live[trial_id]].task

    def is_ending(self, trial_id: str) -> bool:
        """Whether its reports, or the scheduler's answer to them, have said that it ends; or it has ended."""
        log = self.logs[self.live[trial_id]] if trial_id in self.live else None
        return log is None or log.told_to_stop or log.has_reported_its_end

    @property
    def running(self) -> list[str]:
        """Names of the trials that are on a worker; others wait for one."""
        return [name for name in self.live.values() if self.logs[name].is_running]

    def host_of(self, name: str) -> str:
        """Where a trial runs; empty before it has said so."""
        attempts = self.logs[name].attempts
        return attempts[-1].host if attempts else ""

    def search_logs(self) -> list[TrialLog]:
        return search_trials(self.logs)

    def records(self) -> tuple[TrialRecord, ...]:
        return ended_records(self.plan, self.logs)

    @property
    def device_seconds(self) -> float:
        """Charged so far for the search's trials, running ones included."""
        return sum(log.held_seconds() for log in self.search_logs()) * self.plan.devices

    @property
    def spent_device_seconds(self) -> float:
        """The same without trials that it was told of, which others have trained."""
        own = [log for log in self.search_logs() if log.task.unit == self.storage_key]
        return sum(log.held_seconds() for log in own) * self.plan.devices

    def complete(self) -> Unit:
        """Puts the result together and writes it."""
        assert self.choice is not None
        records = self.records()
        self.result = search_result(
            self.plan,
            self.logs,
            self.choice,
            records,
            self.driver_seconds,
            self.most_coresident,
            {**self._replays(), "model_hash": self.folder.model_hash},
        )
        self.folder.complete(records, self.result)
        return Unit(plan=self.plan, trials=records, result=self.result, rows_file=self.folder.rows_path)

    def _replays(self) -> dict[str, Any]:
        """Where the search can be replayed, fields of its result: on other numbers of devices, with other seeds."""
        return {}


def _is_kept(log: TrialLog) -> bool:
    """Its checkpoint is of its end; that of a stopped one is of some time before."""
    return log.status == "finished" and log.kept


def _furthest(log: TrialLog) -> int:
    """Epoch: a worker of its own driver saves nothing further than the report after the last one in the ledger."""
    every, heard = log.config.training.report_every, log.progress.epoch if log.progress else 0
    return (heard // every + 1) * every


def _is_tried_again(log: TrialLog) -> bool:
    """By the same command: all that is no search's trial. One of a stage whose loss failed would fail once more."""
    if isinstance(log.task, StageTask):
        return log.crashed
    return log.status == "failed" and not isinstance(log.task, TrainTask)


def _where(lent: "Lent") -> dict[str, str]:
    """A lent trial's checkpoint, as fields of a task."""
    return {"unit": lent.task.unit, "trial": lent.task.trial}


def _checkpoint(log: TrialLog) -> str:
    return checkpoint_key(log.task.unit, log.task.trial)
