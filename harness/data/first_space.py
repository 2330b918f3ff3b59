"""A first search space for somebody's data: looks at the file or folder and writes settings that run as they are."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from harness.data import arrays, table
from harness.data.image_folder import list_files
from harness.data.npz import read_headers
from harness.data.splits import Array
from harness.errors import UserError, brief
from harness.schema.networks import networks_for
from harness.schema.settings import ArraysData
from harness.spaces import known_spaces
from harness.text.files import checked_path

MOST_IMAGES: Final = 6_000  # of a first space: minutes on a laptop
MOST_PIXELS: Final = 64  # in height and width
_IMAGES_LOOKED_AT: Final = 50
_STEPS: Final = {"fc": 600, "conv": 400}  # of a training, about: where networks of this size have settled
_EPOCHS: Final = (12, 60)


@dataclass(frozen=True)
class Look:
    """What was found, and the settings of `data` that follow from it."""

    what: str  # "569 rows of x.csv, 30 features"
    class_names: Sequence[str]
    n_train: int  # rows for training, once test and validation rows are set aside
    network: str  # kind
    inputs: int  # numbers of a row
    data: dict[str, Any]
    remarks: list[str] = field(default_factory=list)


def name_for(path: Path) -> str:
    """The file's name as a space may have it, and none that is taken: results are kept under it."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", path.resolve().stem).lstrip("_.-") or "mine"
    return f"my_{plain}" if plain in known_spaces() else plain


def first_space(given: str, target: str | None) -> str:
    """The text of a commented space. Nothing is written."""
    path = checked_path(given, "the data").expanduser()
    if path.is_dir():
        look = _look_at_folder(path, given)
    elif path.suffix.lower() == ".npz":
        look = _look_at_arrays(path, given)
    elif path.suffix.lower() in table.SUFFIXES:
        look = _look_at_table(path, given, target)
    else:
        raise UserError(f"the data must be a .csv, .parquet or .npz file or a folder of images; got {given}")
    if target is not None and look.data["kind"] != "table":
        raise UserError(f"--target names a column of a table; {given} is none")
    return "\n".join(_written(look, given, target)) + "\n"


# --- looking ------------------------------------------------------------------------------------------------------


def _look_at_table(path: Path, given: str, target: str | None) -> Look:
    separator = _separator(path)
    found = table.read_table(path, target or "", separator)
    names = found.column_names
    if target is None or target not in names:
        shown = ", ".join(brief(name, 40) for name in names[:20]) + (" …" if len(names) > 20 else "")
        lack = "needs --target, the column that holds the classes" if target is None else f"has no column {target!r}"
        raise UserError(f"{path} {lack}; it has {shown}")
    y, class_names = table.class_numbers(found.column(target), f"{path}: target {target!r}")
    data: dict[str, Any] = {"kind": "table", "path": given, "target": target}
    drop: dict[str, str] = {}
    categorical: dict[str, str] = {}
    missing: dict[str, int] = {}
    features = 0
    for name in names:
        if name == target:
            continue
        values = found.column(name)
        categories = [] if table.holds_numbers(values) else table.categories_of(values)
        if name == "" or (table.holds_numbers(values) and _counts_rows(values)):
            drop[name] = "row numbers"
        elif categories is None:
            drop[name] = str(values.type)
        elif len(categories) > min(table.MOST_CATEGORIES, len(y) // 2):
            drop[name] = f"{len(categories):,} different words in {len(y):,} rows"
        elif table.is_mixed(categories):
            categorical[name] = "numbers and words"
        if name not in drop:
            features += len(categories or ()) or 1
            if count := table.missing_in(values):
                missing[name] = count
    remarks = [
        *(f"Left out: {_quoted(name)}, {why}." for name, why in drop.items()),
        *(f"Every value of {_quoted(name)} is a category: it holds {why}." for name, why in categorical.items()),
    ]
    if missing:
        counts = ", ".join(f"{_quoted(name)} ({count:,})" for name, count in list(missing.items())[:5])
        more = f" and {len(missing) - 5} more columns" if len(missing) > 5 else ""
        remarks.append(f"Values are missing in {counts}{more}: the median of the training rows stands in for them.")
    data |= {"drop": list(drop)} if drop else {}
    data |= {"categorical": list(categorical)} if categorical else {}
    data |= {"missing": "median"} if missing else {}
    data |= {"separator": separator} if separator != "," and path.suffix.lower() == ".csv" else {}
    what = f"{len(y):,} rows of {path.name}, {features:,} features"
    return Look(what, class_names, round(0.6 * len(y)), "fc", features, {**data, "val_fraction": 0.25}, remarks)


def _separator(path: Path) -> str:
    """What stands between the names of a .csv: the candidate that its first line has most of."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return ","
    with path.open("rb") as file:
        first = file.readline(1_000_000).decode("utf-8", errors="replace")
    return max(table.SEPARATORS, key=first.count)


def _counts_rows(values: Any) -> bool:
    """0, 1, 2, … or 1, 2, 3, …: a number that says where a row stood."""
    numbers: Array = np.asarray(values.to_numpy())
    return bool(
        len(numbers) > 2 and numbers.dtype.kind in "iu" and numbers[0] in (0, 1) and (np.diff(numbers) == 1).all()
    )


def _look_at_arrays(path: Path, given: str) -> Look:
    headers = read_headers(path)
    data: dict[str, Any] = {"kind": "arrays", "path": given}
    pool = arrays.load_pool(ArraysData(kind="arrays", path=str(path)), None)
    n, shape = len(pool.y), pool.x.shape[1:]
    images = len(shape) == 3
    remarks = []
    if images and n > MOST_IMAGES:
        data["n_train"] = n = MOST_IMAGES
        remarks.append(f"{MOST_IMAGES:,} of the images, in the classes' proportions; without n_train all of them.")
    if "x_val" not in headers:
        data["val_fraction"] = 0.25
        n = round(0.75 * n)
    kind = "images" if images else "rows"
    what = f"{len(pool.y):,} {kind} of {path.name}, {' × '.join(map(str, shape))} each"
    return Look(what, pool.class_names, n, "conv" if images else "fc", math.prod(shape), data, remarks)


def _look_at_folder(path: Path, given: str) -> Look:
    listing = list_files(path)
    sides = [_sides(file) for file in listing.files[:: max(1, len(listing.files) // _IMAGES_LOOKED_AT)]]
    size = max(6, min(MOST_PIXELS, round(float(np.median(sides)))))
    n_train = int(np.count_nonzero(listing.parts == "train"))
    data: dict[str, Any] = {"kind": "image_folder", "path": given, "size": size}
    if "test" not in listing.parts:
        n_train = round(0.8 * n_train)
    if "val" not in listing.parts:
        data["val_fraction"] = 0.25
        n_train = round(0.75 * n_train)
    remarks = [f"Images of {path.name} are resized to {size} × {size} pixels."] if set(sides) != {size} else []
    what = f"{len(listing.files):,} images of {path.name}"
    return Look(what, listing.classes, n_train, "conv", size * size, data, remarks)


def _sides(file: Path) -> float:
    """The mean of height and width, from the file's head; a broken image is told by whoever decodes it."""
    try:
        with Image.open(file) as image:
            return (image.width + image.height) / 2
    except Exception:  # every file format raises its own errors
        return 32.0


# --- writing ------------------------------------------------------------------------------------------------------


def _written(look: Look, given: str, target: str | None) -> Iterator[str]:
    asked = f"harness init {given}" + ("" if target is None else f" --target {target}")
    largest = {"fc": 8, "conv": 6}[look.network]
    names = ", ".join(brief(name, 30) for name in look.class_names[:5]) + (" …" if len(look.class_names) > 5 else "")
    classes = f"{len(look.class_names)} classes ({names})"
    yield f"# Written by {_quoted(asked)}. `harness show` explains every setting, those that are not here too."
    yield f"description: {_quoted(f'{look.what}, {classes}, depths 0 to {largest}.')}"
    for remark in look.remarks:
        yield f"# {remark}"
    if "val_fraction" in look.data:
        yield "# A quarter of the rows outside the test set is used for validation;"
        yield "# with fewer, individual rows would decide between depths."
    yield "data:"
    for key, value in look.data.items():
        yield f"  {key}: {value if isinstance(value, int | float) else _quoted(value)}"
    if look.network == "fc":
        yield f"network: {{kind: fc, width: {32 if look.inputs <= 256 else 64}}}"
    else:
        yield "network: {kind: conv, channels: 32, bottleneck: 16}"
    others = [kind for kind in networks_for(images=look.network == "conv") if kind != look.network]
    yield f"# Others: {', '.join(others)} (`harness show {others[0]}`), or a path to your own .py file."
    yield f"depth: {{min: 0, max: {largest}}}"
    yield "posterior: {rule: threshold}"
    yield from _schedule(look.network, look.n_train)
    yield f"budget: {{trials: {largest // 2 + 1}, early_stopping_trials: {largest + 1}}}"


def _schedule(network: str, n_train: int) -> Iterator[str]:
    """About as many steps whatever the size of the data, within bounds on epochs."""
    most = {"fc": 512, "conv": 128}[network]
    batch = max(16, min(most, 2 ** int(math.log2(max(16, n_train / 8)))))
    steps = math.ceil(n_train / batch)
    low, high = _EPOCHS
    epochs = max(low, min(high, 6 * math.ceil(_STEPS[network] / steps / 6)))
    every = 2 if epochs >= 40 else 1
    yield "# The rate drops after two thirds of the epochs and nothing stops before the last one: every network is"
    yield "# compared after it has settled. Where `harness compare` cannot tell depths apart, more epochs help."
    yield "training:"
    yield f"  max_epochs: {epochs}"
    yield f"  patience: {epochs}"
    yield f"  lr_drop_epoch: {2 * epochs // 3}"
    yield f"  batch_size: {batch}  # {n_train:,} rows train: {steps} steps an epoch"
    yield f"  eval_every: {every}"
    yield f"  report_every: {every}"


def _quoted(value: Any) -> str:
    """JSON is YAML, in a comment too: no line break and no quote gets out."""
    return json.dumps(value, ensure_ascii=False)
