"""One trial in this process, no Ray: for a debugger, a first look, and `harness trial`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.data import load_pool, load_training_data
from harness.data.on_device import on_device
from harness.errors import UserError
from harness.models import OneShotNet
from harness.schema.identity import Frozen
from harness.schema.records import CurvePoint, FinalEvaluation, Measures, Progress, TrialConfig, TrialRecord
from harness.text.files import checked_path
from harness.training.environment import environment
from harness.training.evaluate import measure
from harness.training.final import evaluate_on_test, posterior_gap
from harness.training.networks import chosen_network
from harness.training.train import predict, run_trial


class TrialReport(Frozen):
    """What `harness trial` shows. Test measures are there only when they were asked for."""

    record: TrialRecord
    d_opt: int | None  # None when the trial failed
    val_pruned: Measures | None = None  # where the depth is learnt
    posterior_gap_nats: float | None = None
    d_opt_exact: int | None = None
    val_jitter: float | None = None  # of the validation log-likelihood; None when there are no two reports
    test: FinalEvaluation | None = None


@dataclass
class _Watch:
    """Collects the curve, keeps the checkpoint file up to date, and tells whoever shows progress."""

    checkpoint: Path | None
    show: Callable[[Progress], None]
    curve: list[CurvePoint]

    def __call__(self, progress: Progress, save: Callable[[Path], None]) -> None:
        if progress.point and not (self.curve and self.curve[-1].epoch == progress.point.epoch):
            self.curve.append(progress.point)
        if self.checkpoint and progress.stop_reason != "failed":
            partial = self.checkpoint.with_name(self.checkpoint.name + ".partial")
            save(partial)
            partial.replace(self.checkpoint)
        self.show(progress)


def run_one(
    config: TrialConfig,
    *,
    device: torch.device,
    cpus: int = 1,
    test: bool = False,
    checkpoint: Path | None = None,
    data_dir: Path | None = None,
    show: Callable[[Progress], None] = lambda _: None,
) -> TrialReport:
    """Trains, and evaluates on the test set only if `test` says so. Continues from `checkpoint` where it exists."""
    if checkpoint:
        checked_path(checkpoint, "a checkpoint")
    if checkpoint and checkpoint.exists() and not checkpoint.is_file():
        raise UserError(f"a checkpoint must be a file; {checkpoint} is not")
    if checkpoint and not checkpoint.parent.is_dir():
        raise UserError(f"a checkpoint is written into a folder that exists; {checkpoint.parent} does not")
    torch.set_num_threads(cpus)  # small networks run slower on more threads, and sums come out differently
    data = load_training_data(config.data, config.seed, load_pool(config.data, data_dir))
    watch = _Watch(checkpoint, show, [])
    resume_from = checkpoint if checkpoint and checkpoint.exists() else None
    trained = run_trial(config, data, watch, device=device, devices_held=cpus, resume_from=resume_from)
    record = TrialRecord.of(
        f"{config.kind}-d{config.depth}-s{config.seed}",
        config,
        data.split_hash,
        trained.progress,
        environment(device, config.training),
        curve=tuple(watch.curve),
    )
    if record.status == "failed":
        return TrialReport(record=record, d_opt=None)
    d_opt = record.d_opt
    more: dict[str, Any] = {"val_jitter": record.jitter}
    if isinstance(trained.network, OneShotNet):
        rows, train_rows, val_rows = on_device(data, device)
        pruned = chosen_network(trained.network, d_opt)
        more["val_pruned"] = measure(predict(pruned, rows, val_rows), rows.labels(val_rows))
        if trained.network.method.is_posterior:
            more["posterior_gap_nats"], exact = posterior_gap(trained.network, rows, train_rows)
            more["d_opt_exact"] = int(exact.argmax())
    if test:
        more["test"] = evaluate_on_test(trained.network, d_opt, config, data, data_dir=data_dir)
    return TrialReport(record=record, d_opt=d_opt, **more)
