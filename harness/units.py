"""A unit (one method on one seed) while it runs: suggestions, trials, choice, final evaluation, result.

Everything that happens is appended to the unit's ledger first and then applied, so a run that continues replays the
ledger: the searcher and the scheduler are asked and told the same things in the same order, finished trials are not
trained again, and open ones go on from their checkpoints. No state of Ray's is needed for it.
"""

import contextlib
import copy
import time
from collections.abc import Iterator
from typing import Any

from ray.tune.experiment import Experiment, Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher
from ray.tune.search.search_algorithm import SearchAlgorithm
from ray.tune.search.search_generator import SearchGenerator

from harness import cost as cost_of
from harness.errors import UserError
from harness.ledger import TrialLog
from harness.methods.base import FINISHED, METRIC, MODE, TIME, SearchMethod
from harness.records import FinalEvaluation, Plan, Refit, SearchResult, TrialConfig, TrialRecord
from harness.store import UnitFolder
from harness.trainable import PAYLOAD

AFTER_SEARCH = ("refit", "final")  # tasks that follow the choice


class UnitRun:
    def __init__(self, plan: Plan, method: SearchMethod, folder: UnitFolder) -> None:
        self.plan, self.method, self.folder = plan, method, folder
        self.key = f"{plan.method}/seed-{plan.seed}"
        self.logs: dict[str, TrialLog] = {}
        self.live: dict[str, str] = {}  # Tune's trial id → our name, of trials that Tune has and that have not ended
        self.choice: dict[str, Any] | None = None
        self.capped = False
        self.failure: str | None = None
        self.result: SearchResult | None = None
        self.driver_seconds = 0.0
        self.most_coresident = 0
        search = method.plan(plan.space, plan.space.budget, plan.seed)
        self.scheduler: TrialScheduler | None = search.scheduler
        self.param_space = search.param_space
        self._search_plan = search
        self._open: list[Trial] = []  # of an earlier run, to be taken up again
        self._iterations: dict[str, int] = {}
        self.devices = plan.gpus_per_trial or plan.cpus_per_trial

    # --- set-up ----------------------------------------------------------------------------------------------------

    def prepare(self, experiment: Experiment) -> None:
        """Gives the searcher Tune's experiment with this unit's configuration, then replays the ledger."""
        search = self._search_plan
        self._alg = _as_algorithm(search.search_alg, dict(search.param_space))
        self._experiment = copy.copy(experiment)
        constants = {"unit": self.key, "task": "train", "seed": self.plan.seed}
        constants["may_be_stopped"] = self.scheduler is not None
        self._experiment.spec = {
            **experiment.spec,
            "config": {**search.param_space, **constants},
            "num_samples": search.num_samples,
        }
        self._alg.add_configurations([self._experiment])
        self._replay()

    def _replay(self) -> None:
        self.folder.mend()
        trials: dict[str, Trial] = {}
        for event in self.folder.events():
            name = event.get("trial", "")
            match event["event"]:
                case "suggest" if event["config"]["task"] == "train":
                    trials[name] = self._suggest_again(name, event)
                case "suggest":
                    self.logs[name] = TrialLog(name, event["config"], event["time"])
                case "answered":
                    trials[name] = self._suggest_again(name, event)
                    self.logs[name].answered_by = event["by"]
                    self._tell_end(trials[name], self._result_of(self.logs[event["by"]]), error=False)
                case "choice":
                    self.choice = event
                case "failed":
                    pass  # tried again from what there is
                case _:
                    self.logs[name].apply(event)
                    if name in trials:
                        self._replay_to_search(trials[name], name, event)
        for name, log in self.logs.items():
            if log.is_open:
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
        return trial

    def _replay_to_search(self, trial: Trial, name: str, event: dict[str, Any]) -> None:
        if event["event"] == "report" and "progress" in event["payload"]:
            result = self._result_of(self.logs[name])
            decision = TrialScheduler.CONTINUE
            if self.scheduler:
                decision = self.scheduler.on_trial_result(None, trial, result)  # type: ignore[arg-type]
            if decision != TrialScheduler.STOP and METRIC in result:
                self._alg.on_trial_result(trial.trial_id, result)
        elif event["event"] == "end":
            error = event["status"] == "failed" and self.logs[name].progress is None
            result = self._result_of(self.logs[name])
            if self.scheduler and not error:
                self.scheduler.on_trial_complete(None, trial, result)  # type: ignore[arg-type]
            self._tell_end(trial, None if error else result, error)

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
            if not self.capped and not self._alg.is_finished():
                return None
            self._choose()
        return self._follow_up()

    def _is_full(self) -> bool:
        return self.plan.concurrency is not None and len(self.live) >= self.plan.concurrency

    def _suggest(self) -> Trial | None:
        """A depth proposed again is answered from its complete record, at no cost, and the searcher asked again."""
        while True:
            with self.on_driver_time():
                trial = self._alg.next_trial()
            if trial is None:
                return None
            name = f"t{len([log for log in self.logs.values() if log.config['task'] == 'train']):03d}"
            known = [
                log
                for log in self.logs.values()
                if log.status == "finished" and _settings(log.config) == _settings(trial.config)
            ]
            self._check_inside_space(trial.config)
            log = TrialLog(name, {**trial.config, "trial": name}, time.time())
            self.logs[name] = log
            if not known:
                self._known_as(trial, name)
                self.folder.append("suggest", trial=name, config=log.config)
                return trial
            log.answered_by = known[0].name
            self.folder.append("answered", trial=name, config=log.config, by=known[0].name)
            self._tell_end(trial, self._result_of(known[0]), error=False)

    def _check_inside_space(self, config: dict[str, Any]) -> None:
        kind, depth = _settings(config)
        allowed = {"ddn": self.plan.space.depth.values, "ldn": (self.plan.space.depth.max,)}
        if depth not in allowed.get(kind, ()):
            raise UserError(
                f"method {self.plan.method} proposed kind {kind!r} with depth {depth!r}; the space "
                f"{self.plan.space.name} has {allowed}"
            )

    def _choose(self) -> None:
        chosen = self.method.select(self.records())
        d_opt = chosen.posterior.d_opt if chosen.posterior else chosen.depth
        choice = {"chosen": chosen.trial_id, "d_opt": d_opt, "epochs": chosen.best_epoch, "capped": self.capped}
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
            trained = {log.config["depth"]: log.name for log in self.logs.values() if log.status == "finished"}
            others = [(name, depth) for depth, name in trained.items()] if chosen.config["kind"] == "ddn" else []
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
        return task in self.logs and self.logs[task].status is not None

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

    def on_report(self, name: str, result: dict[str, Any]) -> None:
        self.on_event("report", name, payload=result[PAYLOAD])

    def on_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if self._is_search(trial_id) and METRIC in result:
            with self.on_driver_time():
                self._alg.on_trial_result(trial_id, result)

    def on_complete(self, trial_id: str, result: dict[str, Any] | None, error: bool) -> None:
        if self._is_search(trial_id):
            with self.on_driver_time():
                self._alg.on_trial_complete(trial_id, result=result, error=error)

    def on_end(self, trial_id: str, status: str, error: str | None = None) -> None:
        name = self.live.pop(trial_id)
        self.on_event("end", name, status=status, error=error)
        if name in AFTER_SEARCH and status == "failed":
            self.failure = f"the {name} task failed: {(error or '').strip().splitlines()[-1:]}"

    def _is_search(self, trial_id: str) -> bool:
        return trial_id in self.live and self.live[trial_id] not in AFTER_SEARCH

    def _tell_end(self, trial: Trial, result: dict[str, Any] | None, error: bool) -> None:
        self._alg.on_trial_complete(trial.trial_id, result=result, error=error)
        self.live.pop(trial.trial_id, None)

    @contextlib.contextmanager
    def on_driver_time(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.driver_seconds += time.perf_counter() - began

    def _result_of(self, log: TrialLog) -> dict[str, Any]:
        """The last report as Tune hands it to searchers and schedulers."""
        progress = log.progress
        self._iterations[log.name] = self._iterations.get(log.name, 0) + 1
        result: dict[str, Any] = {"training_iteration": self._iterations[log.name]}
        if progress:
            result |= {TIME: progress.epoch, FINISHED: progress.stop_reason is not None}
            if progress.val:
                result[METRIC] = progress.val.log_likelihood
        return result

    # --- outcome ---------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.failure is not None

    @property
    def is_ready(self) -> bool:
        """The final evaluation is in, the result not yet written."""
        return not self.is_over and self._ended("final") and not self.live

    def search_logs(self) -> list[TrialLog]:
        return [log for log in self.logs.values() if log.config["task"] == "train" and not log.answered_by]

    def records(self) -> tuple[TrialRecord, ...]:
        """Records of the search's trials, in the order they were suggested; open ones are left out."""
        return tuple(self._record(log) for log in self.search_logs() if log.status is not None)

    def _record(self, log: TrialLog) -> TrialRecord:
        config = TrialConfig.of(self.plan.space, log.config["kind"], log.config["depth"], self.plan.seed)
        return log.record(config, self.devices)

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
            cost_without_startup=total.device_seconds - total.phases.get("startup", 0.0) * total.devices,
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
    return search_alg


def _settings(config: dict[str, Any]) -> tuple[Any, Any]:
    return config.get("kind"), config.get("depth")
