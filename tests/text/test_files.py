"""A path that nobody can have, or that is no file, is one sentence."""

import os
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.text.files import LARGEST_TEXT, checked_path, read_text


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("a\0b.yaml", "without control characters"),
        ("a\nb.yaml", "without control characters"),
        ("a\x1b[2Jb.yaml", "without control characters"),
        ("a\udc80.yaml", "without control characters"),
        ("a" * 300 + ".yaml", "names of at most 255"),
        ("a/" * 3000 + "b.yaml", "at most 4,000 bytes"),
        ("/proc/self/environ", "on a disk, not in /proc or /sys"),
        ("/sys/kernel", "on a disk"),
        ("~nobody_has_this_name/x", "a path that exists or can be made"),
    ],
    ids=lambda value: value[:12],
)
def test_a_path_nobody_has(path: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        checked_path(path, "the settings")
    text = str(refused.value)
    assert text.startswith("the settings must be") and text.isprintable() and len(text) < 400


def test_what_is_no_file_of_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(LARGEST_TEXT + 1)
    for name, said in {
        "pipe": "must be a file",
        ".": "must be a file",
        "bytes": "cannot read",
        "large": "at most 5,000,000 bytes",
        "none": "No such file",
    }.items():
        with pytest.raises(UserError, match=said):
            read_text(tmp_path / name, "the settings")
    (tmp_path / "good").write_text("β")
    assert read_text(tmp_path / "good", "the settings") == "β"
