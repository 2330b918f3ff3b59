"""Your own images: a folder per class, in train/, val/ and test/ or in none. Decoded and resized once, and kept."""

import functools
import hashlib
import logging
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageOps

from harness.data.folders import cache_dir, content_hash, own_path
from harness.data.memory import check_fits
from harness.data.splits import Array, LabelledSet, Pool, stratified_rows
from harness.data.subsets import check_class_sizes
from harness.errors import UserError
from harness.schema.settings import ImageFolderData
from harness.seeds import numpy_generator

_SUFFIXES: Final = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
PARTS: Final = ("train", "val", "test")
_PART_NAMES: Final = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_DECODER: Final = 1  # part of the cache key: raise it whenever the same files would give other pixels

_log = logging.getLogger(__name__)


def load_pool(settings: ImageFolderData, data_dir: Path | None) -> Pool:
    x, listing, rows = _load(settings, data_dir)
    n_train, n_val = len(rows["train"]), len(rows["val"])
    pool_rows = np.concatenate([rows["train"], rows["val"]])
    val_rows = np.arange(n_train, n_train + n_val) if n_val else None
    return Pool(x[pool_rows], listing.y[pool_rows], len(listing.classes), val_rows, listing.classes)


def load_test(settings: ImageFolderData, data_dir: Path | None) -> LabelledSet:
    x, listing, rows = _load(settings, data_dir)
    return LabelledSet(x[rows["test"]], listing.y[rows["test"]])


def _load(settings: ImageFolderData, data_dir: Path | None) -> tuple[Array, "Listing", dict[str, Array]]:
    """Images, files, and the rows of each part. The test set is the same for all seeds."""
    listing = list_files(own_path(settings.path, data_dir))
    rows = {part: np.flatnonzero(listing.parts == part) for part in PARTS}
    parts = 1 + sum(not len(rows[part]) for part in ("val", "test"))
    check_class_sizes(listing.y[rows["train"]], parts, f"data.path {listing.root}", listing.classes)
    # RGB, and twice: the whole array and its two parts.
    check_fits(2 * len(listing.files) * settings.size**2 * 3, f"{listing.root} at size {settings.size}")
    if not len(rows["test"]):
        y = listing.y[rows["train"]]
        kept, aside = stratified_rows(y, settings.test_fraction, numpy_generator(0, "test"))
        rows["test"], rows["train"] = rows["train"][aside], rows["train"][kept]
    elif len(rows["test"]) < len(listing.classes):
        raise UserError(
            f"the test images of {listing.root} must be at least as many as there are classes, {len(listing.classes)}; "
            f"there are {len(rows['test'])}"
        )
    return _cached_images(listing, settings.size), listing, rows


@dataclass(frozen=True)
class Listing:
    """Image files in a fixed order, with the number of their class in the sorted `classes` and their part."""

    root: Path
    classes: tuple[str, ...]
    files: tuple[Path, ...]
    y: Array
    parts: Array  # of PARTS; all train where there is a folder per class

    @functools.cached_property
    def content(self) -> str:
        """A hash of the names and bytes of the files."""
        return content_hash(self.root, self.files)


def list_files(root: Path) -> Listing:
    """Every class and every image below a folder, or what is wrong with it."""
    if not root.is_dir():
        raise UserError(f"data.path must name a folder with one folder of images per class; there is no folder {root}")
    folders = _parts_in(root) or {"train": root}
    members = {part: _members(folder) for part, folder in folders.items()}
    classes = tuple(members["train"])
    for part, found in members.items():
        if strangers := sorted(found.keys() - set(classes)):
            raise UserError(
                f"{folders[part]} must hold only classes that {folders['train']} has; it also holds "
                f"{', '.join(strangers[:5])}"
            )
    listed = [
        (file, number, part)
        for part, found in members.items()
        for number, name in enumerate(classes)
        for file in found.get(name, ())
    ]
    files, y, parts = zip(*listed, strict=True)
    return Listing(root, classes, files, np.array(y), np.array(parts))


def _parts_in(root: Path) -> dict[str, Path]:
    """The folders of the parts, training first, where there are folders of parts and no others."""
    folders = _folders(root)
    if not folders or not all(folder.name.lower() in _PART_NAMES for folder in folders):
        return {}
    found: dict[str, Path] = {}
    for folder in folders:
        part = _PART_NAMES[folder.name.lower()]
        if part in found:
            raise UserError(f"{root} must have one folder for a part; {found[part].name} and {folder.name} are two")
        found[part] = folder
    if "train" not in found:
        raise UserError(f"{root} must hold train/ beside {', '.join(folder.name for folder in folders)}; it does not")
    return {part: found[part] for part in PARTS if part in found}


def _folders(root: Path) -> list[Path]:
    return sorted(folder for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith("."))


def _members(root: Path) -> dict[str, list[Path]]:
    """The images of each class, sorted."""
    folders = _folders(root)
    if len(folders) < 2:
        found = folders[0].name if folders else "none"
        raise UserError(f"{root} must hold a folder of images for each of at least two classes; found {found}")
    members = {folder.name: sorted(file for file in folder.rglob("*") if _is_image(file)) for folder in folders}
    empty = [name for name, files in members.items() if not files]
    if empty:
        raise UserError(
            f"every class folder of {root} must hold images ({', '.join(sorted(_SUFFIXES))}); "
            f"there are none in {', '.join(empty)}"
        )
    return members


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in _SUFFIXES and not file.name.startswith(".") and file.is_file()


# --- the cached array ---------------------------------------------------------------------------------------------


def _cached_images(listing: Listing, size: int) -> Array:
    """uint8 `(n, size, size, 1 or 3)`; decoded only when a name, the content of a file or the size changed."""
    key = hashlib.sha256(repr((_DECODER, size, listing.content)).encode()).hexdigest()[:16]
    cached = cache_dir() / "image_folders" / f"{listing.root.name}-{key}.npy"
    try:
        x: Array = np.load(
            cached, mmap_mode="r", allow_pickle=False
        )  # only the rows that are used are read into memory
        if x.dtype == np.uint8 and x.shape[:3] == (len(listing.files), size, size):
            return x
    except (OSError, ValueError, EOFError):
        pass  # not there yet, or damaged: decode
    x = _decode_all(listing, size)
    try:
        _write_atomically(cached, x)
    except OSError as error:
        _log.warning(
            "the decoded images could not be saved in %s (%s); the next run will decode them again", cached, error
        )
    return x


def _write_atomically(path: Path, x: Array) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        try:
            np.save(file, x)
            file.flush()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


# --- decoding -----------------------------------------------------------------------------------------------------


def _decode_all(listing: Listing, size: int) -> Array:
    """All images as RGB, or as one channel when every file is grey; broken files are named together."""
    x = np.empty((len(listing.files), size, size, 3), dtype=np.uint8)

    def decode(row: int) -> tuple[bool, str | None]:
        try:
            image = _open(listing.files[row])
            grey = image.mode == "L"
            x[row] = np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))
        except Exception as error:  # every file format raises its own errors
            return False, f"{listing.files[row].relative_to(listing.root)} ({' '.join(str(error).split())})"
        return grey, None

    with ThreadPoolExecutor() as threads:  # Pillow releases the interpreter lock while it decodes
        results = list(threads.map(decode, range(len(x))))
    broken = [error for _, error in results if error]
    if broken:
        more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
        raise UserError(f"every image of {listing.root} must be readable; broken: {', '.join(broken[:3])}{more}")
    return np.ascontiguousarray(x[..., :1]) if all(grey for grey, _ in results) else x


def _open(file: Path) -> Image.Image:
    """The upright image: grey ones as `L`, all others as they are."""
    with Image.open(file) as stored:
        image: Image.Image = ImageOps.exif_transpose(stored)
    if image.mode.startswith("I"):  # 16 bits: Pillow's own conversion to 8 clips instead of scaling
        return Image.fromarray((np.asarray(image).astype(np.float64) / 257).clip(0, 255).round().astype(np.uint8))
    if image.mode == "F":
        raise ValueError("an image of floats has no known range; write it with 8 bits")
    return image.convert("L") if image.mode in ("1", "L", "LA") else image
