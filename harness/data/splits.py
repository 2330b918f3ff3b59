"""What a trial is given: one array of rows, and which of them are for training and which for validation."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.data.columns import Column, are_numbers, features_of, fitted
from harness.errors import UserError, brief

Array = NDArray[Any]

_CHUNK_VALUES: Final = 2**20  # read at a time, so that no trial makes a float64 copy of the whole pool


@dataclass(frozen=True)
class Pool:
    """All rows but the test rows, as they came: shared by every seed and every trial on a node, never written to.

    `x` is float32 `(n, features)` for the fc network or uint8 `(n, height, width, channels)` for the conv network.
    Of a table it holds the columns' numbers and the numbers of their categories; which features they make depends on
    the training rows. `val_rows` is set when the data came with their own validation set.
    """

    x: Array
    y: Array
    n_classes: int
    val_rows: Array | None = None
    class_names: tuple[str, ...] = ()  # as the data set calls them; empty: by their numbers
    columns: tuple[Column, ...] = ()  # of a table


@dataclass(frozen=True)
class LabelledSet:
    """Rows with labels; used for the test set, which a trial never receives."""

    x: Array
    y: Array
    as_read: Array | None = None  # the same rows before the training rows decided on their features, if they do

    @property
    def identity(self) -> tuple[bytes, bytes]:
        """Equal where two seeds have the same rows, whatever their training rows made of them."""
        return (self.x if self.as_read is None else self.as_read).tobytes(), self.y.tobytes()


@dataclass(frozen=True)
class TrainingData:
    """Training and validation rows of one seed, as indices into the shared pool: no copy of the rows is made.

    Inputs are used as `(x - mean) / std`, both taken from the training rows: one value per feature or per channel.
    """

    x: Array
    y: Array
    train_rows: Array
    val_rows: Array
    n_classes: int
    mean: Array
    std: Array
    split_hash: str
    class_names: tuple[str, ...]
    columns: tuple[Column, ...] = ()  # of a table, as they were fitted to the training rows

    @property
    def n_train(self) -> int:
        return len(self.train_rows)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample as the network sees it: `(features,)` or `(channels, height, width)`."""
        shape = self.x.shape[1:]
        return (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape


def training_data(pool: Pool, train_rows: Array, val_rows: Array) -> TrainingData:
    """Checks the rows, takes the training rows' statistics and hashes contents and indices."""
    if pool.columns:
        columns = fitted(pool.columns, pool.x[train_rows])
        pool = replace(pool, x=features_of(columns, pool.x), columns=columns)
    check_rows(pool.x, pool.y, pool.n_classes)
    names = pool.class_names or tuple(map(str, range(pool.n_classes)))
    missing = set(range(pool.n_classes)) - set(np.unique(pool.y[train_rows]).tolist())
    if missing:
        raise UserError(
            f"every class needs at least one training sample; classes without one: {some_names(names, missing)} "
            f"({len(train_rows)} training samples, {pool.n_classes} classes)"
        )
    if not len(val_rows):
        raise UserError("there must be validation samples; got none")
    mean, std = statistics_of(pool.x, train_rows)
    if pool.columns:
        numbers = are_numbers(pool.columns)
        mean, std = np.where(numbers, mean, np.float32(0)), np.where(numbers, std, np.float32(1))
    digest = hashlib.sha256()
    for part in (pool.x, pool.y.astype(np.int64), train_rows.astype(np.int64), val_rows.astype(np.int64)):
        digest.update(repr((part.dtype.str, part.shape)).encode())
        digest.update(np.ascontiguousarray(part).data)
    return TrainingData(
        pool.x,
        pool.y,
        train_rows,
        val_rows,
        pool.n_classes,
        mean,
        std,
        split_hash=digest.hexdigest()[:16],
        class_names=names,
        columns=pool.columns,
    )


def some_names(names: Sequence[str], of: Iterable[int], most: int = 5) -> str:
    """The names of these classes, as far as a sentence has room for them."""
    shown = [brief(names[number], longest=40) for number in sorted(of)]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")


def check_rows(x: Array, y: Array, n_classes: int) -> None:
    if len(x) != len(y):
        raise UserError(f"inputs and labels must have the same length; got {len(x)} inputs and {len(y)} labels")
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        bad = int(np.count_nonzero(~np.isfinite(x).reshape(len(x), -1).all(axis=1)))
        raise UserError(f"inputs must be finite; {bad} of {len(x)} samples hold NaN or infinity")
    if len(y) and not (y.min() >= 0 and y.max() < n_classes):
        raise UserError(
            f"labels must lie in 0…{n_classes - 1} ({n_classes} classes); got {int(y.min())}…{int(y.max())}"
        )
    if len(y) < n_classes:
        raise UserError(f"there must be at least one sample per class; got {len(y)} samples for {n_classes} classes")


def statistics_of(x: Array, rows: Array) -> tuple[Array, Array]:
    """Mean and standard deviation over the given rows, per feature or per channel; a constant one keeps std 1.

    Rows are added up before pixels, which is ten times as fast as both at once. Sums of bytes are exact in any order.
    """
    count, total, square = 0, np.zeros(x.shape[-1]), np.zeros(x.shape[-1])
    size = max(1, _CHUNK_VALUES // x[0].size)
    for start in range(0, len(rows), size):
        values = x[rows[start : start + size]].astype(np.float64)
        count += values.size // x.shape[-1]
        total += values.sum(axis=0).reshape(-1, x.shape[-1]).sum(axis=0)
        square += np.square(values).sum(axis=0).reshape(-1, x.shape[-1]).sum(axis=0)
    mean = total / count
    std = np.sqrt(np.maximum(square / count - mean**2, 0.0))
    return mean.astype(np.float32), np.where(std > 1e-7, std, 1.0).astype(np.float32)


def stratified_rows(y: Array, fraction: float, rng: np.random.Generator, at_least: int = 1) -> tuple[Array, Array]:
    """Splits row numbers into (kept, taken): `fraction` of each class is taken, at least `at_least` per class.

    A class never loses its last sample, so the kept rows know every class. One with a single sample gives none.
    """
    kept: list[Array] = []
    taken: list[Array] = []
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        n_taken = min(max(round(fraction * len(rows)), at_least), len(rows) - 1)
        taken.append(rows[:n_taken])
        kept.append(rows[n_taken:])
    return np.sort(np.concatenate(kept)), np.sort(np.concatenate(taken))
