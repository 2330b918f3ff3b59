"""Files: a path that a person names is checked before it is used, a text is read whole or refused, written so, too."""

import os
import tempfile
from pathlib import Path

from harness.errors import UserError
from harness.text.shown import printable

LONGEST_PATH, LONGEST_NAME = 4000, 255  # bytes; what Linux and macOS file systems take, rounded down
LARGEST_TEXT = 5_000_000  # bytes
_SYSTEM = ("/proc", "/sys")  # no files, but answers of the kernel: some never end


def checked_path(given: str | Path, what: str) -> Path:
    """The path, if a file or folder could have it. `what` it is for begins the sentence otherwise."""
    text = str(given)
    brief = printable(text if len(text) <= 100 else f"{text[:100]}…")
    if printable(text) != text or "\n" in text or "\t" in text:
        raise UserError(f"{what} must be a path without control characters; got {brief!r}")
    if len(os.fsencode(text)) > LONGEST_PATH or any(len(os.fsencode(part)) > LONGEST_NAME for part in text.split("/")):
        raise UserError(
            f"{what} must be a path of at most {LONGEST_PATH:,} bytes with names of at most {LONGEST_NAME}; "
            f"got {len(os.fsencode(text)):,} bytes, {brief!r}"
        )
    try:
        whole = os.path.realpath(Path(text).expanduser())
    except (OSError, RuntimeError) as error:  # a home folder that nobody has
        raise UserError(f"{what} must be a path that exists or can be made; got {brief!r}: {error}") from None
    if any(whole == system or whole.startswith(f"{system}/") for system in _SYSTEM):
        raise UserError(f"{what} must be on a disk, not in {' or '.join(_SYSTEM)}; got {brief!r}")
    return Path(given)


def check_writable(folder: Path, what: str) -> None:
    """Raises UserError where nothing can be written below it. Leaves nothing behind, not even the folder."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise UserError(f"{what} {folder} cannot be written: {error.strerror}") from None


def read_text(given: str | Path, what: str) -> str:
    """The whole text of an ordinary file. A device or a pipe is none: reading it might never end."""
    path = checked_path(given, what)
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"cannot read {path}: {what} must be a file, and it is none")
        if path.stat().st_size > LARGEST_TEXT:
            raise UserError(f"{what} must have at most {LARGEST_TEXT:,} bytes; {path} has {path.stat().st_size:,}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def write_atomically(path: Path, content: str | bytes) -> None:
    """Whole or not at all, whatever ends the program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
