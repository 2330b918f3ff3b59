"""The token of a run is its own, and clusters that ask for none are none the worse for it."""

import contextlib
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.backends import ray_door
from harness.cluster.doctor import doctor
from harness.running import ray_session
from tests.running.results import wait_for


@pytest.fixture
def temp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path: Ray puts sockets below it."""
    with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


@pytest.mark.slow
def test_a_cluster_without_tokens_works_after_a_local_run_and_one_left_behind_is_named(
    temp: Path, tmp_path: Path, no_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    with ray_session.ray_session(None) as folder:
        assert (folder / "auth_token").stat().st_mode & 0o777 == 0o600
    assert list(home.iterdir()) == [], "the user's ~/.ray is for the user's clusters"
    with a_cluster(temp) as address:
        for given in (address, "auto"):  # in the process of the local run, too
            checks = {check.name: check for check in doctor(given, None, None, 0, 1)}
            assert checks["actors"].ok, checks["actors"]
        (home / ".ray").mkdir()
        token = home / ".ray" / "auth_token"
        token.write_text("0" * 64)  # as 0.1.0 left one
        monkeypatch.setenv("RAY_AUTH_MODE", "")  # put back to nothing at the end: Ray sets it
        monkeypatch.delenv("RAY_AUTH_MODE")
        ray_door.read_token_again()
        [refused] = [check for check in doctor("auto", None, None, 0, 1) if not check.ok]
    assert refused.name == "actors" and refused.fatal
    assert f"this process sends the token in {token}, and the Ray at {address} asks for none" in refused.detail
    assert refused.detail.startswith("none starts (The actor never ran") and f"remove {token} if" in refused.remedy


@contextlib.contextmanager
def a_cluster(temp: Path) -> Iterator[str]:
    """`ray start`, as a user does; its address, which Ray notes in `ray` below RAY_TMPDIR: "auto" is this one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
    options = ["--num-cpus=1", "--include-dashboard=false", "--node-ip-address=127.0.0.1", f"--temp-dir={temp}/ray"]
    log = temp / "start.log"
    with log.open("w") as output:
        head = subprocess.Popen([*words, *options, "--disable-usage-stats"], stdout=output, stderr=output)
    try:
        wait_for(lambda: "ray stop" in log.read_text() or head.poll() is not None, "ray start")
        assert head.poll() is None, log.read_text()
        [address] = set(re.findall(rf"ray start --address='([\d.]+:{port})'", log.read_text()))
        yield address
    finally:
        head.terminate()
        head.wait()
