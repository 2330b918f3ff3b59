"""Two-dimensional spirals: the paper's toy data, where depth matters because the network is narrow."""

import math

import numpy as np

from harness.data.memory import check_fits
from harness.data.splits import Array, LabelledSet, Pool
from harness.schema.settings import SpiralsData
from harness.seeds import numpy_generator

_BYTES_PER_POINT = 100  # while they are drawn: angle, radius, two coordinates and noise in 64 bits, and the label


def draw(settings: SpiralsData, n: int, rng: np.random.Generator) -> LabelledSet:
    """`n` points, the arms in equal parts: θ = √u · rotation, (θ cos θ, θ sin θ) turned per arm, plus noise."""
    y = np.arange(n) % settings.arms
    theta = np.sqrt(rng.random(n)) * math.radians(settings.rotation_degrees)
    angle = theta + 2 * math.pi * y / settings.arms
    points = np.stack([theta * np.cos(angle), theta * np.sin(angle)], axis=1)
    points += settings.noise * rng.standard_normal((n, 2))
    return LabelledSet(points.astype(np.float32), y.astype(np.int64))


def load_pool(settings: SpiralsData, seed: int) -> Pool:
    """Fresh training and validation points for the seed; the last `n_val` rows are the validation set."""
    most = settings.n_train + settings.n_val + settings.n_test  # the test points come later; too late for a surprise
    check_fits(most * _BYTES_PER_POINT, f"{most:,} points of spirals")
    train = draw(settings, settings.n_train, numpy_generator(seed, "data", "train"))
    val = draw(settings, settings.n_val, numpy_generator(seed, "data", "val"))
    val_rows: Array = np.arange(settings.n_train, settings.n_train + settings.n_val)
    return Pool(np.concatenate([train.x, val.x]), np.concatenate([train.y, val.y]), settings.arms, val_rows)


def load_test(settings: SpiralsData, seed: int) -> LabelledSet:
    return draw(settings, settings.n_test, numpy_generator(seed, "data", "test"))
