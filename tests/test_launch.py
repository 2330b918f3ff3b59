"""What `ray up` needs on this machine: credentials, a private token, free ports."""

import socket
from pathlib import Path

import pytest

from harness.checks import Check
from harness.launch import check_account, check_launch, check_ports

LOCAL_FILE = Path(__file__).parent.parent / "ray_cluster_local.yaml"


def test_no_credentials_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # or botocore asks the network
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    (check,) = check_account({"provider": {"type": "aws", "region": "us-west-2"}})
    assert not check.ok and check.detail == "no AWS credentials on this machine" and "aws configure" in check.remedy


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


def test_busy_port_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        check = check_ports({port: "the dashboard"})
        assert not check.ok and check.detail == f"port {port} for the dashboard is taken on this machine"
    assert check_ports({port: "the dashboard"}).ok
