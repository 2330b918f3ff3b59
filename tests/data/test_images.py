import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.data import images
from harness.errors import UserError
from harness.schema.settings import TorchvisionData

from .tiny_files import N_TEST, N_TRAIN, idx_bytes, labels, md5, pixels, write_idx

pytestmark = pytest.mark.usefixtures("datasets")  # the import takes longer than the tests

REAL = os.environ.get("HARNESS_DATA_DIR")


def settings(kind: str, **values: Any) -> TorchvisionData:
    return TorchvisionData.model_validate({"kind": kind, **values})


@pytest.mark.parametrize(("kind", "folder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_idx_files_become_uint8_nhwc(kind: str, folder: str, tmp_path: Path) -> None:
    written = write_idx(tmp_path, folder)
    pool = images.load_pool(settings(kind), tmp_path)
    test = images.load_test(settings(kind), tmp_path)
    assert pool.x.dtype == np.uint8 and pool.x.flags.c_contiguous and pool.n_classes == 10 and pool.val_rows is None
    np.testing.assert_array_equal(pool.x[..., 0], written["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(pool.y, labels(N_TRAIN))
    np.testing.assert_array_equal(test.x[..., 0], written["t10k-images-idx3-ubyte"])
    np.testing.assert_array_equal(test.y, labels(N_TEST))


def test_svhn_has_channels_last_and_zero_for_zero(svhn: tuple[Path, dict[str, np.ndarray]]) -> None:
    root, written = svhn
    pool = images.load_pool(settings("svhn"), root)
    test = images.load_test(settings("svhn"), root)
    np.testing.assert_array_equal(pool.x, written["train"])
    np.testing.assert_array_equal(pool.y, labels(N_TRAIN))
    np.testing.assert_array_equal(test.x, written["test"])
    assert pool.x.flags.c_contiguous and pool.y.dtype == np.int64


def test_cifar10_has_channels_last(cifar10: tuple[Path, np.ndarray]) -> None:
    root, written = cifar10
    pool = images.load_pool(settings("cifar10"), root)
    np.testing.assert_array_equal(pool.x, written)
    np.testing.assert_array_equal(pool.y, labels(N_TRAIN))
    assert len(images.load_test(settings("cifar10"), root).y) == N_TEST


def test_the_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path, "MNIST")
    monkeypatch.setenv("HARNESS_DATA_DIR", str(tmp_path))
    assert len(images.load_pool(settings("mnist"), None).y) == N_TRAIN


def test_subset_is_stratified_and_always_the_same(tmp_path: Path) -> None:
    write_idx(tmp_path, "MNIST")
    small = settings("mnist", n_train=20, n_test=10)
    pool, again = images.load_pool(small, tmp_path), images.load_pool(small, tmp_path)
    assert np.bincount(pool.y).tolist() == [2] * 10
    np.testing.assert_array_equal(pool.x, again.x)
    assert np.bincount(images.load_test(small, tmp_path).y).tolist() == [1] * 10


@pytest.mark.parametrize("values", [{"n_train": 41}, {"n_train": 9}, {"n_test": 21}])
def test_subset_must_be_possible_and_shows_before_training(values: dict[str, int], tmp_path: Path) -> None:
    write_idx(tmp_path, "MNIST")
    with pytest.raises(UserError, match=rf"data\.n_\w+ must lie between .*; got {next(iter(values.values()))}$"):
        images.load_pool(settings("mnist", **values), tmp_path)


# --- files that are missing or damaged ----------------------------------------------------------------------------


def test_without_internet_the_files_and_the_folder_are_named(
    tmp_path: Path, datasets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", ["http://127.0.0.1:9/"])  # nothing listens there
    with pytest.raises(UserError) as caught:
        images.load_pool(settings("fashion_mnist"), tmp_path)
    message = str(caught.value)
    for name, _ in datasets.FashionMNIST.resources:
        assert name in message
    assert f"into {tmp_path / 'FashionMNIST' / 'raw'}" in message
    assert "--data-dir or HARNESS_DATA_DIR" in message
    assert "\n" not in message
    assert list(tmp_path.glob(".download-*")) == []


def test_without_internet_svhn_names_its_mat_files(
    svhn: tuple[Path, dict[str, np.ndarray]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(UserError, match=f"put train_32x32.mat, test_32x32.mat into {empty}"):
        images.load_pool(settings("svhn"), empty)


def test_without_internet_cifar10_names_its_archive(
    tmp_path: Path, datasets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.CIFAR10, "url", "http://127.0.0.1:9/")
    with pytest.raises(UserError, match=rf"put cifar-10-python.tar.gz \(compressed or not\) into {tmp_path}"):
        images.load_pool(settings("cifar10"), tmp_path)


def test_a_damaged_file_is_named_and_kept(svhn: tuple[Path, dict[str, np.ndarray]]) -> None:
    """Also the test set's, before any training; torchvision would download over it."""
    root, _ = svhn
    damaged = root / "test_32x32.mat"
    wanted = md5(damaged)
    damaged.write_bytes(b"not what it was")
    with pytest.raises(UserError, match=f"{damaged} must have the md5 sum {wanted}; it has {md5(damaged)}"):
        images.load_pool(settings("svhn"), root)
    assert damaged.read_bytes() == b"not what it was"


def test_a_damaged_archive_is_named(packed_mnist: Path) -> None:
    archive = packed_mnist / "MNIST" / "raw" / "t10k-images-idx3-ubyte.gz"
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(UserError, match=f"{archive} must have the md5 sum"):
        images.load_pool(settings("mnist"), packed_mnist)


def test_a_damaged_cifar_batch_is_never_unpickled(cifar10: tuple[Path, np.ndarray]) -> None:
    root, _ = cifar10
    batch = root / "cifar-10-batches-py" / "data_batch_3"
    batch.write_bytes(b"cos\nabort\n(tR.")  # would end this process
    with pytest.raises(UserError, match="data_batch_3 must have the md5 sum"):
        images.load_pool(settings("cifar10"), root)


def test_a_cut_idx_file_is_one_sentence(tmp_path: Path) -> None:
    write_idx(tmp_path, "MNIST")
    file = tmp_path / "MNIST" / "raw" / "t10k-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(UserError, match=r"the mnist test files in .* must be complete; reading them failed"):
        images.load_pool(settings("mnist"), tmp_path)


def test_labels_must_match_images(tmp_path: Path) -> None:
    write_idx(tmp_path, "MNIST")
    (tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte").write_bytes(idx_bytes(labels(N_TRAIN - 1)))
    with pytest.raises(UserError, match="got 40 inputs and 39 labels"):
        images.load_pool(settings("mnist"), tmp_path)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="could not be downloaded"):
        images.load_pool(settings("mnist"), tmp_path / "file")


# --- unpacking and downloading ------------------------------------------------------------------------------------


def test_archives_that_were_put_there_are_unpacked(packed_mnist: Path) -> None:
    pool = images.load_pool(settings("mnist"), packed_mnist)
    np.testing.assert_array_equal(pool.x[..., 0], pixels(N_TRAIN, 28, 28))
    raw = packed_mnist / "MNIST" / "raw"
    assert len([file for file in raw.iterdir() if file.suffix == ".gz"]) == 4  # the user's own stay
    assert list(packed_mnist.glob(".download-*")) == []


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def mirror(packed_mnist: Path, datasets: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serves the packed files on 127.0.0.1 as MNIST's only mirror."""
    folder = packed_mnist / "MNIST" / "raw"
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setattr(datasets.MNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
        yield folder
        server.shutdown()
        thread.join()


def test_download_leaves_whole_files_only(mirror: Path, tmp_path: Path) -> None:
    root = tmp_path / "new" / "folder"
    pool = images.load_pool(settings("mnist"), root)
    assert len(pool.y) == N_TRAIN
    assert sorted(file.name for file in root.rglob("*") if file.is_file()) == sorted(
        file.name.removesuffix(".gz") for file in mirror.iterdir()
    )


def test_a_download_with_another_md5_sum_is_refused(mirror: Path, tmp_path: Path) -> None:
    (mirror / "train-labels-idx1-ubyte.gz").write_bytes(b"something else")
    with pytest.raises(UserError, match=r"could not be downloaded .*corrupted.*train-labels-idx1-ubyte.gz"):
        images.load_pool(settings("mnist"), tmp_path / "new")
    assert not (tmp_path / "new" / "MNIST").exists()


# --- imports and real files ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_torchvision_is_imported_on_demand_only() -> None:
    code = (
        "import sys, harness.data.images, harness.data.arrays, harness.data.image_folder\n"
        "assert 'torchvision' not in sys.modules\n"
        "from harness.data.torchvision_import import torchvision_datasets\n"
        "assert torchvision_datasets().MNIST"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not REAL, reason="the real data sets are looked for in HARNESS_DATA_DIR, which is not set")
@pytest.mark.parametrize(("kind", "folder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_real_files(kind: str, folder: str) -> None:
    assert REAL is not None
    if not (Path(REAL) / folder / "raw").is_dir():
        pytest.skip(f"no {folder}/raw in {REAL}")
    pool, test = images.load_pool(settings(kind), Path(REAL)), images.load_test(settings(kind), Path(REAL))
    assert pool.x.shape == (60_000, 28, 28, 1) and test.x.shape == (10_000, 28, 28, 1)
    small = images.load_pool(settings(kind, n_train=5000), Path(REAL))
    share = np.bincount(pool.y) / 12
    assert np.abs(np.bincount(small.y) - share).max() < 1
