"""Simulated hosts for a real `ray up`: each has its own network, processes, mounts, name and sshd on port 22.

Everything lives in one anonymous PID and network namespace (the lab), made of processes only: when its first process
ends, or the test process dies, the kernel ends all hosts and takes their network with them. No named namespace, no
bridge and no address ever exists outside the lab, and the lab has no way out.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SUBNET = "10.77.0"
GATEWAY = f"{SUBNET}.254"
_TOOLS = ("ip", "unshare", "nsenter", "setpriv", "mount", "ssh", "ssh-keygen", "rsync", "/usr/sbin/sshd")

_NEW = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child")


def missing() -> str | None:
    """Why the rig cannot run here, or None."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "simulated hosts need root on Linux"
    if lacking := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"simulated hosts need {', '.join(lacking)} (Debian: iproute2, openssh-server, rsync)"
    bridge = ["ip", "link", "add", "name", "bridge", "type", "bridge"]
    tried = subprocess.run([*_NEW, *bridge], capture_output=True)
    return None if tried.returncode == 0 else "this machine does not allow network namespaces and bridges (`ip netns`)"


def wait_until(what: str, condition: Callable[[], T], seconds: float) -> T:
    """Polls until the condition holds and returns it; the deadline is for a broken run, not part of what is tested."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.2)
    return found


@dataclass(frozen=True)
class Host:
    """One simulated machine; `pid` is its first process as the machine outside sees it."""

    name: str
    address: str
    pid: int
    folder: Path  # home/ and tmp/ are its own; everything else of the file system is shared

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def run(
        self, command: str, *, timeout: float = 120, check: bool = True, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        """A bash command on this host, as root with a clean environment."""
        words = self._words(command, env)
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
        if check and done.returncode:
            output = f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
            raise AssertionError(f"{self.name}: {command}\nexit {done.returncode}\n{output}")
        return done

    def start(self, command: str, **env: str) -> "subprocess.Popen[bytes]":
        """The same in the background, as a process group of its own; it ends with the lab at the latest."""
        quiet = subprocess.DEVNULL
        words = self._words(command, env)
        return subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)

    def _words(self, command: str, env: Mapping[str, str]) -> list[str]:
        where = ["nsenter", "--target", str(self.pid), "--net", "--pid", "--mount", "--uts", "--ipc", "--wd=/"]
        settings = {"PATH": os.environ["PATH"], "HOME": "/root", "LANG": "C.UTF-8", **env}
        return [*where, "env", "-i", *(f"{key}={value}" for key, value in settings.items()), "bash", "-c", command]

    def processes(self) -> list[str]:
        """Command lines of what runs here, the first process, ssh sessions and this question left aside."""
        script = "for p in /proc/[0-9]*; do echo ${p#/proc/} $(tr '\\0' ' ' < $p/cmdline 2> /dev/null); done"
        lines = [line.split(" ", 1) for line in self.run(script).stdout.splitlines() if " " in line]
        own = ("sshd", "/usr/sbin/sshd", "bash -c for p in", "tr ")
        return [command for pid, command in lines if pid != "1" and not command.startswith(own)]

    def kill(self) -> None:
        """Power off: every process of this host is gone at once, and its address with them."""
        os.kill(self.pid, signal.SIGKILL)


class Lab:
    def __init__(self, base: Path, keep: Sequence[Path], hide: Sequence[Path] = ()) -> None:
        """`keep`: folders the hosts must see although they may lie under /tmp or /root, which are each host's own.

        `hide`: folders that are empty on the hosts.
        """
        self.base = base
        self.shared = base / "shared"  # the lab's NFS: the same path on every host
        self.key = base / "key"
        self._keep = [path.resolve() for path in keep]
        self._hide = [path.resolve() for path in hide]
        self.hosts: dict[str, Host] = {}
        self._started: list[subprocess.Popen[bytes]] = []
        self.shared.mkdir()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        shutil.copy(f"{self.key}.pub", base / "authorized_keys")
        bridge = f"ip link add bridge type bridge && ip addr add {GATEWAY}/24 dev bridge && ip link set bridge up"
        script = f"ip link set lo up && {bridge} && exec sleep infinity"
        # pdeathsig: when pytest is killed the lab goes too.
        self._root = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *_NEW, "--mount-proc", "sh", "-c", script], stderr=subprocess.DEVNULL
        )
        self._pid = _innermost(self._root.pid, "sleep")

    def add(self, name: str, *, sshd: bool = True) -> Host:
        folder, address = self.base / name, f"{SUBNET}.{len(self.hosts) + 1}"
        for part in ("home", "tmp"):
            (folder / part).mkdir(parents=True)
        (folder / "tmp").chmod(0o1777)
        first = "/usr/sbin/sshd -D -e " + self._sshd_options(folder) if sshd else "sleep infinity"
        script = "\n".join(["set -e", *self._mounts(folder), f"hostname {name}", "ip link set lo up", f"exec {first}"])
        log = (folder / "first_process.log").open("w")
        inside = ["nsenter", "--target", str(self._pid), "--net", "--pid", "--mount"]
        started = subprocess.Popen(
            [*inside, *_NEW, "--uts", "--ipc", "--mount-proc", "sh", "-c", script], stdout=log, stderr=log
        )
        self._started.append(started)
        self.hosts[name] = Host(name, address, _innermost(started.pid, "sshd" if sshd else "sleep"), folder)
        self._connect(self.hosts[name], f"v{len(self.hosts)}")
        return self.hosts[name]

    def close(self) -> None:
        """Ends the first process of the lab, and so every process in it; then nothing of its network is left."""
        os.kill(self._pid, signal.SIGKILL)
        for process in (self._root, *self._started):
            process.wait(timeout=30)

    def _mounts(self, folder: Path) -> list[str]:
        lines = []
        for target, own in (("/tmp", folder / "tmp"), ("/root", folder / "home")):
            for path in self._keep:
                if path.is_relative_to(target):
                    inner = own / path.relative_to(target)
                    lines.append(f"mkdir -p {inner} && mount --rbind {path} {inner}")
        lines += [f"mount --rbind {folder / 'tmp'} /tmp", f"mount --rbind {folder / 'home'} /root"]
        lines += ["mount -t tmpfs none /run", "mkdir /run/sshd", "mount -t tmpfs -o size=2g none /dev/shm"]
        return lines + [f"mount -t tmpfs none {path}" for path in self._hide]

    def _sshd_options(self, folder: Path) -> str:
        key = folder / "host_key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        settings = {
            "HostKey": key,
            "AuthorizedKeysFile": self.base / "authorized_keys",
            "PidFile": "none",
            "PermitRootLogin": "prohibit-password",
            "StrictModes": "no",
            "UsePAM": "no",
            "UseDNS": "no",
            "PrintMotd": "no",
            "MaxStartups": "50",
            "Subsystem": "'sftp internal-sftp'",
        }
        return "-f /dev/null " + " ".join(f"-o {name}={value}" for name, value in settings.items())

    def _connect(self, host: Host, cable: str) -> None:
        # Entered without --pid: the number is the host's first process as seen from here.
        inside = (
            f"ip link add {cable} type veth peer name eth0 netns {host.pid} && ip link set {cable} master bridge up"
        )
        subprocess.run(["nsenter", "--target", str(self._pid), "--net", "sh", "-c", inside], check=True)
        # The default route leads nowhere; Ray finds a machine's own address by looking for one.
        up = f"ip addr add {host.address}/24 dev eth0 && ip link set eth0 up && ip route add default via {GATEWAY}"
        subprocess.run(["nsenter", "--target", str(host.pid), "--net", "sh", "-c", up], check=True)


@contextmanager
def lab(base: Path, keep: Sequence[Path], hide: Sequence[Path] = ()) -> Iterator[Lab]:
    made = Lab(base, keep, hide)
    try:
        yield made
    finally:
        made.close()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _innermost(pid: int, name: str) -> int:
    """The only descendant called `name`, once it is there."""
    found: list[int] = []

    def there() -> bool:
        found[:] = [child for child in _descendants(pid) if _name(child) == name]
        return bool(found)

    wait_until(f"a process {name} under {pid}", there, 30)
    return found[0]


def _descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)
