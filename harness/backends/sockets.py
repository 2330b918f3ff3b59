"""Where processes listen, as the kernel tells it. Nothing is known where there is no /proc."""

import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path

LISTENS = "0A"  # the state of a socket, as the kernel writes it


def family(parents: Iterable[int]) -> set[int]:
    """Process ids: the given ones and all below them."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            stat = (process / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended
            continue
        children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(process.name))
    found, ahead = set[int](), list(parents)
    while ahead:
        pid = ahead.pop()
        if pid not in found:
            found.add(pid)
            ahead += children.get(pid, [])
    return found


def sockets_of(pid: int) -> set[str]:
    """All that a process holds, by the kernel's number."""
    found = set()
    try:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(file.readlink())
            except OSError:  # closed meanwhile
                continue
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:  # it has ended, or there is no /proc
        pass
    return found


def beyond_loopback(sockets: dict[int, set[str]]) -> list[str]:
    """`name at address:port` for every socket, of these by process, that other machines can reach."""
    waiting = _listening()
    found = []
    for pid, held in sockets.items():
        for number in sorted(held & waiting.keys()):
            address, port = waiting[number]
            if not _is_loopback(address):
                found.append(f"{_name(pid)} at {address}:{port}")
    return sorted(set(found))


def _listening() -> dict[str, tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]:
    found = {}
    for table in ("tcp", "tcp6"):
        path = Path(f"/proc/net/{table}")
        for line in path.read_text(encoding="ascii").splitlines()[1:] if path.exists() else []:
            fields = line.split()
            if fields[3] == LISTENS:
                address, _, port = fields[1].partition(":")
                found[fields[9]] = _address(address), int(port, 16)
    return found


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Written as numbers of four bytes, each in the order of this machine's processor: the last byte first."""
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(words))


def _is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _name(pid: int) -> str:
    if pid == os.getpid():
        return "this process"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        words = [b""]
    return Path(words[0].decode(errors="replace")).name or f"process {pid}"
