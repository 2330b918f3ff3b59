"""What a run will cost at most: a few training steps of every space are timed before anything is spent.

They are timed on the device that the trials will have: on a machine of the cluster at an address, else on this one.
"""

import contextlib
import dataclasses
import itertools
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import ray
import torch

from harness.cluster.slots import ClusterSlots
from harness.data import Pool, TrainingData, load_pool, load_training_data
from harness.data.on_device import EVAL_BATCH, mini_batches
from harness.errors import UserError
from harness.running.messages import OwnCode
from harness.running.ray_session import ray_session
from harness.running.runner import own_code
from harness.running.unit import RunningUnit
from harness.schema.records import FIXED_DEPTH, Cost, Progress, TrialConfig, UnitPlan
from harness.seeds import torch_generator
from harness.text.shown import counted
from harness.training import devices
from harness.training.cost import trial_bytes
from harness.training.environment import environment
from harness.training.train import run_trial, validation_chooses

WARM_UP_STEPS = 2
TIMED_STEPS = 5  # at least
TIMED_SECONDS = 0.5  # at least: on a busy machine a shorter look is not repeatable
BUSY_CORES = 0.3  # that others may take from the trials before it is told
FREE_SECONDS = 120.0  # for a machine of a cluster to do it, which may be busy


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
    tflop: float = 0.0  # counted, not timed: a busy machine does not change it


@dataclass(frozen=True)
class Forecast:
    methods: tuple[MethodForecast, ...]  # of every space
    device: str  # that the steps were timed on
    caveat: str = ""  # why that is not the device that the trials will have; empty where it is
    memory_bytes: int = 0  # of the largest trial, rows apart
    advice: str = ""  # a sentence where another device is the cheaper choice
    busy: str = ""  # a sentence where other programs took the processors while steps were timed
    left_out: Mapping[str, str] = field(default_factory=dict)  # a space that cannot be run → why

    @property
    def device_seconds(self) -> float:
        return sum(each.device_seconds for each in self.methods)

    @property
    def tflop(self) -> float:
        return sum(each.tflop for each in self.methods)


def forecast(units: Sequence[RunningUnit], data_dir: Path | None, address: str | None = None) -> Forecast:
    """Times the networks of every space and multiplies; no trial stops early here, so most runs cost less."""
    pools, broken = _pools(units, data_dir)
    if len(broken) == len({unit.plan.space.name for unit in units}):
        raise next(iter(broken.values()))
    units = [unit for unit in units if unit.plan.space.name not in broken]
    groups: dict[tuple[str, str], list[RunningUnit]] = {}
    for unit in units:
        groups.setdefault((unit.plan.space.name, unit.plan.method), []).append(unit)
    wanted = _wanted(units)
    timing = _timed(units, [config for configs in wanted.values() for config in configs], pools, address)
    trials = iter(timing.trials)
    lines = {key: _line(configs, [next(trials) for _ in configs]) for key, configs in wanted.items()}
    methods = tuple(_forecast(group, lines) for group in groups.values())
    left_out = {space: str(why) for space, why in broken.items()}
    return Forecast(methods, timing.device, timing.caveat, timing.memory_bytes, timing.advice, timing.busy, left_out)


def _pools(units: Sequence[RunningUnit], data_dir: Path | None) -> tuple[dict[str, Pool | None], dict[str, UserError]]:
    """The rows by their settings, and spaces whose rows cannot be had."""
    pools: dict[str, Pool | None] = {}
    broken: dict[str, UserError] = {}
    for plan in {unit.plan.space.name: unit.plan for unit in units}.values():
        key = plan.space.data.model_dump_json()
        try:
            if key not in pools:
                pools[key] = load_pool(plan.space.data, data_dir)
            load_training_data(plan.space.data, plan.seed, pools[key])
        except UserError as error:
            broken[plan.space.name] = error
    return pools, broken


_Network = tuple[str, str]  # space, kind of network


def _wanted(units: Sequence[RunningUnit]) -> dict[_Network, list[TrialConfig]]:
    """What is timed: each kind of network of each space at up to three depths, once."""
    wanted: dict[_Network, list[TrialConfig]] = {}
    for plan in (unit.plan for unit in units if not unit.plan.replayed):
        kinds = {_network(plan): [plan.trial_config(depth) for depth in _possible(plan)]}
        if plan.stage.then:
            kinds[plan.space.name, FIXED_DEPTH] = [_from_scratch(plan, depth) for depth in _after(plan)]
        for network, configs in kinds.items():
            timed = sorted({0, len(configs) // 2, len(configs) - 1})
            wanted.setdefault(network, [configs[place] for place in timed])
    return wanted


def _after(plan: UnitPlan) -> range:
    """Depths that a one-shot may choose."""
    return range(plan.space.depth.max + 1)


def _from_scratch(plan: UnitPlan, depth: int) -> TrialConfig:
    return TrialConfig.of(plan.space, FIXED_DEPTH, depth, plan.seed)


def _network(plan: UnitPlan) -> _Network:
    return plan.space.name, plan.trial_config(_possible(plan)[0]).kind


def _possible(plan: UnitPlan) -> tuple[int, ...]:
    return (plan.space.depth.max,) if plan.facts.learns_depth else plan.space.depth.values


@dataclass(frozen=True)
class TrialForecast:
    """Of a trial that trains for all its epochs."""

    seconds: float
    tflop: float = 0.0


def _line(configs: Sequence[TrialConfig], trials: Sequence[TrialForecast]) -> Callable[[int], TrialForecast]:
    """A straight line through up to three depths: every block costs as much as every other."""
    depths, degree = [config.depth for config in configs], min(1, len(configs) - 1)

    def fitted(values: Sequence[float]) -> Callable[[float], float]:
        line = np.polynomial.Polynomial.fit(depths, values, deg=degree)
        return lambda depth: max(0.0, float(line(depth)))

    seconds, tflop = fitted([each.seconds for each in trials]), fitted([each.tflop for each in trials])
    return lambda depth: TrialForecast(seconds(depth), tflop(depth))


def _forecast(units: Sequence[RunningUnit], lines: Mapping[_Network, Callable[[int], TrialForecast]]) -> MethodForecast:
    plan = units[0].plan
    trained = [(unit, _of_unit(unit, lines)) for unit in units if not unit.plan.replayed]
    return MethodForecast(
        plan.space.name,
        plan.method,
        plan.trials,
        len(units),
        plan.space.training.max_epochs,
        device_seconds=sum(each.seconds * unit.plan.devices for unit, each in trained),
        replayed=plan.replayed,
        tflop=sum(each.tflop for _, each in trained),
    )


def _of_unit(unit: RunningUnit, lines: Mapping[_Network, Callable[[int], TrialForecast]]) -> TrialForecast:
    """Of all trials that it trains itself: what another unit of the run lends it is counted there."""
    plan, stage = unit.plan, unit.plan.stage

    def is_lent(config: TrialConfig) -> bool:
        return any(lender.trains(config) for lender in unit.lenders)

    parts: list[tuple[float, TrialForecast]] = []  # how many of what
    if not (plan.facts.learns_depth and is_lent(plan.trial_config(plan.space.depth.max))):
        parts.append((plan.trials - stage.most_trials, _mean_trial(unit, lines[_network(plan)])))
    if stage.then:
        configs, line = [plan.stage_config(depth) for depth in _after(plan)], lines[plan.space.name, FIXED_DEPTH]
        share = stage.most_trials * configs[0].epochs / plan.space.training.max_epochs / len(configs)
        parts += [(share, line(config.depth)) for config in configs if not is_lent(config)]
    return TrialForecast(sum(n * each.seconds for n, each in parts), sum(n * each.tflop for n, each in parts))


def _mean_trial(unit: RunningUnit, trial_of: Callable[[int], TrialForecast]) -> TrialForecast:
    """The mean over the depths that are planned, or may be proposed."""
    trials = [trial_of(depth) for depth in unit.planned_depths or _possible(unit.plan)]
    return TrialForecast(statistics.fmean(t.seconds for t in trials), statistics.fmean(t.tflop for t in trials))


# --- on which device ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Timing:
    trials: list[TrialForecast]
    device: str
    caveat: str = ""
    memory_bytes: int = 0  # of the largest of them
    advice: str = ""
    busy: str = ""


def _timed(
    units: Sequence[RunningUnit],
    configs: Sequence[TrialConfig],
    pools: Mapping[str, Pool | None],
    address: str | None,
) -> _Timing:
    gpus, cpus = units[0].plan.gpus_per_trial, units[0].plan.cpus_per_trial
    caveat = ""
    if address:
        with ray_session(address):
            # A machine that would have to be started costs money, which a forecast must not.
            if ClusterSlots(gpus, cpus, may_grow=False).is_up:
                timing = _timed_on_a_node(configs, pools, own_code(units), gpus, cpus)
                if timing:
                    return timing
                caveat = f"no machine of the cluster was free for it in {FREE_SECONDS:.0f} s"
            else:
                caveat = "no machine of the cluster that can hold a trial is up"
    device = torch.device("cuda" if gpus > 0 and torch.cuda.is_available() else "cpu")
    if gpus > 0 and device.type == "cpu" and not caveat:
        caveat = "the run asks for GPUs and there is none here"
    return dataclasses.replace(_time(configs, pools, device, cpus), caveat=caveat)


def _timed_on_a_node(
    configs: Sequence[TrialConfig],
    pools: Mapping[str, Pool | None],
    own_code: OwnCode,
    gpus: float,
    cpus: float,
) -> _Timing | None:
    """By a task that gets what a trial would get; None where nothing was free for it."""
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_time_as_a_trial)
    answer = task.remote(list(configs), ray.put(dict(pools)), own_code, gpus, cpus)
    done, _ = ray.wait([answer], timeout=FREE_SECONDS)
    if not done:
        ray.cancel(answer, force=True)
        return None
    try:
        timing: _Timing = ray.get(answer)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise UserError(str(error.cause)) from None
        raise
    return timing


def _time_as_a_trial(
    configs: Sequence[TrialConfig],
    pools: Mapping[str, Pool | None],
    own_code: OwnCode,
    gpus: float,
    cpus: float,
) -> _Timing:
    """On a machine of the cluster."""
    own_code.make_known()
    device = devices.device_of_trial(gpus)
    devices.start(device, gpus)
    timing = _time(configs, pools, device, cpus)
    return dataclasses.replace(timing, device=f"{timing.device} of {socket.gethostname()}")


def _time(
    configs: Sequence[TrialConfig], pools: Mapping[str, Pool | None], device: torch.device, cpus: float
) -> _Timing:
    rows: dict[str, TrainingData] = {}
    memory, threads = 0, max(1, min(int(cpus), os.cpu_count() or 1))
    with devices.threads(threads), _others() as others:
        trials = []
        for config in configs:
            key = config.data.model_dump_json()
            if key not in rows:
                rows[key] = load_training_data(config.data, config.seed, pools[key])
            trials.append(trial_to_the_cap(config, rows[key], device))
            memory = max(memory, trial_bytes(config, rows[key]))
        found = environment(device, configs[0].training)
    busy = busy_machine(others(), threads, os.cpu_count() or 1)
    if device.type == "cpu":
        return _Timing(trials, found.machine, memory_bytes=memory, busy=busy)
    advice = _cheaper_on_the_cpu([(config, rows[config.data.model_dump_json()]) for config in configs], device)
    return _Timing(trials, found.device, memory_bytes=memory, advice=advice, busy=busy)


def busy_machine(others: float, threads: int, cores: int) -> str:
    """A sentence where other programs left less than a trial's share of the processors; else nothing."""
    if others <= cores - threads + BUSY_CORES:
        return ""
    return (
        f"this machine is busy: other programs used {others:.1f} of {counted(cores, 'core')} while steps were timed, "
        "so the times are overestimates; TFLOP are counted, so they are not affected"
    )


@contextlib.contextmanager
def _others() -> Iterator[Callable[[], float]]:
    """How many cores other programs have kept busy since; 0 where the system does not tell."""
    busy, ours, clock = _busy_seconds(), time.process_time(), time.monotonic()

    def cores() -> float:
        wall, now = time.monotonic() - clock, _busy_seconds()
        return 0.0 if busy is None or now is None else max(0.0, now - busy - (time.process_time() - ours)) / wall

    yield cores


def _busy_seconds() -> float | None:
    """Of all cores since the machine started, without idling and waiting for disks."""
    try:
        _, user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()
        return sum(map(int, (user, nice, system, *interrupts[:3]))) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


def _cheaper_on_the_cpu(networks: Sequence[tuple[TrialConfig, TrainingData]], gpu: torch.device) -> str:
    """A sentence where no network's step takes one CPU core of this machine longer than its GPU; else nothing.

    Small networks are hundreds of launches for a few numbers each. The shallowest comes first: where the GPU is worth
    it already there, no deep network is timed on the CPU, which could take minutes.
    """
    said = ""
    for config, data in sorted(networks, key=lambda network: (network[0].depth, network[0].learns_depth)):
        with devices.threads(1):
            on_gpu, on_cpu = step_seconds(config, data, gpu), step_seconds(_for_cpu(config), data, torch.device("cpu"))
        if on_cpu > on_gpu:
            return ""
        said = (
            "CPU workers are the cheaper choice (--gpus-per-trial 0): a step of "
            f"{config.kind} of depth {config.depth} takes {on_gpu:.2g} s on this GPU and {on_cpu:.2g} s on one CPU core"
        )
    return said


def _for_cpu(config: TrialConfig) -> TrialConfig:
    """Without what only GPUs have, and without a compiler, which this machine may lack."""
    training = config.training.model_copy(update={"precision": "float32", "compile": False})
    return config.model_copy(update={"training": training})


def step_seconds(config: TrialConfig, data: TrainingData, device: torch.device) -> float:
    step, _ = _medians([cost.phases for cost in _timed_steps(config, data, device)])
    return step


def trial_to_the_cap(config: TrialConfig, data: TrainingData, device: torch.device) -> TrialForecast:
    """A trial that trains for all its epochs: compiling, steps, validations; no worker start or reports."""
    settings = config.training
    costs = _timed_steps(config, data, device)
    after_steps = [cost.phases for cost in costs]
    step, validation = _medians(after_steps)
    order = torch_generator(config.seed, "order")
    steps = len(mini_batches(torch.from_numpy(data.train_rows), settings.batch_size, order))
    validations = settings.max_epochs // (settings.eval_every if validation_chooses(config) else settings.report_every)
    part = _part(data, settings.batch_size)
    of_all_rows = len(data.val_rows) / len(part.val_rows)
    compiling = after_steps[-1].get("compile", 0.0)
    seconds = compiling + settings.max_epochs * steps * step + validations * of_all_rows * validation
    # Of what a step and a validation count together: a row costs a third where nothing is learnt from it.
    both = costs[-1].tflop / len(costs)
    a_row = both / (len(part.train_rows) + len(part.val_rows) / 3)
    rows = settings.max_epochs * len(data.train_rows) + validations * len(data.val_rows) / 3
    return TrialForecast(seconds, a_row * rows)


def _timed_steps(config: TrialConfig, data: TrainingData, device: torch.device) -> list[Cost]:
    """Cost so far after each step of a real trial whose epochs are one mini-batch long, each with a validation."""
    without_end = 10**9
    each_step = {"max_epochs": without_end, "patience": without_end, "eval_every": 1, "report_every": 1}
    training = config.training.model_copy(update=each_step)
    after_steps: list[Cost] = []

    def report(progress: Progress, save: Callable[[Path], None]) -> None:
        after_steps.append(progress.cost)
        timed = len(after_steps) - 1 - WARM_UP_STEPS
        if timed < TIMED_STEPS:
            return
        if progress.cost.phases["train"] - after_steps[WARM_UP_STEPS].phases["train"] >= TIMED_SECONDS:
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
