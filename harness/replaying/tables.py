"""Recordings as one file that travels: `harness export` writes it, `harness replay` reads it on another machine.

A table is gzip over two lines of JSON: a header with the format's version and the SHA-256 of the second line, then
everything that replays need (`Recorded`): no names of machines, no phases of costs. The reports of a trial stand there
as columns, and the seeds of a depth side by side: like packs well with like. No number is rounded.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.errors import UserError
from harness.replaying.recorded import Recorded
from harness.schema.records import Measures
from harness.spaces import SHIPPED
from harness.text.files import checked_path, write_atomically

ENDING = ".json.gz"
VERSION = 2  # 1: without the test measures of one-shot networks
MOST_BYTES = 10**9  # unpacked
_GROWING = ("held_seconds", "tflop", "epochs", "samples", "block_passes", "head_passes")
_ROUNDING = 1e-6
_NAME = "table"  # the header's key of the version: what a file without it is, we cannot tell


def shipped_tables() -> dict[str, Path]:
    """Space → the table that was made of it and ships with the harness."""
    return {path.name.removesuffix(ENDING): path for path in sorted((SHIPPED / "tables").glob(f"*{ENDING}"))}


def write_table(path: Path, recorded: Recorded) -> None:
    """The same recordings give the same bytes."""
    if not checked_path(path, "a table").name.endswith(ENDING):
        raise UserError(f"a table's name ends in {ENDING}; got {path.name!r}")
    recorded.by_seed()  # nothing is missing
    content = recorded.model_dump(mode="json")
    content["recordings"].sort(key=lambda each: (each["depth"], each["seed"]))
    for each in content["recordings"]:
        each["facts"]["host"] = ""
        del each["kept"]  # checkpoints do not travel
        for report in each["progress"]:
            report["cost"]["phases"] = {}
        each["progress"] = _columns(each["progress"])
    body = json.dumps(content, separators=(",", ":"))
    header = json.dumps({_NAME: VERSION, "sha256": hashlib.sha256(body.encode()).hexdigest()})
    try:
        write_atomically(path, gzip.compress(f"{header}\n{body}\n".encode(), mtime=0))
    except OSError as error:
        raise UserError(f"the table {path} cannot be written: {error.strerror}") from None


def read_table(path: Path) -> Recorded:
    """As it was written, or an error: nothing of a damaged table is used."""
    if not checked_path(path, "a table").is_file():
        raise UserError(f"there is no table {path}; `harness export` writes one")
    try:
        with gzip.open(path) as file:
            text = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error):
        raise _damaged(path, "it cannot be unpacked") from None
    if len(text) > MOST_BYTES:
        raise UserError(f"the table {path} is larger than {MOST_BYTES:,} bytes")
    first, _, body = text.rstrip(b"\n").partition(b"\n")
    header = _header(first)
    version = header.get(_NAME)
    if not isinstance(version, int) or version < 1:
        raise UserError(f"{path} is no table of recordings; `harness export` writes them")
    if version > VERSION:
        raise UserError(
            f"the table {path} was written by a newer version of the harness (format {version}, this one reads "
            f"{VERSION}); install that version, or export it again with this one"
        )
    if hashlib.sha256(body).hexdigest() != header.get("sha256"):
        raise _damaged(path, "its content is not what was written")
    try:
        content = json.loads(body)
        for each in content["recordings"]:
            each["progress"] = _rows(each["progress"])
        content["recordings"].sort(key=lambda each: (each["seed"], each["depth"]))
        recorded = Recorded.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise _damaged(path, f"{error.error_count()} invalid fields") from None
    except (ValueError, LookupError, TypeError, RecursionError):
        raise _damaged(path, "it is not built like a table") from None
    if wrong := next(_impossible(recorded), None):
        raise _damaged(path, wrong)
    return recorded


def _impossible(recorded: Recorded) -> Iterator[str]:
    """What no training reports; whoever changes a number can make the checksum anew."""
    for key, measures in recorded.tests.items():
        yield from _impossible_measures(f"on the test set, {key},", measures)
    for each in recorded.recordings:
        where = f"seed {each.seed}, depth {each.depth}:"
        if each.depth not in recorded.space.depth.values:
            yield f"{where} the space has no such depth"
        for told in each.progress:
            if told.val:
                yield from _impossible_measures(where, told.val)
        for before, after in pairwise(each.progress):
            if after.epoch < before.epoch or before.stop_reason:
                yield f"{where} its epochs are not in order"
            for name in _GROWING:
                if getattr(after.cost, name) < getattr(before.cost, name):
                    yield f"{where} its {name.replace('_', ' ')} become less"


def _impossible_measures(where: str, measures: Measures) -> Iterator[str]:
    if measures.log_likelihood > _ROUNDING:
        yield f"{where} a log-likelihood of classes is at most 0, and here it is {measures.log_likelihood:g}"
    for name, most in (("accuracy", 1.0), ("ece", 1.0), ("brier", 2.0), ("balanced_accuracy", 1.0)):
        value = getattr(measures, name)
        if value is not None and not -_ROUNDING <= value <= most + _ROUNDING:
            yield f"{where} {name.replace('_', ' ')} lies in 0…{most:g}, and here it is {value:g}"


def _columns(rows: list[Any]) -> Any:
    """Objects with the same keys become one object of lists, all the way down."""
    first = rows[0] if rows else None
    if isinstance(first, dict) and first and all(isinstance(row, dict) and row.keys() == first.keys() for row in rows):
        return {key: _columns([row[key] for row in rows]) for key in first}
    return rows


def _rows(columns: Any) -> list[Any]:
    if isinstance(columns, dict):
        lists = [_rows(each) for each in columns.values()]
        return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
    return list(columns)


def _header(line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line[:1000])
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"the table {path} is damaged: {why}; get it again from where it came")
