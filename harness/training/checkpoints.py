"""Checkpoints of trials: one file per trial at a known place that every node can reach.

A retry on another worker, a run continued after a crash and the final evaluation all look in the same place, so
nobody has to be told where a checkpoint went. The root is a folder (local, NFS) or a URI such as s3://bucket/path.
"""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pyarrow import fs

from harness.errors import UserError
from harness.text.shown import one_line, redacted, without_secrets


class CheckpointStore:
    """Pickles as its root; connects to a URI's file system where it is used."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._remote = "://" in root

    def check_writable(self) -> None:
        """Raises UserError where nothing can be kept: a run must not find that out after its first trial."""
        if not self._remote:
            return  # a folder beside the results, or one that is made
        key = f".harness-{secrets.token_hex(8)}"
        try:
            filesystem, base = fs.FileSystem.from_uri(self.root)
            filesystem.create_dir(base, recursive=True)
            with filesystem.open_output_stream(f"{base}/{key}") as stream:
                stream.write(b"")
            filesystem.delete_file(f"{base}/{key}")
        except (OSError, ValueError, NotImplementedError, ImportError) as error:  # pyarrow's errors are of these kinds
            reason = one_line(without_secrets(str(error), self.root), longest=300)
            raise UserError(f"the storage {redacted(self.root)} cannot be written: {reason}") from None

    def save(self, key: str, write: Callable[[Path], None]) -> None:
        """Replaces the checkpoint as a whole: a reader sees the old one or the new one."""
        if not self._remote:
            path = Path(self.root, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}.partial")
            write(partial)
            with partial.open("rb") as file:
                os.fsync(file.fileno())  # before it replaces the old one: a power cut must leave one of the two
            partial.replace(path)
            return
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder, "checkpoint")
            write(local)
            filesystem, base = fs.FileSystem.from_uri(self.root)
            target = f"{base}/{key}"
            filesystem.create_dir(target.rpartition("/")[0], recursive=True)  # object stores do without, others do not
            with filesystem.open_output_stream(target) as stream:  # an object appears when it is closed
                stream.write(local.read_bytes())

    @contextlib.contextmanager
    def fetched(self, key: str) -> Iterator[Path | None]:
        """A local path to the checkpoint, for the time of the block; None where there is none yet."""
        if not self._remote:
            path = Path(self.root, key)
            yield path if path.exists() else None
            return
        filesystem, base = fs.FileSystem.from_uri(self.root)
        if filesystem.get_file_info(f"{base}/{key}").type == fs.FileType.NotFound:
            yield None
            return
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder, Path(key).name)
            with filesystem.open_input_stream(f"{base}/{key}") as stream:
                local.write_bytes(stream.read())
            yield local
