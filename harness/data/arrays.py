"""Your own .npz: `x_train`, `y_train` and optionally `x_val`, `y_val`, `x_test`, `y_test`."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from harness.data.folders import own_path
from harness.data.memory import check_fits, too_large
from harness.data.npz import Header, names, read_array, read_headers
from harness.data.splits import Array, LabelledSet, Pool, stratified_rows
from harness.data.subsets import check_class_sizes, stratified_subset
from harness.errors import UserError, nearest
from harness.schema.settings import ArraysData
from harness.seeds import numpy_generator

_PARTS: Final = ("train", "val", "test")
_KNOWN: Final = tuple(f"{axis}_{part}" for part in _PARTS for axis in "xy")
_CHUNK: Final = 256  # samples converted at a time, so that no second float copy of the whole array is made


def load_pool(settings: ArraysData, data_dir: Path | None) -> Pool:
    return _load(settings, data_dir)[0]


def load_test(settings: ArraysData, data_dir: Path | None) -> LabelledSet:
    return _load(settings, data_dir)[1]


def _load(settings: ArraysData, data_dir: Path | None) -> tuple[Pool, LabelledSet]:
    """Pool and test set come from one function, so both are checked and separated before any training."""
    path = own_path(settings.path, data_dir)
    headers = read_headers(path)
    parts = _check_headers(path, headers)
    needed = _needed_bytes([headers[f"x_{part}"] for part in parts], [headers[f"y_{part}"] for part in parts])
    check_fits(needed, str(path))
    try:
        return _read(settings, path, parts)
    except MemoryError:
        raise too_large(needed, str(path)) from None


def _read(settings: ArraysData, path: Path, parts: list[str]) -> tuple[Pool, LabelledSet]:
    x, y, class_names = _read_parts(path, parts)
    n_classes = len(class_names)
    check_class_sizes(y["train"], 1 + ("val" not in y) + ("test" not in y), f"y_train of {path}", class_names)
    if "test" not in y:
        kept, aside = stratified_rows(y["train"], settings.test_fraction, numpy_generator(0, "test"))
        x["test"], y["test"] = x["train"][aside], y["train"][aside]
        x["train"], y["train"] = x["train"][kept], y["train"][kept]
    elif len(y["test"]) < n_classes:
        raise UserError(
            f"{path}: x_test must hold at least as many samples as there are classes, {n_classes}; "
            f"it holds {len(y['test'])}"
        )
    for part, n in (("train", settings.n_train), ("test", settings.n_test)):
        if n is not None:
            rows = stratified_subset(y[part], n, f"n_{part}")
            x[part], y[part] = x[part][rows], y[part][rows]
    test = LabelledSet(x["test"], y["test"])
    if "val" not in y:
        return Pool(x["train"], y["train"], n_classes, class_names=class_names), test
    n_train, n_val = len(y["train"]), len(y["val"])
    pool_x, pool_y = (np.concatenate([values["train"], values["val"]]) for values in (x, y))
    return Pool(pool_x, pool_y, n_classes, np.arange(n_train, n_train + n_val), class_names), test


# --- what the headers say -----------------------------------------------------------------------------------------


def _check_headers(path: Path, headers: dict[str, Header]) -> list[str]:
    """The parts that the file has; all mistakes in names, shapes and types are reported in one sentence."""
    faults = [
        f"unknown array {name!r} ({nearest(name, _KNOWN)})"
        for name in headers
        if name.startswith(("x_", "y_")) and name not in _KNOWN
    ]
    parts = [part for part in _PARTS if part == "train" or {f"x_{part}", f"y_{part}"} & headers.keys()]
    for part in parts:
        missing = {f"x_{part}", f"y_{part}"} - headers.keys()
        if missing:
            faults.append(f"{names(missing)} is missing (the file holds {names(headers)})")
        else:
            faults += _shape_faults(part, headers[f"x_{part}"], headers[f"y_{part}"], headers.get("x_train"))
    if faults:
        raise UserError(f"{path}: {'; '.join(faults)}")
    return parts


def _shape_faults(part: str, x: Header, y: Header, x_train: Header | None) -> list[str]:
    faults = []
    if len(x.shape) not in (2, 3, 4) or x.size == 0:
        faults.append(f"x_{part} must be n×features, n×height×width or n×height×width×channels, and not empty; got {x}")
    elif x.dtype.kind not in "biuf":
        faults.append(f"x_{part} must hold numbers; got {x}")
    elif len(x.shape) == 4 and x.shape[1] in (1, 3) and x.shape[3] > 4:
        faults.append(f"x_{part} must have its channels last (numpy.moveaxis(x, 1, -1)); got {x}")
    elif x_train and x.shape[1:] != x_train.shape[1:]:
        faults.append(
            f"x_{part} must have samples of the same shape as x_train, {x_train.shape[1:]}; got {x.shape[1:]}"
        )
    elif x_train and len(x.shape) > 2 and (x.dtype.kind == "f") != (x_train.dtype.kind == "f"):
        faults.append(f"x_{part} must hold floats or integers like x_train, {x_train.dtype}; got {x.dtype}")
    if y.dtype.kind == "f":
        faults.append(f"y_{part} holds real numbers, {y.dtype}, and this harness compares classifiers")
    elif y.dtype.hasobject:
        faults.append(
            f"y_{part} must hold integers or strings; it holds Python objects, which are not read from files: store it "
            "as np.array(labels, dtype=str)"
        )
    elif y.dtype.kind not in "biuUS":
        faults.append(f"y_{part} must hold integers or strings; got {y.dtype}")
    elif len(y.shape) != 1:
        faults.append(f"y_{part} must be one label per sample (y.reshape(-1) or y.argmax(1)); got shape {y.shape}")
    elif x.shape[:1] != y.shape:
        faults.append(f"x_{part} and y_{part} must have the same length; got {x.shape[:1]} and {y.shape}")
    return faults


def _needed_bytes(stored: list[Header], labels: list[Header]) -> int:
    """The peak: all rows as they are kept, plus one temporary copy; and labels, which may be long words, sorted.

    The copy is an array as it is stored, or all rows again, while they are split or copied to the object store.
    """
    target = np.dtype(np.float32 if len(stored[0].shape) == 2 else np.uint8)
    kept = sum(header.size for header in stored) * target.itemsize
    copy = max([kept, *(header.nbytes for header in stored if header.dtype != target)])
    return kept + copy + sum(2 * header.nbytes for header in labels if header.dtype.kind in "US")


# --- contents -----------------------------------------------------------------------------------------------------


def _read_parts(path: Path, parts: list[str]) -> tuple[dict[str, Array], dict[str, Array], tuple[str, ...]]:
    x: dict[str, Array] = {}
    y: dict[str, Array] = {}
    classes: Array = np.empty(0)
    scale = 1.0
    for part in parts:  # train first: its labels name the classes, its range decides how float images are read
        inputs, labels = read_array(path, f"x_{part}"), read_array(path, f"y_{part}")
        where = f"{path}: x_{part}"
        if part == "train":
            classes = np.unique(labels)
            scale = _scale_of(inputs)
        y[part] = _class_numbers(labels, classes, f"{path}: y_{part}")
        _check_finite(inputs, where)
        x[part] = _as_features(inputs, where) if inputs.ndim == 2 else _as_images(inputs, scale, where)
    return x, y, tuple(_name(label) for label in classes.tolist())


def _name(label: Any) -> str:
    return label.decode("utf-8", errors="replace") if isinstance(label, bytes) else str(label)


def _class_numbers(labels: Array, classes: Array, where: str) -> Array:
    """Labels as positions in the sorted `classes` of the training set."""
    if _label_kind(labels) != _label_kind(classes):
        raise UserError(f"{where} must hold labels of the same kind as y_train, {classes.dtype}; got {labels.dtype}")
    strangers = np.setdiff1d(labels, classes)
    if len(strangers):
        shown = ", ".join(str(label) for label in strangers[:5].tolist())
        raise UserError(f"{where} must hold only labels that y_train has; got {shown} ({len(strangers)} such labels)")
    return np.searchsorted(classes, labels).astype(np.int64)


def _label_kind(labels: Array) -> str:
    return {"U": "text", "S": "bytes"}.get(labels.dtype.kind, "integer")


def _check_finite(x: Array, where: str) -> None:
    if x.dtype.kind != "f":
        return
    bad = sum(int(np.count_nonzero(~np.isfinite(chunk).reshape(len(chunk), -1).all(axis=1))) for chunk in _chunks(x))
    if bad:
        raise UserError(f"{where} must be finite; {bad} of {len(x)} samples hold NaN or infinity")


def _as_features(x: Array, where: str) -> Array:
    """float32 `(n, features)`."""
    if x.dtype == np.float64 and max(float(x.max()), -float(x.min())) > float(np.finfo(np.float32).max):
        raise UserError(f"{where} must fit into 32-bit floats; got values up to {np.abs(x).max():.3g}")
    return np.ascontiguousarray(x, dtype=np.float32)


def _scale_of(x: Array) -> float:
    """Float images in [0, 1] are kept as 0…255; all others have to be in [0, 255] already."""
    return 255.0 if x.dtype.kind == "f" and x.min() >= 0 and x.max() <= 1 else 1.0


def _as_images(x: Array, scale: float, where: str) -> Array:
    """uint8 `(n, height, width, channels)`: round(scale · x)."""
    if x.ndim == 3:
        x = x[..., None]
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    low, high = x.min().item(), x.max().item()
    if low < 0 or high * scale > 255:
        floats = "[0, 1], like x_train's" if scale > 1 else "[0, 1] or all in [0, 255]"
        allowed = floats if x.dtype.kind == "f" else "[0, 255]"
        raise UserError(f"{where} holds images, so its values must lie in {allowed}; got {low:.6g} to {high:.6g}")
    images = np.empty(x.shape, dtype=np.uint8)
    for chunk, target in zip(_chunks(x), _chunks(images), strict=True):
        target[...] = np.rint(chunk * scale) if scale > 1 or x.dtype.kind == "f" else chunk
    return images


def _chunks(x: Array) -> list[Array]:
    return [x[start : start + _CHUNK] for start in range(0, len(x), _CHUNK)]
