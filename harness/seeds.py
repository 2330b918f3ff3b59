"""One root seed per repeat, split into named streams that do not influence each other.

A stream's seed is a hash of the root seed and the stream's name, so adding a stream never shifts another one, and
`stream(seed, "init", depth)` is the same network in every search method.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch


def stream(root_seed: int, *name: str | int) -> int:
    """The seed of one named stream: 63 bits of SHA-256(root seed, name)."""
    digest = hashlib.sha256(repr((root_seed, *name)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def numpy_generator(root_seed: int, *name: str | int) -> np.random.Generator:
    return np.random.default_rng(stream(root_seed, *name))


def torch_generator(root_seed: int, *name: str | int) -> torch.Generator:
    return torch.Generator().manual_seed(stream(root_seed, *name))


class OwnRandomness:
    """Torch's global generators, of the CPU and of a device, as somebody's own: layers such as dropout take no other.

    Inside `drawn` they go on where they were left there; outside they are as if nothing had been drawn.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self.states: list[torch.Tensor] = []  # what a checkpoint must hold; none before the first use
        self._seed = seed
        self._device = None if device.type == "cpu" else device

    @contextlib.contextmanager
    def drawn(self) -> Iterator[None]:
        before = self._current()
        if self.states:
            self._set(self.states)
        else:
            torch.manual_seed(self._seed)
        try:
            yield
        finally:
            self.states = self._current()
            self._set(before)

    def _current(self) -> list[torch.Tensor]:
        states = [torch.get_rng_state()]
        return [*states, torch.get_device_module(self._device).get_rng_state(self._device)] if self._device else states

    def _set(self, states: Sequence[torch.Tensor]) -> None:
        if self._device:
            torch.get_device_module(self._device).set_rng_state(states[1], self._device)
        torch.set_rng_state(states[0])


@contextlib.contextmanager
def torch_seeded(root_seed: int, *name: str | int) -> Iterator[None]:
    """Seeds torch's global generator inside the block only: module initialisers take no generator of their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(root_seed, *name))
        yield
