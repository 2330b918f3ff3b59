"""Tiny copies of the real data sets, in folders of their own."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import scipy.io

from harness.data.torchvision_import import torchvision_datasets

from .tiny_files import N_TEST, N_TRAIN, labels, md5, pixels, write_idx


@pytest.fixture(scope="session")
def datasets() -> Any:
    return torchvision_datasets()


@pytest.fixture(autouse=True)
def _no_user_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither read nor write the user's own cache, and connect to this machine only, not through a proxy."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HARNESS_DATA_DIR", raising=False)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def folder_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own to stand in, and no Ray."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def start(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(ray, "init", start)


@pytest.fixture
def packed_mnist(tmp_path: Path, datasets: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with MNIST as .gz files whose md5 sums torchvision is told."""
    root = tmp_path / "packed"
    write_idx(root, "MNIST", packed=True)
    monkeypatch.setattr(
        datasets.MNIST,
        "resources",
        [(name, md5(root / "MNIST" / "raw" / name)) for name, _ in datasets.MNIST.resources],
    )
    return root


@pytest.fixture
def svhn(tmp_path: Path, datasets: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, np.ndarray]]:
    """SVHN's two .mat files (10 stands for the digit 0, samples last), with md5 sums told to torchvision."""
    written, split_list = {}, {}
    for split, n in (("train", N_TRAIN), ("test", N_TEST)):
        written[split] = pixels(n, 32, 32, 3)
        digits = np.where(labels(n) == 0, 10, labels(n))
        file = tmp_path / f"{split}_32x32.mat"
        scipy.io.savemat(file, {"X": written[split].transpose(1, 2, 3, 0), "y": digits[:, None].astype(np.uint8)})
        split_list[split] = ["http://127.0.0.1:9/", file.name, md5(file)]
    monkeypatch.setattr(datasets.SVHN, "split_list", split_list)
    return tmp_path, written


@pytest.fixture
def cifar10(tmp_path: Path, datasets: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, np.ndarray]:
    """CIFAR-10's pickled batches, their md5 sums told to torchvision; returns the training images."""
    folder = tmp_path / datasets.CIFAR10.base_folder
    folder.mkdir()
    images = pixels(N_TRAIN, 32, 32, 3)

    def write(name: str, entry: dict[str, Any]) -> list[str]:
        (folder / name).write_bytes(pickle.dumps(entry))
        return [name, md5(folder / name)]

    def batch(rows: np.ndarray) -> np.ndarray:
        return rows.transpose(0, 3, 1, 2).reshape(len(rows), -1)  # channels first, flat

    part = N_TRAIN // 5
    train_list = [
        write(
            f"data_batch_{i + 1}", {"data": batch(chunk), "labels": labels(N_TRAIN)[i * part : (i + 1) * part].tolist()}
        )
        for i, chunk in enumerate(np.split(images, 5))
    ]
    test_list = [write("test_batch", {"data": batch(pixels(N_TEST, 32, 32, 3)), "labels": labels(N_TEST).tolist()})]
    meta = write("batches.meta", {"label_names": [str(i) for i in range(10)]})
    monkeypatch.setattr(datasets.CIFAR10, "train_list", train_list)
    monkeypatch.setattr(datasets.CIFAR10, "test_list", test_list)
    monkeypatch.setattr(datasets.CIFAR10, "meta", {**datasets.CIFAR10.meta, "md5": meta[1]})
    return tmp_path, images
