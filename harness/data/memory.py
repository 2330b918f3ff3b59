"""Does an array fit into memory? Checked before the first byte is loaded."""

import os
import resource
from pathlib import Path

from harness.errors import UserError
from harness.text.shown import shown_bytes

_CGROUP_V2 = Path("/sys/fs/cgroup")
_CGROUP_V1 = Path("/sys/fs/cgroup/memory")
_OF_FILES = ("active", "inactive")


def check_fits(
    needed: int, what: str, remedy: str = "give fewer or smaller samples", available: float | None = None
) -> None:
    """Raises UserError if more bytes are `needed` than are `available`: those of the machine, if none are given."""
    available = available_bytes() if available is None else available
    if available is not None and needed > available:
        raise too_large(needed, what, f"only {shown_bytes(int(available))} is available", remedy)


def too_large(
    needed: int, what: str, instead: str = "the system refused it", remedy: str = "give fewer or smaller samples"
) -> UserError:
    return UserError(f"{what} would need about {shown_bytes(needed)} of memory, but {instead}; {remedy}")


def available_bytes() -> int | None:
    """Memory that this process may still take: the least that the machine and each limit leave; None if unknown."""
    known = [free for free in (_machine(), _container(), _process()) if free is not None]
    return min(known) if known else None


def _machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _container() -> int | None:
    """What its limit leaves; files that the kernel keeps in memory as long as nobody needs it count as free."""
    for folder, limit, usage, prefix in (
        (_CGROUP_V2, "memory.max", "memory.current", ""),
        (_CGROUP_V1, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        try:
            most, taken = (int((folder / name).read_text()) for name in (limit, usage))
            lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
            cached = sum(int(size) for name, size in lines if name in {f"{prefix}{each}_file" for each in _OF_FILES})
            return max(0, most - max(0, taken - cached))
        except (OSError, ValueError):  # no such file, or "max": no limit
            continue
    return None


def _process() -> int | None:
    """What `ulimit -v` leaves of the address space; batch systems set it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        taken = 0  # not Linux
    return max(0, limit - taken)
