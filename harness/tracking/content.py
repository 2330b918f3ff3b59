"""What MLflow is told about a unit: names, tags, params and metric points, as pure functions of the records.

Timestamps come from the records, so writing a run again writes the very same rows and MLflow keeps them once.
"""

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, TypeVar

import numpy as np

from harness import keys
from harness.colours import colour_of
from harness.comparing.costs import rungs_of, trajectory
from harness.comparing.finished import Finished
from harness.comparing.tables import confidence, verdict_table
from harness.comparing.values import Comparison
from harness.measures import DETAILS, HEADLINE, Outcome
from harness.schema.records import CurvePoint, SearchResult, TrialRecord, Unit
from harness.text.shown import counted
from harness.tracking.texts import mean_note, search_note, trial_note

T = TypeVar("T")
MOST_POINTS = 100  # of one curve
# Steps of the anytime curve in device-milliseconds: 12 % apart and the same for every search whatever it cost, so
# that MLflow can average seeds step by step. Up to 300 years.
COST_GRID_MS = sorted({round(10 ** (exponent / 20)) for exponent in range(261)})
Status = Literal["FINISHED", "FAILED", "KILLED"]
STATUS: Mapping[str, Status] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


@dataclass(frozen=True)
class Point:
    key: str
    value: float
    step: int
    timestamp_ms: int


@dataclass(frozen=True)
class RunContent:
    """One MLflow run. `fingerprint` tells which records it shows: the same one need not be written again."""

    key: str
    name: str
    status: Status
    start_ms: int
    end_ms: int
    tags: Mapping[str, str]
    params: Mapping[str, str]
    points: Sequence[Point]
    fingerprint: str


def unit_key(unit: Unit) -> str:
    plan = unit.plan
    return f"{plan.space.name}/{plan.method}/seed-{plan.seed}"


def search_content(unit: Unit) -> RunContent:
    """The parent run. An unfinished search has no measures yet, and reads KILLED: nobody may be working on it."""
    start = min((trial.started_at for trial in unit.trials), default=0.0)
    end = max((trial.ended_at for trial in unit.trials), default=0.0)
    return RunContent(
        key=unit_key(unit),
        name=_search_name(unit),
        status="FINISHED" if unit.result else "KILLED",
        start_ms=_ms(start),
        end_ms=_ms(end),
        tags=_tags(unit, keys.KIND_SEARCH, unit_key(unit)) | {"mlflow.note.content": search_note(unit)},
        params=_plan_params(unit) | (_result_params(unit, unit.result) if unit.result else {}),
        points=_search_points(unit, unit.result, _ms(end)) if unit.result else (),
        fingerprint=_hash(
            [unit.plan.hash, unit.result is not None, *(trial_fingerprint(trial) for trial in unit.trials)]
        ),
    )


def trial_content(unit: Unit, index: int) -> RunContent:
    """The child run of `unit.trials[index]`."""
    trial = unit.trials[index]
    key = f"{unit_key(unit)}/{trial.trial_id}"
    depth = f"D={trial.depth}" if trial.learns_depth else f"d={trial.depth}"
    return RunContent(
        key=key,
        name=f"{_search_name(unit)}/t{index:03d} {depth}",
        status=STATUS[trial.status],
        start_ms=_ms(trial.started_at),
        end_ms=_ms(trial.ended_at),
        tags=_tags(unit, keys.KIND_TRIAL, key) | {"mlflow.note.content": trial_note(trial)},
        params={
            "search": unit.plan.method,
            "seed": str(trial.seed),
            "trial_id": trial.trial_id,
            "network": trial.kind if trial.learns_depth else "fixed depth",
            "depth": str(trial.depth),
            "stop_reason": trial.stop_reason,
            "best_epoch": str(trial.best_epoch),
            "attempts": str(len(trial.attempts)),
            "config_hash": trial.config_hash,
            "split_hash": trial.split_hash,
            "environment.code": trial.environment.code,
            "environment.device": trial.environment.device,
        },
        points=list(_trial_points(trial)),
        fingerprint=trial_fingerprint(trial),
    )


def mean_content(units: Sequence[Unit], comparison: Comparison) -> RunContent:
    """A method's mean over its seeds, with its verdicts. A run of ours, not a group of MLflow's: those have colours of
    their own."""
    verdicts = _verdicts(units[0].plan.method, comparison)
    plan, contents = units[0].plan, [search_content(unit) for unit in units]
    key, end_ms = f"{plan.space.name}/{plan.method}/{keys.KIND_MEAN}", max(content.end_ms for content in contents)
    tags = {name: value for name, value in _tags(units[0], keys.KIND_MEAN, key).items() if name != keys.TAG_SEED}
    return RunContent(
        key=key,
        name=f"{plan.method}, mean of {counted(len(units), 'seed')}",
        status="FINISHED",
        start_ms=min(content.start_ms for content in contents),
        end_ms=end_ms,
        tags=tags | {"mlflow.note.content": mean_note(units, comparison)},
        params={
            "search": plan.method,
            "space": plan.space.name,
            "seeds": ", ".join(str(u.plan.seed) for u in units),
            **verdicts,
        },
        points=[
            Point(name, rounded(value), step, end_ms)
            for (name, step), value in _mean_values([content.points for content in contents]).items()
        ],
        fingerprint=_hash([[content.fingerprint for content in contents], verdicts]),
    )


def _verdicts(method: str, comparison: Comparison) -> dict[str, str]:
    """`verdict.accuracy: as good, +0.002 ± 0.006`, against whom, and how sure the intervals are."""
    stage = comparison.search
    pair = next((pair for pair in stage.pairs if pair.method == method), None)
    if pair is None or len({each.baseline for each in stage.pairs if each.method == method}) > 1:
        return {}  # the baseline itself, or a reference that was compared with many
    table = verdict_table(comparison)
    row = next(row for row in table.rows if row[0] == stage.label_of(pair))
    said = {f"verdict.{title}": cell for title, cell in zip(("cost", *table.columns[2:]), row[1:], strict=True)}
    return {"against": pair.baseline, "interval": confidence(stage), **said}


def _mean_values(runs: Sequence[Sequence[Point]]) -> dict[tuple[str, int], float]:
    """By key and step, over the seeds that have it. The best so far stays when a search has ended, and is a mean only
    where all have one."""
    found: dict[tuple[str, int], list[float]] = {}
    for point in (point for run in runs for point in run if point.key != keys.ANYTIME_VAL_LOG_LIKELIHOOD):
        found.setdefault((point.key, point.step), []).append(point.value)
    curves = [{p.step: p.value for p in run if p.key == keys.ANYTIME_VAL_LOG_LIKELIHOOD} for run in runs]
    if all(curves):
        first = max(min(curve) for curve in curves)
        for step in sorted({step for curve in curves for step in curve if step >= first}):
            values = [curve[max(known for known in curve if known <= step)] for curve in curves]
            found[keys.ANYTIME_VAL_LOG_LIKELIHOOD, step] = values
    return {place: fmean(values) for place, values in found.items()}


def trial_fingerprint(trial: TrialRecord) -> str:
    """Which stay of which trial this is; new fields in a later version's records do not change it."""
    return _hash([trial.trial_id, trial.config_hash, trial.status, trial.started_at, trial.ended_at])


# --- params and tags ----------------------------------------------------------------------------------------------


def _search_name(unit: Unit) -> str:
    return f"{unit.plan.method}/s{unit.plan.seed}"


def _tags(unit: Unit, kind: str, key: str) -> dict[str, str]:
    code = unit.trials[0].environment.code if unit.trials else ""
    commit = {"mlflow.source.git.commit": code} if re.fullmatch(r"[0-9a-f]{7,40}", code) else {}
    return commit | {
        keys.TAG_KIND: kind,
        keys.TAG_SEARCH: unit.plan.method,
        keys.TAG_SEED: str(unit.plan.seed),
        keys.TAG_SPACE: unit.plan.space.name,
        keys.TAG_REPLAYED: str(unit.plan.replayed).lower(),
        keys.TAG_UNIT_KEY: key,
        "mlflow.runColor": colour_of(unit.plan.method, unit.plan.facts.colour),
    }


def _plan_params(unit: Unit) -> dict[str, str]:
    """What the search was asked to do: known before its first trial, and the same when it is written again."""
    plan = unit.plan
    settings = plan.space.model_dump(mode="json", include={"data", "network", "depth", "posterior", "training"})
    return {
        "search": plan.method,
        "seed": str(plan.seed),
        "space": plan.space.name,
        "options": json.dumps(plan.options, sort_keys=True),
        "plan_hash": plan.hash,
        "trials_planned": str(plan.trials),
        "cpus_per_trial": f"{plan.cpus_per_trial:g}",
        "gpus_per_trial": f"{plan.gpus_per_trial:g}",
        "concurrency": "unlimited" if plan.concurrency is None else str(plan.concurrency),
        "refit": str(plan.refit).lower(),
        **dict(_flat(settings)),
    }


def _result_params(unit: Unit, result: SearchResult) -> dict[str, str]:
    """What turned out. Trials made by different versions or machines show as several values of one param."""
    environments = [trial.environment.model_dump() for trial in unit.trials]
    names = environments[0] if environments else {}
    return {
        "outcome": result.status,
        "chosen_trial": result.chosen_trial,
        "d_opt_in_range": str(result.d_opt_in_range).lower(),
        "labels_fit": str(result.labels_fit),
        "labels_chosen_with": str(result.labels_chosen_with),
        "split_hash": _distinct(trial.split_hash for trial in unit.trials),
        "test_split_hash": result.final.split_hash,
        **{f"environment.{name}": _distinct(str(values[name]) for values in environments) for name in names},
    }


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)


def _distinct(values: Iterator[str]) -> str:
    return ", ".join(sorted(set(values)))


# --- metric points ------------------------------------------------------------------------------------------------


def _search_points(unit: Unit, result: SearchResult, at_ms: int) -> list[Point]:
    outcome = Outcome.of_search(result)
    values = {measure.key: measure.read(outcome) for measure in (*HEADLINE, *DETAILS)}
    chosen = next((trial for trial in unit.trials if trial.trial_id == result.chosen_trial), None)
    q = chosen.posterior.q if chosen and chosen.posterior else ()
    by_rule = chosen.posterior.d_opt_by_rule if chosen and chosen.posterior else {}
    return [
        *(Point(key, rounded(value), 0, at_ms) for key, value in values.items() if value is not None),
        *(
            Point(keys.ANYTIME_VAL_LOG_LIKELIHOOD, rounded(value), step, at_ms)
            for step, value in thinned(anytime_points(unit, result))
        ),
        *(
            Point(keys.DEPTH_BY_RULE[rule], depth, 0, at_ms)
            for rule, depth in by_rule.items()
            if rule in keys.DEPTH_BY_RULE
        ),
        *(Point(keys.DEPTH_POSTERIOR, rounded(value), depth, at_ms) for depth, value in thinned(list(enumerate(q)))),
        *(
            Point(keys.DEPTH_VAL_LOG_LIKELIHOOD, rounded(each.measures.log_likelihood), each.depth, at_ms)
            for each in thinned(result.final.per_depth_val)
        ),
        *(
            Point(keys.DEPTH_TEST_LOG_LIKELIHOOD, rounded(each.measures.log_likelihood), each.depth, at_ms)
            for each in thinned(result.final.per_depth_test)
        ),
    ]


def anytime_points(unit: Unit, result: SearchResult) -> list[tuple[int, float]]:
    """The report's anytime curve on the shared grid, to the first step that covers the whole search."""
    search = Finished(unit.plan, unit.trials, result)
    total_ms = 1000 * sum(trial.cost.device_seconds for trial in unit.trials)
    steps = COST_GRID_MS[: bisect_right(COST_GRID_MS, total_ms) + 1]
    best = trajectory(search, rungs_of([search])).best_at(np.array(steps) / 1000)
    return [(step, float(value)) for step, value in zip(steps, best, strict=True) if np.isfinite(value)]


def _trial_points(trial: TrialRecord) -> Iterator[Point]:
    for point in thinned(trial.curve):
        at_ms = _ms(trial.started_at + point.device_seconds)
        for key, value in _curve_values(point).items():
            if value is not None:
                yield Point(key, rounded(value), point.epoch, at_ms)
    end_ms = _ms(trial.ended_at)
    if trial.val:
        yield Point(keys.VAL_ECE, rounded(trial.val.ece), trial.best_epoch, end_ms)
    cost = trial.cost
    counters = {"device_seconds": cost.device_seconds, "tflop": cost.tflop, "epochs": cost.epochs}
    seconds = {f"{phase}_seconds": value for phase, value in cost.phases.items()}
    for name, value in (counters | seconds).items():
        yield Point(f"{keys.COST_PREFIX}{name}", rounded(value), cost.epochs, end_ms)


def _curve_values(point: CurvePoint) -> dict[str, float | None]:
    return {
        keys.TRAIN_OBJECTIVE: point.train_objective,
        keys.VAL_LOG_LIKELIHOOD: point.val_log_likelihood,
        keys.VAL_ACCURACY: point.val_accuracy,
        keys.TRAIN_D_OPT: point.d_opt,
    }


def thinned(points: Sequence[T], most: int = MOST_POINTS) -> Sequence[T]:
    """At most `most` of the points, evenly spread, the first and the last among them."""
    if len(points) <= most:
        return points
    return [points[round(index * (len(points) - 1) / (most - 1))] for index in range(most)]


def rounded(value: float) -> float:
    """Four significant digits: what a column of the table has room for."""
    return float(f"{value:.4g}")


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def _hash(parts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
