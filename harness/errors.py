"""Errors that deserve a sentence instead of a traceback: the user can fix them."""

import contextlib
import difflib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)
NEARLY_FULL = 1_000_000  # bytes; what fails on a disk with less than this failed because of it


class UserError(Exception):
    """A mistake in the input. The message names the rule, what was given and what is valid; exit code 2."""


class MachineError(Exception):
    """The machine failed, not the user: a full disk, a dead Ray. One sentence that says how to go on; exit code 1."""


class TrialFailed(Exception):
    """A trial that cannot continue (a non-finite loss). It is recorded as failed, with its cost."""


def brief(text: str, longest: int = 100) -> str:
    """A value that somebody gave, cut where it is too long for a sentence."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def last_line(error: str) -> str:
    """What a worker's traceback says at its end; a sentence of ours needs no class name before it."""
    return error.strip().splitlines()[-1].removeprefix(f"{UserError.__module__}.{UserError.__name__}: ")


def brief_repr(value: object) -> str:
    """Any value as Python writes it; numbers of thousands of digits it refuses to write."""
    try:
        return brief(repr(value))
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too large to show"


def nearest(word: str, choices: Iterable[str], prefix: str = "") -> str:
    """`did you mean 'x'?` when a valid choice is close, with `prefix` before the x; else the list of choices."""
    known = sorted(choices)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {prefix + close[0]!r}?" if close else f"valid: {', '.join(known)}"


@contextlib.contextmanager
def blaming(what: str, kind: type | None = None) -> Iterator[None]:
    """What goes wrong in somebody's own method or network is theirs to mend: one sentence. In one of ours it is a bug
    of ours."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        if kind is not None and kind.__module__.startswith("harness."):
            raise
        said = brief(" ".join(str(error).split()) or "without a word", longest=300)
        raise UserError(f"{what}: {type(error).__name__}: {said}") from error


@contextlib.contextmanager
def full_disk_told(*places: Path | str) -> Iterator[None]:
    """Whatever fails in here because the disk of one of the places is full ends in one sentence."""
    try:
        yield
    except (UserError, MachineError):
        raise
    except Exception as error:
        another = isinstance(error, OSError) and not disk_is_full(error)  # it says itself what is wrong
        if not another and (full := full_place(str(error), *places)):
            free, total = (f"{size / 1e6:,.1f} MB" for size in (_disk(full).free, _disk(full).total))
            raise MachineError(
                f"the disk that holds {full} is full ({free} of {total} are free); free some space on it, then give "
                "the same command again: it continues"
            ) from error
        raise


def disk_is_full(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in _FULL


def full_place(message: str, *places: Path | str) -> Path | None:
    """The place without room that explains an error with this message; Ray and torch pass on only text, if that."""
    local = [Path(place) for place in places if "://" not in str(place)]
    full = next((place for place in local if _disk(place).free < NEARLY_FULL), None)
    said = any(os.strerror(number) in message for number in _FULL)
    return full or (local[0] if said and local else None)


def _disk(place: Path) -> "shutil._ntuple_diskusage":
    return shutil.disk_usage(next(path for path in (place.absolute(), *place.absolute().parents) if path.exists()))
