"""What the runner costs, beside what a user would write instead: each pair in one run, on one machine.

1. The same 11 trials through `harness run` and through a plain `tune.Tuner` with Ray's MLflowLoggerCallback.
2. Trials that do nothing: per second, beside bare Tune with actor reuse, and whether a trial costs more among many.
"""

import contextlib
import io
import logging
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune.search import BasicVariantGenerator

from benchmarks.made_up import report_at_once
from harness.methods import parse_methods
from harness.methods.base import FINISHED, METRIC, MODE, TIME
from harness.options import RunOptions
from harness.running import runner  # first: it sets Ray's environment
from harness.schema.settings import SearchSpace
from harness.spaces import load_space

EPOCHS = 1000
WORKERS = 2


def what_a_user_writes(config: dict[str, Any]) -> None:
    """The same network, data, schedule and number of epochs, as a script would have it."""
    import torch

    from harness.data import load_training_data
    from harness.data.on_device import on_device
    from harness.schema.records import TrialConfig
    from harness.training.networks import build_network
    from harness.training.train import predict

    torch.set_num_threads(1)
    space = load_space("quickstart")
    data = load_training_data(space.data, 0)
    rows, train_rows, val_rows = on_device(data, torch.device("cpu"))
    network = build_network(TrialConfig.of(space, "ddn", config["depth"], 0), data.sample_shape, data.n_classes)
    optimiser = torch.optim.SGD(network.parameters(), 0.1, 0.5, fused=True)
    x, y = rows.take(train_rows)
    spent = 0.0
    for epoch in range(1, EPOCHS + 1):
        began = time.perf_counter()
        network.train()
        optimiser.zero_grad()
        (-network.objective(x, y, len(y))).backward()
        optimiser.step()
        spent += time.perf_counter() - began
        if epoch % 20 == 0:
            log_probs = predict(network, rows, val_rows)
            value = float(log_probs.gather(1, rows.y[val_rows][:, None]).mean())
            tune.report({METRIC: value, TIME: epoch, "train_seconds": spent})


def plain_script(folder: Path) -> tuple[float, float]:
    """Wall seconds and the sum of training seconds."""
    callback = MLflowLoggerCallback(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}", experiment_name="plain")
    began = time.perf_counter()
    with ray.init("local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False):
        results = tune.Tuner(
            what_a_user_writes,
            param_space={"depth": tune.grid_search(list(range(11)))},
            tune_config=tune.TuneConfig(metric=METRIC, mode=MODE),
            run_config=tune.RunConfig(storage_path=str(folder), callbacks=[callback], verbose=0),
        ).fit()
    trained = [(results[index].metrics or {})["train_seconds"] for index in range(len(results))]
    return time.perf_counter() - began, sum(trained)


def through_the_harness(folder: Path) -> tuple[float, float]:
    from harness.tracking.background import BackgroundTracker, default_uri

    # No early stopping: the same epochs as the script
    space = load_space("quickstart", [f"training.max_epochs={EPOCHS}", f"training.patience={EPOCHS}"])
    options = RunOptions(out=folder, workers=WORKERS)
    began = time.perf_counter()
    tracker = BackgroundTracker(default_uri(folder), folder, at_once=False)
    outcome = runner.run_units(runner.make_units([space], parse_methods("grid"), [0], options), options, tracker.put)
    tracker.close()
    return time.perf_counter() - began, outcome.results[0].cost.train_seconds


def nothing(config: dict[str, Any]) -> None:
    tune.report({METRIC: 0.0, TIME: 1, FINISHED: True})


def bare_tune(trials: int, folder: Path) -> float:
    began = time.perf_counter()
    tune.Tuner(
        nothing,
        param_space={"depth": tune.grid_search(list(range(trials)))},
        tune_config=tune.TuneConfig(
            metric=METRIC, mode=MODE, search_alg=BasicVariantGenerator(random_state=0), reuse_actors=True
        ),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
    ).fit()
    return time.perf_counter() - began


def our_runner(trials: int, folder: Path) -> float:
    space: SearchSpace = load_space("quickstart", [f"depth.max={trials - 1}", "training.max_epochs=20"])
    options = RunOptions(out=folder)
    began = time.perf_counter()
    outcome = runner.run_units(runner.make_units([space], parse_methods("grid"), [0], options), options)
    if outcome.results[0].trials != trials:
        raise RuntimeError(f"{outcome.results[0].trials} of {trials} trials ran: {outcome.failures}")
    return time.perf_counter() - began


def main() -> Iterator[str]:
    logging.getLogger("ray").setLevel(logging.CRITICAL)  # result files that it was told not to write
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        script_wall, script_train = plain_script(folder / "plain")
        our_wall, our_train = through_the_harness(folder / "ours")
    yield f"11 trials × {EPOCHS} epochs, two workers, MLflow included   ratio {our_wall / script_wall:.2f}   goal ≤ 0.8"
    for who, wall, train in (("plain Tuner script", script_wall, script_train), ("harness run", our_wall, our_train)):
        overhead = (wall * WORKERS - train) / 11
        yield (
            f"  {who:<20} {wall:6.1f} s wall, {train:6.1f} s of training, {train / (WORKERS * wall):.2f} of two cores, "
            f"{overhead:.2f} core-seconds of overhead per trial"
        )
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        folder = Path(name)
        logging.getLogger("ray").setLevel(logging.CRITICAL)  # it misses the result files that it was told not to write
        runner.run_task = report_at_once  # type: ignore[assignment, attr-defined]
        with ray.init("local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False):
            our_runner(20, folder / "warm"), bare_tune(20, folder / "warm-tune")
            bare, ours = bare_tune(200, folder / "bare"), our_runner(200, folder / "ours")
            few, many = our_runner(100, folder / "few"), our_runner(1000, folder / "many")
    speeds = f"bare Tune {200 / bare:.1f}/s, harness {200 / ours:.1f}/s"
    yield f"no-op trials: {speeds}   ratio {bare / ours:.2f}   goal ≥ 0.7"
    yield (
        f"seconds per no-op trial: {few / 100:.4f} among 100, {many / 1000:.4f} among 1,000   "
        f"ratio {many / few / 10:.2f}   goal ≤ 1"
    )
