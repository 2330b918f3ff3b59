"""The measurement of benchmarks/memory.py on made-up images: four trials at once hold their data once."""

import math
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.memory import FEW, data_settings, held_bytes

SHAPE = (20_000, 45, 45)  # 40 MB


@pytest.fixture(autouse=True)
def _own_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    temp = tempfile.mkdtemp(prefix="ht-", dir="/tmp")  # short: Ray puts sockets below it
    monkeypatch.setenv("RAY_TMPDIR", temp)
    yield
    shutil.rmtree(temp, ignore_errors=True)


@pytest.mark.slow
def test_four_trials_hold_one_copy_of_the_data(tmp_path: Path) -> None:
    data = data_settings(tmp_path, SHAPE)
    few = held_bytes({**data, "n_train": FEW}, tmp_path / "few")
    everything = held_bytes(data, tmp_path / "all")
    copy = math.prod(SHAPE)
    assert (everything.shared - few.shared) / copy == pytest.approx(1, abs=0.1)  # in the object store, and once
    assert (everything.private - few.private) / 4 < 0.9 * copy  # a worker with images of its own would gain a copy
