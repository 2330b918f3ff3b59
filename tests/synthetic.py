"""Units that look like a real study, made without training: for tests of everything that reads records.

A depth is the same network in every method, as in the real harness: its numbers depend on (seed, depth) only.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from harness.methods import known_methods, load_method
from harness.schema.records import (
    PHASES,
    Attempt,
    Cost,
    CurvePoint,
    DepthMeasures,
    Environment,
    FinalEvaluation,
    Floor,
    Measures,
    MethodFacts,
    Posterior,
    Refit,
    ReliabilityBin,
    SearchResult,
    StopReason,
    TrialConfig,
    TrialRecord,
    Unit,
    UnitPlan,
)
from harness.schema.settings import SearchSpace
from harness.spaces import parse_space

METHODS = ("ldn", "grid", "random_search", "optuna_tpe", "asha")
ENVIRONMENT = Environment(
    harness="0.1.0",
    code="0994e39",
    python="3.11.2",
    torch="2.13.0",
    ray="2.60.0",
    machine="Synthetic CPU @ 2.0 GHz",
    device="cpu",
    threads=1,
)
RUNGS = (100, 300)  # epochs at which the synthetic asha stops half of its trials
CONCURRENCY: Mapping[str, int | None] = {"grid": None, "random_search": None, "asha": 2}  # others: one at a time


def make_space(**changes: Any) -> SearchSpace:
    """The quickstart space, with some of its settings replaced."""
    values = {
        "name": "synthetic",
        "description": "Made for tests; nothing was trained.",
        "data": {"kind": "spirals"},
        "network": {"kind": "fc", "width": 20},
        "depth": {"min": 0, "max": 10},
        "posterior": {"rule": "argmax"},
        "training": {"max_epochs": 1000, "patience": 200, "eval_every": 20, "report_every": 20},
    }
    return parse_space({**values, **changes}, source="synthetic")


def make_units(
    methods: Sequence[str] = METHODS,
    seeds: Iterable[int] = range(5),
    *,
    space: SearchSpace | None = None,
    ldn_accuracy: float = 0.0,
    ldn_log_likelihood: float = 0.0,
    spread: float = 0.006,
    seconds_factor: Mapping[str, float] | None = None,
    failed_depths: Mapping[str, Iterable[int]] | None = None,
    unfinished: Iterable[tuple[str, int]] = (),
    capped_by_epochs: bool = False,
    retried: Iterable[tuple[str, int]] = (),
    q_converged: bool = True,
    refit: bool = False,
    environments: Mapping[str, Environment] | None = None,
    split_hashes: Mapping[str, str] | None = None,
    linear_accuracy: float | None = None,
    jitter: float = 0.0,
) -> list[Unit]:
    """One unit per method × seed.

    Args:
        methods: any names; an unknown one behaves like random_search, run one trial at a time.
        ldn_accuracy, ldn_log_likelihood: added to the LDN's measures: how much better (worse) it truly is.
        spread: standard deviation over seeds of the LDN's advantage in accuracy (log-likelihood: four times that).
        seconds_factor: per method, how much slower its machine ran.
        failed_depths: per method, the depths whose trials end in a failure.
        unfinished: (method, seed) cells that have trials but no result yet.
        capped_by_epochs: every trial runs to the epoch cap.
        retried: (method, seed) cells whose first trial lost a worker and was resumed.
        q_converged: False: the LDN's depth changed in the last quarter of training.
        refit: every unit was refitted on train + validation.
        environments, split_hashes: per method, other than the common ones: fairness differences.
        linear_accuracy: what a linear model reaches; None: a result of a version that did not fit one.
        jitter: how much the validation log-likelihood goes up and down from report to report.
    """
    space = space or make_space()
    return [
        _unit(
            _Study(
                space=space,
                method=method,
                seed=seed,
                ldn_shift=(ldn_accuracy, ldn_log_likelihood),
                spread=spread,
                factor=(seconds_factor or {}).get(method, 1.0),
                failed=frozenset((failed_depths or {}).get(method, ())),
                to_the_cap=capped_by_epochs,
                retried=(method, seed) in set(retried),
                q_converged=q_converged,
                refit=refit,
                environment=(environments or {}).get(method, ENVIRONMENT),
                split_hash=(split_hashes or {}).get(method, f"split{seed}"),
                linear_accuracy=linear_accuracy,
                jitter=jitter,
            ),
            finished=(method, seed) not in set(unfinished),
        )
        for seed in seeds
        for method in methods
    ]


def with_chosen_log_likelihood(units: list[Unit], method: str, seed: int, value: float) -> list[Unit]:
    """The units, the test log-likelihood of the network that one of them handed over replaced."""
    changed = []
    for unit in units:
        if (unit.plan.method, unit.plan.seed) == (method, seed) and unit.result:
            chosen = unit.result.final.chosen.model_copy(update={"log_likelihood": value})
            final = unit.result.final.model_copy(update={"chosen": chosen})
            unit = unit.model_copy(update={"result": unit.result.model_copy(update={"final": final})})
        changed.append(unit)
    return changed


class _Study:
    """The knobs of one unit."""

    def __init__(self, **knobs: Any) -> None:
        self.space: SearchSpace = knobs["space"]
        self.method: str = knobs["method"]
        self.seed: int = knobs["seed"]
        self.ldn_shift: tuple[float, float] = knobs["ldn_shift"]
        self.spread: float = knobs["spread"]
        self.factor: float = knobs["factor"]
        self.failed: frozenset[int] = knobs["failed"]
        self.to_the_cap: bool = knobs["to_the_cap"]
        self.retried: bool = knobs["retried"]
        self.q_converged: bool = knobs["q_converged"]
        self.refit: bool = knobs["refit"]
        self.environment: Environment = knobs["environment"]
        self.split_hash: str = knobs["split_hash"]
        self.linear_accuracy: float | None = knobs["linear_accuracy"]
        self.jitter: float = knobs["jitter"]


# --- networks: what a depth is worth and what it costs ------------------------------------------------------------


def _measures(study: _Study, depth: int, where: Literal["val", "test"], ldn: bool) -> Measures:
    """Poor when shallow, flat from depth 4 on, slowly worse when deep; the same for all methods."""
    rng = np.random.default_rng([study.seed, depth, where == "test", 7])
    log_likelihood = -0.06 - 0.63 * math.exp(-((depth / 2.2) ** 2)) - 0.004 * depth + rng.normal(0, 0.006)
    accuracy = 0.99 - 0.45 * math.exp(-((depth / 2.2) ** 2)) + rng.normal(0, 0.002)
    if ldn:
        own = np.random.default_rng([study.seed, 11])
        accuracy += study.ldn_shift[0] + own.normal(0, study.spread)
        log_likelihood += study.ldn_shift[1] + own.normal(0, 4 * study.spread)
    accuracy = float(np.clip(accuracy, 0, 1))
    return Measures(
        accuracy=accuracy,
        log_likelihood=float(log_likelihood),
        ece=float(abs(rng.normal(0.012 if ldn else 0.018, 0.003))),
        brier=1.6 * (1 - accuracy) + 0.005,
    )


def _epochs(study: _Study, depth: int, ldn: bool) -> int:
    """Where patience ends a training: a multiple of `report_every`."""
    if study.to_the_cap:
        return study.space.training.max_epochs
    rng = np.random.default_rng([study.seed, depth, 3])
    wanted = (620 if ldn else 480) + 14 * depth + rng.integers(-60, 60)
    step = study.space.training.report_every
    return min(study.space.training.max_epochs, max(step, int(wanted) // step * step))


def _cost(study: _Study, depth: int, epochs: int, ldn: bool, first: bool, lost: float = 0.0) -> Cost:
    n_train, width = 200, 20
    heads = depth + 1 if ldn else 1
    step = (0.9e-3 + 0.28e-3 * depth + 0.03e-3 * heads) * study.factor
    phases = dict.fromkeys(PHASES, 0.0)
    phases |= {
        "startup": 0.02,
        "data": 0.01,
        "train": epochs * step,
        "validate": epochs * step * 0.06,
        "checkpoint": 0.04,
        "lost": lost,
        "other": epochs * step * 0.01,
    }
    samples = epochs * n_train
    multiplications = depth * width * width + (2 + 2 * heads) * width
    return Cost(
        held_seconds=sum(phases.values()),
        devices=1.0,
        phases=phases,
        tflop=samples * 6 * (multiplications + 150) / 1e12,
        epochs=epochs,
        samples=samples,
        block_passes=samples * depth,
        head_passes=samples * heads,
        peak_memory_bytes=270_000_000,
    )


def _q(study: _Study, sharpness: float = 1.0) -> tuple[float, ...]:
    centre = 5.0 + np.random.default_rng([study.seed, 5]).normal(0, 0.8)
    depths = np.arange(study.space.depth.max + 1)
    weights = np.exp(-0.5 * sharpness * ((depths - centre) / 2.0) ** 2)
    return tuple(float(value) for value in weights / weights.sum())


# --- trials -------------------------------------------------------------------------------------------------------


def _trial(study: _Study, index: int, depth: int, ldn: bool, rung: int | None, started_at: float) -> TrialRecord:
    failed = depth in study.failed
    epochs = 40 if failed else rung or _epochs(study, depth, ldn)
    retried = study.retried and index == 0
    cost = _cost(study, depth, epochs, ldn, first=index == 0, lost=0.5 if retried else 0.0)
    final = _measures(study, depth, "val", ldn)
    scale = 120.0 + 6 * depth
    report = study.space.training.report_every
    curve = tuple(
        CurvePoint(
            epoch=epoch,
            device_seconds=cost.phases["startup"] + (cost.held_seconds - cost.phases["startup"]) * epoch / epochs,
            train_objective=final.log_likelihood - 0.7 * math.exp(-epoch / scale) + 0.02,
            val_log_likelihood=final.log_likelihood
            - 0.7 * math.exp(-epoch / scale)
            - study.jitter * (epoch // report % 2),
            val_accuracy=final.accuracy - 0.4 * math.exp(-epoch / scale),
            d_opt=int(np.argmax(_q(study))) if ldn else None,
        )
        for epoch in range(report, epochs + 1, report)
    )
    reached = final.log_likelihood - 0.7 * math.exp(-epochs / scale)
    val = final.model_copy(update={"log_likelihood": reached, "accuracy": curve[-1].val_accuracy})
    reason: StopReason = "patience"
    if failed:
        reason = "failed"
    elif rung:
        reason = "scheduler"
    elif epochs >= study.space.training.max_epochs:
        reason = "cap"
    q = _q(study)
    posterior = Posterior(
        q=q,
        rule=study.space.posterior.rule,
        d_opt=int(np.argmax(q)),
        d_opt_by_rule={"argmax": int(np.argmax(q)), "threshold": int(np.argmax(q)), "expected": 5},
    )
    died = Attempt(resumed_from_epoch=0, held_seconds=cost.held_seconds / 2, lost_seconds=0.5, ended="died")
    last = Attempt(
        resumed_from_epoch=epochs // 2 if retried else 0,
        held_seconds=cost.held_seconds / (2 if retried else 1),
        ended="failed" if failed else "stopped" if rung else "finished",
    )
    return TrialRecord(
        trial_id=f"t{index:03d}",
        kind="ldn" if ldn else "ddn",
        depth=depth,
        seed=study.seed,
        config_hash=TrialConfig.of(study.space, "ldn" if ldn else "ddn", depth, study.seed).hash,
        split_hash=study.split_hash,
        status="failed" if failed else "stopped" if rung else "finished",
        stop_reason=reason,
        best_epoch=0 if failed else epochs,
        train_objective=None if failed else curve[-1].train_objective,
        val=None if failed else val,
        posterior=posterior if ldn and not failed else None,
        depth_changed_late=(not study.q_converged) if ldn else None,
        cost=cost,
        attempts=(died, last) if retried else (last,),
        curve=curve,
        environment=study.environment,
        started_at=started_at,
        ended_at=started_at + cost.held_seconds,
        queue_seconds=0.1 * index,
        error="RuntimeError: loss is nan" if failed else None,
    )


def _depths(study: _Study) -> list[int]:
    depths = list(study.space.depth.values)
    if facts_of(study.method).learns_depth:
        return [study.space.depth.max]
    if facts_of(study.method).exhaustive:
        return depths
    if study.method == "deepest":
        return depths[-1:]
    rng = np.random.default_rng([study.seed, *study.method.encode()])
    budget = study.space.budget
    n_trials = budget.early_stopping_trials if "asha" in study.method else budget.trials
    return [int(depth) for depth in rng.permutation(depths)[:n_trials]]


def _trials(study: _Study) -> tuple[TrialRecord, ...]:
    workers = [1.7e9 + 1000.0 * study.seed] * (CONCURRENCY.get(study.method, 1) or 2)
    records = []
    for index, depth in enumerate(_depths(study)):
        rung = RUNGS[index % 4 // 2] if "asha" in study.method and index % 4 != 3 and depth < 3 else None
        worker = int(np.argmin(workers))
        records.append(_trial(study, index, depth, study.method == "ldn", rung, workers[worker]))
        workers[worker] = records[-1].ended_at
    return tuple(records)


# --- units --------------------------------------------------------------------------------------------------------


def _unit(study: _Study, finished: bool) -> Unit:
    trials = _trials(study)
    gpus = 0.0
    plan = UnitPlan(
        space=study.space,
        method=study.method,
        options={},
        seed=study.seed,
        trials=len(trials),
        cpus_per_trial=1.0,
        gpus_per_trial=gpus,
        concurrency=CONCURRENCY.get(study.method, 1),
        refit=study.refit,
        facts=facts_of(study.method),
    )
    usable = [trial for trial in trials if trial.val is not None]
    if not finished or not usable:  # a search whose trials all failed has nothing to choose: no result
        return Unit(plan=plan, trials=trials, result=None)
    return Unit(plan=plan, trials=trials, result=_result(study, plan, trials, usable))


def facts_of(method: str) -> MethodFacts:
    """Those that the method's file declares; the defaults for a name that no file has."""
    return load_method(method)[1].facts() if method in known_methods() else MethodFacts()


def _result(
    study: _Study, plan: UnitPlan, trials: Sequence[TrialRecord], usable: Sequence[TrialRecord]
) -> SearchResult:
    chosen = max(usable, key=lambda trial: trial.val.log_likelihood if trial.val else -math.inf)
    assert chosen.val is not None
    d_opt = chosen.posterior.d_opt if chosen.posterior else chosen.depth
    total = sum_of_costs([trial.cost for trial in trials])
    statuses = [trial.status for trial in trials]
    refit_cost = _cost(study, chosen.depth, chosen.best_epoch, study.method == "ldn", first=False)
    return SearchResult(
        space=study.space.name,
        method=study.method,
        options={},
        seed=study.seed,
        plan_hash=plan.hash,
        status="complete",
        chosen_trial=chosen.trial_id,
        d_opt=d_opt,
        d_opt_in_range=d_opt in study.space.depth.values,
        val=chosen.val,
        final=_final(study, d_opt, usable),
        refit=Refit(d_opt=d_opt, test=_measures(study, d_opt, "test", study.method == "ldn"), cost=refit_cost)
        if study.refit
        else None,
        cost=total,
        worker_start_device_seconds=1.6,
        trials=len(trials),
        trials_by_status={status: statuses.count(status) for status in sorted(set(statuses))},
        duplicates=0,
        wall_seconds=max(t.ended_at for t in trials) - min(t.started_at for t in trials),
        driver_seconds=0.3 + 0.02 * len(trials),
        concurrency=plan.concurrency,
        order_dependent="asha" in study.method,
        cpus_per_trial=plan.cpus_per_trial,
        gpus_per_trial=plan.gpus_per_trial,
        most_coresident_trials=2,
        labels_fit=200,
        labels_chosen_with=200,
    )


def sum_of_costs(costs: Sequence[Cost]) -> Cost:
    return Cost(
        held_seconds=sum(cost.held_seconds for cost in costs),
        devices=1.0,
        phases={phase: sum(cost.phases[phase] for cost in costs) for phase in PHASES},
        tflop=sum(cost.tflop for cost in costs),
        epochs=sum(cost.epochs for cost in costs),
        samples=sum(cost.samples for cost in costs),
        block_passes=sum(cost.block_passes for cost in costs),
        head_passes=sum(cost.head_passes for cost in costs),
        peak_memory_bytes=max(cost.peak_memory_bytes for cost in costs),
    )


def _reliability(accuracy: float, overconfidence: float, rng: np.random.Generator) -> tuple[ReliabilityBin, ...]:
    bins = []
    for index in range(15):
        lower, upper = index / 15, (index + 1) / 15
        count = 0 if upper <= 0.5 else int(3 * math.exp((upper - 0.5) * 13 * accuracy))
        confidence = (lower + upper) / 2
        hit = float(np.clip(confidence - overconfidence * (1 - confidence) * 4 + rng.normal(0, 0.03), 0, 1))
        bins.append(
            ReliabilityBin(
                lower=lower,
                upper=upper,
                count=count,
                confidence=confidence if count else 0.0,
                accuracy=hit if count else 0.0,
            )
        )
    return tuple(bins)


def _floor(accuracy: float) -> Floor:
    linear = Measures(accuracy=accuracy, log_likelihood=accuracy - 1.2, ece=0.03, brier=1.6 * (1 - accuracy))
    guess = Measures(accuracy=0.5, log_likelihood=-math.log(2), ece=0.0, brier=0.5)
    return Floor(linear=linear, guess=guess, converged=True, seconds=0.1)


def _multiply_adds(depth: int, heads: int = 1) -> int:
    """Two features, width 20, two classes."""
    return 2 * 20 + depth * 20 * 20 + heads * 20 * 2


def _final(study: _Study, d_opt: int, usable: Sequence[TrialRecord]) -> FinalEvaluation:
    ldn = study.method == "ldn"
    rng = np.random.default_rng([study.seed, 13, ldn])
    chosen = _measures(study, d_opt, "test", ldn)
    depths = range(study.space.depth.max + 1) if ldn else sorted({trial.depth for trial in usable})
    bins = _reliability(chosen.accuracy, 0.0 if ldn else 0.08, rng)
    return FinalEvaluation(
        chosen=chosen,
        reliability=bins,
        n_test=1800,
        split_hash=f"test{study.seed}",
        full=_measures(study, d_opt, "test", True) if ldn else None,
        full_reliability=bins if ldn else (),
        per_depth_test=tuple(
            DepthMeasures(
                depth=depth, measures=_measures(study, depth, "test", ldn), multiply_adds=_multiply_adds(depth)
            )
            for depth in depths
        )
        if study.method in ("ldn", "grid")
        else (),
        per_depth_val=tuple(
            DepthMeasures(depth=depth, measures=_measures(study, depth, "val", True)) for depth in depths
        )
        if ldn
        else (),
        posterior_gap_nats=1.3 if ldn else None,
        d_opt_exact=max(0, d_opt - 1) if ldn else None,
        floor=_floor(study.linear_accuracy) if study.linear_accuracy is not None else None,
        parameters=100 + 440 * d_opt,
        multiply_adds=_multiply_adds(d_opt, heads=d_opt + 1 if ldn else 1),
        deepest_multiply_adds=_multiply_adds(study.space.depth.max),
        forward_seconds_per_sample=1e-6 * (1 + d_opt),
        deepest_forward_seconds_per_sample=1e-6 * (1 + study.space.depth.max),
        full_forward_seconds_per_sample=1e-6 * (1 + study.space.depth.max) if ldn else None,
        seconds=0.4,
    )
