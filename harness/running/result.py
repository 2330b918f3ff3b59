"""From what a unit's ledger says to its records: a function of the plan, the trials' logs and the choice."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.errors import brief
from harness.running.ledger import Answered, Begun, Chosen, Event, Reported, Started, Suggested, TrialLog
from harness.running.messages import TrainTask
from harness.schema.comparable import unequal
from harness.schema.records import Refit, SearchResult, TrialRecord, Unit, UnitPlan
from harness.training import cost as cost_of


def search_trials(logs: Mapping[str, TrialLog]) -> list[TrialLog]:
    """Those that were trained for the search, in the order of suggestion."""
    return [log for log in logs.values() if isinstance(log.task, TrainTask) and log.answered_by is None]


def proposals(logs: Mapping[str, TrialLog]) -> list[tuple[int, int]]:
    """Every depth and restart that the method proposed, in order; those proposed again, whatever came of it, too."""
    return [(log.depth, log.config.restart) for log in logs.values() if isinstance(log.task, TrainTask)]


def named(depth: object, restart: object) -> str:
    """A fixed depth's network, as a sentence has it after "depth"."""
    return f"{depth} (restart {restart})" if restart else str(depth)


def ended_records(plan: UnitPlan, logs: Mapping[str, TrialLog]) -> tuple[TrialRecord, ...]:
    return tuple(log.record(plan.devices) for log in search_trials(logs) if log.status is not None)


def search_result(
    plan: UnitPlan,
    logs: Mapping[str, TrialLog],
    choice: Chosen,
    records: Sequence[TrialRecord],
    driver_seconds: float,
    most_coresident: int,
    more: Mapping[str, Any],
) -> SearchResult:
    """The unit's result, once its final evaluation is in."""
    chosen = next(record for record in records if record.trial_id == choice.chosen)
    final, facts = logs["final"].final, logs[choice.chosen].facts
    assert chosen.val is not None and final is not None and facts is not None
    statuses = [record.status for record in records]
    proposed = proposals(logs)
    return SearchResult(
        space=plan.space.name,
        method=plan.method,
        options=plan.options,
        seed=plan.seed,
        plan_hash=plan.hash,
        status="capped" if choice.capped else "complete",
        chosen_trial=chosen.trial_id,
        d_opt=choice.d_opt,
        d_opt_in_range=choice.d_opt in plan.space.depth.values,
        val=chosen.val,
        final=final,
        refit=_refit(plan, logs, choice),
        cost=cost_of.total([record.cost for record in records]),
        worker_start_device_seconds=plan.devices
        * sum(attempt.worker_start_seconds for record in records for attempt in record.attempts),
        trials=len(records),
        trials_by_status={status: statuses.count(status) for status in sorted(set(statuses))},
        duplicates=len(proposed) - len(set(proposed)),
        wall_seconds=max(r.ended_at for r in records) - min(r.started_at for r in records),
        driver_seconds=driver_seconds,
        concurrency=plan.concurrency,
        order_dependent=plan.facts.adaptive and plan.concurrency != 1 and not plan.replayed,
        cpus_per_trial=plan.cpus_per_trial,
        gpus_per_trial=plan.gpus_per_trial,
        most_coresident_trials=most_coresident,
        labels_fit=facts.n_train + (facts.n_val if plan.facts.validation == "fits" else 0),
        labels_chosen_with=facts.n_val if _chooses_or_stops_by_validation(plan) else 0,
        usd_per_hour=plan.usd_per_hour,
        **more,
    )


def _chooses_or_stops_by_validation(plan: UnitPlan) -> bool:
    return plan.chooses_by_validation or plan.space.training.monitor == "val_objective"


def _refit(plan: UnitPlan, logs: Mapping[str, TrialLog], choice: Chosen) -> Refit | None:
    log, final = logs.get("refit"), logs["final"].final
    if not log or not log.progress or not final or not final.refit:
        return None
    return Refit(d_opt=refit_depth(plan, log, choice), test=final.refit, cost=log.cost(plan.devices))


def refit_depth(plan: UnitPlan, log: TrialLog, choice: Chosen) -> int:
    """The depth that a refit hands over: the search's choice.

    Refits of version 0.2.0 trained a whole one-shot network, and read its depth again unless validation chose it.
    """
    was_whole = log.config.learns_depth and plan.facts.validation != "chooses"
    return handed_over_depth(log) if was_whole else choice.d_opt


def handed_over_depth(log: TrialLog) -> int:
    """The depth of the network that a trial would hand over, as far as it has come."""
    posterior = log.progress.posterior if log.progress else None
    return posterior.d_opt if posterior else log.depth


# --- does a result say what its ledger says? ------------------------------------------------------------------------

_NOT_IN_THE_LEDGER = frozenset(  # made from other seeds of the search, or beside it
    {"model_hash", *(name for name in SearchResult.model_fields if name.startswith("replayed_"))}
)
_ROUNDING = 1e-6  # relative: a later version may add up in another order


def contradictions(unit: Unit, events: Iterable[Event]) -> Iterator[str]:
    """What a complete unit's records say otherwise than its ledger, of which they are a function."""
    assert unit.result is not None
    logs: dict[str, TrialLog] = {}
    choice, coresident = None, 0
    for event in events:
        match event:
            case Begun():
                pass
            case Suggested():
                logs[event.trial] = TrialLog(event.trial, event.task, event.time)
            case Answered() if event.by in logs:
                logs[event.trial] = TrialLog(event.trial, logs[event.by].task, event.time, answered_by=event.by)
            case Chosen():
                choice = event
            case _ if event.trial not in logs or isinstance(event, Answered):
                yield "ledger.jsonl: it tells of a trial that it never suggested"
                return
            case _:
                logs[event.trial].apply(event)
                coresident = max(coresident, event.coresident if isinstance(event, Started | Reported) else 0)
    records = ended_records(unit.plan, logs)
    if choice is None or "final" not in logs or logs["final"].final is None:
        yield "ledger.jsonl: it has no choice or no final evaluation"
        return
    if len(records) != len(unit.trials):
        yield f"trials.jsonl: it has {len(unit.trials)} trials, the ledger {len(records)}"
        return
    more = {name: getattr(unit.result, name) for name in _NOT_IN_THE_LEDGER}
    result = search_result(unit.plan, logs, choice, records, unit.result.driver_seconds, coresident, more)
    for said, known in zip(unit.trials, records, strict=True):
        yield from _otherwise(f"trials.jsonl: {known.trial_id}", said.model_dump(), known.model_dump())
    yield from _otherwise("result.json:", unit.result.model_dump(), result.model_dump())


def _otherwise(where: str, said: Any, known: Any) -> Iterator[str]:
    for name, one, other in unequal(said, known):
        numbers = isinstance(one, float | int) and isinstance(other, float | int)
        if not (numbers and math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING)) and not _close(one, other):
            yield f"{where} {name} is {brief(str(one))}, the ledger says {brief(str(other))}"


def _close(one: Any, other: Any) -> bool:
    """Of lists, item by item."""
    if not (isinstance(one, tuple | list) and isinstance(other, tuple | list) and len(one) == len(other)):
        return False
    return not any(list(_otherwise("", {"": left}, {"": right})) for left, right in zip(one, other, strict=True))
