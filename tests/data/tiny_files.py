"""Tiny data files in the formats of the real ones."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np

N_TRAIN, N_TEST = 40, 20


def md5(file: Path) -> str:
    return hashlib.md5(file.read_bytes()).hexdigest()


def pixels(n: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, *shape), dtype=np.uint8)


def labels(n: int) -> np.ndarray:
    return np.arange(n) % 10


def idx_bytes(values: np.ndarray) -> bytes:
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return header + values.astype(np.uint8).tobytes()


def write_idx(
    root: Path, name: str, packed: bool = False, n_train: int = N_TRAIN, n_test: int = N_TEST
) -> dict[str, np.ndarray]:
    """The four files of MNIST (or Fashion-MNIST), 28×28; returns what was written by file name."""
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    contents = {
        "train-images-idx3-ubyte": pixels(n_train, 28, 28),
        "train-labels-idx1-ubyte": labels(n_train),
        "t10k-images-idx3-ubyte": pixels(n_test, 28, 28),
        "t10k-labels-idx1-ubyte": labels(n_test),
    }
    for file, values in contents.items():
        data = idx_bytes(values)
        if packed:
            (folder / f"{file}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / file).write_bytes(data)
    return contents
