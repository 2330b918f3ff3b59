import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.data import arrays, memory, npz
from harness.errors import UserError
from harness.schema.settings import ArraysData

from .tiny_files import pixels

REAL = os.environ.get("HARNESS_DATA_DIR")
N = 30
Y = np.arange(N) % 3
FEATURES = np.random.default_rng(0).normal(size=(N, 4))
IMAGES = pixels(N, 8, 8, 3)


def save(tmp_path: Path, **contents: Any) -> ArraysData:
    file = tmp_path / "own.npz"
    np.savez(file, **contents)
    return ArraysData(kind="arrays", path=str(file))


def refused(settings: ArraysData, message: str) -> None:
    """`load_pool` already refuses, with one sentence that names the file."""
    with pytest.raises(UserError, match=message) as caught:
        arrays.load_pool(settings, None)
    assert "own.npz" in str(caught.value) and "\n" not in str(caught.value)


# --- what is read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.uint8, bool])
def test_two_dimensions_are_float32_features(dtype: type, tmp_path: Path) -> None:
    x: Any = (np.abs(FEATURES) * 3).astype(dtype)
    pool = arrays.load_pool(save(tmp_path, x_train=x, y_train=Y, x_test=x[:6], y_test=Y[:6]), None)
    assert pool.x.dtype == np.float32 and pool.y.dtype == np.int64 and pool.n_classes == 3
    np.testing.assert_array_equal(pool.x, x.astype(np.float32))


@pytest.mark.parametrize(
    "x",
    [IMAGES, IMAGES.astype(np.int32), IMAGES / 255, (IMAGES / 255).astype(np.float32), IMAGES - 0.3 * (IMAGES > 0)],
    ids=["uint8", "int32", "unit float64", "unit float32", "float to 255"],
)
def test_images_are_uint8_nhwc(x: np.ndarray, tmp_path: Path) -> None:
    settings = save(tmp_path, x_train=x, y_train=Y, x_test=x[:6], y_test=Y[:6])
    pool, test = arrays.load_pool(settings, None), arrays.load_test(settings, None)
    assert pool.x.dtype == test.x.dtype == np.uint8
    np.testing.assert_array_equal(pool.x, IMAGES)
    np.testing.assert_array_equal(test.x, IMAGES[:6])


def test_grey_images_get_a_channel(tmp_path: Path) -> None:
    grey = IMAGES[..., 0]
    pool = arrays.load_pool(save(tmp_path, x_train=grey, y_train=Y, x_test=grey, y_test=Y), None)
    np.testing.assert_array_equal(pool.x, grey[..., None])


def test_more_images_than_a_chunk_are_all_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_CHUNK", 7)
    x = IMAGES / 255
    pool = arrays.load_pool(save(tmp_path, x_train=x, y_train=Y, x_test=x, y_test=Y), None)
    np.testing.assert_array_equal(pool.x, IMAGES)


@pytest.mark.parametrize(
    "names", [np.array(["cat", "ant", "bee"]), np.array([b"c", b"a", b"b"]), np.array([70, -1, 5])]
)
def test_labels_are_numbered_in_sorted_order(names: np.ndarray, tmp_path: Path) -> None:
    settings = save(tmp_path, x_train=FEATURES, y_train=names[Y], x_test=FEATURES[:2], y_test=names[[0, 1]])
    with pytest.raises(UserError, match="at least as many samples as there are classes, 3; it holds 2"):
        arrays.load_pool(settings, None)
    settings = save(tmp_path, x_train=FEATURES, y_train=names[Y], x_test=FEATURES[:3], y_test=names[[0, 1, 2]])
    assert arrays.load_pool(settings, None).y[:3].tolist() == [2, 0, 1]
    assert arrays.load_test(settings, None).y.tolist() == [2, 0, 1]


def test_a_given_validation_set_becomes_rows_of_the_pool(tmp_path: Path) -> None:
    contents = {f"{a}_{part}": v for part in ("train", "val", "test") for a, v in (("x", FEATURES), ("y", Y))}
    settings = save(tmp_path, **contents).model_copy(update={"n_train": 12})
    pool = arrays.load_pool(settings, None)
    assert pool.val_rows is not None
    assert pool.val_rows.tolist() == list(range(12, 12 + N))
    np.testing.assert_array_equal(pool.x[pool.val_rows], FEATURES.astype(np.float32))
    assert np.bincount(pool.y[:12]).tolist() == [4, 4, 4]


def test_without_a_test_set_a_fixed_fifth_is_set_aside(tmp_path: Path) -> None:
    x = np.arange(N, dtype=np.float32)[:, None] + [0, 100]
    settings = save(tmp_path, x_train=x, y_train=Y)
    pool, test = arrays.load_pool(settings, None), arrays.load_test(settings, None)
    assert np.bincount(test.y).tolist() == [2, 2, 2]
    assert sorted([*pool.x[:, 0], *test.x[:, 0]]) == list(range(N))  # every row once: none is in both
    np.testing.assert_array_equal(test.x, arrays.load_test(settings, None).x)
    half = settings.model_copy(update={"test_fraction": 0.5})
    assert len(arrays.load_test(half, None).y) == 15
    few = settings.model_copy(update={"n_train": 9, "n_test": 3})
    assert len(arrays.load_pool(few, None).y) == 9 and len(arrays.load_test(few, None).y) == 3
    assert set(arrays.load_pool(few, None).x[:, 0]) <= set(pool.x[:, 0])


def test_a_relative_path_is_also_looked_for_in_the_data_folder(tmp_path: Path) -> None:
    save(tmp_path, x_train=FEATURES, y_train=Y)
    assert len(arrays.load_pool(ArraysData(kind="arrays", path="own.npz"), tmp_path).y) == 24


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"x_train": FEATURES}, r"y_train is missing \(the file holds x_train\)"),
        ({"x": FEATURES, "y": Y}, r"x_train, y_train is missing \(the file holds x, y\)"),
        ({"x_train": FEATURES, "y_train": Y, "x_test": FEATURES}, "y_test is missing"),
        ({"x_train": FEATURES, "y_train": Y, "x_valid": FEATURES}, r"unknown array 'x_valid' \(did you mean 'x_val'"),
        ({"x_train": FEATURES[:, 0], "y_train": Y}, r"x_train must be n×features.*got float64 of shape \(30,\)"),
        ({"x_train": FEATURES[:0], "y_train": Y[:0]}, "and not empty; got float64 of shape"),
        ({"x_train": IMAGES.transpose(0, 3, 1, 2), "y_train": Y}, r"channels last.*got uint8 of shape \(30, 3, 8, 8\)"),
        ({"x_train": FEATURES.astype(complex), "y_train": Y}, "x_train must hold numbers; got complex128"),
        ({"x_train": FEATURES, "y_train": Y[:-1]}, r"must have the same length; got \(30,\) and \(29,\)"),
        ({"x_train": FEATURES, "y_train": np.eye(3)[Y].astype(int)}, r"one label per sample.*got shape \(30, 3\)"),
        ({"x_train": FEATURES, "y_train": Y / 2}, "y_train holds real numbers, float64, and this harness compares cla"),
        ({"x_train": FEATURES, "y_train": Y.astype(object)}, r"y_train must hold integers .* objects.* dtype=str\)$"),
        ({"x_train": FEATURES, "y_train": Y.astype(str).astype(object)}, r"y_train must .* objects.* dtype=str\)$"),
        (
            {"x_train": FEATURES, "y_train": Y, "x_test": FEATURES[:, :2], "y_test": Y},
            r"x_test must have samples of the same shape as x_train, \(4,\); got \(2,\)",
        ),
        (
            {"x_train": IMAGES, "y_train": Y, "x_test": IMAGES / 255, "y_test": Y},
            "x_test must hold floats or integers like x_train, uint8; got float64",
        ),
        ({"x_train": FEATURES, "y_train": np.zeros(N, int)}, "y_train of .* at least two classes; it holds one"),
        ({"x_train": FEATURES[:4], "y_train": np.array([0, 0, 0, 1])}, "at least 3 samples of every class"),
        (
            {"x_train": FEATURES, "y_train": Y, "x_test": FEATURES, "y_test": Y + 1},
            r"y_test must hold only labels that y_train has; got 3 \(1 such labels\)",
        ),
        (
            {"x_train": FEATURES, "y_train": Y, "x_val": FEATURES, "y_val": Y.astype(str)},
            "y_val must hold labels of the same kind as y_train, int64; got <U",
        ),
        (
            {"x_train": np.where(FEATURES > 2, np.nan, FEATURES), "y_train": Y},
            r"x_train must be finite; \d+ of 30 samples",
        ),
        ({"x_train": FEATURES * 1e60, "y_train": Y}, "x_train must fit into 32-bit floats"),
        ({"x_train": IMAGES - 128.0, "y_train": Y}, r"must lie in \[0, 1\] or all in \[0, 255\]; got -128 to 127"),
        ({"x_train": IMAGES / 200, "y_train": Y, "x_test": IMAGES * 2.0, "y_test": Y}, r"x_test .*got 0 to 510"),
        ({"x_train": IMAGES.astype(int) * 2, "y_train": Y}, r"x_train .* must lie in \[0, 255\]; got 0 to 510"),
        (
            {"x_train": IMAGES / 255, "y_train": Y, "x_test": IMAGES / 1.0, "y_test": Y},
            r"x_test .*must lie in \[0, 1\], like x_train's; got 0 to 255",
        ),
    ],
)
def test_bad_contents(contents: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    refused(save(tmp_path, **contents), message)


def test_all_faults_of_names_and_shapes_come_together(tmp_path: Path) -> None:
    refused(save(tmp_path, x_train=FEATURES, y_train=Y / 2, x_test=FEATURES), "y_train holds real.*; y_test is missing")


def test_missing_and_broken_files(tmp_path: Path) -> None:
    wide = np.tile(FEATURES, (1, 100))  # more than is read for the headers
    settings = save(tmp_path, x_train=wide, y_train=Y)
    file = Path(settings.path)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    refused(settings, "must be a complete .npz file")
    start = whole.index(wide[-1].tobytes())
    file.write_bytes(whole[:start] + b"\x00" * 8 + whole[start + 8 :])
    refused(settings, "x_train must be a complete array; reading it failed: Bad CRC")
    file.unlink()
    refused(settings, "there is no file")
    np.save(file.open("wb"), FEATURES)  # a .npy under the wrong name
    refused(settings, "must be a complete .npz file")


def labels_of_pointers() -> bytes:
    """A pickle that names nothing but NumPy's own: its dtype denies that it holds objects, its bytes are addresses."""
    return b"".join(
        [
            b"\x80\x02cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR",
            b"(K\x01J" + N.to_bytes(4, "little") + b"\x85",
            b"cnumpy\ndtype\n(U\x02O8K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89T" + (8 * N).to_bytes(4, "little") + b"ABCDEFGH" * N + b"tb.",
        ]
    )


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    """In a process of its own: one that does unpickle them ends with a segmentation fault."""
    file = Path(save(tmp_path, x_train=FEATURES, y_train=Y.astype(object)).path)
    with pytest.raises(UserError, match="allow_pickle=False"):
        npz.read_array(file, "y_train")
    header, x = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"shape": (N,), "fortran_order": False, "descr": "|O"})
    np.save(x, FEATURES)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x_train.npy", x.getvalue())
        archive.writestr("y_train.npy", header.getvalue() + labels_of_pointers())
    program = (
        "import sys; from harness.data import arrays; from harness.schema.settings import ArraysData;"
        "arrays.load_pool(ArraysData(kind='arrays', path=sys.argv[1]), None)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 1, "not ended by a signal"
    assert "UserError" in (said := done.stderr.splitlines()[-1]) and "np.array(labels, dtype=str)" in said


# --- memory -------------------------------------------------------------------------------------------------------


def announce(file: Path, shape: tuple[int, ...], dtype: Any) -> ArraysData:
    """A .npz that has the headers of a huge data set and none of its bytes."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, size, kind in (("x_train", shape, dtype), ("y_train", shape[:1], np.int64)):
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                header, {"shape": size, "fortran_order": False, "descr": np.dtype(kind).str}
            )
            archive.writestr(f"{name}.npy", header.getvalue())
    return ArraysData(kind="arrays", path=str(file))


def test_a_file_larger_than_memory_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    settings = announce(tmp_path / "own.npz", (2**20, 32, 32, 3), np.uint8)  # 3 GiB, and the same again while it is cut
    refused(settings, r"own.npz would need about 6\.0 GiB of memory, but only 1\.0 GiB is available")


def test_floats_count_with_their_stored_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    settings = announce(tmp_path / "own.npz", (2**20, 32, 32, 1), np.float64)  # 8 GiB stored, 1 GiB kept
    refused(settings, r"would need about 9\.0 GiB")


def test_memory_that_is_refused_by_the_system_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    settings = announce(tmp_path / "own.npz", (2**40, 32, 32, 3), np.uint8)
    refused(settings, r"own.npz would need about 6,291,456\.0 GiB of memory, but the system refused it")


@pytest.mark.skipif(not REAL, reason="svhn_subset.npz is looked for in HARNESS_DATA_DIR, which is not set")
def test_real_svhn_subset() -> None:
    assert REAL is not None
    if not (Path(REAL) / "svhn_subset.npz").is_file():
        pytest.skip(f"no svhn_subset.npz in {REAL}")
    settings = ArraysData(kind="arrays", path="svhn_subset.npz")
    pool, test = arrays.load_pool(settings, Path(REAL)), arrays.load_test(settings, Path(REAL))
    assert pool.x.shape == (10_000, 32, 32, 3) and test.x.shape == (3_000, 32, 32, 3) and pool.n_classes == 10
