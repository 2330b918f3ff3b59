"""What a trial costs: phases that add up to the time its devices were held, and a count of the work."""

import contextlib
import functools
import resource
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils.flop_counter import FlopCounterMode

from harness.records import PHASES, Cost, TrialConfig
from harness.spaces import PosteriorSettings, UniformPrior
from harness.training.networks import build_network


class PhaseTimer:
    """Times phases; the time between them is `other`. Held time comes from one outer timer, not from the phases.

    A resumed trial starts from what its checkpoint had paid (`before`); the work between that checkpoint and the
    death of the attempt is added as `lost` by whoever saw the death.
    """

    def __init__(self, device: torch.device, before: Cost | None = None, clock: Callable[[], float] | None = None):
        self._clock = clock or time.perf_counter
        self._device = device
        self._held_before = before.held_seconds if before else 0.0
        self._phases = {phase: (before.phases.get(phase, 0.0) if before else 0.0) for phase in PHASES}
        self._began = self._clock()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = self._clock()
        try:
            yield
        finally:
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)  # else the time of queued work would land in a later phase
            self._phases[name] += self._clock() - began

    def charge(self, name: str, seconds: float) -> None:
        """Time that passed before this timer existed, such as the import of torch in a fresh worker."""
        self._phases[name] += seconds
        self._held_before += seconds

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


def flop_per_sample(config: TrialConfig, sample_shape: tuple[int, ...], n_classes: int, train: bool) -> int:
    """Floating point operations per sample: of a training step (forward and backward) or of one forward pass.

    Every block is like every other, so the count is affine in depth: two shallow networks give it exactly.
    """
    # What the count does not depend on is made equal; a prior given as a list would fit the full depth only.
    any_prior = PosteriorSettings(prior=UniformPrior(kind="uniform"), rule="argmax")
    at_one, at_two = (
        _counted_flop(
            config.model_copy(update={"depth": depth, "seed": 0, "posterior": any_prior}),
            sample_shape,
            n_classes,
            train,
        )
        for depth in (1, 2)
    )
    per_block = at_two - at_one
    return at_one + (config.depth - 1) * per_block


@functools.lru_cache(maxsize=256)
def _counted_flop(config: TrialConfig, sample_shape: tuple[int, ...], n_classes: int, train: bool) -> int:
    """By torch's own counter, once per shape, on a network of its own: no trial's state is touched."""
    n = 2  # the least that batch normalisation takes
    network = build_network(config, sample_shape, n_classes).train(train)
    x, y = torch.zeros(n, *sample_shape), torch.zeros(n, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(train):
        if train:
            network.objective(x, y, n_train=n).backward()
        else:
            network(x)
    return int(counter.get_total_flops()) // n


def peak_memory_bytes(device: torch.device) -> int:
    """Of the device on CUDA; on the CPU of the whole process, which a reused worker shares between its trials."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
