"""The results folder: the truth on disk, from which everything else can be rebuilt.

    results/<space>/looks.json     at how many seeds verdicts are looked at
    results/<space>/<method>/seed-<k>/
        plan.json      what was asked for, written before the first trial; its hash decides whether a run continues
        ledger.jsonl   every event of every trial, appended as it happens: what a run continues from after a crash
        trials.jsonl   the trials' records, written when the unit is complete
        result.json    the unit's result; it exists exactly when the unit is complete
        model.pt       the chosen network: weights and the settings to build it
        rows.bin       how well it predicted each test row
        network.py     where the network is a user's own: its file, as it was when the unit began

Files other than the ledger appear whole or not at all (temporary file, fsync, rename). A crash can tear the ledger's
last line only; the reader leaves a torn line out. Every line of the ledger carries its number and a checksum of itself
and of all lines before it; a result carries one of itself and of its trials. So a change by anybody else is noticed.
"""

import contextlib
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from harness.errors import UserError, brief
from harness.methods import facts_of, full_name
from harness.networks import SOURCE, own_sources
from harness.running.ledger import Begun, Event, parse_event
from harness.schema.comparable import unequal
from harness.schema.networks import OwnNetwork
from harness.schema.records import NOT_DETERMINING, VERSION, Looks, SearchResult, TrialRecord, Unit, UnitPlan
from harness.schema.upgrade import upgraded_plan
from harness.text.files import write_atomically

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class _Tail:
    """A ledger up to some line: bytes, lines, and the checksum that the next line's builds on."""

    size: int
    lines: int
    checksum: str

    def followed_by(self, event: str) -> "tuple[bytes, _Tail]":
        """The next line as it is written, and the tail then: checksum = SHA-256(checksum before, event)."""
        checksum, number = _checksum(self.checksum, event), self.lines + 1
        line = f'{event[:-1]},"n":{number},"checksum":"{checksum}"}}\n'.encode()
        return line, _Tail(self.size + len(line), number, checksum)


def _checksum(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class UnitFolder:
    """One method × seed on disk."""

    def __init__(self, out: Path, space: str, method: str, seed: int) -> None:
        self.name = f"{space}/{method}/seed-{seed}"
        self.path = out / self.name
        self.may_write: Callable[[], None] = lambda: None  # raises where another run has taken over
        self._ledger = self.path / "ledger.jsonl"
        self._no_line = _Tail(0, 0, self.name)  # the ledger of another unit does not pass for this one's
        self._tail: _Tail | None = None  # of what this object wrote last
        self._waits = False  # some of it for `commit`

    # --- plan ------------------------------------------------------------------------------------------------------

    def read_plan(self) -> UnitPlan | None:
        path = self.path / "plan.json"
        return _parsed(path, self._text("plan.json"), UnitPlan, _up_to_date) if path.exists() else None

    def check(self, plan: UnitPlan) -> None:
        """Refuses a folder that was made from other settings. Writes nothing."""
        before = self.read_plan()
        if before is not None and before.version < VERSION and not self.is_complete:
            raise UserError(
                f"{self.path} was begun by an earlier version of the harness, and only complete searches carry over; "
                "finish it with that version, give another --out, or --fresh to move it aside"
            )
        if before is not None and before.known_to(plan).hash != plan.known_to(before).hash:
            other = "; ".join(differences(before, plan))
            raise UserError(
                f"{self.path} was made with other settings, data or files ({other}); give the same to continue, "
                "another --out, or --fresh to move it aside"
            )
        if not self.is_complete:
            for _ in self.events():  # a damaged ledger is told before Ray is started
                pass

    def claim(self, plan: UnitPlan, fresh: bool) -> UnitPlan:
        """Makes the folder this plan's: new, or continued if the plan is the same, or moved aside with `fresh`.

        Returns the plan as the folder has it: one of an earlier version has no hash of the data.
        """
        if fresh and self.path.exists():
            stamp = time.strftime("%Y%m%d-%H%M%S")
            aside = self.path.with_name(f"{self.path.name}.moved-{stamp}")
            number = 1
            while aside.exists():
                number += 1
                aside = self.path.with_name(f"{self.path.name}.moved-{stamp}-{number}")
            self.path.rename(aside)
        self.check(plan)
        before = self.read_plan()
        if before is None:
            for _, source in own_sources([plan.space.network]):
                write_atomically(self.path / SOURCE, source)
            write_atomically(self.path / "plan.json", plan.model_dump_json(indent=1))
        return plan.known_to(before or plan)

    # --- ledger ----------------------------------------------------------------------------------------------------

    def append(self, event: Event, and_commit: bool = True) -> None:
        """Adds one line to the ledger, on disk when this returns; or after `commit`, with all lines that wait for it.

        A trial goes on only after its report is on disk, so even a power cut leaves no checkpoint that is further
        than the next report. A write that fails half-way, on a full disk say, is taken back.
        """
        self.may_write()
        before = self._mended_tail()
        line, after = before.followed_by(event.model_dump_json())
        with self._ledger.open("ab", buffering=0) as file:
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[file.write(rest) :]
                if and_commit:
                    os.fsync(file.fileno())
            except OSError:
                file.truncate(before.size)
                raise
        self._tail, self._waits = after, not and_commit

    def commit(self) -> None:
        """All lines are on disk when this returns."""
        if self._waits:
            with self._ledger.open("ab", buffering=0) as file:
                os.fsync(file.fileno())
            self._waits = False

    @contextlib.contextmanager
    def all_at_once(self) -> Iterator[None]:
        """The ledger is written anew inside the block and appears at its end; if that does not come, not at all."""
        ledger, self._ledger = self._ledger, self._ledger.with_name(f".{self._ledger.name}.partial")
        try:
            self._ledger.unlink(missing_ok=True)
            yield
            with self._ledger.open("rb") as file:
                os.fsync(file.fileno())
            self._ledger.replace(ledger)
        finally:
            self._ledger = ledger

    def begin(self) -> str:
        """The unit's key in the checkpoint store; the ledger's first line fixes it."""
        if self.storage_key is None:
            self.append(Begun(id=uuid.uuid4().hex[:8]))
        assert self.storage_key is not None
        return self.storage_key

    @property
    def storage_key(self) -> str | None:
        """None before the unit begins. With an id: after --fresh, checkpoints of the run before are not ours."""
        return f"{self.name}/{self.id}" if self.id else None

    @property
    def id(self) -> str | None:
        """Of the search that is there: another one, after --fresh, has another."""
        return next((event.id for event in self.events() if isinstance(event, Begun)), None)

    def events(self) -> Iterator[Event]:
        """What happened, in order. A line without its end was torn by a crash: it did not happen."""
        return (event for event, _ in self._checked())

    def _checked(self) -> Iterator[tuple[Event, "_Tail"]]:
        """Every event with the ledger's tail after it; an error at the first line that is not as it was written."""
        if self._ledger.exists():
            with self._ledger.open("rb") as file:
                yield from self._checked_lines(file, str(self._ledger))

    def check_lines(self, lines: Iterable[bytes], where: str) -> None:
        """Raises UserError unless they are this unit's ledger, from its first line on."""
        for _ in self._checked_lines(lines, where):
            pass

    def _checked_lines(self, lines: Iterable[bytes], where: str) -> Iterator[tuple[Event, "_Tail"]]:
        tail = self._no_line
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                body = line.rpartition(b',"n":')[0].decode() + "}"
                written, tail = tail.followed_by(body)
                event = parse_event(body) if written == line else None
            except (UnicodeDecodeError, ValidationError):
                event = None
            if event is None:
                raise UserError(
                    f"{where} line {number} is damaged: it is not what was written there, or lines before it are gone; "
                    "use --fresh to move the search aside and start over"
                )
            yield event, tail

    def _mended_tail(self) -> "_Tail":
        """Where the next line goes. What a crash tore is cut off."""
        size = self._ledger.stat().st_size if self._ledger.exists() else 0
        if self._tail is None or self._tail.size != size:
            tail = [self._no_line, *(tail for _, tail in self._checked())][-1]
            if tail.size != size:
                os.truncate(self._ledger, tail.size)
            self._tail = tail
        return self._tail

    # --- records ---------------------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        return (self.path / "result.json").exists()

    @property
    def model_path(self) -> Path:
        return self.path / "model.pt"

    @property
    def rows_path(self) -> Path:
        return self.path / "rows.bin"

    @property
    def model_hash(self) -> str | None:
        if not self.model_path.exists():
            return None
        with self.model_path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]

    def model(self, result: SearchResult | None) -> Path | None:
        """The file of the network that this result is about, None where it is gone; another one is refused."""
        found = self.model_hash
        if result and result.model_hash and found not in (None, result.model_hash):
            raise UserError(
                f"{self.model_path} is not the network that the result in its folder is about (hash of its bytes: "
                f"{found}, wanted {result.model_hash}); put the right file back, or search again with --fresh"
            )
        return self.model_path if found else None

    def complete(self, trials: tuple[TrialRecord, ...], result: SearchResult) -> None:
        """Writes the trials first and the result last: whoever sees a result sees its trials."""
        lines = "".join(trial.model_dump_json() + "\n" for trial in trials)
        write_atomically(self.path / "trials.jsonl", lines)
        write_atomically(self.path / "result.json", _sealed(result.model_dump_json(indent=1), lines))

    def read(self) -> Unit:
        """The unit as it stands on disk; an unfinished one has no result and no trials.

        Its files must be this unit's, and belong together: a foreign or a changed one is refused.
        """
        plan = self.read_plan()
        if plan is None:
            raise self._damaged("plan.json", "it is not there")
        self._check_names("plan.json", plan.space.name, plan.method, plan.seed)
        if not self.is_complete:
            return Unit(plan=plan, trials=(), result=None)
        text, sealed = self._text("result.json"), plan.version >= SEALED_SINCE
        body = _SEAL.sub("\n}", text) if sealed else text
        result = _parsed(self.path / "result.json", body, SearchResult)
        self._check_names("result.json", result.space, result.method, result.seed)
        if result.plan_hash != plan.hash:
            raise self._damaged("result.json", "it is the result of other settings than plan.json has")
        lines = self._text("trials.jsonl")
        trials = tuple(_parsed(self.path / "trials.jsonl", line, TrialRecord) for line in lines.splitlines())
        if len(trials) != result.trials:
            raise self._damaged("trials.jsonl", f"it has {len(trials)} trials, result.json says {result.trials}")
        if sealed and text != _sealed(body, lines):
            raise self._damaged("result.json or trials.jsonl", "they are not as they were written")
        return Unit(plan=plan, trials=trials, result=result, rows_file=self.rows_path)

    def _text(self, file: str) -> str:
        try:
            return (self.path / file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise self._damaged(file, f"it cannot be read ({type(error).__name__})") from None

    def _check_names(self, file: str, *names: str | int) -> None:
        found = "{}/{}/seed-{}".format(*names)
        if found != self.name:
            raise self._damaged(file, f"it belongs to {found}")

    def _damaged(self, file: str, why: str) -> UserError:
        return UserError(
            f"{self.path}/{file} is damaged: {why}; put the right file back, move the folder away to search again, or "
            "use --fresh"
        )


SEALED_SINCE = 3  # version of the records
_SEAL = re.compile(r',\n "checksum": "[0-9a-f]{16}"\n\}\Z')


def _sealed(result: str, trials: str) -> str:
    """The result with a checksum of itself and its trials as the last key."""
    return result.removesuffix("\n}") + f',\n "checksum": "{_checksum(result, trials)}"\n}}'


def read_units(out: Path, space: str, known: Iterable[Unit] = ()) -> tuple[list[Unit], list[str]]:
    """All units of a space, and a sentence for every one that cannot be read; the others are still of use.

    Those that are `known` already are not read again.
    """
    units, problems = [], []
    in_memory = {(unit.plan.method, unit.plan.seed): unit for unit in known if unit.plan.space.name == space}
    for path in _unit_folders(out, space):
        try:
            method, seed = path.parent.name, int(path.name.removeprefix("seed-"))
            units.append(in_memory.get((method, seed)) or UnitFolder(out, space, method, seed).read())
        except (UserError, ValueError, OSError) as error:
            problems.append(f"left out {path}: {str(error).splitlines()[0]}")
    return sorted(units, key=lambda unit: (unit.plan.method, unit.plan.seed)), problems


def check_same_network(out: Path, plan: UnitPlan) -> None:
    """Refuses a user's own network whose file was edited since other seeds or methods of the space began: they would
    be compared as if they had trained the same network."""
    network = plan.space.network
    if not isinstance(network, OwnNetwork):
        return
    for path in sorted((out / plan.space.name).glob("*/seed-*/plan.json")):
        other = json.loads(path.read_text(encoding="utf-8")).get("space", {}).get("network", {})
        if ".moved-" not in path.parent.name and other.get("source", network.source) != network.source:
            raise UserError(
                f"{network.kind}.py was edited since {path.parent} began (its hash was {other['source']}, now it is "
                f"{network.source}), and all seeds and methods of a space train the same network; put back the file "
                f"({path.parent / SOURCE} is it), give another --out, or --fresh for all of them"
            )


def read_plans(out: Path, space: str) -> list[UnitPlan]:
    """Of all units of a space; one that cannot be read is in no comparison either."""
    plans = []
    for path in _unit_folders(out, space):
        with contextlib.suppress(UserError, ValueError, OSError):
            folder = UnitFolder(out, space, path.parent.name, int(path.name.removeprefix("seed-")))
            plans += [plan for plan in [folder.read_plan()] if plan]
    return plans


def _unit_folders(out: Path, space: str) -> list[Path]:
    plans = sorted((out / space).glob("*/seed-*/plan.json"))
    return [path.parent for path in plans if ".moved-" not in path.parent.name]


def read_looks(out: Path, space: str) -> Looks:
    path = out / space / "looks.json"
    try:
        return _parsed(path, path.read_text(encoding="utf-8"), Looks) if path.exists() else Looks()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {type(error).__name__}") from None


def declare_looks(out: Path, space: str, declared: tuple[int, ...], fresh: bool = False, write: bool = True) -> None:
    """Before the first seed, or the same as then: to choose when to look after looking makes the error rate a guess."""
    before = read_looks(out, space)
    if not declared or declared == before.declared:
        return
    if (before.declared or before.taken) and not fresh:
        seen = "fixed at" if before.declared else "made at"
        raise UserError(
            f"interim analyses (--looks) are fixed before the first seed; in {out / space} they were {seen} "
            f"{', '.join(map(str, before.all))} seeds, and now {', '.join(map(str, declared))} are asked for; give the "
            "same, another --out, or --fresh to start over"
        )
    if write:
        write_atomically(out / space / "looks.json", Looks(declared=declared).model_dump_json() + "\n")


def note_looks(out: Path, space: str, *numbers: int) -> Looks:
    """Verdicts were seen at these numbers of seeds."""
    before = read_looks(out, space)
    news = {number for number in numbers if number > 1} - {*before.all}
    after = before.model_copy(update={"taken": tuple(sorted({*before.taken, *news}))})
    if news:
        write_atomically(out / space / "looks.json", after.model_dump_json() + "\n")
    return after


def differences(before: UnitPlan, after: UnitPlan) -> list[str]:
    """`space.training.lr: 0.1 → 0.05` for everything in which two plans differ that both of them know."""
    pair = (before.known_to(after), after.known_to(before))
    one, other = (plan.model_dump(mode="json", exclude=set(NOT_DETERMINING)) for plan in pair)
    return [f"{name}: {old} → {new}" for name, old, new in unequal(one, other)]


def _up_to_date(plan: dict[str, Any]) -> dict[str, Any]:
    return upgraded_plan(plan, full_name, facts_of)


def _parsed(
    path: Path, text: str, model: type[Model], upgraded: Callable[[dict[str, Any]], dict[str, Any]] | None = None
) -> Model:
    try:
        return model.model_validate_json(json.dumps(upgraded(json.loads(text))) if upgraded else text)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is damaged, or was written by another version: {_faults(error)}") from None


def _faults(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return "no JSON object"
    unknown = [".".join(map(str, each["loc"])) for each in error.errors() if each["type"] == "extra_forbidden"]
    if unknown:
        return f"this version of the harness knows no {brief(', '.join(unknown))}; read it with the one that wrote it"
    return f"{error.error_count()} invalid fields"
