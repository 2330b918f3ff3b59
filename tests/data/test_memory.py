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
    (tmp_path / "memory.stat").write_text("anon 900000\nfile 100000\ninactive_anon 900000\n")
    assert memory.available_bytes() == 2_000_000
    (tmp_path / "memory.max").write_text("max\n")
    unlimited = memory.available_bytes()
    assert unlimited is not None and unlimited > 2_000_000


@pytest.mark.parametrize("version", [1, 2])
def test_files_that_the_kernel_keeps_in_memory_are_no_obstacle(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a data set was read, a container has nearly all of its limit in use."""
    monkeypatch.setattr(memory, "_CGROUP_V2", tmp_path if version == 2 else tmp_path / "none")
    monkeypatch.setattr(memory, "_CGROUP_V1", tmp_path)
    limit, usage = ("max", "current") if version == 2 else ("limit_in_bytes", "usage_in_bytes")
    (tmp_path / f"memory.{limit}").write_text("3000000\n")
    (tmp_path / f"memory.{usage}").write_text("2900000\n")
    total = "" if version == 2 else "total_"
    (tmp_path / "memory.stat").write_text(f"cache 5\n{total}active_file 400000\n{total}inactive_file 1500000\n")
    assert memory.available_bytes() == 2_000_000


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
