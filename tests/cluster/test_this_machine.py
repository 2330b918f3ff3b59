"""What `ray up` needs on this machine: credentials, a private token, free ports."""

import socket
from pathlib import Path

import pytest

from harness.cli import main
from harness.cluster import this_machine as launch
from harness.cluster.checks import Check
from harness.cluster.this_machine import check_launch, check_ports

ROOT = Path(__file__).parents[2]
AWS_FILE, LOCAL_FILE = ROOT / "ray_cluster.yaml", ROOT / "ray_cluster_local.yaml"


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of somebody who has a token and no AWS account; both tunnel ports are free."""
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(0o600)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # or botocore asks the network
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setattr(launch, "TUNNEL_PORTS", {})  # a Ray may be running on this machine
    return tmp_path


def doctor(home: Path, shipped: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Exit code and bad lines of `harness doctor` on the shipped file, with all values filled in."""
    text = shipped.read_text()
    for number in range(text.count("EDIT-ME")):
        text = text.replace("EDIT-ME", f"value{number}", 1)
    (home / shipped.name).write_text(text)
    with pytest.raises(SystemExit) as exit_:
        main(["doctor", str(home / shipped.name)])
    lines = capsys.readouterr().out.splitlines()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, [line for line in lines if not line.startswith("ok ")]


def test_a_machine_that_is_ready(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(ready, LOCAL_FILE, capsys) == (0, [])


def test_no_credentials_is_one_sentence(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, [line] = doctor(ready, AWS_FILE, capsys)
    assert code == 2
    assert "no AWS credentials on this machine; run `aws configure`, or set AWS_ACCESS_KEY_ID" in line


def test_busy_dashboard_port_is_one_sentence(
    ready: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(launch, "TUNNEL_PORTS", {port: "the dashboard"})
        code, [line] = doctor(ready, LOCAL_FILE, capsys)
        assert code == 2 and f"port {port} for the dashboard is taken on this machine; stop what listens there" in line
    assert check_ports({port: "the dashboard"}).ok


def test_a_cluster_file_and_a_cluster_are_two_questions(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["doctor", str(LOCAL_FILE), "--storage", "/nfs"])
    assert "give either it, or --address" in capsys.readouterr().err


def test_token_file_must_be_there_private_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def now() -> Check:
        return next(check for check in check_launch(LOCAL_FILE, home=tmp_path) if check.name == "token file")

    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert "there is no" in now().detail
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(0o644)
    assert "others on this machine can read" in now().detail
    token.chmod(0o600)
    assert now().ok
    monkeypatch.delenv("RAY_AUTH_MODE")
    assert not now().ok and now().remedy == "export RAY_AUTH_MODE=token"
