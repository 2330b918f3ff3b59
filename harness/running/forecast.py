"""What a run will cost at most: a few training steps of every space are timed here before anything is spent."""

import dataclasses
import itertools
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from harness.data import TrainingData, load_pool, load_training_data
from harness.data.on_device import EVAL_BATCH, mini_batches
from harness.records import Progress, TrialConfig, UnitPlan
from harness.running.unit import RunningUnit
from harness.seeds import torch_generator
from harness.training.environment import environment
from harness.training.train import run_trial

WARM_UP_STEPS = 2
TIMED_STEPS = 5  # at least
TIMED_SECONDS = 0.5  # at least: on a busy machine a shorter look is not repeatable


@dataclass(frozen=True)
class MethodForecast:
    """One method on one space."""

    space: str
    method: str
    trials: int  # of each seed
    seeds: int
    max_epochs: int
    device_seconds: float  # all trials of all seeds, each trained to the cap
    replayed: bool = False  # from recordings: nothing is trained for it


@dataclass(frozen=True)
class Forecast:
    methods: tuple[MethodForecast, ...]  # of every space
    device: str  # that the steps were timed on
    gpu_missing: bool  # the run asks for GPUs and this machine has none: the seconds are those of its processor

    @property
    def device_seconds(self) -> float:
        return sum(each.device_seconds for each in self.methods)


def forecast(units: Sequence[RunningUnit], data_dir: Path | None) -> Forecast:
    """Times the networks of every space and multiplies; no trial stops early here, so most runs cost less."""
    groups: dict[tuple[str, str], list[RunningUnit]] = {}
    for unit in units:
        groups.setdefault((unit.plan.space.name, unit.plan.method), []).append(unit)
    on_gpus = units[0].plan.gpus_per_trial > 0
    device = torch.device("cuda" if on_gpus and torch.cuda.is_available() else "cpu")
    timings = _Timings(device, data_dir)
    with _threads(max(1, min(int(units[0].plan.cpus_per_trial), os.cpu_count() or 1))):
        methods = tuple(_forecast(group, timings) for group in groups.values())
        timed_on = environment(device, units[0].plan.space.training)
    on_cpu = device.type == "cpu"
    return Forecast(methods, timed_on.machine if on_cpu else timed_on.device, gpu_missing=on_gpus and on_cpu)


def _forecast(units: Sequence[RunningUnit], timings: "_Timings") -> MethodForecast:
    plan = units[0].plan
    return MethodForecast(
        plan.space.name,
        plan.method,
        plan.trials,
        len(units),
        plan.space.training.max_epochs,
        device_seconds=sum(
            timings.trial_seconds(unit) * unit.plan.trials * unit.plan.devices
            for unit in units
            if not unit.plan.replayed
        ),
        replayed=plan.replayed,
    )


class _Timings:
    """Seconds of a whole trial, timed once for each kind of network in each space."""

    def __init__(self, device: torch.device, data_dir: Path | None) -> None:
        self._device, self._data_dir = device, data_dir
        self._data: dict[str, TrainingData] = {}
        self._by_depth: dict[tuple[str, str], Callable[[int], float]] = {}

    def trial_seconds(self, unit: RunningUnit) -> float:
        """The mean over the depths that are planned, or may be proposed."""
        plan = unit.plan
        possible = (plan.space.depth.max,) if plan.facts.learns_depth else plan.space.depth.values
        key = plan.space.name, plan.trial_config(possible[0]).kind
        if key not in self._by_depth:
            self._by_depth[key] = self._time(plan, possible)
        return statistics.fmean(self._by_depth[key](depth) for depth in unit.planned_depths or possible)

    def _time(self, plan: UnitPlan, depths: Sequence[int]) -> Callable[[int], float]:
        """A straight line through up to three depths: every block costs as much as every other."""
        timed = sorted({depths[0], depths[len(depths) // 2], depths[-1]})
        data = self._load(plan)
        seconds = [seconds_to_the_cap(plan.trial_config(depth), data, self._device) for depth in timed]
        line = np.polynomial.Polynomial.fit(timed, seconds, deg=min(1, len(timed) - 1))
        return lambda depth: max(0.0, float(line(depth)))

    def _load(self, plan: UnitPlan) -> TrainingData:
        settings = plan.space.data
        key = settings.model_dump_json()
        if key not in self._data:
            self._data[key] = load_training_data(settings, plan.seed, load_pool(settings, self._data_dir))
        return self._data[key]


def seconds_to_the_cap(config: TrialConfig, data: TrainingData, device: torch.device) -> float:
    """Seconds of a trial that trains for all its epochs: steps and validations, without worker start and reports."""
    settings = config.training
    step, validation = _medians(_timed_steps(config, data, device))
    order = torch_generator(config.seed, "order")
    steps = len(mini_batches(torch.from_numpy(data.train_rows), settings.batch_size, order))
    validations = settings.max_epochs // settings.eval_every
    of_all_rows = len(data.val_rows) / len(_part(data, settings.batch_size).val_rows)
    return settings.max_epochs * steps * step + validations * of_all_rows * validation


def _timed_steps(config: TrialConfig, data: TrainingData, device: torch.device) -> list[Mapping[str, float]]:
    """Phases so far after each step of a real trial whose epochs are one mini-batch long, each with a validation."""
    without_end = 10**9
    each_step = {"max_epochs": without_end, "patience": without_end, "eval_every": 1, "report_every": 1}
    training = config.training.model_copy(update=each_step)
    after_steps: list[Mapping[str, float]] = []

    def report(progress: Progress, save: Callable[[Path], None]) -> None:
        phases = progress.cost.phases
        after_steps.append(phases)
        timed = len(after_steps) - 1 - WARM_UP_STEPS
        if timed >= TIMED_STEPS and phases["train"] - after_steps[WARM_UP_STEPS]["train"] >= TIMED_SECONDS:
            raise _EnoughTimed

    try:
        part = _part(data, config.training.batch_size)
        run_trial(config.model_copy(update={"training": training}), part, report, device=device)
    except _EnoughTimed:
        pass
    return after_steps


class _EnoughTimed(Exception):
    """Ends a trial that only served to time its steps."""


def _part(data: TrainingData, batch_size: int) -> TrainingData:
    """One mini-batch to train on, one batch to validate on: a step of a large data set may take seconds."""
    return dataclasses.replace(data, train_rows=data.train_rows[:batch_size], val_rows=data.val_rows[:EVAL_BATCH])


def _medians(after_steps: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """Seconds of a step and of a validation; a trial that failed at once has its warm-up steps only."""
    steps = list(itertools.pairwise(after_steps))
    timed = steps[WARM_UP_STEPS:] or steps
    train, validate = (
        statistics.median([after[phase] - before[phase] for before, after in timed] or [after_steps[-1][phase]])
        for phase in ("train", "validate")
    )
    return train, validate


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Trains with so many threads inside the block, as a trial would."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
