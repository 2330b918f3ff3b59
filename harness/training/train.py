"""One trial, top to bottom: build the network, train it, keep the best parameters, account for the time."""

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import serialization

from harness.data.on_device import DeviceRows, mini_batches, on_device
from harness.data.splits import TrainingData
from harness.errors import TrialFailed, UserError
from harness.methods import one_shot_method
from harness.models import DepthNet, FixedDepthNet, OneShotNet
from harness.models.depth_posterior import RULES, DepthWeights, best_depth, choose_depth
from harness.models.one_shot import Batch, Epoch, log_probs_of
from harness.models.passes import Passes
from harness.schema.records import Cost, CurvePoint, Measures, Posterior, Progress, StopReason, TrialConfig
from harness.seeds import OwnRandomness, stream, torch_generator
from harness.training import cost as cost_of
from harness.training import flat
from harness.training.compiling import compiled
from harness.training.cost import PhaseTimer
from harness.training.devices import AUTOCAST, memory_for, prepare
from harness.training.evaluate import measure
from harness.training.model_file import unpacked
from harness.training.networks import build_network, check_trial_fits, set_memory_format
from harness.training.optimiser import Optimiser, clip, optimiser_of
from harness.training.recipe import augmented, check_augmentation, rate_factor

OnReport = Callable[[Progress, Callable[[Path], None]], None]
"""Called with what was reached and a function that writes a checkpoint to a path, to be called or not."""


def ignore(progress: Progress, save: Callable[[Path], None]) -> None:
    """A report that goes nowhere."""


@dataclass(frozen=True)
class Trained:
    """A trial's outcome: its last report, and the network with the best parameters in evaluation mode."""

    progress: Progress
    network: DepthNet


def run_trial(
    config: TrialConfig,
    data: TrainingData,
    report: OnReport = ignore,
    *,
    device: torch.device | None = None,
    devices_held: float = 1.0,
    resume_from: Path | None = None,
    timer: PhaseTimer | None = None,
) -> Trained:
    """Trains one network on `data` and returns it with its cost. Deterministic in (config, data, machine).

    `resume_from` continues from a checkpoint as if there had been no interruption, to the bit. A loss that is not
    finite ends the trial as failed, with its cost.
    """
    settings = config.training
    device = device or torch.device("cpu")
    check_augmentation(settings, data.sample_shape)
    prepare(device, settings)
    checkpoint = _load_checkpoint(resume_from, config, device) if resume_from else None
    if timer is None:
        timer = PhaseTimer(device, before=_cost_in(checkpoint) if checkpoint else None)

    if device.type != "cpu":
        torch.get_device_module(device).reset_peak_memory_stats(device)  # a worker's trials share the device's counter

    if device.type != "cpu":
        available = memory_for(device, min(1.0, devices_held))
        check_trial_fits(config, data, available)
    with timer.phase("data"):
        rows, train_rows, val_rows = on_device(data, device)
    with timer.phase("startup"):
        trial = _Trial.start(config, data, device)
        if checkpoint:
            trial.restore(checkpoint)

    chooses = validation_chooses(config)
    stop_reason: StopReason | None = trial.stop_reason()
    with compiled(trial.network.backbone, timer, settings.compile) as compilation:

        def progress(stop_reason: StopReason | None, error: str | None = None) -> Progress:
            return trial.progress(data, timer, devices_held, stop_reason, error, compilation.failure)

        if checkpoint and stop_reason is None:  # whoever was to hear this epoch's report may have died before it did
            report(progress(None), lambda path: trial.save(path, data, timer))
        try:
            while stop_reason is None:
                with timer.phase("train"):
                    stop_reason = trial.train_to_validation(rows, train_rows, val_rows)
                is_read = chooses or stop_reason is not None or trial.epoch % settings.report_every == 0
                with timer.phase("validate"):
                    trial.validate(rows, val_rows, is_read)
                    stop_reason = trial.stop_reason()
                if trial.epoch % settings.report_every == 0 and stop_reason is None:
                    with timer.phase("checkpoint"):
                        report(progress(None), lambda path: trial.save(path, data, timer))
            with timer.phase("validate"):
                trial.keep_best(rows, val_rows)
            last = progress(stop_reason)
        except TrialFailed as failure:
            last = progress("failed", error=str(failure))
    report(last, lambda path: trial.save(path, data, timer))
    flat.unflatten(trial.network)
    return Trained(last, trial.network.eval())


@dataclass
class _Best:
    """The best parameters so far, buffers and weights over depths included."""

    state: list[Tensor]  # as `flat.flatten` lays them out
    value: float = -math.inf  # of the monitored objective
    epoch: int = 0
    train_objective: float | None = None
    val: Measures | None = None
    val_per_depth: list[float] | None = None
    settled: bool = False  # not those of a warm-up, which the first settled ones replace, whatever their value


@dataclass
class _Trial:
    """Everything that changes while a trial runs; `save` and `restore` miss none of it."""

    config: TrialConfig
    n_train: int
    network: DepthNet
    state: list[Tensor]  # all of the network's tensors, which are views of these few
    optimiser: Optimiser
    scaler: torch.amp.GradScaler  # of the loss in float16, whose small gradients would be zero; else it does nothing
    best_weights: DepthWeights | None  # over depths: the best ones, views of `best.state`
    order: torch.Generator
    noise: OwnRandomness  # of the network's own layers, such as dropout
    best: _Best
    epoch: int = 0
    train_objective: float = math.nan
    val: Measures | None = None
    val_per_depth: list[float] | None = None  # log-likelihoods, where the depth is chosen by them
    depths: list[tuple[int, int]] = field(default_factory=list)  # learnt depth: (epoch, d_opt) at each validation

    @classmethod
    def start(cls, config: TrialConfig, data: TrainingData, device: torch.device) -> "_Trial":
        network = build_network(config, data.sample_shape, data.n_classes).to(device)
        set_memory_format(network, torch.channels_last)
        network.backbone.autocast = AUTOCAST[config.training.precision]
        state = flat.flatten(network)
        settings = config.training
        optimiser = optimiser_of(network, settings, config.posterior)
        scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "float16")
        order = torch_generator(config.seed, "order")  # the same for every network of a seed
        noise = OwnRandomness(stream(config.seed, "noise", config.kind, config.depth), device)
        best = _Best([buffer.clone() for buffer in state])
        best_weights = copy.deepcopy(network.posterior) if isinstance(network, OneShotNet) else None
        if best_weights:
            flat.look_into(best.state, network, best_weights, "posterior.")
        return cls(config, data.n_train, network, state, optimiser, scaler, best_weights, order, noise, best)

    def train_to_validation(self, rows: DeviceRows, train_rows: Tensor, val_rows: Tensor) -> StopReason | None:
        """Epochs up to the next validation, or to the end, whose reason it returns: a validation may still avert it."""
        while True:
            self.epoch += 1
            self.train_epoch(rows, train_rows, val_rows)
            reason = self.stop_reason()
            if reason or self.epoch % self.config.training.eval_every == 0:
                return reason

    def train_epoch(self, rows: DeviceRows, train_rows: Tensor, val_rows: Tensor) -> None:
        """One pass over the training rows; `train_objective` becomes the sample-weighted mean of the batches'."""
        settings, n_train = self.config.training, self.n_train
        if not self.network.training:  # visiting every module costs another tenth of a step
            self.network.train()
        one_shot = self.network if isinstance(self.network, OneShotNet) else None
        validation = _ValidationBatches(self, rows, val_rows)
        total = torch.zeros((), device=rows.device)
        batches = mini_batches(train_rows, settings.batch_size, self.order)
        with self.noise.drawn():
            for step, batch in enumerate(batches):
                x, y = rows.take(batch)
                objective = self._step(
                    augmented(x, settings, self.config.seed, self.epoch, step), y, step, len(batches)
                )
                if one_shot:
                    one_shot.method.after_step(one_shot, validation)
                total += objective * len(batch)
        self.train_objective = float(total) / n_train  # the epoch's only wait for the device
        if not math.isfinite(self.train_objective):
            raise TrialFailed(f"the training objective became {self.train_objective} in epoch {self.epoch}")
        if one_shot:
            one_shot.method.after_epoch(one_shot, self._epoch(), validation)
        if settings.monitor == "train_objective":
            self._keep_if_better(self.train_objective)
        elif settings.monitor == "none":
            self._keep_if_better(self.epoch)  # the last parameters are the ones to keep

    def _step(self, x: Tensor, y: Tensor, step: int, steps: int) -> Tensor:
        """One step of the optimiser; the objective before it."""
        settings = self.config.training
        self.optimiser.factor = rate_factor(settings, self.epoch, step, steps)
        self.optimiser.zero_grad()
        objective = self.network.objective(x, y, self.n_train)
        self.scaler.scale(-objective).backward()
        if settings.clip_norm is not None:
            self.scaler.unscale_(self.optimiser)  # type: ignore[arg-type] # it asks for no more than ours has
            clip(self.network.backbone.parameters(), settings.clip_norm)
        self.scaler.step(self.optimiser)  # type: ignore[arg-type]
        self.scaler.update()
        return objective.detach()

    def validate(self, rows: DeviceRows, val_rows: Tensor, is_read: bool) -> None:
        """Mean validation log-likelihood of the predictive distribution and its other measures, if anybody reads them.

        Of a network whose depth is learnt without them, the depth is noted all the same.
        """
        if is_read:
            self.val = self._measured(rows, val_rows)
        if isinstance(self.network, OneShotNet):
            depth = self._chosen_depth(self.network, _q(self.network), self.val_per_depth)
            self.depths.append((self.epoch, depth))
        if self.config.training.monitor == "val_objective" and self.val:
            self._keep_if_better(self.val.log_likelihood)

    def _measured(self, rows: DeviceRows, val_rows: Tensor) -> Measures:
        """Of the prediction that the network stands for: of a posterior the average over depths, else at one depth."""
        network, y = self.network, rows.labels(val_rows)
        by_validation = depth_by_validation(self.config)
        if isinstance(network, FixedDepthNet) or (network.method.is_posterior and not by_validation):
            log_probs = _all_finite(predict(network, rows, val_rows), self.epoch)
        else:
            per_depth = _all_finite(predict_per_depth(network, rows, val_rows), self.epoch)
            if by_validation:
                self.val_per_depth = log_probs_of(per_depth.double(), y).mean(dim=1).tolist()
            if network.method.is_posterior:
                log_probs = torch.logsumexp(network.posterior.log_q().detach()[:, None, None] + per_depth, dim=0)
            else:
                log_probs = per_depth[self._chosen_depth(network, _q(network), self.val_per_depth)]
        return measure(log_probs, y)

    def _chosen_depth(self, network: OneShotNet, q: Tensor, val: list[float] | None) -> int:
        values = None if val is None else torch.tensor(val, dtype=torch.float64)
        rule = self.config.posterior.rule
        return network.choose(q, values, "argmax" if rule == "validation" else rule)  # with `val`, q is not asked

    def _epoch(self) -> Epoch:
        return Epoch(self.epoch, self.config.training.max_epochs, self.n_train)

    def _keep_if_better(self, value: float) -> None:
        best = self.best
        # The first value always counts: minus infinity has no distance to it. In a warm-up every one is the first.
        if not best.settled or value - best.value > self.config.training.min_delta:
            best.value, best.epoch, best.train_objective, best.val = value, self.epoch, self.train_objective, self.val
            best.val_per_depth = self.val_per_depth
            best.settled = isinstance(self.network, FixedDepthNet) or self.network.method.settled(self._epoch())
            _copy(best.state, self.state)

    def stop_reason(self) -> StopReason | None:
        if self.epoch - self.best.epoch >= self.config.training.patience:
            return "patience"
        return "cap" if self.epoch >= self.config.training.max_epochs else None

    def keep_best(self, rows: DeviceRows, val_rows: Tensor) -> None:
        """The best parameters become the network's. If validation did not choose them, it is done once more."""
        _copy(self.state, self.best.state)
        if self.config.training.monitor != "val_objective":
            self.best.val = self._measured(rows, val_rows)
            self.best.val_per_depth = self.val_per_depth

    def progress(
        self,
        data: TrainingData,
        timer: PhaseTimer,
        devices_held: float,
        stop_reason: StopReason | None,
        error: str | None,
        ran_eagerly: str,
    ) -> Progress:
        cost = self.cost(data, timer, devices_held)
        failed = stop_reason == "failed"
        point = None
        if self.val and not failed:
            point = CurvePoint(
                epoch=self.epoch,
                device_seconds=cost.device_seconds,
                train_objective=self.train_objective,
                val_log_likelihood=self.val.log_likelihood,
                val_accuracy=self.val.accuracy,
                d_opt=self.depths[-1][1] if self.depths else None,
            )
        # Where validation is not monitored, a report shows that of the current parameters; the last one, the best's.
        val = self.best.val if stop_reason or self.config.training.monitor == "val_objective" else self.val
        return Progress(
            epoch=self.epoch,
            stop_reason=stop_reason,
            best_epoch=self.best.epoch,
            train_objective=self.best.train_objective,
            val=None if failed else val,
            posterior=None if failed else self._posterior(),
            depth_changed_late=self._depth_changed_late(),
            cost=cost,
            point=point,
            error=error,
            ran_eagerly=ran_eagerly,
        )

    def cost(self, data: TrainingData, timer: PhaseTimer, devices_held: float) -> Cost:
        trained, looked = self.network.trained, self.network.looked
        shapes = (self.config.network, data.sample_shape, data.n_classes)
        flop = cost_of.flop(*shapes, trained, train=True) + cost_of.flop(*shapes, looked, train=False)
        held = timer.held_seconds
        return Cost(
            held_seconds=held,
            devices=devices_held,
            phases=timer.phases(held),
            tflop=flop / 1e12,
            epochs=self.epoch,
            samples=trained.samples,
            block_passes=trained.blocks,
            head_passes=trained.heads,
            peak_memory_bytes=cost_of.peak_memory_bytes(self.best.state[0].device),
        )

    def _posterior(self) -> Posterior | None:
        if not isinstance(self.network, OneShotNet) or (best := self.best_weights) is None:
            return None
        q, val = best.probabilities(), self.best.val_per_depth or self.val_per_depth
        by_rule = {rule: choose_depth(q, rule) for rule in RULES}
        return Posterior(
            q=tuple(q.tolist()),
            rule="validation" if val else self.config.posterior.rule,
            d_opt=self._chosen_depth(self.network, q, val),
            d_opt_by_rule=by_rule | ({"validation": best_depth(torch.tensor(val, dtype=torch.float64))} if val else {}),
            val_log_likelihoods=tuple(val or ()),
        )

    def _depth_changed_late(self) -> bool | None:
        """Whether the rule's depth changed in the last quarter of training, which says that q had not converged."""
        before = [depth for epoch, depth in self.depths if epoch <= 0.75 * self.epoch]
        late = [depth for epoch, depth in self.depths if epoch > 0.75 * self.epoch]
        return len({*before[-1:], *late}) > 1 if self.depths else None

    def save(self, path: Path, data: TrainingData, timer: PhaseTimer) -> None:
        """A checkpoint of tensors and plain values, readable with `weights_only=True`."""
        best = self.best
        content = {
            "config_hash": self.config.hash,
            "epoch": self.epoch,
            "network": self.state,
            "momenta": self.optimiser.state,
            "noise": self.noise.states,
            "scaler": self.scaler.state_dict(),
            "order": self.order.get_state(),
            "best_state": best.state,
            "best": (best.value, best.epoch, best.train_objective, best.val and best.val.model_dump()),
            "best_val_per_depth": best.val_per_depth,
            "best_settled": best.settled,
            "train_objective": self.train_objective,
            "val": self.val and self.val.model_dump(),
            "val_per_depth": self.val_per_depth,
            "trained": dataclasses.astuple(self.network.trained),
            "looked": dataclasses.astuple(self.network.looked),
            "random": self.network.random.get_state() if isinstance(self.network, OneShotNet) else None,
            "depths": self.depths,
            "cost": self.cost(data, timer, devices_held=1.0).model_dump_json(),
        }
        # Checksums are a quarter of a save, and torch.load never looks at them.
        with serialization.config.patch("save.compute_crc32", False):  # type: ignore[attr-defined]
            torch.save(content, path)

    def restore(self, checkpoint: dict[str, Any]) -> None:
        self.epoch = checkpoint["epoch"]
        _copy(self.state, checkpoint["network"])
        _copy(self.optimiser.state, checkpoint["momenta"])
        self.noise.states = [state.cpu() for state in checkpoint["noise"]]
        self.scaler.load_state_dict(checkpoint["scaler"])
        self.order.set_state(checkpoint["order"].cpu())
        value, epoch, train_objective, val = checkpoint["best"]
        _copy(self.best.state, checkpoint["best_state"])
        self.best = _Best(self.best.state, value, epoch, train_objective, val and Measures(**val))
        self.best.val_per_depth, self.best.settled = checkpoint["best_val_per_depth"], checkpoint["best_settled"]
        self.train_objective = checkpoint["train_objective"]
        self.val = checkpoint["val"] and Measures(**checkpoint["val"])
        self.val_per_depth = checkpoint["val_per_depth"]
        self.network.trained, self.network.looked = Passes(*checkpoint["trained"]), Passes(*checkpoint["looked"])
        if isinstance(self.network, OneShotNet):
            self.network.random.set_state(checkpoint["random"].cpu())
        self.depths = [(epoch, depth) for epoch, depth in checkpoint["depths"]]


def validation_chooses(config: TrialConfig) -> bool:
    """Whether a validation decides anything in the trial: which parameters are kept, or the depth."""
    return config.training.monitor == "val_objective" or depth_by_validation(config)


def depth_by_validation(config: TrialConfig) -> bool:
    """Whether the validation of each depth chooses one: the method's own way, or the space's rule."""
    if not config.learns_depth:
        return False
    by_method = one_shot_method(config.kind, config.options).validation == "chooses"
    return by_method or config.posterior.rule == "validation"


class _ValidationBatches:
    """Mini-batches of the validation set for a method that fits something to them, in an order of its own.

    They begin anew with each epoch, so that a checkpoint needs no place in the order.
    """

    def __init__(self, trial: _Trial, rows: DeviceRows, val_rows: Tensor) -> None:
        self._trial, self._rows, self._val_rows = trial, rows, val_rows
        self._batches: Iterator[Tensor] | None = None

    def __call__(self) -> Batch:
        network, batch_size = self._trial.network, self._trial.config.training.batch_size
        assert isinstance(network, OneShotNet)
        if network.method.validation != "fits":
            raise UserError(
                f"{type(network.method).__name__} asks for validation labels in training; declare `validation = "
                f'"fits"`, it says {network.method.validation!r}'
            )
        if self._batches is None:
            self._batches = itertools.cycle(mini_batches(self._val_rows, batch_size, network.random))
        return self._rows.take(next(self._batches))


def predict(network: nn.Module, rows: DeviceRows, which: Tensor) -> Tensor:
    """Class log-probabilities of the given rows, in evaluation mode."""
    network.eval()
    with torch.inference_mode():
        return torch.cat([network(x) for x, _ in rows.chunks(which)])


def predict_per_depth(network: OneShotNet, rows: DeviceRows, which: Tensor) -> Tensor:
    """The same at every depth: (D+1, N, classes)."""
    network.eval()
    with torch.inference_mode():
        return torch.cat([network.log_probs_per_depth(x) for x, _ in rows.chunks(which)], dim=1)


def _all_finite(log_probs: Tensor, epoch: int) -> Tensor:
    if not bool(log_probs.isfinite().all()):
        raise TrialFailed(f"a validation prediction became non-finite in epoch {epoch}")
    return log_probs


def best_network(path: Path, config: TrialConfig, data: TrainingData, device: torch.device) -> DepthNet:
    """The best parameters in a checkpoint, as a network in evaluation mode."""
    checkpoint = _load_checkpoint(path, config, device)
    network = build_network(config, data.sample_shape, data.n_classes).to(device)
    set_memory_format(network, torch.channels_last)
    flat.load(checkpoint["best_state"], network)
    set_memory_format(network, torch.contiguous_format)
    return network.eval()


def _load_checkpoint(path: Path, config: TrialConfig, device: torch.device) -> dict[str, Any]:
    try:
        checkpoint = unpacked(path, device)
    except Exception as error:
        raise UserError(f"cannot read a checkpoint from {path}: {type(error).__name__}") from error
    made_with = checkpoint.get("config_hash") if isinstance(checkpoint, dict) else None
    if made_with is None:
        raise UserError(f"{path} is no checkpoint of a trial; give a file that --checkpoint has written")
    if made_with != config.hash:
        raise UserError(
            f"the checkpoint {path} was made with other settings (config {made_with}, "
            f"this trial has {config.hash}); give the settings it was made with, or start over"
        )
    if "noise" not in checkpoint:
        raise UserError(f"the checkpoint {path} was written by an earlier version of the harness; start over")
    restored: dict[str, Any] = checkpoint
    return restored


def cost_in_checkpoint(path: Path, config: TrialConfig, device: torch.device) -> Cost:
    """What the trial had cost when the checkpoint was made."""
    return _cost_in(_load_checkpoint(path, config, device))


def _cost_in(checkpoint: dict[str, Any]) -> Cost:
    return Cost.model_validate_json(checkpoint["cost"])


def _copy(into: list[Tensor], given: list[Tensor]) -> None:
    for target, source in zip(into, given, strict=True):
        target.copy_(source)


def _q(network: OneShotNet) -> Tensor:
    return network.posterior.log_q().detach().exp()
