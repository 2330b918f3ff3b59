"""MNIST, Fashion-MNIST, SVHN and CIFAR-10 from torchvision, read whole into arrays."""

import hashlib
import http.client
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from harness.data.folders import content_hash, data_folder
from harness.data.splits import Array, LabelledSet, Pool, check_rows
from harness.data.subsets import stratified_subset
from harness.data.torchvision_import import torchvision_datasets
from harness.errors import UserError
from harness.schema.settings import TorchvisionData

_CLASS_NAMES: Final = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST", "svhn": "SVHN", "cifar10": "CIFAR10"}
_N_CLASSES: Final = 10
_NETWORK_TIMEOUT_SECONDS: Final = 30.0  # torchvision sets none: behind a silent firewall it would wait for minutes


def load_pool(settings: TorchvisionData, data_dir: Path | None) -> Pool:
    """The training images. The test set is read too and dropped: damage must show before hours of training."""
    root = _prepare(settings.kind, data_folder(data_dir))
    _read(settings, root, train=False)
    x, y = _read(settings, root, train=True)
    return Pool(x, y, _N_CLASSES)


def load_test(settings: TorchvisionData, data_dir: Path | None) -> LabelledSet:
    root = _prepare(settings.kind, data_folder(data_dir))
    return LabelledSet(*_read(settings, root, train=False))


def data_hash(settings: TorchvisionData, data_dir: Path | None) -> str:
    root = _prepare(settings.kind, data_folder(data_dir))
    files = _Files.of(settings.kind, _dataset_class(settings.kind)).unpacked
    return content_hash(root, [root / name for name in sorted(files)])


# --- files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Files:
    """A data set's files as paths inside the data folder, with the md5 sums that torchvision knows (None: none)."""

    unpacked: Mapping[str, str | None]
    archives: Mapping[str, str]

    @classmethod
    def of(cls, kind: str, dataset: Any) -> "_Files":
        match kind:
            case "svhn":
                return cls({name: md5 for _, name, md5 in (dataset.split_list[s] for s in ("train", "test"))}, {})
            case "cifar10":
                listed = [*dataset.train_list, *dataset.test_list, (dataset.meta["filename"], dataset.meta["md5"])]
                return cls(
                    {f"{dataset.base_folder}/{n}": md5 for n, md5 in listed}, {dataset.filename: dataset.tgz_md5}
                )
            case _:
                archives = {f"{dataset.__name__}/raw/{name}": md5 for name, md5 in dataset.resources}
                return cls({name.removesuffix(".gz"): None for name in archives}, archives)

    def wanted(self, root: Path) -> str:
        """Which files to put where when there is no internet."""
        files = [root / name for name in self.archives or self.unpacked]
        packing = " (compressed or not)" if self.archives else ""
        return f"{', '.join(file.name for file in files)}{packing} into {files[0].parent}"


def _prepare(kind: str, root: Path) -> Path:
    """Every file of training and test set is in `root` and has its md5 sum; missing ones are downloaded."""
    files = _Files.of(kind, _dataset_class(kind))
    missing = [name for name in files.unpacked if not (root / name).is_file()]
    for name, md5 in {**files.unpacked, **(files.archives if missing else {})}.items():
        _check_md5(root / name, md5)
    if missing:
        try:
            _download(kind, files, missing, root)
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{kind} is not complete in {root} and could not be downloaded ({reason}); put {files.wanted(root)}, "
                "or name a folder that has them with --data-dir or HARNESS_DATA_DIR"
            ) from None
    return root


def _check_md5(file: Path, expected: str | None) -> None:
    # Not left to torchvision, which would overwrite the user's file with a download.
    if expected is None or not file.is_file():
        return
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != expected:
        raise UserError(
            f"{file} must have the md5 sum {expected}; it has {found}: delete the damaged file and run again"
        )


def _download(kind: str, files: _Files, missing: list[str], root: Path) -> None:
    """Downloads next to the target, then renames: files in `root` are complete, even with parallel downloads."""
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as folder, _network_timeout():
        staging = Path(folder)
        for name in files.archives:
            if (root / name).is_file():  # the user put it there: unpack it
                (staging / name).parent.mkdir(parents=True, exist_ok=True)
                (staging / name).symlink_to((root / name).resolve())
        for train in (True, False):
            _open(kind, staging, train, download=True)
        for name in missing:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).replace(root / name)


@contextmanager
def _network_timeout() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_NETWORK_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


# --- rows ---------------------------------------------------------------------------------------------------------


def _read(settings: TorchvisionData, root: Path, *, train: bool) -> tuple[Array, Array]:
    """uint8 images `(n, height, width, channels)` and labels 0…9 of one part, cut to the size asked for."""
    where = f"the {settings.kind} {'training' if train else 'test'} files in {root}"
    try:
        dataset = _open(settings.kind, root, train, download=False)
    except (RuntimeError, OSError, ValueError, TypeError, KeyError, AssertionError, NotImplementedError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{where} must be complete; reading them failed: {reason}") from None
    x = np.asarray(dataset.data)
    y = np.asarray(dataset.labels if settings.kind == "svhn" else dataset.targets, dtype=np.int64)
    if settings.kind == "svhn":
        x = x.transpose(0, 2, 3, 1)  # torchvision puts the channels first here
    elif x.ndim == 3:
        x = x[..., None]
    try:
        check_rows(x, y, _N_CLASSES)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    n, name = (settings.n_train, "n_train") if train else (settings.n_test, "n_test")
    if n is not None:
        rows = stratified_subset(y, n, name)
        x, y = x[rows], y[rows]
    return np.ascontiguousarray(x), y


def _open(kind: str, root: Path, train: bool, *, download: bool) -> Any:
    part = {"split": "train" if train else "test"} if kind == "svhn" else {"train": train}
    return _dataset_class(kind)(str(root), download=download, **part)


def _dataset_class(kind: str) -> Any:
    return getattr(torchvision_datasets(), _CLASS_NAMES[kind])
