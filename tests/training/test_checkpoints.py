"""One place for a trial's checkpoint, whether it is a folder or a URI."""

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.training.checkpoints import CheckpointStore


@pytest.fixture(params=["folder", "uri"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    if request.param == "folder":
        return CheckpointStore(str(tmp_path / "checkpoints"))
    return CheckpointStore(f"file://{tmp_path}/checkpoints")  # another scheme would need a server


def write(text: str) -> Callable[[Path], Any]:
    return lambda path: path.write_text(text)


def read(store: CheckpointStore, key: str) -> str | None:
    with store.fetched(key) as path:
        return path.read_text() if path else None


def test_what_is_saved_is_fetched(store: CheckpointStore) -> None:
    assert read(store, "grid/seed-0/t000.pt") is None
    store.save("grid/seed-0/t000.pt", write("first"))
    store.save("grid/seed-0/t000.pt", write("second"))
    store.save("grid/seed-1/t000.pt", write("other"))
    copy: CheckpointStore = pickle.loads(pickle.dumps(store))  # as a worker gets it
    assert [read(each, "grid/seed-0/t000.pt") for each in (store, copy)] == ["second", "second"]


def test_a_save_that_fails_leaves_the_old_checkpoint(store: CheckpointStore) -> None:
    store.save("t", write("whole"))
    store.settle()

    def torn(path: Path) -> None:
        path.write_text("ha")
        raise OSError("the worker was killed")

    with pytest.raises((OSError, UserError), match="killed"):
        store.save("t", torn)
        store.settle()
    assert read(store, "t") == "whole"


def test_a_checkpoint_is_on_disk_before_it_replaces_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut(descriptor: int) -> None:
        raise OSError("the power is gone")

    store = CheckpointStore(str(tmp_path))
    store.save("t", write("old"))
    monkeypatch.setattr("harness.training.checkpoints.os.fsync", power_cut)
    store.save("t", write("new"))
    with pytest.raises(UserError, match=r"cannot be written: .*power is gone"):
        store.settle()
    assert read(store, "t") == "old"


def test_a_full_disk_is_told_at_once(tmp_path: Path) -> None:
    """The run ends there: no trial goes on in vain."""

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left"):
        CheckpointStore(str(tmp_path)).save("t", full)
