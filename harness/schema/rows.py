"""Of every test row, how well the network that was handed over predicted it: beside the records, for errors over rows.

`rows.bin` holds the log-likelihoods as float32 and whether the predicted class is the right one as bits. A result has
the file's hash, and one of the test rows themselves: seeds that share it were tested on the same rows.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class RowValues:
    """In the order of the test set."""

    log_likelihood: NDArray[np.float32]
    correct: NDArray[np.bool_]

    def packed(self) -> bytes:
        return self.log_likelihood.astype("<f4").tobytes() + np.packbits(self.correct).tobytes()


def hash_of(*parts: bytes) -> str:
    """16 hexadecimal digits."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()[:16]


def read_rows(path: Path | None, n: int, wanted: str | None) -> RowValues | None:
    """None where there is no such file, or another than the result speaks of."""
    if path is None or wanted is None:
        return None
    try:
        packed = path.read_bytes()
    except OSError:
        return None
    if hash_of(packed) != wanted or len(packed) != 4 * n + (n + 7) // 8:
        return None
    correct = np.unpackbits(np.frombuffer(packed[4 * n :], np.uint8), count=n).astype(bool)
    return RowValues(np.frombuffer(packed[: 4 * n], "<f4"), correct)
