"""A unit (one method on one seed) while it runs: suggestions, trials, choice, final evaluation, result.

Everything that happens is appended to the unit's ledger first and then applied, so a run that continues replays the
ledger: the searcher and the scheduler are asked and told the same things in the same order, finished trials are not
trained again, and open ones go on from their checkpoints. No state of Ray's is needed for it.
"""

import contextlib
import copy
import time
from collections.abc import Iterator
from numbers import Integral
from typing import Any

from ray.tune.experiment import Experiment, Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import BasicVariantGenerator, Searcher
from ray.tune.search.search_algorithm import SearchAlgorithm
from ray.tune.search.search_generator import SearchGenerator

from harness.errors import UserError
from harness.methods.base import FINISHED, METRIC, MODE, TIME, SearchMethod
from harness.records import FinalEvaluation, Refit, SearchResult, TrialRecord, UnitPlan
from harness.running.ledger import TrialLog
from harness.running.store import UnitFolder
from harness.running.worker import PAYLOAD
from harness.training import cost as cost_of

AFTER_SEARCH = ("refit", "final")  # tasks that follow the choice


class UnitRun:
    def __init__(self, plan: UnitPlan, method: SearchMethod, folder: UnitFolder, cell: str = "") -> None:
        self.plan, self.method, self.folder = plan, method, folder
        self.key = f"{cell}/{plan.method}/seed-{plan.seed}".lstrip("/")  # `cell`: which of a study's spaces
        self.logs: dict[str, TrialLog] = {}
        self.live: dict[str, str] = {}  # Tune's trial id → our name, of trials that Tune has and that have not ended
        self.choice: dict[str, Any] | None = None
        self.capped = False
        self.given_up = False  # the cost limit came before a trial had finished
        self.failure: str | None = None
        self.result: SearchResult | None = None
        self.driver_seconds = 0.0
        self.most_coresident = 0
        search = method.plan(plan.space, plan.space.budget, plan.seed)
        self.scheduler: TrialScheduler | None = search.scheduler
        self.param_space = search.param_space
        self._search_plan = search
        self._open: list[Trial] = []  # of an earlier run, to be taken up again
        self.met: set[str] = set()  # Tune's ids of trials that the scheduler was told of
        self.devices = plan.gpus_per_trial or plan.cpus_per_trial

    # --- set-up ----------------------------------------------------------------------------------------------------

    def prepare(self, experiment: Experiment) -> None:
        """Gives the searcher Tune's experiment with this unit's configuration, then replays the ledger."""
        search = self._search_plan
        self._alg = _as_algorithm(search.search_alg, dict(search.param_space))
        self._experiment = copy.copy(experiment)
        self.folder.mend()
        self.storage_key = self.folder.begin()
        space, seed = self.plan.space.name, self.plan.seed
        constants: dict[str, Any] = {"space": space, "unit": self.storage_key, "task": "train", "seed": seed}
        constants["may_be_stopped"] = self.scheduler is not None
        constants["learns_depth"] = self.plan.facts.learns_depth
        constants["kind"] = self.plan.trial_config(0).kind
        self._constants = set(constants)
        self._experiment.spec = {
            **experiment.spec,
            "config": {**search.param_space, **constants},
            "num_samples": search.num_samples,
        }
        self._alg.add_configurations([self._experiment])
        self._replay()

    def _replay(self) -> None:
        trials: dict[str, Trial] = {}
        stopped: set[str] = set()
        for event in self.folder.events():
            name = event.get("trial", "")
            self.most_coresident = max(self.most_coresident, event.get("coresident", 0))
            self.driver_seconds = event.get("driver_seconds", self.driver_seconds)
            match event["event"]:
                case "suggest" if event["config"]["task"] == "train":
                    trials[name] = self._suggest_again(name, event)
                case "suggest":
                    self.logs[name] = TrialLog(name, event["config"], event["time"])
                case "answered":
                    trials[name] = self._suggest_again(name, event)
                    self.logs[name].answered_by = event["by"]
                    self._tell_end(trials[name], self._result_of(self.logs[event["by"]]), error=False)
                case "begin":
                    pass
                case "choice":
                    self.choice = event
                case _:
                    known_epochs = len(self.logs[name].curve)
                    self.logs[name].apply(event)
                    is_news = len(self.logs[name].curve) > known_epochs
                    if name in trials and self._replay_to_search(trials[name], name, event, is_news):
                        stopped.add(name)
        for name, log in self.logs.items():
            if log.status == "failed" and name in AFTER_SEARCH:
                log.status = None  # tried again from what there is
            if not log.is_open:
                continue
            if name in stopped or log.has_reported_its_end:  # the driver died before it could write the end down
                end = self.folder.append("end", trial=name, status=log.outcome, time=log.attempts[-1].last_seen)
                log.apply(end)
                if name in trials:
                    self._replay_to_search(trials[name], name, end, is_news=False)
                continue
            if log.attempts and log.attempts[-1].ended_at is None:
                log.apply(self.folder.append("interrupted", trial=name))
            trial = trials.get(name) or self._task_trial(log.config)
            self._open.append(trial)
            self._known_as(trial, name)
        self.live.clear()

    def _suggest_again(self, name: str, event: dict[str, Any]) -> Trial:
        trial = self._alg.next_trial()
        if trial is None or _settings(trial.config) != _settings(event["config"]):
            proposed = _settings(trial.config) if trial else "nothing"
            raise UserError(
                f"{self.folder.path} cannot be continued: its ledger has {_settings(event['config'])} for {name}, the "
                f"method now proposes {proposed}, so it is not deterministic in its seed; use --fresh to start anew"
            )
        self.logs[name] = TrialLog(name, {**trial.config, "trial": name}, event["time"])
        self._known_as(trial, name)
        if self.scheduler and event["event"] == "suggest":
            self.scheduler.on_trial_add(None, trial)  # type: ignore[arg-type]
            self.met.add(trial.trial_id)
        return trial

    def _replay_to_search(self, trial: Trial, name: str, event: dict[str, Any], is_news: bool) -> bool:
        """Tells searcher and scheduler what they were told then; true if the scheduler stops the trial."""
        log = self.logs[name]
        if event["event"] == "report" and is_news:
            result = self._result_of(log)
            if self.scheduler:
                decision = self.scheduler.on_trial_result(None, trial, result)  # type: ignore[arg-type]
                if decision == TrialScheduler.STOP:
                    return True
            self._alg.on_trial_result(trial.trial_id, result)
        elif event["event"] == "end":
            crashed = event["status"] == "failed" and log.outcome != "failed"
            result = self._result_of(log)
            if self.scheduler and crashed:
                self.scheduler.on_trial_error(None, trial)  # type: ignore[arg-type]
            elif self.scheduler:
                self.scheduler.on_trial_complete(None, trial, result)  # type: ignore[arg-type]
            self._tell_end(trial, None if crashed else result, crashed)
        return False

    def _known_as(self, trial: Trial, name: str) -> None:
        trial.config["trial"] = name
        self.live[trial.trial_id] = name

    # --- asked by Tune ---------------------------------------------------------------------------------------------

    def next_trial(self) -> Trial | None:
        """The next thing to run: an open trial of an earlier run, a new suggestion, or what follows the choice."""
        if self._open:
            trial = self._open.pop(0)
            self.live[trial.trial_id] = trial.config["trial"]
            return trial
        if self.is_over or (self.choice is None and self._is_full()):
            return None
        if self.choice is None:
            suggested = None if self.capped else self._suggest()
            if suggested or self.live:
                return suggested
            self._choose()  # a searcher that has nothing to propose while nothing runs has finished
        return self._follow_up() if self.choice else None

    def _is_full(self) -> bool:
        return self.plan.concurrency is not None and len(self.live) >= self.plan.concurrency

    def _suggest(self) -> Trial | None:
        """A depth proposed again is answered from its complete record, at no cost, and the searcher asked again."""
        while True:
            trial = self._alg.next_trial()
            if trial is None:
                return None
            name = f"t{self._n_proposed():03d}"
            trial.config["depth"] = self._checked_depth(trial.config)
            known = [
                log
                for log in self.logs.values()
                if log.status == "finished" and _settings(log.config) == _settings(trial.config)
            ]
            log = TrialLog(name, {**trial.config, "trial": name}, time.time())
            self.logs[name] = log
            if not known:
                self._known_as(trial, name)
                self.folder.append("suggest", trial=name, config=log.config)
                return trial
            log.answered_by = known[0].name
            self.folder.append("answered", trial=name, config=log.config, by=known[0].name)
            self._tell_end(trial, self._result_of(known[0]), error=False)

    def _n_proposed(self) -> int:
        return sum(log.config["task"] == "train" for log in self.logs.values())

    def _checked_depth(self, config: dict[str, Any]) -> int:
        """The depth as an int: searchers like to propose NumPy's, which neither JSON nor the records take."""
        depth, space = config.get("depth"), self.plan.space
        allowed = (space.depth.max,) if self.plan.facts.learns_depth else space.depth.values
        if not isinstance(depth, Integral) or depth not in allowed:
            raise UserError(
                f"method {self.plan.method} proposed depth {depth!r}; the space {space.name} has "
                f"{', '.join(map(str, allowed))}"
            )
        if unknown := set(config) - self._constants - {"depth"}:
            raise UserError(
                f"method {self.plan.method} proposed {', '.join(sorted(unknown))}; a method chooses the depth, the "
                "space has the rest"
            )
        return int(depth)

    def _choose(self) -> None:
        records = self.records()
        if self.capped and not any(record.val for record in records):
            self.given_up = True
            return
        chosen = self.method.select(records)
        d_opt = chosen.posterior.d_opt if chosen.posterior else chosen.depth
        capped = self.capped and not self._alg.is_finished() and self._n_proposed() < self.plan.trials
        choice = {"chosen": chosen.trial_id, "d_opt": d_opt, "epochs": chosen.best_epoch, "capped": capped}
        self.choice = self.folder.append("choice", **choice)

    def _follow_up(self) -> Trial | None:
        """The refit if it was asked for, then the final evaluation."""
        assert self.choice is not None
        if self.live:
            return None
        chosen = self.logs[self.choice["chosen"]]
        config = {**chosen.config, "may_be_stopped": False, "epochs": self.choice["epochs"]}
        if self.plan.refit and not self._ended("refit"):
            config |= {"task": "refit"}
        elif not self._ended("final"):
            refit = self.logs.get("refit")
            posterior = refit.progress.posterior if refit and refit.progress else None
            trained = {log.config["depth"]: log.name for log in self.search_logs() if log.status == "finished"}
            others = [(name, depth) for depth, name in trained.items()] if not self.plan.facts.learns_depth else []
            config |= {
                "task": "final",
                "chosen": chosen.name,
                "d_opt": self.choice["d_opt"],
                "others": others,
                "refit": self.plan.refit,
                "refit_d_opt": posterior.d_opt if posterior else chosen.config["depth"],
            }
        else:
            return None
        name = config["task"]
        trial = self._task_trial({**config, "trial": name})
        self.logs[name] = TrialLog(name, trial.config, time.time())
        self.live[trial.trial_id] = name
        self.folder.append("suggest", trial=name, config=trial.config)
        return trial

    def _ended(self, task: str) -> bool:
        return task in self.logs and self.logs[task].status == "finished"

    def _task_trial(self, config: dict[str, Any]) -> Trial:
        experiment = copy.copy(self._experiment)
        experiment.spec = {**experiment.spec, "config": dict(config), "num_samples": 1}
        generator = SearchGenerator(_OneConfiguration())
        generator.add_configurations([experiment])
        trial: Trial = generator.next_trial()
        return trial

    # --- told by Tune ----------------------------------------------------------------------------------------------

    def on_event(self, event: str, name: str, **values: Any) -> None:
        self.logs[name].apply(self.folder.append(event, trial=name, **values))
        self.most_coresident = max(self.most_coresident, values.get("coresident", 0))

    def on_report(self, name: str, result: dict[str, Any], coresident: int) -> None:
        self.on_event("report", name, payload=result[PAYLOAD], coresident=coresident)

    def is_news(self, trial_id: str, result: dict[str, Any]) -> bool:
        """A search's trial reports an epoch for the first time. What is trained again after a crash is no news."""
        return (
            self._is_search(trial_id)
            and METRIC in result
            and result[TIME] > max(self.logs[self.live[trial_id]].curve, default=-1)
        )

    def counted(self, trial_id: str, result: dict[str, Any]) -> dict[str, Any]:
        """With the number of the report. Tune counts anew when a trial is retried, and every message."""
        return {**result, "training_iteration": len(self.logs[self.live[trial_id]].curve | {result.get(TIME): None})}

    def on_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if self.is_news(trial_id, result):
            with self.asking_method():
                self._alg.on_trial_result(trial_id, self.counted(trial_id, result))

    def on_complete(self, trial_id: str, result: dict[str, Any] | None, error: bool) -> None:
        if self._is_search(trial_id):
            with self.asking_method():
                counted = self.counted(trial_id, result) if result else None
                self._alg.on_trial_complete(trial_id, result=counted, error=error)

    def on_end(self, trial_id: str, status: str, error: str | None = None) -> None:
        name = self.live.pop(trial_id, None)
        if name is None:  # Tune may tell an error of a trial that had completed
            return
        self.on_event("end", name, status=status, error=error, driver_seconds=self.driver_seconds)
        if name in AFTER_SEARCH and status == "failed":
            reason = (error or "no error was given").strip().splitlines()[-1]
            self.failure = f"its {name} task failed ({reason}); the same command tries it again"

    def _is_search(self, trial_id: str) -> bool:
        return trial_id in self.live and self.live[trial_id] not in AFTER_SEARCH

    def _tell_end(self, trial: Trial, result: dict[str, Any] | None, error: bool) -> None:
        self._alg.on_trial_complete(trial.trial_id, result=result, error=error)
        self.live.pop(trial.trial_id, None)

    @contextlib.contextmanager
    def asking_method(self) -> Iterator[None]:
        """Time in here is the driver's. A method's own mistake ends its unit, not the study."""
        began = time.perf_counter()
        try:
            yield
        except UserError as error:
            self.failure = str(error)
        except Exception as error:
            self.failure = f"the method raised {type(error).__name__}: {error}"
        finally:
            self.driver_seconds += time.perf_counter() - began

    def _result_of(self, log: TrialLog) -> dict[str, Any]:
        """The last report as Tune hands it to searchers and schedulers."""
        progress = log.progress
        result: dict[str, Any] = {"training_iteration": len(log.curve)}
        if progress:
            result |= {TIME: progress.epoch, FINISHED: progress.stop_reason is not None}
            if progress.val:
                result[METRIC] = progress.val.log_likelihood
        return result

    # --- outcome ---------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.failure is not None or self.given_up

    @property
    def is_ready(self) -> bool:
        """The final evaluation is in, the result not yet written."""
        return not self.is_over and self._ended("final") and not self.live

    @property
    def choice_made(self) -> tuple[str, int] | None:
        """The chosen trial and its depth."""
        return (self.choice["chosen"], self.choice["d_opt"]) if self.choice else None

    def search_logs(self) -> list[TrialLog]:
        return [log for log in self.logs.values() if log.config["task"] == "train" and not log.answered_by]

    def records(self) -> tuple[TrialRecord, ...]:
        """Records of the search's trials, in the order they were suggested; open ones are left out."""
        return tuple(self._record(log) for log in self.search_logs() if log.status is not None)

    def _record(self, log: TrialLog) -> TrialRecord:
        return log.record(self.plan.trial_config(log.config["depth"]), self.devices)

    @property
    def device_seconds(self) -> float:
        """Spent so far by the search's trials, running ones included."""
        return sum(log.held_seconds() for log in self.search_logs()) * self.devices

    def complete(self) -> SearchResult:
        """Puts the result together and writes it."""
        assert self.choice is not None
        records = self.records()
        chosen = next(record for record in records if record.trial_id == self.choice["chosen"])
        final_log = self.logs["final"]
        final = FinalEvaluation.model_validate_json(final_log.final or "{}")
        total = cost_of.total([record.cost for record in records])
        statuses = [record.status for record in records]
        d_opt = self.choice["d_opt"]
        facts = self.logs[chosen.trial_id].facts
        assert chosen.val is not None
        self.result = SearchResult(
            space=self.plan.space.name,
            method=self.plan.method,
            options=self.plan.options,
            seed=self.plan.seed,
            plan_hash=self.plan.hash,
            status="capped" if self.choice["capped"] else "complete",
            chosen_trial=chosen.trial_id,
            d_opt=d_opt,
            d_opt_in_range=d_opt in self.plan.space.depth.values,
            val=chosen.val,
            final=final,
            refit=self._refit(final),
            cost=total,
            worker_start_device_seconds=self.devices
            * sum(attempt.worker_start_seconds for record in records for attempt in record.attempts),
            trials=len(records),
            trials_by_status={status: statuses.count(status) for status in sorted(set(statuses))},
            duplicates=self._duplicates(),
            wall_seconds=max(r.ended_at for r in records) - min(r.started_at for r in records),
            driver_seconds=self.driver_seconds,
            concurrency=self.plan.concurrency,
            order_dependent=self.method.adaptive and self.plan.concurrency != 1,
            cpus_per_trial=self.plan.cpus_per_trial,
            gpus_per_trial=self.plan.gpus_per_trial,
            most_coresident_trials=self.most_coresident,
            labels_fit=facts["n_train"],
            labels_chosen_with=facts["n_val"],
        )
        self.folder.complete(records, self.result)
        return self.result

    def _refit(self, final: FinalEvaluation) -> Refit | None:
        log = self.logs.get("refit")
        if not log or not log.progress or not final.refit:
            return None
        posterior = log.progress.posterior
        d_opt = posterior.d_opt if posterior else log.config["depth"]
        return Refit(d_opt=d_opt, test=final.refit, cost=log.cost(self.devices))

    def _duplicates(self) -> int:
        """Depths proposed again, whether answered from a record or trained again."""
        proposed = [log.config["depth"] for log in self.logs.values() if log.config["task"] == "train"]
        return len(proposed) - len(set(proposed))


class _OneConfiguration(Searcher):
    """A searcher that adds nothing: the experiment's configuration is the trial's."""

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass


def _as_algorithm(search_alg: Searcher | SearchAlgorithm, param_space: dict[str, Any]) -> SearchAlgorithm:
    if isinstance(search_alg, Searcher):
        # Searchers that were built with a space of their own refuse another one, and need none.
        search_alg.set_search_properties(METRIC, MODE, param_space)
        return SearchGenerator(search_alg)
    if isinstance(search_alg, BasicVariantGenerator):
        # Its ids begin with five digits of the clock: units planned in the same half millisecond would share them.
        search_alg._uuid_prefix = f"{Trial.generate_id()}_"
    return search_alg


def _settings(config: dict[str, Any]) -> Any:
    return config.get("depth")
