import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from harness.data import load_pool, load_training_data
from harness.data.splits import Pool, TrainingData, check_rows, statistics_of, stratified_rows, training_data
from harness.errors import UserError
from harness.schema.settings import ArraysData, DataSettings, DigitsData, ImageFolderData, SpiralsData
from harness.seeds import numpy_generator


def _pool(n: int = 12, n_classes: int = 3) -> Pool:
    rng = np.random.default_rng(0)
    return Pool(rng.standard_normal((n, 4)).astype(np.float32), np.arange(n) % n_classes, n_classes)


def _split(pool: Pool, n_train: int = 8) -> TrainingData:
    return training_data(pool, np.arange(n_train), np.arange(n_train, len(pool.y)))


# --- stratified rows ----------------------------------------------------------------------------------------------


@given(
    y=st.lists(st.integers(0, 4), min_size=1, max_size=120),
    fraction=st.floats(0.01, 0.99),
    at_least=st.integers(1, 12),
    seed=st.integers(0, 100),
)
def test_stratified_rows(y: list[int], fraction: float, at_least: int, seed: int) -> None:
    labels = np.array(y)
    kept, taken = stratified_rows(labels, fraction, np.random.default_rng(seed), at_least)
    assert sorted([*kept, *taken]) == list(range(len(y)))  # every row once, so no overlap
    for label in np.unique(labels):
        size, n_taken = int((labels == label).sum()), int((labels[taken] == label).sum())
        assert n_taken == min(max(round(fraction * size), at_least), size - 1)
        assert n_taken < size


def test_another_seed_takes_other_rows() -> None:
    y = np.arange(200) % 4
    splits = [stratified_rows(y, 0.1, numpy_generator(seed, "split"))[1].tolist() for seed in (0, 0, 1)]
    assert splits[0] == splits[1] != splits[2]


def test_digits_of_a_seed() -> None:
    settings = DigitsData(kind="digits")
    pool = load_pool(settings)
    assert pool is not None
    first, again, other = (load_training_data(settings, seed, pool) for seed in (0, 0, 1))
    assert first.split_hash == again.split_hash != other.split_hash
    assert np.intersect1d(first.train_rows, first.val_rows).size == 0
    assert len(first.train_rows) + len(first.val_rows) == len(pool.y)
    per_class = np.bincount(first.y[first.val_rows], minlength=10)
    assert (per_class >= 10).all() and per_class == pytest.approx(0.1 * np.bincount(pool.y), abs=0.5)


# --- hash ---------------------------------------------------------------------------------------------------------


def test_hash_changes_with_contents_and_with_rows() -> None:
    pool = _pool()
    x = pool.x.copy()
    x[3, 1] = np.nextafter(x[3, 1], np.float32(9))
    y = pool.y.copy()
    y[11] = 1
    splits = [
        _split(pool),
        _split(dataclasses.replace(pool, x=x)),
        _split(dataclasses.replace(pool, y=y)),
        _split(pool, n_train=9),
        training_data(pool, np.arange(8)[::-1].copy(), np.arange(8, 12)),
        training_data(pool, np.arange(8), np.array([8, 9, 10])),
        _split(dataclasses.replace(pool, x=pool.x.astype(np.float64))),
    ]
    assert len({split.split_hash for split in splits}) == len(splits)
    assert _split(_pool()).split_hash == splits[0].split_hash


def test_hash_does_not_depend_on_how_the_rows_lie_in_memory() -> None:
    pool = _pool()
    strided = dataclasses.replace(pool, x=np.asfortranarray(pool.x), y=pool.y.astype(np.int32))
    assert _split(strided).split_hash == _split(pool).split_hash


# --- statistics ---------------------------------------------------------------------------------------------------


def test_statistics_come_from_the_training_rows_only() -> None:
    pool = _pool()
    pool.x[8:] = 1e6
    data = _split(pool)
    np.testing.assert_allclose(data.mean, pool.x[:8].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(data.std, pool.x[:8].std(axis=0), rtol=1e-5)


@pytest.mark.parametrize("shape", [(3000, 9, 9, 3), (3000, 37)], ids=["images", "rows"])
def test_statistics_are_to_the_bit_those_of_the_plain_sums(shape: tuple[int, ...]) -> None:
    """In whichever order they are added up: records of earlier versions compare with new ones by such numbers."""
    rng = np.random.default_rng(0)
    whole = len(shape) == 4
    x = rng.integers(0, 256, shape, dtype=np.uint8) if whole else rng.normal(size=shape).astype(np.float32)
    rows, axes = np.sort(rng.permutation(3000)[:2000]), tuple(range(len(shape) - 1))
    values = x[rows].astype(np.float64)
    mean = values.mean(axis=axes)
    std = np.sqrt(np.square(values).mean(axis=axes) - mean**2)
    found = statistics_of(x, rows)
    assert np.array_equal(found[0], mean.astype(np.float32)) and np.array_equal(found[1], std.astype(np.float32))


def test_statistics_of_images_are_per_channel_and_chunked() -> None:
    x = np.random.default_rng(1).integers(0, 256, (20_000, 2, 3, 2), dtype=np.uint8)
    rows = np.arange(0, 20_000, 1)
    mean, std = statistics_of(x, rows)
    np.testing.assert_allclose(mean, x.mean(axis=(0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(std, x.std(axis=(0, 1, 2)), rtol=1e-6)
    assert mean.dtype == std.dtype == np.float32


def test_a_constant_feature_keeps_its_scale() -> None:
    assert statistics_of(np.full((5, 1), 3.0, dtype=np.float32), np.arange(5))[1].tolist() == [1.0]


# --- bad rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (np.array([[1.0], [np.nan], [np.inf]]), [0, 1, 0], "2 of 3 samples hold NaN or infinity"),
        (np.zeros((3, 1)), [0, 1], "3 inputs and 2 labels"),
        (np.zeros((3, 1)), [0, 1, 2], r"labels must lie in 0…1 \(2 classes\); got 0…2"),
        (np.zeros((3, 1)), [0, 1, -1], r"got -1…1"),
        (np.zeros((1, 1)), [0], "1 samples for 2 classes"),
        (np.zeros((0, 1)), [], "0 samples for 2 classes"),
    ],
)
def test_bad_rows_are_refused(x: np.ndarray, y: list[int], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        check_rows(x, np.array(y, dtype=np.int64), n_classes=2)


def test_a_class_without_training_samples_is_refused() -> None:
    pool = _pool()
    with pytest.raises(UserError, match="classes without one: 2 "):
        training_data(pool, np.array([0, 1, 3, 4]), np.array([2, 5]))


def test_no_validation_rows_are_refused() -> None:
    with pytest.raises(UserError, match="validation"):
        training_data(_pool(), np.arange(12), np.arange(0))


def test_rows_and_hashes_of_earlier_versions_stay_what_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As commit d9b44fd gave them: with another hash no finished search would count as done."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    x, y = (np.arange(60 * 8 * 8 * 3) % 251).astype(np.uint8).reshape(60, 8, 8, 3), np.arange(60) % 3
    words = np.array(["b", "a", "c"])[y]
    np.savez(tmp_path / "own.npz", x_train=x, y_train=words)
    for number, (image, word) in enumerate(zip(x, words, strict=True)):
        (tmp_path / "animals" / word).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "animals" / word / f"{number:02d}.png")
    expected: dict[DataSettings, str] = {
        SpiralsData(kind="spirals"): "377a663582b7985e",
        DigitsData(kind="digits"): "0d30bb320bbcf5ad",
        DigitsData(kind="digits", as_images=True): "9be0b3985f40c686",
        ArraysData(kind="arrays", path=str(tmp_path / "own.npz")): "2777e536daea3e2d",
        ImageFolderData(kind="image_folder", path=str(tmp_path / "animals"), size=8): "61d65f37ab6fcd49",
    }
    for settings, split_hash in expected.items():
        assert load_training_data(settings, 1, load_pool(settings)).split_hash == split_hash
