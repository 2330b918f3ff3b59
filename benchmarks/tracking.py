"""MLflow: our writer beside Ray's MLflowLoggerCallback on the same work, each into a sqlite file of its own.

The work: 100 trials × 100 points × 3 metrics. The two take turns, so that a busy neighbour slows both; Ray's callback
gets a twentieth of the trials, since all of them would take it ten minutes and more, and its time is scaled. Both files
have their tables before the clock starts. Ray's callback is driven directly, with the three metrics only; in a real
run Tune adds a dozen fields of its own to every result, which it logs as well. Ours writes more than the three: parent
runs, costs, notes, params and the data set.
"""

import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from mlflow import MlflowClient
from ray.air.integrations.mlflow import MLflowLoggerCallback

from harness import keys
from harness.schema.records import Cost, CurvePoint, Environment, Measures, MethodFacts, TrialRecord, Unit, UnitPlan
from harness.spaces import parse_space
from harness.tracking.writer import Tracker

TRIALS, POINTS, ROUNDS = 100, 100, 5
METRICS = ("train_objective", "val_log_likelihood", "val_accuracy")


def search(seed: int) -> Unit:
    """A round's share of the trials."""
    space = parse_space(
        {
            "name": "benchmark",
            "description": "Made for the benchmark; nothing was trained.",
            "data": {"kind": "spirals"},
            "network": {"kind": "fc"},
            "depth": {"min": 1, "max": TRIALS},
            "posterior": {"rule": "argmax"},
            "training": {"max_epochs": POINTS, "patience": POINTS},
        },
        source="benchmark",
    )
    plan = UnitPlan(
        space=space,
        method="grid",
        options={},
        seed=seed,
        trials=TRIALS // ROUNDS,
        cpus_per_trial=1.0,
        gpus_per_trial=0.0,
        concurrency=None,
        refit=False,
        facts=MethodFacts(adaptive=False, ordered=False, exhaustive=True),
    )
    return Unit(plan=plan, trials=tuple(trial(index) for index in range(TRIALS // ROUNDS)), result=None)


def trial(index: int) -> TrialRecord:
    curve = tuple(
        CurvePoint(
            epoch=epoch,
            device_seconds=0.01 * epoch,
            train_objective=-1 / epoch,
            val_log_likelihood=-1.1 / epoch,
            val_accuracy=1 - 0.5 / epoch,
        )
        for epoch in range(1, POINTS + 1)
    )
    return TrialRecord(
        trial_id=f"t{index:03d}",
        kind="ddn",
        depth=index + 1,
        seed=0,
        config_hash="benchmark",
        split_hash="benchmark",
        status="finished",
        stop_reason="cap",
        best_epoch=POINTS,
        train_objective=curve[-1].train_objective,
        val=Measures(accuracy=0.99, log_likelihood=-0.01, ece=0.01, brier=0.02),
        cost=Cost(held_seconds=1.0, phases={"train": 1.0}, epochs=POINTS),
        curve=curve,
        environment=Environment(
            harness="-", code="-", python=platform.python_version(), torch="-", ray=None, machine="-", device="cpu",
            threads=1,
        ),
        started_at=1.7e9 + index,
        ended_at=1.7e9 + index + 1,
    )  # fmt: skip


class TuneTrial:
    """As much of a Tune trial as the callback looks at."""

    def __init__(self, record: TrialRecord) -> None:
        self.name = record.trial_id
        self.config = {"depth": record.depth, "seed": record.seed}

    def __str__(self) -> str:
        return self.name


def ours(tracker: Tracker, unit: Unit) -> float:
    began = time.perf_counter()
    tracker.write_unit(unit)
    if tracker.warning:
        raise RuntimeError(tracker.warning)
    return time.perf_counter() - began


def rays(callback: MLflowLoggerCallback, record: TrialRecord) -> float:
    tune_trial: Any = TuneTrial(record)
    began = time.perf_counter()
    callback.log_trial_start(tune_trial)
    for iteration, point in enumerate(record.curve, start=1):
        result = {metric: getattr(point, metric) for metric in METRICS} | {"training_iteration": iteration}
        callback.log_trial_result(iteration, tune_trial, result)
    callback.log_trial_end(tune_trial)
    return time.perf_counter() - began


def points_in(uri: str, metric: str) -> int:
    """What really arrived."""
    client = MlflowClient(uri, registry_uri=uri)
    experiment = client.get_experiment_by_name("benchmark")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    return sum(len(client.get_metric_history(run.info.run_id, metric)) for run in runs)


def main() -> Iterator[str]:
    units = [search(seed) for seed in range(ROUNDS)]
    our_seconds = our_cpu_seconds = ray_seconds = 0.0
    with tempfile.TemporaryDirectory() as folder:
        our_uri, ray_uri = (f"sqlite:///{Path(folder) / name}.db" for name in ("ours", "rays"))
        tracker = Tracker(our_uri)
        tracker.log_report(units[0].plan.space, "")  # creates the experiment, which is not what is timed
        callback = MLflowLoggerCallback(tracking_uri=ray_uri, experiment_name="benchmark")
        callback.setup()
        for unit in units:
            cpu_before = time.process_time()
            our_seconds += ours(tracker, unit)
            our_cpu_seconds += time.process_time() - cpu_before
            ray_seconds += rays(callback, unit.trials[0])
        arrived = points_in(our_uri, keys.VAL_ACCURACY), points_in(ray_uri, "val_accuracy")
    scaled = ray_seconds * TRIALS / ROUNDS
    yield f"{TRIALS} trials × {POINTS} points × {len(METRICS)} metrics into sqlite"
    yield (
        f"ours                  {our_seconds:7.1f} s   goal ≤ 10 s; {our_cpu_seconds:.1f} s of it on the processor "
        f"({arrived[0]} points of a metric arrived)"
    )
    yield (
        f"MLflowLoggerCallback  {scaled:7.1f} s   = {ray_seconds:.1f} s × {TRIALS // ROUNDS} for {ROUNDS} trials "
        f"({arrived[1]} points of a metric arrived)"
    )
    yield f"ratio                 {scaled / our_seconds:7.1f}     goal ≥ 10"
