"""What a trial costs: phases that add up to the time its devices were held, and a count of the work."""

import contextlib
import functools
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from harness.data.on_device import EVAL_BATCH
from harness.data.splits import TrainingData
from harness.models.build import build_backbone, parameter_count
from harness.models.passes import Passes
from harness.networks import network_of
from harness.schema.networks import NetworkSettings
from harness.schema.records import PHASES, Cost, TrialConfig
from harness.training.devices import threads, wait_for


class PhaseTimer:
    """Times phases; the time between them is `other`. Held time comes from one outer timer, not from the phases.

    A phase inside another takes its time out of that one.

    A resumed trial starts from what its checkpoint had paid (`before`); the work between that checkpoint and the
    death of the attempt is added as `lost` by whoever saw the death.
    """

    def __init__(self, device: torch.device, before: Cost | None = None, clock: Callable[[], float] | None = None):
        self._clock = clock or time.perf_counter
        self._device = device
        self._held_before = before.held_seconds if before else 0.0
        self._phases = {phase: (before.phases.get(phase, 0.0) if before else 0.0) for phase in PHASES}
        self._began = self._clock()
        self._inside = 0.0  # seconds of phases inside the one that is under way

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began, around = self._clock(), self._inside
        self._inside = 0.0
        try:
            yield
        finally:
            wait_for(self._device)
            took = self._clock() - began
            self._phases[name] += took - self._inside
            self._inside = around + took

    @property
    def held_seconds(self) -> float:
        return self._held_before + self._clock() - self._began

    def phases(self, held_seconds: float) -> dict[str, float]:
        """Seconds per phase; they sum to `held_seconds`."""
        named = {phase: seconds for phase, seconds in self._phases.items() if phase != "other"}
        return {**named, "other": max(0.0, held_seconds - sum(named.values()))}


def total(costs: Sequence[Cost]) -> Cost:
    """The cost of a search: the sum over all its trials, which all hold the same share of devices."""
    return Cost(
        held_seconds=sum(cost.held_seconds for cost in costs),
        devices=costs[0].devices if costs else 1.0,
        phases={phase: sum(cost.phases.get(phase, 0.0) for cost in costs) for phase in PHASES},
        tflop=sum(cost.tflop for cost in costs),
        epochs=sum(cost.epochs for cost in costs),
        samples=sum(cost.samples for cost in costs),
        block_passes=sum(cost.block_passes for cost in costs),
        head_passes=sum(cost.head_passes for cost in costs),
        peak_memory_bytes=max((cost.peak_memory_bytes for cost in costs), default=0),
    )


def flop(settings: NetworkSettings, sample_shape: tuple[int, ...], n_classes: int, passes: Passes, train: bool) -> int:
    """Floating point operations of these passes: with the backward pass, or forward alone."""
    parts = _counted_flop(settings, sample_shape, n_classes, max(passes.through, default=0), train)
    through = sum(samples * (parts.stem + sum(parts.blocks[:depth])) for depth, samples in passes.through.items())
    return through + sum(samples * parts.read[depth] for depth, samples in passes.read.items())


class Sizes:
    """Of networks of up to `deepest` blocks: the multiply-adds that one sample's forward pass takes."""

    def __init__(self, settings: NetworkSettings, sample_shape: tuple[int, ...], n_classes: int, deepest: int) -> None:
        self._parts = _counted_flop(settings, sample_shape, n_classes, deepest, train=False)

    def at(self, depth: int, n_heads: int = 1) -> int:
        """Of so many blocks, with a prediction at the deepest `n_heads` depths."""
        read = sum(self._parts.read[depth + 1 - n_heads : depth + 1])
        return (self._parts.stem + sum(self._parts.blocks[:depth]) + read) // 2  # torch counts a multiply-add as two


@dataclass(frozen=True)
class _Parts:
    """Operations of one sample in the parts of a network."""

    stem: int
    blocks: tuple[int, ...]
    read: tuple[int, ...]  # at each depth: readout and output block


@functools.lru_cache(maxsize=256)
def _counted_flop(
    settings: NetworkSettings, sample_shape: tuple[int, ...], n_classes: int, n_blocks: int, train: bool
) -> _Parts:
    """Each part by itself, on a network of its own: no trial's state is touched."""
    n = 2  # the least that batch normalisation takes

    def counted(part: nn.Module, given: Tensor) -> tuple[int, Tensor]:
        with _FlopCounter() as counter, torch.set_grad_enabled(train):  # type: ignore[no-untyped-call]
            out: Tensor = part(given)
            if out.requires_grad:
                out.sum().backward()
        return int(counter.flop) // n, out.detach().requires_grad_(out.requires_grad)

    with threads(1), torch.random.fork_rng(devices=[]):
        backbone = build_backbone(settings, sample_shape, n_classes, n_blocks, n_blocks + 1).train(train)
        head = network_of(settings).head(n_classes, 1).train(train)
        stem, activation = counted(backbone.stem, torch.zeros(n, *sample_shape))
        blocks, read = [], []
        for depth, block in enumerate([None, *backbone.blocks]):
            if block is not None:
                through, activation = counted(block, activation)
                blocks.append(through)
            pooled, features = counted(backbone.readouts[backbone.readout_of[depth]], activation)
            read.append(pooled + counted(head, features[None])[0])
    return _Parts(stem, tuple(blocks), tuple(read))


def trial_bytes(config: TrialConfig, data: TrainingData) -> int:
    """Memory that a trial takes on its device, rows apart: the largest of a training step and an evaluation.

    parameters · 16 + max(batch · (kept + passing), evaluated at once · 3 · largest). Every parameter has a gradient, a
    momentum (AdamW: two, so 20) and a best value beside it, of 4 bytes each. A step keeps activations for its backward
    pass, beside which stand the gradient of a layer and what it is made of, or that of all depths' output blocks; an
    evaluation has a layer's input, output and their sum.
    """
    heads = config.depth + 1 if config.learns_depth else 1
    shapes = (config.network, data.sample_shape, data.n_classes)
    kept, largest = _kept(*shapes, config.depth, heads)
    of_heads = (kept - _kept(*shapes, config.depth, 1)[0]) * heads // max(1, heads - 1)
    step = min(config.training.batch_size, data.n_train) * (kept + max(2 * largest, of_heads))
    evaluated = min(EVAL_BATCH, max(data.n_train, len(data.val_rows)))
    numbers = 5 if config.training.optimiser == "adamw" else 4
    return 4 * numbers * parameter_count(*shapes, config.depth) + max(step, 3 * evaluated * largest)


@functools.lru_cache(maxsize=64)
def _kept(
    settings: NetworkSettings, sample_shape: tuple[int, ...], n_classes: int, n_blocks: int, n_heads: int
) -> tuple[int, int]:
    """Bytes for each sample that a backward pass needs, and of the largest activation among them."""
    (few, largest_of_few), (more, largest_of_more) = (
        _kept_of_batch(settings, sample_shape, n_classes, n_blocks, n_heads, n) for n in (8, 16)
    )  # the difference: what is kept once, whatever the batch, is no sample's
    return (more - few) // 8, (largest_of_more - largest_of_few) // 8


def _kept_of_batch(
    settings: NetworkSettings, sample_shape: tuple[int, ...], n_classes: int, n_blocks: int, n_heads: int, n: int
) -> tuple[int, int]:
    with torch.random.fork_rng(devices=[]):
        backbone = build_backbone(settings, sample_shape, n_classes, n_blocks, n_heads).train()
    own = {tensor.untyped_storage().data_ptr() for tensor in backbone.state_dict().values()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with threads(1), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        log_probs = backbone(torch.zeros(n, *sample_shape))  # while it lives, so does all that it needs
    del log_probs
    return sum(kept.values()), max(kept.values())


class _FlopCounter(TorchDispatchMode):
    """Counts by torch's own formulas. Its own counter would import torch's compiler, which takes a second."""

    flop = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in flop_registry:
            self.flop += int(flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=result))
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def peak_memory_bytes(device: torch.device) -> int:
    """On a GPU what the allocator held, its cache included; on the CPU what the whole process did, which a worker's
    trials share."""
    if device.type != "cpu":
        return int(torch.get_device_module(device).max_memory_reserved(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
