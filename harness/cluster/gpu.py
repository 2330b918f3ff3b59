"""The first minute on a GPU (`harness doctor --gpu`): what it is, whether its numbers are the CPU's, what a step takes.

Everything is measured with real trials on the device that is given; nothing is left behind but the report.
"""

import os
import secrets
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.cluster.checks import Check, verdict
from harness.data.splits import Pool, TrainingData, training_data
from harness.errors import UserError
from harness.networks import network_of
from harness.schema.identity import Frozen
from harness.schema.networks import SHIPPED, NetworkSettings, known_networks, network_settings
from harness.schema.records import FIXED_DEPTH, Progress, TrialConfig
from harness.schema.settings import (
    DigitsData,
    PosteriorSettings,
    TrainingSettings,
)
from harness.text.shown import one_line, redacted
from harness.training.checkpoints import CheckpointStore
from harness.training.devices import LOGICAL_GPUS, check_usable, driver_version, threads
from harness.training.environment import environment
from harness.training.train import run_trial

BATCH = 128
TIMED_EPOCHS = 5  # after a first one, which warms up; an epoch is one step
SMALL_DEPTH, SMALL_EPOCHS = 3, 3  # or the first depth that makes sense
FAR_APART = 1e-3  # nats: what rounding never makes of so short a training
CHECKPOINT_BYTES = 2**23  # as a convolutional network of 50 blocks has
ANSWER_SECONDS = 600.0

CPU = torch.device("cpu")


def _settings(kind: str) -> NetworkSettings:
    """By default, but without dropout: a GPU draws other numbers than the processor, and the two could not agree."""
    return network_settings(kind, **({"dropout": 0.0} if "dropout" in SHIPPED[kind].model_fields else {}))


def _takes_images(kind: str) -> bool:
    return network_of(_settings(kind)).takes == "images"


def _timed_depths(kind: str) -> tuple[int, ...]:
    """Shallow, middling and deep."""
    least = network_of(_settings(kind)).least_depth()
    return tuple(sorted({max(least, depth) for depth in (1, 10, 30 if _takes_images(kind) else 50)}))


DEPTHS = {kind: _timed_depths(kind) for kind in known_networks()}


class StepSeconds(Frozen):
    """Median seconds of a training step: on the device, and on one core of the processor beside it."""

    network: str
    depth: int
    device: float
    cpu: float


class DeviceReport(Frozen):
    """All that was found: a file that can be sent to whoever is asked for help."""

    host: str
    device: str  # its name
    machine: str  # the processor's
    torch: str
    cuda: str | None = None  # that torch was built for
    driver: str | None = None
    capability: str | None = None  # of the GPU, as "8.0"
    built_for: tuple[str, ...] = ()  # capabilities that torch has code for, as "sm_80"
    bfloat16: bool = False  # whether the GPU computes in it, and does not only emulate it
    float16: bool = False
    memory_bytes: int = 0
    free_bytes: int = 0
    apart_nats: dict[str, float]  # largest difference to the CPU in the log-likelihoods of a small trial
    repeats: bool  # whether a small trial gives the same weights twice
    repeats_if_deterministic: bool  # with training.deterministic
    steps: tuple[StepSeconds, ...]
    storage: str | None = None
    storage_error: str = ""
    write_seconds: float | None = None  # of a checkpoint of 8 MiB
    read_seconds: float | None = None


# --- measuring ----------------------------------------------------------------------------------------------------


def examine(device: torch.device, storage: str | None, depths: Mapping[str, Sequence[int]]) -> DeviceReport:
    """Measures a device with these networks; takes a minute or two, most of it on the processor it is compared with."""
    about = _about_cuda(device)
    with threads(1), _failure_told(about):
        trials = {kind: _small_trial(kind) for kind in depths}
        places = (device, device, CPU)
        once, again, on_cpu = ([_outcome(*trial, place) for trial in trials.values()] for place in places)
        exactly = [(_deterministic(trial), data) for trial, data in trials.values()]
        exact, exact_again = ([_outcome(*trial, device) for trial in exactly] for _ in range(2))
        made_with = environment(device, next(iter(trials.values()))[0].training)
        return DeviceReport(
            host=socket.gethostname(),
            device=made_with.device,
            machine=made_with.machine,
            torch=made_with.torch,
            apart_nats={kind: _apart(a[0], b[0]) for kind, a, b in zip(trials, once, on_cpu, strict=True)},
            repeats=_equal(once, again),
            repeats_if_deterministic=_equal(exact, exact_again),
            steps=tuple(
                StepSeconds(network=kind, depth=d, device=_step(kind, d, device), cpu=_step(kind, d, CPU))
                for kind, of_kind in depths.items()
                for d in of_kind
            ),
            **about,
            **_about_storage(storage),
        )


def _about_cuda(device: torch.device) -> dict[str, Any]:
    if device.type == "cpu":
        return {}
    free, total = torch.get_device_module(device).mem_get_info(device)
    found: dict[str, Any] = {"free_bytes": free, "memory_bytes": total}
    if device.type != "cuda":
        return found
    major, minor = torch.cuda.get_device_capability(device)
    return found | {
        "cuda": torch.version.cuda,
        "driver": driver_version(),
        "capability": f"{major}.{minor}",
        "built_for": tuple(torch.cuda.get_arch_list()),
        "bfloat16": torch.cuda.is_bf16_supported(including_emulation=False),
        "float16": (major, minor) >= (5, 3),
    }


@contextmanager
def _failure_told(about: Mapping[str, Any]) -> Iterator[None]:
    """What torch says of a GPU that it cannot train on, as a sentence with the cause, as far as that can be seen."""
    try:
        yield
    except RuntimeError as error:  # no code for this GPU, no memory left, a device that has failed
        seen = [_check_build(torch.__version__, about), _check_memory(about)]
        causes = [f"{each.detail}; {each.remedy}" for each in seen if not each.ok]
        said = one_line(str(error).splitlines()[0], longest=300)
        why = "; ".join(causes) or f"{said}; look at the machine with nvidia-smi"
        raise UserError(f"a small trial fails on the GPU of {socket.gethostname()}: {why}") from error


def _about_storage(storage: str | None) -> dict[str, Any]:
    """How long a checkpoint takes there, written and read."""
    if storage is None:
        return {}
    store, key = CheckpointStore(storage), f".harness-{secrets.token_hex(8)}"
    content = secrets.token_bytes(CHECKPOINT_BYTES)

    def write(path: Path) -> None:
        path.write_bytes(content)

    try:
        began = time.perf_counter()
        store.save(key, write)
        store.settle()
        written = time.perf_counter()
        with store.fetched(key) as path:
            same = path is not None and path.read_bytes() == content
        read = time.perf_counter()
        store.remove(key)
    except (UserError, OSError) as error:
        return {"storage": redacted(storage), "storage_error": str(error)}
    wrong = "" if same else f"what was written to {redacted(storage)} does not come back"
    return {
        "storage": redacted(storage),
        "storage_error": wrong,
        "write_seconds": written - began,
        "read_seconds": read - written,
    }


def _trial(kind: str, depth: int, epochs: int) -> TrialConfig:
    """A fixed depth in the settings that spaces have by default; its rows are made up."""
    return TrialConfig(
        kind=FIXED_DEPTH,
        depth=depth,
        seed=0,
        data=DigitsData(kind="digits"),
        network=_settings(kind),
        posterior=PosteriorSettings(),
        training=TrainingSettings(max_epochs=epochs, patience=epochs, batch_size=BATCH, monitor="none"),
    )


def _small_trial(kind: str) -> tuple[TrialConfig, TrainingData]:
    depth = max(SMALL_DEPTH, network_of(_settings(kind)).least_depth())
    return _trial(kind, depth, SMALL_EPOCHS), _made_up_rows(kind, n_train=2 * BATCH)


def _made_up_rows(kind: str, n_train: int, n_val: int = 64, n_classes: int = 10) -> TrainingData:
    """Of the size that the spaces' data have: 28×28 images, or rows of 20 numbers; a class is a brightness."""
    rng = np.random.default_rng(0)
    y = np.arange(n_train + n_val) % n_classes
    if _takes_images(kind):
        noise = rng.integers(0, 156, (len(y), 28, 28, 1))
        x = (noise + 10 * y.reshape(-1, 1, 1, 1)).astype(np.uint8)
    else:
        x = (rng.normal(size=(len(y), 20)) + y[:, None] / n_classes).astype(np.float32)
    rows = np.arange(len(y))
    return training_data(Pool(x, y.astype(np.int64), n_classes), rows[:n_train], rows[n_train:])


def _deterministic(trial: TrialConfig) -> TrialConfig:
    return trial.model_copy(update={"training": trial.training.model_copy(update={"deterministic": True})})


Outcome = tuple[tuple[float, float], dict[str, Tensor]]  # log-likelihoods of training and validation; weights


def _outcome(trial: TrialConfig, data: TrainingData, device: torch.device) -> Outcome:
    trained = run_trial(trial, data, device=device)
    last = trained.progress
    if last.val is None or last.train_objective is None:
        raise UserError(f"a small trial on {device} failed: {last.error}; nothing trained on this GPU can be trusted")
    weights = {name: tensor.cpu() for name, tensor in trained.network.state_dict().items()}
    return (last.train_objective, last.val.log_likelihood), weights


def _apart(a: tuple[float, float], b: tuple[float, float]) -> float:
    return max(abs(left - right) for left, right in zip(a, b, strict=True))


def _equal(a: Sequence[Outcome], b: Sequence[Outcome]) -> bool:
    return all(
        torch.equal(tensor, other[name])
        for (_, weights), (_, other) in zip(a, b, strict=True)
        for name, tensor in weights.items()
    )


def _step(kind: str, depth: int, device: torch.device) -> float:
    """The median over epochs of one mini-batch, without the first one."""
    spent: list[float] = []

    def report(progress: Progress, save: Callable[[Path], None]) -> None:
        spent.append(progress.cost.phases["train"])

    run_trial(_trial(kind, depth, 1 + TIMED_EPOCHS), _made_up_rows(kind, n_train=BATCH), report, device=device)
    return statistics.median(after - before for before, after in pairwise(spent))


# --- on the workers of a cluster ----------------------------------------------------------------------------------


def examine_here(storage: str | None, depths: Mapping[str, Sequence[int]] = DEPTHS) -> DeviceReport:
    """The GPU of this process."""
    if os.environ.get(LOGICAL_GPUS):
        return examine(CPU, storage, depths)
    check_usable()
    return examine(torch.device("cuda"), storage, depths)


def examine_workers(storage: str | None) -> list[DeviceReport]:
    """One worker of each kind of machine with GPUs in the Ray that this process is connected to."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    kinds: dict[tuple[tuple[str, float], ...], str] = {}
    for node in ray.nodes():
        resources = node["Resources"]
        if node["Alive"] and resources.get("GPU", 0) > 0:
            kind = [(name, n) for name, n in resources.items() if name in ("CPU", "GPU") or "accelerator" in name]
            kinds.setdefault(tuple(sorted(kind)), node["NodeID"])
    if not kinds:
        raise UserError("no machine of this Ray has a GPU now; start one, or give a run GPUs so that the cluster does")
    task = ray.remote(num_cpus=0, num_gpus=1, max_retries=0)(_examined)
    calls = [
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(storage, DEPTHS)
        for node in kinds.values()
    ]
    _, late = ray.wait(calls, num_returns=len(calls), timeout=ANSWER_SECONDS)
    for call in late:
        ray.cancel(call, force=True)
    if late:
        raise UserError(
            f"{len(late)} of {len(calls)} kinds of machines did not answer within {ANSWER_SECONDS:.0f} s; if a run "
            "holds their GPUs, wait for its end"
        )
    answers = [ray.get(call) for call in calls]
    for answer in answers:
        if answer.startswith(_REFUSED):
            raise UserError(answer.removeprefix(_REFUSED))
    return [DeviceReport.model_validate_json(answer) for answer in answers]


_REFUSED = "refused: "


def _examined(storage: str | None, depths: Mapping[str, Sequence[int]]) -> str:
    try:
        return examine_here(storage, depths).model_dump_json()
    except UserError as error:  # its sentence, not the traceback of a worker
        return f"{_REFUSED}{error}"


# --- what it means ------------------------------------------------------------------------------------------------


def gpu_checks(report: DeviceReport) -> list[Check]:
    """A line for everything that was measured, with a remedy where something is wrong."""
    checks = [
        Check("gpu", True, f"{report.device} on {report.host}"),
        _check_build(report.torch, report.model_dump()),
        Check("precision", True, _precisions(report)),
        _check_numbers(report),
        _check_repeats(report),
        _check_memory(report.model_dump()),
        *(Check(f"{kind} steps", True, _steps(report, kind)) for kind in _networks(report)),
        *_small_networks(report),
    ]
    return [*checks, *([_check_storage(report)] if report.storage else [])]


def _check_build(version: str, about: Mapping[str, Any]) -> Check:
    """Whether torch has code for this GPU. `about` is what `_about_cuda` finds."""
    if about.get("capability") is None:
        return Check("driver", True, f"torch {version}")
    capability, built_for = about["capability"], about["built_for"]
    fine = f"driver {about['driver']}, torch {version} for CUDA {about['cuda']}, capability {capability}"
    major, minor = map(int, capability.split("."))
    runs = False
    for each in built_for:
        kind, _, digits = each.partition("_")
        built = (int(digits[:-1]), int(digits[-1])) if digits.isdigit() else (99, 0)
        # Machine code serves later GPUs of the same generation, what "compute" names any later one.
        runs |= built <= (major, minor) and (kind == "compute" or built[0] == major)
    problems = (
        [] if runs else [f"torch {version} has no code for capability {capability}, only for {', '.join(built_for)}"]
    )
    return verdict("driver", problems, fine, "install a build of torch that has it, or take a GPU that it serves")


def _precisions(report: DeviceReport) -> str:
    has = [name for name, there in (("bfloat16", report.bfloat16), ("float16", report.float16)) if there]
    return ", ".join(["float32", *has])


def _check_numbers(report: DeviceReport) -> Check:
    shown = ", ".join(f"{kind} {apart:.1e}" for kind, apart in report.apart_nats.items())
    fine = f"a small trial's log-likelihood is the CPU's: apart by {shown} nats"
    far = [kind for kind, apart in report.apart_nats.items() if not apart <= FAR_APART]
    problems = [f"a small trial is apart from the CPU's by {shown} nats, more than the {FAR_APART:g} of rounding"]
    return verdict("numbers", problems if far else [], fine, "trust no run on this GPU; send the report to its maker")


def _check_repeats(report: DeviceReport) -> Check:
    fine = "to the bit" if report.repeats else "to the bit with training.deterministic, not without"
    problems = [] if report.repeats_if_deterministic else ["the same trial gives other weights the second time"]
    remedy = "read a difference of two runs as noise; a newer driver may help"
    return verdict("repeats", problems, fine, remedy)


def _check_memory(about: Mapping[str, Any]) -> Check:
    free, total = about.get("free_bytes", 0), about.get("memory_bytes", 0)
    gib = [f"{size / 2**30:.1f}" for size in (free, total)]
    problems = [f"only {gib[0]} of {gib[1]} GiB are free"] if free < total / 2 else []
    fine = f"{gib[0]} of {gib[1]} GiB free" if total else "the processor's"
    return verdict("memory", problems, fine, "end the processes that hold it (nvidia-smi lists them)")


def _networks(report: DeviceReport) -> list[str]:
    return list(dict.fromkeys(step.network for step in report.steps))


def _steps(report: DeviceReport, kind: str) -> str:
    """Milliseconds by depth, those of a CPU core in brackets."""
    of_kind = [step for step in report.steps if step.network == kind]
    parts = [f"depth {step.depth}: {1e3 * step.device:.3g} ({1e3 * step.cpu:.3g})" for step in of_kind]
    return f"{', '.join(parts)} ms, in brackets on one CPU core; {BATCH} rows"


def _small_networks(report: DeviceReport) -> Iterator[Check]:
    """Hundreds of launches for a few numbers each: what takes a core no longer is cheaper there, as cores are."""
    for kind in _networks(report):
        slower = [step for step in report.steps if step.network == kind and step.cpu <= step.device]
        if slower:
            detail = f"{kind} networks up to depth {slower[-1].depth} take a CPU core no longer than this GPU"
            remedy = "run such spaces on CPU workers (--gpus-per-trial 0): they are cheaper"
            yield Check("cpu workers", False, detail, remedy, fatal=False)


def _check_storage(report: DeviceReport) -> Check:
    remedy = "see `harness doctor --storage` for what each machine may do there"
    seconds = f"written in {report.write_seconds or 0:.2g} s, read in {report.read_seconds or 0:.2g} s"
    fine = f"{report.storage}: {CHECKPOINT_BYTES // 2**20} MiB {seconds}"
    return verdict("storage", [report.storage_error] if report.storage_error else [], fine, remedy)
