"""The columns of a table: numbers and categories in, features out, as the training rows say."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.schema.identity import Frozen

Array = NDArray[Any]


class Column(Frozen):
    """A column of a table, and what the training rows made of it."""

    name: str
    categories: tuple[str, ...] | None = None  # a pool holds their positions in here; None: it holds numbers
    may_be_missing: bool = False
    kept: tuple[int, ...] = ()  # the categories that the training rows have: each is a feature
    median: float | None = None  # of the training rows' numbers, in place of a missing one

    @property
    def feature_names(self) -> list[str]:
        if self.categories is None:
            return [self.name]
        return [f"{self.name}={self.categories[number]}" for number in self.kept]


def fitted(columns: Sequence[Column], train: Array) -> tuple[Column, ...]:
    """The columns with what only the training rows decide: which categories there are, and the medians."""
    found = tuple(_fitted(column, values) for column, values in zip(columns, train.T, strict=True))
    if not any(column.feature_names for column in found):
        raise UserError("the table must have at least one column with values, beside its target; it has none")
    return found


def _fitted(column: Column, values: Array) -> Column:
    known = values[~np.isnan(values)]
    if column.categories is not None:
        return column.model_copy(update={"kept": tuple(int(number) for number in np.unique(known))})
    if not column.may_be_missing:
        return column
    if not len(known):
        raise UserError(f"column {column.name!r} has no value in the training rows, so it has no median; drop it")
    return column.model_copy(update={"median": float(np.median(known))})


def features_of(columns: Sequence[Column], values: Array) -> Array:
    """float32 `(n, features)`: a number as it is, or the median in its place; a category as 1 among 0s.

    A category that the training rows do not have, or that is missing, is 0 in all features of its column.
    """
    parts = []
    for column, given in zip(columns, values.T, strict=True):
        if column.categories is not None:
            parts.append(given[:, None] == np.array(column.kept, dtype=np.float32))
        elif column.median is not None:
            parts.append(np.where(np.isnan(given), np.float32(column.median), given)[:, None])
        else:
            parts.append(given[:, None])
    return np.concatenate(parts, axis=1, dtype=np.float32)


def are_numbers(columns: Sequence[Column]) -> Array:
    """For each feature, whether it is a number, to be scaled; a category's 0 and 1 stay as they are."""
    return np.array([column.categories is None for column in columns for _ in column.feature_names])
