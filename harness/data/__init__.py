"""Data sets: settings in, rows out. The pool is what a node holds once; a seed is two lists of its rows.

`load_test` is called by `final.evaluate_on_test` and by nothing else.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import numpy as np

from harness.data import arrays, digits, image_folder, images, spirals, table
from harness.data.columns import features_of
from harness.data.folders import content_hash, own_path
from harness.data.splits import (
    Array,
    LabelledSet,
    Pool,
    TrainingData,
    check_rows,
    some_names,
    stratified_rows,
    training_data,
)
from harness.data.subsets import RARE
from harness.errors import UserError
from harness.schema.settings import ArraysData, DataSettings, DigitsData, ImageFolderData, SpiralsData, TableData
from harness.seeds import numpy_generator

__all__ = [
    "LabelledSet",
    "Pool",
    "TrainingData",
    "data_hash",
    "load_pool",
    "load_test",
    "load_training_data",
    "own_files",
    "watched_test_set",
]

LEAST_OF_A_CLASS = 10  # in the validation rows, where a class has that many


def load_pool(settings: DataSettings, data_dir: Path | None = None) -> Pool | None:
    """The rows that all seeds share, loaded once per node; None where every seed draws its own (spirals)."""
    match settings:
        case SpiralsData():
            return None
        case DigitsData():
            return digits.load_pool(settings)
        case ArraysData():
            return arrays.load_pool(settings, data_dir)
        case ImageFolderData():
            return image_folder.load_pool(settings, data_dir)
        case TableData():
            return table.load_pool(settings, data_dir)
        case _:
            return images.load_pool(settings, data_dir)


def data_hash(settings: DataSettings, data_dir: Path | None = None) -> str | None:
    """Of the bytes of its files, test rows included; None where rows are drawn, or come with scikit-learn.

    Files that are not there, or not as they must be, have none: whoever loads them says what is wrong.
    """
    with contextlib.suppress(OSError):
        match settings:
            case SpiralsData() | DigitsData():
                return None
            case ArraysData() | TableData():
                file = own_path(settings.path, data_dir)
                return content_hash(file, [file]) if file.is_file() else None
            case ImageFolderData():
                return image_folder.list_files(own_path(settings.path, data_dir)).content
            case _:
                return images.data_hash(settings, data_dir)
    return None


def own_files(settings: DataSettings, data_dir: Path | None = None) -> dict[str, Path]:
    """The files of a user's own data by their names below `path`, which is "" for a single file; of others none."""
    match settings:
        case ArraysData() | TableData():
            file = own_path(settings.path, data_dir)
            return {"": file} if file.is_file() else {}
        case ImageFolderData():
            root = own_path(settings.path, data_dir)
            return {file.relative_to(root).as_posix(): file for file in image_folder.list_files(root).files}
        case _:
            return {}


def load_training_data(settings: DataSettings, seed: int, pool: Pool | None = None) -> TrainingData:
    """Training and validation rows of one seed."""
    if isinstance(settings, SpiralsData):
        pool = spirals.load_pool(settings, seed)
    else:
        pool = pool or load_pool(settings)
        assert pool is not None
    if pool.val_rows is not None:
        val_rows = pool.val_rows
        train_rows = np.setdiff1d(np.arange(len(pool.y)), val_rows)
    else:
        assert not isinstance(settings, SpiralsData)
        rng = numpy_generator(seed, "split")
        train_rows, val_rows = stratified_rows(pool.y, settings.val_fraction, rng, at_least=LEAST_OF_A_CLASS)
        _check_validation(pool, val_rows, settings.val_fraction)
    return training_data(pool, train_rows, val_rows)


def _check_validation(pool: Pool, val_rows: Array, fraction: float) -> None:
    """A class that validation has never seen would be chosen blindly."""
    counts = np.bincount(pool.y, minlength=pool.n_classes)
    missing = np.setdiff1d(np.arange(pool.n_classes), pool.y[val_rows]).tolist()
    if missing:
        names = pool.class_names or tuple(map(str, range(pool.n_classes)))
        raise UserError(
            f"a validation share of {fraction:g} must leave every class samples for training and for validation; "
            f"classes without a validation sample: {some_names(names, missing)}; the smallest of them has "
            f"{counts[missing].min()}; {RARE}, or raise data.val_fraction or data.n_train"
        )


def load_test(settings: DataSettings, seed: int, data: TrainingData, data_dir: Path | None = None) -> LabelledSet:
    """The test rows, checked like the training rows and with the features that those have."""
    match settings:
        case SpiralsData():
            test = spirals.load_test(settings, seed)
        case DigitsData():
            test = digits.load_test(settings)
        case ArraysData():
            test = arrays.load_test(settings, data_dir)
        case ImageFolderData():
            test = image_folder.load_test(settings, data_dir)
        case TableData():
            raw = table.load_test(settings, data_dir)
            x = features_of(data.columns, raw.x)
            test = LabelledSet(x, raw.y, as_read=None if np.array_equal(x, raw.x) else raw.x)
        case _:
            test = images.load_test(settings, data_dir)
    check_rows(test.x, test.y, data.n_classes)
    return test


@contextlib.contextmanager
def watched_test_set() -> Iterator[list[str]]:
    """Notes each time that the block opens a test set: any `load_test` of this package, by whatever name imported."""
    opened: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        module = str(frame.f_globals.get("__name__"))
        if event == "call" and frame.f_code.co_name == load_test.__name__ and module.startswith(__name__):
            opened.append(module)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield opened
    finally:
        sys.setprofile(before)
