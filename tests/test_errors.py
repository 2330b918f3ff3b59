"""What fails on a full disk, and on one that can only be read: one sentence each."""

import errno
import os
import shutil
import subprocess
from collections import namedtuple
from pathlib import Path

import pytest

from harness.cli import main
from harness.errors import MachineError, UserError, full_disk_told
from tests.comparing.test_from_disk import write
from tests.synthetic import make_units

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 0))


def test_whatever_fails_on_a_full_disk_says_so(full: None, tmp_path: Path) -> None:
    """torch writes files in C++, and its error does not have the reason."""
    said = f"the disk that holds {tmp_path}/out is full .0.0 MB of 1,000.0 MB are free.*it continues"
    with pytest.raises(MachineError, match=said), full_disk_told("s3://bucket/x", tmp_path / "out"):
        raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
    with pytest.raises(UserError, match="a mistake"), full_disk_told(tmp_path):
        raise UserError("a mistake")


def test_a_quota_is_full_before_the_disk_is(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=f"the disk that holds {tmp_path} is full"), full_disk_told(tmp_path):
        raise RuntimeError(f"Ray passes on text: OSError: {os.strerror(errno.EDQUOT)}")


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Permission denied"), full_disk_told(tmp_path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [("ro", 2, "cannot be written: Read-only file system"), ("size=200k", 1, "is full")],
    ids=["read-only", "full"],
)
def test_a_report_that_cannot_be_written_is_one_sentence(
    options: str,
    code: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.reporting.html.build_report", lambda *_: "<p>" * 100_000)  # as large as a real one
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk needs root")
    try:
        write(disk, make_units(("grid", "ldn"), range(1)))
        subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)
        with pytest.raises(SystemExit) as end:
            main(["report", "synthetic", "--out", str(disk)])
        error = capsys.readouterr().err
        assert end.value.code == code and said in error and error.count("\n") == 1
        assert not list(disk.rglob("report.html"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)
