import resource
from pathlib import Path

import pytest

from harness.data import memory
from harness.errors import UserError


def test_a_container_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CGROUP_V2", tmp_path)
    monkeypatch.setattr(memory, "_CGROUP_V1", tmp_path / "v1")
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert memory.available_bytes() == 2_000_000
    (tmp_path / "memory.max").write_text("max\n")
    unlimited = memory.available_bytes()
    assert unlimited is not None and unlimited > 2_000_000


def test_a_limit_of_address_space_counts_less_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_machine", lambda: None)
    monkeypatch.setattr(memory, "_container", lambda: None)
    limit = 2**45
    for soft, expected in ((resource.RLIM_INFINITY, None), (1, 0)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert memory.available_bytes() == expected
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    left = memory.available_bytes()
    assert left is not None and limit - 2**42 < left < limit


def test_the_message_names_both_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    memory.check_fits(2**30, "big.npz")
    with pytest.raises(UserError, match=r"big\.npz would need about 3\.0 GiB of memory, but only 1\.0 GiB is avail"):
        memory.check_fits(3 * 2**30, "big.npz")


def test_unknown_memory_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    memory.check_fits(2**60, "big.npz")
