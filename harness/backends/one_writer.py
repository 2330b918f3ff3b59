"""One run at a time writes to a place: a folder of results, or a storage that many machines reach.

A folder has a file `.writer` that its writer locks, so that the lock ends with its process in whatever way. S3 has an
object `.writer`: made only where there is none, and renewed all the time on condition that nobody else wrote it since.
One that was not renewed for a while is of a writer that is gone, as is one of a process that has ended on this very
machine. A writer that was taken over, or could not renew its object in time, is `lost`: it must write nothing more.

Only the clock of the storage, and the time that passes here, are looked at: clocks of machines differ.
"""

import contextlib
import dataclasses
import fcntl
import getpass
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Protocol

from harness.backends.storage import Storage, is_uri, put_if, s3_client
from harness.errors import MachineError, UserError
from harness.scratch import has_ended, this_process
from harness.text.shown import printable, redacted

FILE = ".writer"
RENEW_SECONDS = 10.0
LOST_SECONDS = 40.0  # without a renewal, after which a writer stops
GONE_SECONDS = 60.0  # without a renewal, after which another may begin
NOTICE_SECONDS = RENEW_SECONDS + 5.0  # in which a writer that was taken over has noticed it
NOT_LOCKED = "make sure that only one run writes there"
Tell = Callable[[str], None]


class Writer:
    """Whether this process may still write; asked before each line that it writes."""

    def __init__(self, take_over: bool, tell: Tell) -> None:
        self.lost = ""  # a sentence
        self._take_over, self._tell = take_over, tell
        self._locks: list[_Lock] = []
        self._asking = threading.Lock()

    def hold(self, root: str, below: str) -> None:
        """A folder of a folder or a URI, until the end. Raises UserError while another one holds it."""
        lock = _lock_of(root, below, self._tell)
        if lock is None:
            return
        taken_from = lock.acquire(self._take_over)
        self._locks.append(lock)
        if taken_from:  # what it wrote until then is read afterwards
            self._tell(f"waiting {NOTICE_SECONDS:.0f} s until {taken_from} has noticed that it must stop")
            time.sleep(NOTICE_SECONDS)

    def check(self) -> None:
        """Raises MachineError once another run writes, or may."""
        if not self.lost and any(lock.is_in_doubt() for lock in self._locks):
            self.renew()
        if self.lost:
            raise MachineError(self.lost)

    def renew(self) -> None:
        with self._asking:
            self.lost = self.lost or next((sentence for lock in self._locks if (sentence := lock.renew())), "")

    def release(self) -> None:
        while self._locks:
            self._locks.pop().release()


@contextlib.contextmanager
def only_writer(take_over: bool = False, tell: Tell = lambda sentence: None) -> Iterator[Writer]:
    """No second run writes to what is held until the block, or this process, has ended in whatever way.

    `tell` hears where nothing can be locked. `take_over`: whoever writes there now is to stop.
    """
    writer, over = Writer(take_over, tell), threading.Event()

    def renew() -> None:
        while not over.wait(RENEW_SECONDS):
            writer.renew()

    thread = threading.Thread(target=renew, name="remains the only writer", daemon=True)
    thread.start()
    try:
        yield writer
    except Exception as error:
        if writer.lost and not isinstance(error, MachineError):  # Ray Tune wraps what is raised in its loop
            raise MachineError(writer.lost) from error
        raise
    finally:
        over.set()
        thread.join()
        writer.release()


class _Lock(Protocol):
    def acquire(self, take_over: bool) -> str:
        """Raises UserError where another writes there; with `take_over` it returns who that is, else nothing."""

    def is_in_doubt(self) -> bool:
        """Whether it may no longer be ours, as far as that is seen in an instant."""

    def renew(self) -> str:
        """A sentence once it is no longer ours."""

    def release(self) -> None:
        """So that the next one need not wait; nothing where it is no longer ours."""


def _lock_of(root: str, below: str, tell: Tell) -> _Lock | None:
    if not is_uri(root):
        return _FolderLock(Path(root, below), tell)
    if not root.startswith("s3://"):
        tell(f"{redacted(root)} has no locks that the harness knows; {NOT_LOCKED}")
        return None
    try:
        return _ObjectLock(root, below)
    except ImportError:
        tell(f"{redacted(root)} is not locked, as boto3 is not installed; pip install it, or {NOT_LOCKED}")
        return None


@dataclass(frozen=True)
class _Owner:
    """Who writes, as a person would look for it."""

    host: str
    process: int
    user: str
    process_ids_of: str
    started: int
    id: str  # no two are the same

    @classmethod
    def now(cls) -> "_Owner":
        try:
            user = getpass.getuser()
        except (OSError, KeyError):  # a container's user without a name
            user = str(os.getuid())
        return cls(socket.gethostname(), os.getpid(), user, *this_process(), secrets.token_hex(8))

    @classmethod
    def read(cls, content: bytes) -> "_Owner | None":
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError):
            return None

    @property
    def has_ended(self) -> bool:
        """As far as it can be seen from here."""
        return has_ended(self.process_ids_of, self.process, self.started)

    def content(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()


def _named(owner: _Owner | None) -> str:
    return printable(f"process {owner.process} of {owner.user} on {owner.host}") if owner else "another one"


def _refused(place: str, owner: _Owner | None, ended: str = "") -> UserError:
    return UserError(
        f"one run at a time writes to a results folder, and another is at work in {place} ({_named(owner)}); wait "
        f"until it has ended{ended}, give another --out or --storage, or --take-over if it must stop"
    )


def _taken(place: str, by: _Owner | None) -> str:
    return (
        f"another run ({_named(by)}) has taken over {place}, so this one has stopped; what was recorded there until "
        "then is kept"
    )


# --- folders ------------------------------------------------------------------------------------------------------


class _FolderLock:
    def __init__(self, folder: Path, tell: Tell) -> None:
        self._path, self._tell = folder / FILE, tell
        self._handle: int | None = None

    def acquire(self, take_over: bool) -> str:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        taken_from = ""
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)  # NFS locks what is writable
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = _Owner.read(os.pread(handle, 4096, 0))
                os.close(handle)
                if not take_over:
                    raise _refused(str(self._path.parent), owner) from None
                taken_from = _named(owner)
                self._path.unlink(missing_ok=True)  # its writer finds that out
                continue
            except OSError:
                self._tell(f"the file system of {self._path.parent} has no locks; {NOT_LOCKED}")
            self._handle = handle
            if self._is_ours():
                break
            os.close(handle)  # of a writer that ended just now
        os.ftruncate(handle, 0)
        os.pwrite(handle, _Owner.now().content(), 0)
        return taken_from

    def _is_ours(self) -> bool:
        assert self._handle is not None
        try:
            ours, there = os.fstat(self._handle), self._path.lstat()
        except OSError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)

    def is_in_doubt(self) -> bool:
        return not self._is_ours()

    def renew(self) -> str:
        if self._is_ours():
            return ""
        try:
            owner = _Owner.read(self._path.read_bytes())
        except OSError:
            owner = None
        return _taken(str(self._path.parent), owner)

    def release(self) -> None:
        assert self._handle is not None
        if self._is_ours():
            with contextlib.suppress(OSError):
                self._path.unlink()
        os.close(self._handle)


# --- S3 -----------------------------------------------------------------------------------------------------------


class _ObjectLock:
    """Needs boto3: pyarrow's file system writes without conditions."""

    def __init__(self, root: str, below: str) -> None:
        self._place = f"{redacted(root)} ({below})"
        self._storage = Storage(root)
        self._client, self._bucket, self._key = s3_client(root, f"{below}/{FILE}")
        self._owner = _Owner.now()
        self._tag = ""
        self._renewed_at = 0.0

    def acquire(self, take_over: bool) -> str:
        for _ in range(3):  # another may make, renew or remove it between two requests
            if self._put(IfNoneMatch="*"):
                return ""
            with self._told("read"):
                there = self._look()
            if there is None:
                continue
            owner, tag, silent = there
            if owner == self._owner:  # made, and the answer was lost
                self._tag, self._renewed_at = tag, _passed()
                return ""
            is_gone = silent >= GONE_SECONDS or (owner is not None and owner.has_ended)
            if not take_over and not is_gone:
                ended = f", or {GONE_SECONDS - silent:.0f} s if it was killed"
                raise _refused(self._place, owner, ended)
            if self._put(IfMatch=tag):
                return "" if is_gone else _named(owner)
        raise _refused(self._place, None)

    def _put(self, **condition: str) -> bool:
        """Whether the condition held."""
        began = _passed()
        with self._told("written"):
            tag = put_if(self._client, self._bucket, self._key, self._owner.content(), **condition)
        if tag is not None:
            self._tag, self._renewed_at = tag, began
        return tag is not None

    def _look(self) -> tuple[_Owner | None, str, float] | None:
        """Whose it is, its tag, and seconds since it was renewed, all by the storage's clock. None: it is gone."""
        from botocore.exceptions import ClientError

        try:
            found = self._client.get_object(Bucket=self._bucket, Key=self._key)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return None
            raise
        now = parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"])
        return _Owner.read(found["Body"].read()), found["ETag"], (now - found["LastModified"]).total_seconds()

    @contextlib.contextmanager
    def _told(self, done: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError, OSError) as error:
            raise self._storage.failed(done, str(error)) from None

    def is_in_doubt(self) -> bool:
        return _passed() - self._renewed_at >= LOST_SECONDS

    def renew(self) -> str:
        with contextlib.suppress(UserError):  # it does not answer: perhaps it will
            if self._put(IfMatch=self._tag):
                return ""
            there = self._look_again()
            if there and there[0] == self._owner:  # renewed, and the answer was lost
                self._tag, self._renewed_at = there[1], _passed()
                return ""
            return _taken(self._place, there and there[0])
        if not self.is_in_doubt():
            return ""
        silent = _passed() - self._renewed_at
        return (
            f"the storage {self._place} has not answered for {silent:.0f} s, and another run may write there by now, "
            "so this one has stopped; once the storage answers, give the same command again: it continues"
        )

    def _look_again(self) -> tuple[_Owner | None, str, float] | None:
        with self._told("read"):
            return self._look()

    def release(self) -> None:
        """On condition that it is ours. A storage that does not answer keeps it until it counts as gone."""
        with contextlib.suppress(Exception):
            there = self._look()
            if there and there[0] == self._owner:
                self._client.delete_object(Bucket=self._bucket, Key=self._key)


def _passed() -> float:
    """Seconds, those in which the machine slept included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
