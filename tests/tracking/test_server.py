"""Real servers and real processes: racing, killed, interrupted."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import types
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.tracking import one_process
from harness.tracking.server import check_free, serving
from harness.tracking.writer import Tracker, sync
from tests.forked import Forked
from tests.synthetic import make_units
from tests.tracking.test_writer import SMALL, assert_complete

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], seconds: float = 90) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_a_busy_port_names_the_next_free_one(uri: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        sentence = f"port {port} is busy; the next free one is (\\d+)"
        with pytest.raises(UserError, match=sentence) as caught, serving(uri, port):
            pass
    check_free(int(str(caught.value).split("--port ")[1].rstrip(")")))


def test_nothing_to_show_is_said_before_a_server_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to show yet"), serving(f"sqlite:///{tmp_path / 'none.db'}"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_server_of_ones_own_is_its_own_address() -> None:
    with serving("http://tracking.example:5000") as address:
        assert address == "http://tracking.example:5000"


def test_an_mlflow_that_starts_its_server_in_another_way_is_left_to_do_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the private name that is replaced: a second process, and some seconds."""
    started: list[str] = []
    server: Any = types.ModuleType("mlflow.server")
    command_line: Any = types.ModuleType("mlflow.cli")
    command_line.cli = lambda prog_name: started.append(prog_name)
    monkeypatch.setitem(sys.modules, "mlflow.server", server)
    monkeypatch.setitem(sys.modules, "mlflow.cli", command_line)
    one_process.main()
    assert started == ["mlflow"] and not hasattr(server, "_exec_cmd")
    server._exec_cmd = None
    one_process.main()
    assert server._exec_cmd is one_process._become


def test_a_server_hands_out_the_artifacts_beside_a_sqlite_file_and_no_folder_at_all_for_a_database(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    class NotStarted(Exception):
        pass

    def keep(command: list[str], **settings: Any) -> None:
        commands.append(command)
        raise NotStarted

    monkeypatch.setattr(subprocess, "Popen", keep)
    database = Path(uri.removeprefix("sqlite:///"))
    for address in (uri, "postgresql://somebody@host/tracking"):
        with pytest.raises(NotStarted), serving(address, free_port()):
            pass
    beside_sqlite, of_a_database = commands
    assert beside_sqlite[-2:] == ["--artifacts-destination", str(database.parent / "mlflow-artifacts")]
    assert of_a_database[-1] == "--no-serve-artifacts"
    assert "--artifacts-destination" not in of_a_database
    assert not any(str(Path.cwd()) in part for part in of_a_database[of_a_database.index("server") :])


def sync_when_told(uri: str, method: str, go: Path) -> None:
    units = make_units([method], [0, 1], space=SMALL)
    assert wait_until(go.exists)
    synced = sync(units, uri)
    assert (synced.written, synced.warning) == (2, None), synced


@pytest.mark.slow
def test_two_processes_that_open_a_fresh_sqlite_file_at_once_both_succeed(tmp_path: Path) -> None:
    uri, go = f"sqlite:///{tmp_path / 'results' / 'mlflow.db'}", tmp_path / "go"
    racers = [Forked(sync_when_told, uri, method, go, env={}) for method in ("ldn", "grid")]
    go.touch()
    assert [racer.wait(120) for racer in racers] == [0, 0]
    assert_complete(uri, make_units(["ldn", "grid"], [0, 1], space=SMALL))


@pytest.mark.slow
def test_a_server_killed_in_mid_write_and_back_later(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    units = make_units(["ldn", "grid"], [0], space=SMALL)
    port = free_port()
    with contextlib.ExitStack() as server:
        tracker = Tracker(server.enter_context(serving(uri, port)))
        original, calls = tracker.client.log_batch, []

        def dies_at_the_fourth(*args: Any, **kwargs: Any) -> None:
            calls.append(args)
            if len(calls) == 4:
                server.close()
            original(*args, **kwargs)

        monkeypatch.setattr(tracker.client, "log_batch", dies_at_the_fourth)
        for unit in units:
            tracker.write_unit(unit)
    assert len(calls) == 4
    assert tracker.warning
    assert f"127.0.0.1:{port}" in tracker.warning
    with serving(uri, port) as address:
        assert sync(units, address).warning is None
        assert sync(units, address).unchanged == len(units)
        back = Tracker(address)
        back.log_report(SMALL, "<p>through the server</p>")
        assert back.warning is None
    assert_complete(uri, units)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_first_free_port_is_served_and_an_interrupt_ends_the_servers_processes(
    uri: str, how: signal.Signals
) -> None:
    script = """
import contextlib, signal, sys
from harness.tracking import server
server.PORT = int(sys.argv[2])
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may have it ignored
with contextlib.suppress(KeyboardInterrupt), server.serving(sys.argv[1]) as address:
    print(address, flush=True)
    server.wait_for_interrupt()  # the signal may come before this line is reached, so the block is what must end
print("over", flush=True)
"""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = taken.getsockname()[1]
        shell = python(script, uri, str(busy))
        assert shell.stdout
        address = shell.stdout.readline().strip()
    host, port = address.rsplit(":", 1)[0], int(address.rsplit(":", 1)[1])
    assert host == "http://127.0.0.1" and port != busy
    with urllib.request.urlopen(f"{address}/health", timeout=60) as reply:
        assert reply.status == 200
    foreign = urllib.request.Request(f"{address}/ajax-api/2.0/mlflow/experiments/search", headers={"Host": "evil.org"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(foreign, timeout=60)
    group = _group_listening(port)
    assert group and _processes_of(group) == [group], "it imports everything once"
    try:
        shell.send_signal(how)
        assert shell.wait(60) == 0
        assert shell.stdout.read().strip() == "over"
        assert wait_until(lambda: not _processes_of(group))
        check_free(port)
    finally:
        shell.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def _group_listening(port: int) -> int | None:
    """The process group of the server: the one whose command line names the port and leads a group."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(port).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                pid = int(entry.name)
                if os.getpgid(pid) == pid:
                    return pid
    return None


def _processes_of(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == group:
                found.append(int(entry.name))
    return found
