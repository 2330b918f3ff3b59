"""What runs on a worker: one trial, the refit or the final evaluation of a unit, inside a Tune function trainable.

torch is imported inside the functions, so that its import is measured as the `startup` it is.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune

from harness.errors import UserError
from harness.methods.base import FINISHED, METRIC, TIME
from harness.records import Cost, Progress, TrialConfig
from harness.spaces import SearchSpace
from harness.training.checkpoints import CheckpointStore

if TYPE_CHECKING:
    import torch

    from harness.data.splits import TrainingData

LOGICAL_GPUS = "HARNESS_LOGICAL_GPUS"  # tests of GPU scheduling on a machine without one: train on the CPU instead
PAYLOAD = "payload"  # the key of a report under which the record's material travels
CHECKPOINT_SECONDS = 2.0  # between checkpoints of a trial that nobody stops early; results do not depend on it

_worker_is_fresh = True


def run_task(
    config: dict[str, Any],
    spaces: Mapping[str, SearchSpace],
    storage: str,
    cpus: float,
    gpus: float,
    pools: Mapping[str, Any],
    data_dir: str | None,
    working_dir: str,
) -> None:
    """Tune's trainable. `config` says which space, unit, trial and task; `pools` refer into the object store."""
    began, before = time.perf_counter(), time.process_time()
    if Path(working_dir).is_dir():
        os.chdir(working_dir)  # Tune stands in a folder of the trial's own; a relative data.path is from the user's
    if gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a trial that was given no GPU must not touch one

    import torch
    import torch._dynamo  # optimisers import it when the first one is made

    from harness.training import train  # noqa: F401 - its import is part of the worker's start

    # A worker serves trials of many searches, so its start is no cost of the one that happens to come first: it is
    # recorded beside the cost. Before the trial it is processor time (Ray may have started the process long ago).
    global _worker_is_fresh
    worker_start = (before, time.perf_counter() - began) if _worker_is_fresh else (0.0, 0.0)
    _worker_is_fresh = False
    torch.set_num_threads(max(1, int(cpus)))
    folder = Path(data_dir) if data_dir else None
    name = config["space"]
    task = _Task(config, spaces[name], CheckpointStore(storage), gpus or cpus, _device(gpus), folder)
    task.load_data(pools.get(name))
    match config["task"]:
        case "train":
            task.train(worker_start)
        case "refit":
            task.refit(worker_start)
        case "final":
            task.final()


def _device(gpus: float) -> "torch.device":
    import torch

    if gpus == 0 or os.environ.get(LOGICAL_GPUS):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("Ray gave this trial a GPU, but torch sees none on the node: check the driver and the build")
    return torch.device("cuda")


class _Task:
    data: "TrainingData"

    def __init__(
        self,
        config: dict[str, Any],
        space: SearchSpace,
        checkpoints: CheckpointStore,
        devices_held: float,
        device: "torch.device",
        data_dir: Path | None,
    ) -> None:
        self.config = config
        self.trial = TrialConfig.of(space, config["kind"], config["depth"], config["seed"])
        self.checkpoints = checkpoints
        self.devices_held = devices_held
        self.device = device
        self.data_dir = data_dir

    def load_data(self, pool: Any) -> None:
        """This seed's rows of the pool, which the node holds once for all trials."""
        import ray

        from harness.data import load_training_data

        began = time.perf_counter()
        self.data = load_training_data(self.trial.data, self.trial.seed, ray.get(pool) if pool else None)
        self.data_seconds = time.perf_counter() - began

    def train(self, worker_start: tuple[float, float]) -> None:
        self._run(self.trial, self.data, checkpoint_key(self.config["unit"], self.config["trial"]), worker_start)

    def refit(self, worker_start: tuple[float, float]) -> None:
        """The chosen network again, on train + validation, for the chosen trial's best epoch, no early stopping."""
        self._run(*self._refit_of(), checkpoint_key(self.config["unit"], "refit"), worker_start)

    def _refit_of(self) -> tuple[TrialConfig, "TrainingData"]:
        import numpy as np

        from harness.data.splits import Pool, training_data

        epochs = self.config["epochs"]
        settings = self.trial.training.model_copy(
            update={"max_epochs": epochs, "patience": epochs + 1, "monitor": "none", "min_delta": 0.0}
        )
        pool = Pool(self.data.x, self.data.y, self.data.n_classes)
        rows = np.sort(np.concatenate([self.data.train_rows, self.data.val_rows]))
        return self.trial.model_copy(update={"training": settings}), training_data(pool, rows, self.data.val_rows)

    def _run(self, config: TrialConfig, data: "TrainingData", key: str, worker_start: tuple[float, float]) -> None:
        with self.checkpoints.fetched(key) as resume_from:
            self._run_from(resume_from, config, data, key, worker_start)

    def _run_from(
        self,
        resume_from: Path | None,
        config: TrialConfig,
        data: "TrainingData",
        key: str,
        worker_start: tuple[float, float],
    ) -> None:
        from harness.training.cost import Ledger
        from harness.training.environment import environment
        from harness.training.train import cost_in_checkpoint, run_trial

        before = cost_in_checkpoint(resume_from, config, self.device) if resume_from else None
        ledger = Ledger(self.device, before)
        ledger.charge("data", self.data_seconds)
        facts = {
            "host": socket.gethostname(),
            "worker_start": worker_start,
            "resumed_from": (before or Cost()).model_dump_json(),
            "config_hash": config.hash,
            "split_hash": data.split_hash,
            "n_train": data.n_train,
            "n_val": len(data.val_rows),
            "environment": environment(self.device).model_dump(),
        }
        last_save = time.monotonic()

        def report(progress: Progress, save: Callable[[Path], None]) -> None:
            nonlocal last_save
            ended = progress.stop_reason is not None
            due = ended or self.config["may_be_stopped"] or time.monotonic() - last_save >= CHECKPOINT_SECONDS
            if due and progress.stop_reason != "failed":  # non-finite weights must not replace good ones
                self.checkpoints.save(key, save)
                last_save = time.monotonic()
            metrics: dict[str, Any] = {TIME: progress.epoch, FINISHED: ended}
            if progress.val:
                metrics[METRIC] = progress.val.log_likelihood
            tune.report({**metrics, PAYLOAD: {"progress": progress.model_dump_json()}})

        # Said before the first epoch, so that a worker that dies early has left its facts.
        tune.report({TIME: before.epochs if before else 0, FINISHED: False, PAYLOAD: {"facts": facts}})
        run_trial(
            config,
            data,
            report,
            device=self.device,
            devices_held=self.devices_held,
            resume_from=resume_from,
            ledger=ledger,
        )

    def final(self) -> None:
        """Opens the test set, after the choice is on disk, and leaves the chosen network beside the checkpoints."""
        from harness.models import FixedDepthNet
        from harness.training.final import chosen_network, evaluate_on_test
        from harness.training.model_file import save_model
        from harness.training.train import best_network

        unit, d_opt = self.config["unit"], self.config["d_opt"]

        def load(trial: str, config: TrialConfig, data: "TrainingData") -> Any:
            with self.checkpoints.fetched(checkpoint_key(unit, trial)) as path:
                if path is None:
                    raise UserError(f"the checkpoint of {unit} {trial} is gone from {self.checkpoints.root}")
                return best_network(path, config, data, self.device)

        network = load(self.config["chosen"], self.trial, self.data)
        others: dict[int, FixedDepthNet] = {
            depth: load(trial, self.trial.model_copy(update={"depth": depth}), self.data)
            for trial, depth in self.config["others"]
        }
        refit = None
        if self.config["refit"]:
            refit_config, refit_data = self._refit_of()
            refit = (chosen_network(load("refit", refit_config, refit_data), self.config["refit_d_opt"]), refit_data)
        evaluation = evaluate_on_test(network, d_opt, self.trial, self.data, others, refit, self.data_dir)
        handed_over = chosen_network(network, d_opt)
        self.checkpoints.save(model_key(unit), lambda path: save_model(path, handed_over, d_opt, self.trial, self.data))
        tune.report({FINISHED: True, PAYLOAD: {"final": evaluation.model_dump_json()}})


def checkpoint_key(unit: str, trial: str) -> str:
    return f"{unit}/{trial}.pt"


def model_key(unit: str) -> str:
    return f"{unit}/model.pt"
