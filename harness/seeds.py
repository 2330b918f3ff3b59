"""One root seed per repeat, split into named streams that do not influence each other.

A stream's seed is a hash of the root seed and the stream's name, so adding a stream never shifts another one, and
`stream(seed, "init", depth)` is the same network in every search method.
"""

import contextlib
import hashlib
from collections.abc import Iterator

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


@contextlib.contextmanager
def torch_seeded(root_seed: int, *name: str | int) -> Iterator[None]:
    """Seeds torch's global generator inside the block only: module initialisers take no generator of their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(root_seed, *name))
        yield
