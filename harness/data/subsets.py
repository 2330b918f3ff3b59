"""Subsets that are the same for every seed, method and machine."""

from collections.abc import Sequence

import numpy as np

from harness.data.splits import Array, some_names
from harness.errors import UserError
from harness.seeds import numpy_generator


def stratified_subset(y: Array, n: int | None, name: str) -> Array:
    """Exactly `n` sorted row numbers in the classes' own proportions, at least one per class; all rows for None.

    Class k gets its share n·count_k / len(y), rounded so that the counts sum to n.
    """
    if n is None:
        return np.arange(len(y))
    labels, counts = np.unique(y, return_counts=True)
    if not len(labels) <= n <= len(y):
        raise UserError(
            f"data.{name} must lie between the number of classes and the number of samples, "
            f"{len(labels)}…{len(y)}; got {n}"
        )
    share = n * counts / len(y)
    taken = np.maximum(np.floor(share).astype(int), 1)
    while taken.sum() < n:
        taken[np.argmax(np.where(taken < counts, share - taken, -np.inf))] += 1
    while taken.sum() > n:  # many rare classes were raised to one
        taken[np.argmax(np.where(taken > 1, taken - share, -np.inf))] -= 1
    rng = numpy_generator(0, name)
    rows = [
        rng.permutation(np.flatnonzero(y == label))[:size] for label, size in zip(labels, taken.tolist(), strict=True)
    ]
    return np.sort(np.concatenate(rows))


RARE = "remove the rows of such a class, merge it with another class, or add rows of it"


def check_class_sizes(y: Array, parts: int, what: str, names: Sequence[str]) -> None:
    """At least two classes, and a sample of each class for every set that is split off from these rows."""
    counts = np.bincount(y)
    if len(counts) < 2:
        raise UserError(f"{what} must hold at least two classes; it holds one, with {len(y)} samples")
    if rare := np.flatnonzero(counts < parts).tolist():
        counted = [f"{name} ({n})" for name, n in zip(names, counts, strict=True)]
        raise UserError(
            f"{what} must hold at least {parts} samples of every class, because it is split into {parts} sets; "
            f"too few have: {some_names(counted, rare)}; {RARE}"
        )
