"""One input through the real command line, in this process, in a folder of its own, within a time limit."""

import contextlib
import io
import os
import signal
import sqlite3
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Literal

from markdown_it import MarkdownIt

from harness.cli import main
from harness.text.shown import printable

SECONDS = 10.0  # longest for one input
Verdict = Literal["refused", "accepted", "traceback", "hang", "accepted wrongly", "refused wrongly", "badly said"]
GOOD: tuple[Verdict, ...] = ("refused", "accepted")


@dataclass(frozen=True)
class Case:
    """An input: arguments, the files they speak of, and what a program without faults does with it."""

    args: tuple[str, ...]
    valid: bool
    files: Mapping[str, bytes] = field(default_factory=dict)  # below the working folder
    secrets: tuple[str, ...] = ()  # that must be seen nowhere
    refusal: tuple[int, ...] = (2,)  # exit codes; `harness check` says 1 for a rule that is not kept
    in_lines: tuple[str, ...] = ()  # names of checks of `harness doctor`, one of which has to fail


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    why: str = ""
    seconds: float = 0.0


class _TooLong(BaseException):
    """Not an Exception: nothing on the way may take it for one of its own."""


def judge(case: Case, folder: Path, seconds: float = SECONDS) -> Judgement:
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    before = _contents(folder)
    out, err = io.StringIO(), io.StringIO()
    began = time.monotonic()
    try:
        with (
            contextlib.chdir(folder),
            _limit(seconds),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                main(list(case.args))
                code: object = None
            except SystemExit as end:
                code = end.code
    except _TooLong:
        return Judgement("hang", "".join(traceback.format_exc().splitlines(True)[-6:-1]), seconds)
    except BaseException:
        return Judgement("traceback", traceback.format_exc(), time.monotonic() - began)
    took = time.monotonic() - began
    written = _contents(folder) != before
    verdict, why = _verdict(case, code, out.getvalue(), err.getvalue(), written, folder)
    return Judgement(verdict, why, took)


def _verdict(case: Case, code: object, out: str, err: str, written: bool, folder: Path) -> tuple[Verdict, str]:
    said = f"exit code {code}, stdout {out!r}, stderr {err!r}"
    if "Traceback (most recent" in out + err:
        return "traceback", said
    if printable(out + err) != out + err:
        return "badly said", f"control characters: {said}"
    pages = [path.read_text(errors="replace") for path in folder.rglob("*.html")]
    shown = "".join([out, err, *pages, *_notes_in_mlflow(folder)])
    if leaked := [secret for secret in case.secrets if secret in shown]:
        return "badly said", f"secrets {leaked}: {said}"
    if code not in (0, *case.refusal):
        return "badly said", said
    if code == 0:
        return ("accepted", "") if case.valid else ("accepted wrongly", said)
    if case.valid:
        return "refused wrongly", said
    if written:
        return "badly said", f"something was written: {said}"
    sentence = err.startswith("error: ") and err.count("\n") == 1 and not out and len(err) < 2500
    lines = not err and any(line.startswith(f"NO    {name} ") for line in out.splitlines() for name in case.in_lines)
    rules = code == 1 and not err and "NO " in out
    return ("refused", "") if sentence or lines or rules else ("badly said", said)


def _notes_in_mlflow(folder: Path) -> Iterator[str]:
    """As a browser gets them: MLflow's page renders these texts as Markdown."""
    for path in folder.rglob("*.db"):
        with contextlib.closing(sqlite3.connect(path)) as database:
            for table in ("tags", "experiment_tags"):
                for (note,) in database.execute(f"SELECT value FROM {table} WHERE key = 'mlflow.note.content'"):
                    yield MarkdownIt().render(note)


def _contents(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if "__pycache__" not in path.parts:
            found[str(path)] = (status.st_size, status.st_mtime_ns if path.is_file() else 0)
    return found


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    def too_long(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def quiet_machine(folder: Path) -> Iterator[None]:
    """Nothing is looked for outside `folder`: no cache, no cloud account, no tracking server of the user's."""
    settings = {
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "HARNESS_DATA_DIR": str(folder / "data"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(folder / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
    }
    before = dict(os.environ)
    os.environ.update(settings)
    for name in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
