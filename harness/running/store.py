"""The results folder: the truth on disk, from which everything else can be rebuilt.

    results/<space>/<method>/seed-<k>/
        plan.json      what was asked for, written before the first trial; its hash decides whether a run continues
        ledger.jsonl   every event of every trial, appended as it happens: what a run continues from after a crash
        trials.jsonl   the trials' records, written when the unit is complete
        result.json    the unit's result; it exists exactly when the unit is complete
        model.pt       the chosen network: weights and the settings to build it

Files other than the ledger appear whole or not at all (temporary file, fsync, rename). A crash can tear the ledger's
last line only; the reader leaves a torn line out.
"""

import contextlib
import fcntl
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from harness.errors import UserError
from harness.records import VERSION, SearchResult, TrialRecord, Unit, UnitPlan
from harness.running.ledger import Begun, Chosen, Ended, Event, parse_event
from harness.running.upgrade import upgraded_plan

Model = TypeVar("Model", bound=BaseModel)


def write_atomically(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


@contextlib.contextmanager
def only_writer(folders: Iterable[Path]) -> Iterator[None]:
    """No second run writes to these folders until the block, or this process, has ended in whatever way."""
    with contextlib.ExitStack() as held:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY)
            held.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"one run at a time writes to a results folder, and another is at work in {folder}; wait until "
                    "it has ended, or give another --out"
                ) from None
            except OSError:
                pass  # a file system that knows no locks
        yield


class UnitFolder:
    """One method × seed on disk."""

    def __init__(self, out: Path, space: str, method: str, seed: int) -> None:
        self._name = f"{space}/{method}/seed-{seed}"
        self.path = out / self._name
        self._ledger = self.path / "ledger.jsonl"

    # --- plan ------------------------------------------------------------------------------------------------------

    def read_plan(self) -> UnitPlan | None:
        path = self.path / "plan.json"
        return _read_model(path, UnitPlan, upgraded_plan) if path.exists() else None

    def check(self, plan: UnitPlan) -> None:
        """Refuses a folder that was made from other settings. Writes nothing."""
        before = self.read_plan()
        if before is not None and before.version < VERSION and not self.is_complete:
            raise UserError(
                f"{self.path} was begun by an earlier version of the harness, and only complete searches carry over; "
                "finish it with that version, give another --out, or --fresh to move it aside"
            )
        if before is not None and before.hash != plan.hash:
            raise UserError(
                f"{self.path} was made with other settings ({'; '.join(differences(before, plan))}); give the same "
                "settings to continue, another --out, or --fresh to move it aside"
            )

    def claim(self, plan: UnitPlan, fresh: bool) -> None:
        """Makes the folder this plan's: new, or continued if the plan is the same, or moved aside with `fresh`."""
        if fresh and self.path.exists():
            stamp = time.strftime("%Y%m%d-%H%M%S")
            aside = self.path.with_name(f"{self.path.name}.moved-{stamp}")
            number = 1
            while aside.exists():
                number += 1
                aside = self.path.with_name(f"{self.path.name}.moved-{stamp}-{number}")
            self.path.rename(aside)
        self.check(plan)
        if self.read_plan() is None:
            write_atomically(self.path / "plan.json", plan.model_dump_json(indent=1))

    # --- ledger ----------------------------------------------------------------------------------------------------

    def append(self, event: Event) -> None:
        """Adds one line to the ledger. The end of a trial is forced to disk, the rest may wait for the system."""
        with self._ledger.open("a", encoding="utf-8") as file:
            file.write(event.model_dump_json() + "\n")
            file.flush()
            if isinstance(event, Ended | Chosen):
                os.fsync(file.fileno())

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
        begun = next((event.id for event in self.events() if isinstance(event, Begun)), None)
        return f"{self._name}/{begun}" if begun else None

    def events(self) -> Iterator[Event]:
        if not self._ledger.exists():
            return
        with self._ledger.open(encoding="utf-8", errors="replace") as file:  # a tear may be inside a character
            for number, line in enumerate(file, start=1):
                try:
                    yield parse_event(line)
                except ValidationError as error:
                    if error.errors()[0]["type"] == "json_invalid":
                        continue  # torn by a crash; the next run begins on a new line
                    raise UserError(
                        f"{self._ledger} line {number} is damaged, or was written by another version; use --fresh to "
                        "move the search aside and start over"
                    ) from None

    def mend(self) -> None:
        """Ends a line that a crash tore, so that the next one stands by itself."""
        if self._ledger.exists() and self._ledger.stat().st_size:
            with self._ledger.open("rb+") as file:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")

    # --- records ---------------------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        return (self.path / "result.json").exists()

    @property
    def model_path(self) -> Path:
        return self.path / "model.pt"

    def complete(self, trials: tuple[TrialRecord, ...], result: SearchResult) -> None:
        """Writes the trials first and the result last: whoever sees a result sees its trials."""
        write_atomically(self.path / "trials.jsonl", "".join(trial.model_dump_json() + "\n" for trial in trials))
        write_atomically(self.path / "result.json", result.model_dump_json(indent=1))

    def read(self) -> Unit:
        """The unit as it stands on disk; an unfinished one has no result and no trials."""
        plan = self.read_plan()
        if plan is None:
            raise UserError(f"{self.path} holds no plan.json")
        if not self.is_complete:
            return Unit(plan=plan, trials=(), result=None)
        result = _read_model(self.path / "result.json", SearchResult)
        lines = (self.path / "trials.jsonl").read_text(encoding="utf-8").splitlines()
        trials = tuple(TrialRecord.model_validate_json(line) for line in lines)
        return Unit(plan=plan, trials=trials, result=result)


def read_units(out: Path, space: str, known: Iterable[Unit] = ()) -> tuple[list[Unit], list[str]]:
    """All units of a space, and a sentence for every one that cannot be read; the others are still of use.

    Those that are `known` already are not read again.
    """
    units, problems = [], []
    in_memory = {(unit.plan.method, unit.plan.seed): unit for unit in known if unit.plan.space.name == space}
    for plan_path in sorted((out / space).glob("*/seed-*/plan.json")):
        folder = plan_path.parent
        if ".moved-" in folder.name:
            continue
        try:
            method, seed = folder.parent.name, int(folder.name.removeprefix("seed-"))
            units.append(in_memory.get((method, seed)) or UnitFolder(out, space, method, seed).read())
        except (UserError, ValidationError, ValueError, OSError) as error:
            problems.append(f"left out {folder}: {str(error).splitlines()[0]}")
    return sorted(units, key=lambda unit: (unit.plan.method, unit.plan.seed)), problems


def differences(before: UnitPlan, after: UnitPlan) -> list[str]:
    """`training.lr: 0.1 → 0.05` for every setting in which two plans differ."""
    flat_before, flat_after = (
        _flatten(plan.model_dump(mode="json", exclude={"facts", "version"})) for plan in (before, after)
    )
    keys = sorted(flat_before.keys() | flat_after.keys())
    return [
        f"{key}: {flat_before.get(key)} → {flat_after.get(key)}"
        for key in keys
        if flat_before.get(key) != flat_after.get(key)
    ]


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _read_model(
    path: Path, model: type[Model], upgraded: Callable[[dict[str, Any]], dict[str, Any]] | None = None
) -> Model:
    try:
        text = path.read_text(encoding="utf-8")
        return model.model_validate_json(json.dumps(upgraded(json.loads(text))) if upgraded else text)
    except (ValidationError, json.JSONDecodeError, AttributeError, TypeError) as error:
        faults = f"{error.error_count()} invalid fields" if isinstance(error, ValidationError) else "no JSON object"
        raise UserError(f"{path} is damaged, or was written by another version: {faults}") from None
