"""What a storage behind a URI has of the results: all that another machine needs to continue from it alone.

    <space>/looks.json
    <space>/<method>/seed-<k>/current        the id of the search that is there; after --fresh it is another one
    <space>/<method>/seed-<k>/<id>/
        plan.json, network.py                as in the results folder
        ledger.000000001.jsonl …             segments: lines of the ledger, from that line on
        t000.pt …, model.pt, rows            checkpoints, the chosen network and its rows: workers write them
        trials.jsonl
        result.json                          last: whoever sees it sees all the others

The folder on the driver's disk is what a run reads and appends to. The storage follows it: segments end where lines
end, they are never written again, and they come at most 10 s after what they tell, within about one where a checkpoint
went with it. So the storage has a beginning of the ledger, as if its driver had been killed a moment earlier, and a run
that continues from it is like any other that continues. One thing is different: a checkpoint may be further than the
ledger knows. Then it is not taken (`messages.to_worker`), and what it took is charged as lost.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from harness.backends.one_writer import Writer
from harness.backends.storage import Storage
from harness.errors import MachineError, UserError
from harness.networks import SOURCE
from harness.running.messages import MODEL, ROWS
from harness.running.store import UnitFolder, read_looks
from harness.schema.records import Looks
from harness.schema.settings import NAME_PATTERN
from harness.text.files import write_atomically
from harness.text.shown import redacted

LOOK_SECONDS = 1.0  # between two looks for what is new
LATEST_SECONDS = 10.0  # after which it is sent, whatever it is
AT_ONCE = 16  # transfers
CHECKPOINT_TOLD = b'"saved":true'  # in a line: what it tells should be there as soon as that checkpoint is

_UNIT = re.compile(r"(?P<space>[^/]+)/(?P<method>[^/]+)/seed-(?P<seed>\d{1,10})/current")
_ANYWHERE = re.compile(rf"(?:(?P<below>studies/[A-Za-z0-9][^/]*)/)?{_UNIT.pattern}")
_ID = re.compile(r"[0-9a-f]{8}")
_SEGMENT = re.compile(r"ledger\.(\d{9})\.jsonl")


@dataclass
class Arrived:
    """What the storage has of one search."""

    id: str
    size: int = 0  # bytes of the ledger
    lines: int = 0
    is_complete: bool = False


# --- from the storage -------------------------------------------------------------------------------------------


def fetch(storage: Storage, out: Path, spaces: Sequence[str] = (), skip: Collection[str] = ()) -> dict[str, Arrived]:
    """Brings what the results folder lacks: of all spaces, or of these; not of the units to `skip`, by their names.

    Raises UserError where the folder has another search than the storage, or the storage is damaged: nothing of that
    unit is changed then. Returns what the storage has.
    """
    keys = [key for below in spaces or ("",) for key in storage.files(below)]
    units = {
        key.removesuffix("/current"): UnitFolder(out, found["space"], found["method"], int(found["seed"]))
        for key in keys
        if (found := _UNIT.fullmatch(key)) and all(re.match(NAME_PATTERN, found[part]) for part in ("space", "method"))
    }
    for space in sorted({name.partition("/")[0] for name in units}):
        _fetch_looks(storage, out, space)
    wanted = {name: folder for name, folder in units.items() if name not in skip}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        arrived = pool.map(lambda folder: _fetch_unit(storage, folder, keys), wanted.values())
        return dict(zip(wanted, arrived, strict=True))


def kept_spaces(storage: Storage) -> list[tuple[str, str]]:
    """The folder below the root that it is in (a study's, or none) and the name of each space that has results."""
    found = (_ANYWHERE.fullmatch(key) for key in storage.files())
    return sorted({(each["below"] or "", each["space"]) for each in found if each})


def _fetch_unit(storage: Storage, folder: UnitFolder, keys: Sequence[str]) -> Arrived:
    where = f"{folder.name} in the storage {redacted(storage.root)}"
    current = (storage.read(f"{folder.name}/current") or b"").decode(errors="replace")
    if not _ID.fullmatch(current):
        raise UserError(f"{where} is damaged: its file `current` names no search; --fresh starts over")
    if folder.id not in (None, current):
        raise UserError(
            f"{where} is another search than {folder.path} (their ids: {current}, {folder.id}); give another --out to "
            "continue the one there, another --storage to continue the one here, or --fresh to start over"
        )
    base = f"{folder.name}/{current}"
    there = {key.removeprefix(f"{base}/") for key in keys if key.startswith(f"{base}/")}
    ledger = _ledger(storage, base, sorted(there))
    folder.check_lines(ledger, f"the ledger of {where}:")
    local = folder.path / "ledger.jsonl"
    known = b"".join(_whole_lines(local.read_bytes())) if local.exists() else b""
    content = b"".join(ledger)
    if not (content.startswith(known) or known.startswith(content)):
        raise UserError(
            f"{where} and {folder.path} went on differently after the same beginning: two runs wrote to them; move "
            f"{folder.path} away to continue from the storage, or use --fresh to start over"
        )

    def bring(file: str, to: str) -> None:
        found = storage.read(f"{base}/{file}") if file in there else None
        if found is not None:
            write_atomically(folder.path / to, found)

    if not known:
        for file in (SOURCE, "plan.json"):
            bring(file, file)
    if len(content) > len(known):
        write_atomically(local, content)
    is_complete = "result.json" in there
    if is_complete and not folder.is_complete:
        for file, to in (("trials.jsonl", "trials.jsonl"), (MODEL, folder.model_path.name), (ROWS, "rows.bin")):
            bring(file, to)
        bring("result.json", "result.json")
    return Arrived(current, len(content), len(ledger), is_complete)


def _ledger(storage: Storage, base: str, files: Sequence[str]) -> list[bytes]:
    """Its lines. A line without its end was torn: it did not happen, and the next segment begins with that number."""
    segments = [(int(found[1]), file) for file in files if (found := _SEGMENT.fullmatch(file))]
    lines: list[bytes] = []
    for first, file in segments:
        if first != len(lines) + 1:
            raise UserError(
                f"{base} in the storage {redacted(storage.root)} is damaged: its ledger has {len(lines)} lines before "
                f"{file}, which begins with line {first}, so a segment is missing, torn or not its own; put it back, "
                "or use --fresh to start over"
            )
        lines += _whole_lines(storage.read(f"{base}/{file}") or b"")
    return lines


def _whole_lines(content: bytes) -> list[bytes]:
    return [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]


def _fetch_looks(storage: Storage, out: Path, space: str) -> None:
    content = storage.read(f"{space}/looks.json")
    if content is None:
        return
    try:
        there = Looks.model_validate_json(content)
    except ValueError:
        raise UserError(f"{space}/looks.json in the storage {redacted(storage.root)} is damaged; remove it") from None
    here = read_looks(out, space)
    both = Looks(declared=here.declared or there.declared, taken=tuple(sorted({*here.taken, *there.taken})))
    if both != here:
        write_atomically(out / space / "looks.json", both.model_dump_json() + "\n")


# --- to the storage ---------------------------------------------------------------------------------------------


@dataclass
class _Followed:
    folder: UnitFolder
    arrived: Arrived | None  # None: nothing of this search
    waits_since: float | None = None  # when something new was seen first
    sending: threading.Lock = field(default_factory=threading.Lock)


class Mirror:
    """Sends what is new in the folders of a run's units, in the background. Its failures end no trial."""

    def __init__(self, storage: Storage, out: Path, writer: Writer, tell: Callable[[str], None]) -> None:
        self._storage, self._out, self._writer, self._tell = storage, out, writer, tell
        self._units: list[_Followed] = []
        self._looks: dict[str, bytes] = {}
        self._problem = ""

    def follow(self, folder: UnitFolder, arrived: Mapping[str, Arrived]) -> None:
        self._units.append(_Followed(folder, arrived.get(folder.name)))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Sends until the block ends, and then what is left."""
        over = threading.Event()

        def send() -> None:
            while not over.wait(LOOK_SECONDS):
                self.look()

        thread = threading.Thread(target=send, name="mirror", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.look(all_of_it=True)
            if self._problem:
                self._tell(f"{self._problem}; the same command sends what is missing there")

    def look(self, all_of_it: bool = False) -> None:
        """Sends what is due. What does not arrive is tried again at the next look, and told once."""
        before, self._problem = self._problem, ""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            problems = [
                problem for problem in pool.map(lambda each: self._try(each, all_of_it), self._units) if problem
            ]
        problems += [problem for problem in [self._try_looks()] if problem]
        self._problem = next(iter(problems), "")
        if self._problem and not before:
            self._tell(f"{self._problem}; the run goes on, and what it records is on this machine alone until then")

    def _try(self, each: _Followed, all_of_it: bool) -> str:
        try:
            with each.sending:
                self._send(each, all_of_it)
        except (UserError, OSError) as error:
            return str(error)
        except MachineError:  # the run's loop will see that it has to stop
            pass
        return ""

    def _send(self, each: _Followed, all_of_it: bool) -> None:
        folder, arrived = each.folder, each.arrived
        is_complete = folder.is_complete  # before the ledger is read: all of it is there then
        if arrived and arrived.is_complete:
            return
        if arrived is None or arrived.size == 0:
            if (id := folder.id) is None:
                return
            arrived = each.arrived = arrived or Arrived(id)
        lines = _whole_lines(_read_from(folder.path / "ledger.jsonl", arrived.size))
        if lines and self._is_due(each, lines, all_of_it or is_complete or arrived.size == 0):
            self._writer.check()
            if arrived.size == 0:
                self._introduce(folder, arrived)
            self._send_segment(folder, arrived, lines)
            each.waits_since = None
        if is_complete:
            self._writer.check()
            self._send_result(folder, arrived)

    def _is_due(self, each: _Followed, lines: Sequence[bytes], at_once: bool) -> bool:
        now = time.monotonic()
        each.waits_since = now if each.waits_since is None else each.waits_since
        told = any(CHECKPOINT_TOLD in line for line in lines)
        return at_once or told or now - each.waits_since >= LATEST_SECONDS - LOOK_SECONDS

    def _introduce(self, folder: UnitFolder, arrived: Arrived) -> None:
        for file in (SOURCE, "plan.json"):
            if (folder.path / file).exists():
                self._storage.write(f"{folder.name}/{arrived.id}/{file}", (folder.path / file).read_bytes())
        self._storage.write(f"{folder.name}/current", arrived.id.encode())

    def _send_segment(self, folder: UnitFolder, arrived: Arrived, lines: Sequence[bytes]) -> None:
        key, content = f"{folder.name}/{arrived.id}/ledger.{arrived.lines + 1:09d}.jsonl", b"".join(lines)
        if not self._storage.create(key, content):
            there = self._storage.read(key) or b""
            if not content.startswith(there):
                self._writer.lost = (
                    f"another run wrote {key} to the storage {redacted(self._storage.root)}, so this one has stopped; "
                    "give the same command with another --out: it continues from the storage"
                )
                return
            lines = _whole_lines(there)  # ours: the answer to an earlier try was lost
        arrived.size += sum(map(len, lines))
        arrived.lines += len(lines)

    def _send_result(self, folder: UnitFolder, arrived: Arrived) -> None:
        base = f"{folder.name}/{arrived.id}"
        there = self._storage.files(base)
        for path, file in ((folder.model_path, MODEL), (folder.rows_path, ROWS)):
            if path.exists() and f"{base}/{file}" not in there:  # of a search that ended without this storage
                self._storage.write(f"{base}/{file}", path.read_bytes())
        for file in ("trials.jsonl", "result.json"):
            self._storage.write(f"{base}/{file}", (folder.path / file).read_bytes())
        arrived.is_complete = True

    def _try_looks(self) -> str:
        try:
            for space in sorted({each.folder.name.partition("/")[0] for each in self._units}):
                send_looks(self._storage, self._out, space, self._looks)
        except (UserError, OSError) as error:
            return str(error)
        return ""


def send_looks(storage: Storage, out: Path, space: str, sent: dict[str, bytes] | None = None) -> None:
    """At how many seeds verdicts were looked at, unless that was `sent`."""
    path = out / space / "looks.json"
    content = path.read_bytes() if path.exists() else b""
    if content and (sent is None or sent.get(space) != content):
        storage.write(f"{space}/looks.json", content)
        if sent is not None:
            sent[space] = content


def _read_from(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read()
    except FileNotFoundError:  # a search that is replayed appears as a whole
        return b""
