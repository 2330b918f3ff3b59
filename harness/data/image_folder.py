"""Your own images: one folder per class. Decoded and resized once, into an array in the cache folder."""

import hashlib
import logging
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageOps

from harness.data.folders import cache_dir, own_path
from harness.data.memory import check_fits
from harness.data.splits import Array, LabelledSet, Pool, stratified_rows
from harness.data.subsets import check_class_sizes
from harness.errors import UserError
from harness.seeds import numpy_generator
from harness.spaces import ImageFolderData

_SUFFIXES: Final = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_SPLIT_NAMES: Final = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})
_DECODER: Final = 1  # part of the cache key: raise it whenever the same files would give other pixels

_log = logging.getLogger(__name__)


def load_pool(settings: ImageFolderData, data_dir: Path | None) -> Pool:
    x, listing, rows, _ = _load(settings, data_dir)
    return Pool(x[rows], listing.y[rows], len(listing.classes))


def load_test(settings: ImageFolderData, data_dir: Path | None) -> LabelledSet:
    x, listing, _, rows = _load(settings, data_dir)
    return LabelledSet(x[rows], listing.y[rows])


def _load(settings: ImageFolderData, data_dir: Path | None) -> tuple[Array, "_Listing", Array, Array]:
    """Images, files, and the rows outside and inside the test set, which is the same for all seeds."""
    listing = _list_files(own_path(settings.path, data_dir))
    check_class_sizes(listing.y, 3, f"data.path {listing.root}")
    # RGB, and twice: the whole array and its two parts.
    check_fits(2 * len(listing.files) * settings.size**2 * 3, f"{listing.root} at size {settings.size}")
    x = _cached_images(listing, settings.size)
    return x, listing, *stratified_rows(listing.y, settings.test_fraction, numpy_generator(0, "test"))


@dataclass(frozen=True)
class _Listing:
    """Image files in a fixed order, with the number of their class in the sorted `classes`."""

    root: Path
    classes: tuple[str, ...]
    files: tuple[Path, ...]
    y: Array


def _list_files(root: Path) -> _Listing:
    if not root.is_dir():
        raise UserError(f"data.path must name a folder with one folder of images per class; there is no folder {root}")
    folders = sorted(folder for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    if len(folders) < 2:
        found = folders[0].name if folders else "none"
        raise UserError(f"{root} must hold a folder of images for each of at least two classes; found {found}")
    if all(folder.name.lower() in _SPLIT_NAMES for folder in folders):
        raise UserError(
            f"{root} must hold one folder per class; {', '.join(folder.name for folder in folders)} look like splits: "
            "name one of them in data.path, or write all of them to a .npz (kind: arrays)"
        )
    members = [sorted(file for file in folder.rglob("*") if _is_image(file)) for folder in folders]
    empty = [folder.name for folder, files in zip(folders, members, strict=True) if not files]
    if empty:
        raise UserError(
            f"every class folder of {root} must hold images ({', '.join(sorted(_SUFFIXES))}); "
            f"there are none in {', '.join(empty)}"
        )
    y = np.repeat(np.arange(len(folders)), [len(files) for files in members])
    return _Listing(
        root, tuple(folder.name for folder in folders), tuple(file for files in members for file in files), y
    )


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in _SUFFIXES and not file.name.startswith(".") and file.is_file()


# --- the cached array ---------------------------------------------------------------------------------------------


def _cached_images(listing: _Listing, size: int) -> Array:
    """uint8 `(n, size, size, 1 or 3)`; decoded only when a file, a time stamp or the size changed."""
    cached = cache_dir() / "image_folders" / f"{listing.root.name}-{_key(listing, size)}.npy"
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


def _key(listing: _Listing, size: int) -> str:
    digest = hashlib.sha256(repr((_DECODER, size)).encode())
    for file in listing.files:
        status = file.stat()
        digest.update(repr((file.relative_to(listing.root).as_posix(), status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()[:16]


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


def _decode_all(listing: _Listing, size: int) -> Array:
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
