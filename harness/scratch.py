"""Folders for a while, where nobody else gets in: gone with their block, or with the next one where a kill came first.

They lie in `harness-<user id>` in the temporary folder, which stays. Each holds a lock that names its owner, and a list
of the processes that were started for it: only what is named there is ever ended, only what holds a lock removed.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.errors import UserError

LOOKS_SECONDS = 0.2  # between two looks for processes that were started
_LOCK, _PROCESSES = "lock", "processes"
_PROC = Path("/proc")  # where there is none, no process is recorded, and none ended


@contextlib.contextmanager
def scratch_folder(temporary: Path | None = None) -> Iterator[Path]:
    """Removes what killed processes left behind in the same place, too. Raises OSError where none can be made."""
    parent = _ours_alone(temporary or Path(tempfile.gettempdir()))
    for folder in parent.iterdir():
        _remove_if_left_behind(folder)
    folder = Path(tempfile.mkdtemp(prefix="", dir=parent))
    with (folder / "locking").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held until this process ends, however it does
        json.dump(dataclasses.asdict(_owner_now(folder)), lock)
        lock.flush()
        (folder / "locking").rename(folder / _LOCK)  # only now: nobody may find it free, or without its owner
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def length_below(temporary: str) -> int:
    """Of the path of such a folder, in bytes."""
    return len(os.fsencode(_parent_in(Path(temporary)) / "12345678"))


def _parent_in(temporary: Path) -> Path:
    return temporary / f"harness-{os.getuid()}"


def _ours_alone(temporary: Path) -> Path:
    """Whatever is inside cannot be reached by others, even if it lets them: Ray opens its folders to everybody."""
    parent = _parent_in(temporary)
    with contextlib.suppress(FileExistsError):
        parent.mkdir(mode=0o700)
    found = parent.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        kind = "a link" if stat.S_ISLNK(found.st_mode) else "a folder" if stat.S_ISDIR(found.st_mode) else "a file"
        raise UserError(
            f"the harness keeps temporary files in a folder that must be a real one and yours alone; {parent} is "
            f"{kind} of user {found.st_uid}: remove it, or set RAY_TMPDIR and TMPDIR to a folder of your own with a "
            "short path"
        )
    if found.st_mode & 0o077:
        parent.chmod(0o700)
    return parent


# --- whose it is --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Owner:
    """What a lock says. It is believed only in the folder that it names."""

    harness_scratch_folder: str
    host: str
    process_ids_of: str  # they mean something else after a boot, and in another container
    pid: int
    started: int


def _owner_now(folder: Path) -> _Owner:
    return _Owner(folder.name, socket.gethostname(), _process_ids_of(), os.getpid(), _started(os.getpid()) or 0)


def _read_owner(lock: IO[str], folder: Path) -> _Owner | None:
    """None where somebody else wrote it."""
    try:
        owner = _Owner(**json.load(lock))
    except (ValueError, TypeError):
        return None
    return owner if owner.harness_scratch_folder == folder.name else None


def _remove_if_left_behind(folder: Path) -> None:
    """Only one that a process of this user's made on this machine, and that none holds any more."""
    with contextlib.suppress(OSError):  # no lock in it, or one that is held: not ours to touch
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return
        with os.fdopen(os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW), encoding="utf-8") as lock:
            owner = _read_owner(lock, folder)
            if owner is None or owner.host != socket.gethostname():
                return
            same_ids = owner.process_ids_of == _process_ids_of()
            if same_ids and _started(owner.pid) == owner.started:
                return
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process is alive
            if same_ids:
                end_processes(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _process_ids_of() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


# --- processes ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def recording_processes(folder: Path) -> Iterator[None]:
    """Those that this process starts with the folder on their command line, and all below them, as they come.

    Ray's server and raylet die with this process, where the kernel sees to it. The workers are the raylet's: they find
    out after some seconds, or not at all while they are deep in native code.
    """
    over, recorder = threading.Event(), _Recorder(folder)

    def record() -> None:
        while not over.wait(LOOKS_SECONDS):
            with contextlib.suppress(OSError):  # a full disk: at the next look
                recorder.look()

    thread = threading.Thread(target=record, name="records processes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Recorder:
    """Looks at each process once; at its own children again and again, as they may be about to become a program."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._recorded: set[int] = set()
        self._others: set[int] = set()

    def look(self) -> None:
        pids = {int(process.name) for process in _PROC.glob("[0-9]*")}
        self._recorded &= pids
        self._others &= pids
        new = [(status, pid) for pid in pids - self._recorded - self._others if (status := _status(pid))]
        for (parent, started), pid in sorted(new, key=lambda each: (each[0][1], each[1])):  # parents first
            if parent in self._recorded or (parent == os.getpid() and self._is_named_by(pid)):
                with (self._folder / _PROCESSES).open("a", encoding="ascii") as file:
                    file.write(f"{pid} {started}\n")
                self._recorded.add(pid)
            elif parent != os.getpid():
                self._others.add(pid)

    def _is_named_by(self, pid: int) -> bool:
        try:
            return os.fsencode(self._folder) in (_PROC / str(pid) / "cmdline").read_bytes()
        except OSError:  # it has ended
            return False


def end_processes(folder: Path) -> None:
    """Those that were recorded and still live; not one that has got the number of one that ended."""
    with contextlib.suppress(OSError):  # none were
        for line in (folder / _PROCESSES).read_text(encoding="ascii").splitlines():
            pid, _, started = line.partition(" ")
            if started and str(_started(int(pid))) == started:
                with contextlib.suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)


def this_process() -> tuple[str, int]:
    """What tells this process from any other with its number: the machine and container since its boot, its start."""
    return _process_ids_of(), _started(os.getpid()) or 0


def has_ended(process_ids_of: str, pid: int, started: int) -> bool:
    """Whether a process of this machine, and of this container, has ended; no where it is another's."""
    return bool(process_ids_of) and process_ids_of == _process_ids_of() and _started(pid) != started


def _started(pid: int) -> int | None:
    """In ticks of the clock since the machine's start."""
    status = _status(pid)
    return status[1] if status else None


def _status(pid: int) -> tuple[int, int] | None:
    """Parent and start; None of a process that is gone, or has ended and nobody has asked about it."""
    try:
        words = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else (int(words[1]), int(words[19]))
