"""Reads a .npz that somebody else wrote: first the headers alone, then array by array."""

import math
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from harness.data.splits import Array
from harness.errors import UserError
from harness.text.shown import one_line

_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, NotImplementedError, RuntimeError, KeyError)


@dataclass(frozen=True)
class Header:
    """Shape and type of a stored array."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


def read_headers(path: Path) -> dict[str, Header]:
    """Every array of the file by name, without loading one."""
    if not path.is_file():
        raise UserError(f"data.path must name a .npz file; there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            headers = {}
            for member in members:
                with archive.open(member) as stream:
                    headers[member.removesuffix(".npy")] = _read_header(stream)
            return headers
    except _BROKEN as error:
        raise UserError(
            f"{path} must be a complete .npz file, as numpy.savez writes it; reading it failed: {error}"
        ) from None


def read_array(path: Path, name: str) -> Array:
    """One array. Nothing is unpickled: a pickle can make NumPy follow pointers that stand in the file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            array: Array = archive[name]
    except _BROKEN as error:
        raise UserError(f"{path}: {name} must be a complete array; reading it failed: {error}") from None
    return array


def _read_header(stream: IO[bytes]) -> Header:
    try:
        version = npy.read_magic(stream)
        if version == (1, 0):
            shape, _, dtype = npy.read_array_header_1_0(stream)
        else:  # (3, 0) differs in the names of structured fields only, which no data set here has
            shape, _, dtype = npy.read_array_header_2_0(stream)
    except Exception as error:  # the header is a line of Python, which may be anything
        raise ValueError(one_line(str(error), longest=200) or type(error).__name__) from None
    return Header(shape, dtype)


def names(found: Iterable[str]) -> str:
    return ", ".join(sorted(found)) or "nothing"
