"""A folder for a while, in the temporary folder: gone with its block, or with the next one where a kill came first."""

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "harness-"


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Removes what killed processes left behind in the same place, too. Raises OSError where none can be made."""
    parent = parent or Path(tempfile.gettempdir())
    for folder in parent.glob(f"{PREFIX}*"):
        _remove_if_left_behind(folder)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    with (folder / "locking").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held until this process ends, however it does
        (folder / "locking").rename(folder / "lock")  # only now: nobody may find it free
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_if_left_behind(folder: Path) -> None:
    """Only one that a process of this user made, and that none holds any more."""
    with contextlib.suppress(OSError):  # no lock in it, or somebody else's: not ours to touch
        if folder.stat().st_uid != os.getuid():
            return
        with (folder / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process is alive
            end_processes(folder)
            shutil.rmtree(folder, ignore_errors=True)


def end_processes(folder: Path) -> None:
    """Processes of a Ray whose driver is gone, known by the files that they hold open; they would live for a while."""
    for process in Path("/proc").glob("[0-9]*"):  # none where there is no /proc
        pid = int(process.name)
        if pid != os.getpid() and _holds_a_file_in(folder, process):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _holds_a_file_in(folder: Path, process: Path) -> bool:
    try:
        return any(file.readlink().is_relative_to(folder) for file in (process / "fd").iterdir())
    except OSError:  # it has ended, or is another user's
        return False
