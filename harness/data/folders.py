"""Where data files are on this machine."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.text.files import checked_path


def cache_dir() -> Path:
    """This program's cache folder: it holds decoded image folders, and downloads unless another folder is named."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "depth-search-harness"


def data_folder(data_dir: Path | None) -> Path:
    """The folder that was asked for, else `HARNESS_DATA_DIR`, else the cache folder."""
    return (data_dir or Path(os.environ.get("HARNESS_DATA_DIR") or cache_dir())).expanduser()


def own_path(path: str, data_dir: Path | None) -> Path:
    """A path from a search space: relative to the working folder, else inside the data folder."""
    written = checked_path(path, "data.path").expanduser()
    inside = data_folder(data_dir) / written
    return inside if not written.exists() and inside.exists() else written


def content_hash(root: Path, files: Sequence[Path]) -> str:
    """16 hexadecimal digits of the names below `root` and the bytes of these files; their times say nothing."""

    def one(file: Path) -> bytes:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()

    digest = hashlib.sha256()
    with ThreadPoolExecutor() as threads:  # hashing releases the interpreter lock
        for file, content in zip(files, threads.map(one, files), strict=True):
            digest.update(repr(file.relative_to(root).as_posix()).encode() + content)
    return digest.hexdigest()[:16]
