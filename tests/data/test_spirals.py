import math

import numpy as np
import pytest

from harness.data import load_test, load_training_data
from harness.data.spirals import draw
from harness.schema.settings import SpiralsData


def test_points_lie_on_their_arm() -> None:
    """Without noise the radius is the angle along the arm, and arm k is turned by 2πk/arms."""
    settings = SpiralsData(kind="spirals", arms=3, rotation_degrees=540.0, noise=0.0)
    points = draw(settings, 300, np.random.default_rng(0))
    radius = np.linalg.norm(points.x, axis=1)
    assert radius.max() <= math.radians(540) and radius.max() > 0.9 * math.radians(540)
    turned = np.exp(1j * (radius + 2 * np.pi * points.y / 3)) * radius
    np.testing.assert_allclose(points.x[:, 0] + 1j * points.x[:, 1], turned, atol=1e-4)
    assert np.bincount(points.y).tolist() == [100, 100, 100]


def test_angles_are_square_roots_of_uniform_numbers() -> None:
    settings = SpiralsData(kind="spirals", noise=0.0)
    radius = np.linalg.norm(draw(settings, 20_000, np.random.default_rng(0)).x, axis=1)
    u = np.sort((radius / math.radians(720)) ** 2)
    assert np.abs(u - (np.arange(20_000) + 0.5) / 20_000).max() < 0.02  # Kolmogorov–Smirnov at far below one in 1e6


def test_noise_has_its_standard_deviation() -> None:
    noisy, clean = (
        draw(SpiralsData(kind="spirals", noise=noise), 5000, np.random.default_rng(0)) for noise in (0.15, 0.0)
    )
    assert (noisy.x - clean.x).std(axis=0) == pytest.approx(0.15, rel=0.05)


def test_a_seed_draws_sets_of_its_own() -> None:
    settings = SpiralsData(kind="spirals", n_train=50, n_val=30, n_test=40)
    data = load_training_data(settings, seed=0)
    test = load_test(settings, 0, data)
    sizes = (len(data.train_rows), len(data.val_rows), len(test.y), len(data.x))
    assert sizes == (50, 30, 40, 80)
    rows = {tuple(row) for row in np.concatenate([data.x, test.x]).tolist()}
    assert len(rows) == 120, "training, validation and test points are all different"
    assert load_training_data(settings, seed=0).split_hash == data.split_hash
    assert load_training_data(settings, seed=1).split_hash != data.split_hash


def test_the_size_of_one_set_does_not_change_another() -> None:
    small, large = (load_training_data(SpiralsData(kind="spirals", n_train=n, n_val=30), seed=0) for n in (50, 60))
    np.testing.assert_array_equal(small.x[small.val_rows], large.x[large.val_rows])
