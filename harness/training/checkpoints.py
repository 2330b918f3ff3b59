"""Checkpoints of trials: one file per trial at a known place that every node can reach.

A retry on another worker, a run continued after a crash and the final evaluation all look in the same place, so
nobody has to be told where a checkpoint went. The root is a folder (local, NFS) or a URI such as s3://bucket/path.
"""

import contextlib
import functools
import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from harness.backends.storage import Storage, is_uri
from harness.errors import full_place
from harness.scratch import scratch_folder
from harness.text.files import check_writable

ANSWER_SECONDS = 300.0  # of a storage that has not failed by itself before


class CheckpointStore:
    """Pickles as its root; connects to a URI's file system where it is used.

    What goes to a URI is uploaded in the background, one upload at a time: training does not wait for a network.
    `settle` does, and tells what went wrong, of a folder too: the trial goes on while a storage is away.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._storage = Storage(root)
        self._remote = is_uri(root)
        self._upload: tuple[str, Future[None]] | None = None  # key, and what is under way or has just ended

    def __reduce__(self) -> tuple[type["CheckpointStore"], tuple[str]]:
        return CheckpointStore, (self.root,)

    def check_writable(self) -> None:
        """Raises UserError where nothing can be kept: a run must not find that out after its first trial."""
        if not self._remote:
            check_writable(Path(self.root), "the storage")
            return
        key = f".harness-{secrets.token_hex(8)}"
        self._storage.write(key, b"")
        self.remove(key)

    def remove(self, key: str) -> None:
        """A file that is there."""
        self._storage.remove(key)

    def save(self, key: str, write: Callable[[Path], None]) -> None:
        """Replaces the checkpoint as a whole: a reader sees the old one or the new one.

        To a URI it may still be under way when this returns; raises UserError if the one before did not arrive.
        """
        if self._remote:
            with scratch_folder() as folder:
                local = folder / "checkpoint"
                write(local)
                content = local.read_bytes()
        try:
            self.settle()
        finally:
            self._upload = (
                key,
                _uploads().submit(self._storage.put, key, content) if self._remote else self._kept(key, write),
            )

    def _kept(self, key: str, write: Callable[[Path], None]) -> Future[None]:
        """In a folder, at once. A full disk ends the run, so it is told here; anything else may be over by the next."""
        arrives: Future[None] = Future()
        path = Path(self.root, key)
        partial = path.with_name(f".{path.name}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(partial)
            with partial.open("rb") as file:
                os.fsync(file.fileno())  # before it replaces the old one: a power cut must leave one of the two
            partial.replace(path)
            arrives.set_result(None)
        except (OSError, RuntimeError) as error:  # torch's own, whatever the file system told it
            if full_place(str(error), self.root):
                raise
            arrives.set_exception(OSError(str(error)))
        return arrives

    @property
    def is_busy(self) -> bool:
        """An upload is under way, and another one would have to wait for it."""
        return self._upload is not None and not self._upload[1].done()

    def settle(self) -> None:
        """Waits for what is under way. Raises UserError if it did not arrive."""
        upload, self._upload = self._upload, None
        if upload:
            key, arrives = upload
            with self._storage.explained("written", key):
                try:
                    arrives.result(ANSWER_SECONDS)
                except TimeoutError:
                    raise OSError(f"no answer in {ANSWER_SECONDS:.0f} s") from None

    @contextlib.contextmanager
    def fetched(self, key: str) -> Iterator[Path | None]:
        """A local path to the checkpoint, for the time of the block; None where there is none yet.

        Raises UserError where a URI does not answer.
        """
        if not self._remote:
            path = Path(self.root, key)
            yield path if path.exists() else None
            return
        content = self._storage.read(key)
        if content is None:
            yield None
            return
        with scratch_folder() as folder:
            local = folder / Path(key).name
            local.write_bytes(content)
            yield local


@functools.cache
def _uploads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
