"""What compiling needs, and what records of it say."""

from pathlib import Path

import pytest

from harness.cli import main
from harness.errors import UserError
from harness.methods import parse_methods
from harness.records import PHASES, Cost, TrialRecord, shown_phases
from harness.running.runner import RunOptions, make_units
from harness.training.compiling import check_compiler
from tests.rehearsed import small_space


def test_phases_of_earlier_records_read_and_show_as_they_did() -> None:
    earlier = Cost(held_seconds=3.0, phases={phase: 0.5 for phase in PHASES if phase != "compile"})
    assert shown_phases([earlier.phases]) == tuple(phase for phase in PHASES if phase != "compile")
    assert shown_phases([earlier.phases, {"compile": 1.0}]) == PHASES
    assert "ran_eagerly" not in TrialRecord.model_json_schema()["required"]


@pytest.fixture
def without_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("CC", "CXX"):
        monkeypatch.delenv(variable, raising=False)


def test_without_a_compiler_nothing_starts(
    without_tools: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["trial", "quickstart", "--depth", "0", "--device", "cpu", "--set", "training.compile=true"])
    [line] = capsys.readouterr().err.splitlines()
    assert line == (
        "error: training.compile needs a C++ compiler, and this machine has no g++; install one (Debian and Ubuntu: "
        "apt install g++), name yours in CXX, or set training.compile to false"
    )
    space = small_space(training={**small_space().training.model_dump(), "compile": True})
    with pytest.raises(UserError, match=r"has no g\+\+"):
        make_units([space], parse_methods("grid"), [0], RunOptions())
    make_units([space], parse_methods("grid"), [0], RunOptions(address="10.0.0.1:6379"))  # its workers train
    with pytest.raises(UserError, match="needs a C compiler, and this machine has no gcc or clang"):
        check_compiler(on_gpu=True)


def test_a_compiler_of_ones_own_counts(without_tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "my-c++"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.setenv("CXX", "my-c++")
    check_compiler(on_gpu=False)
    monkeypatch.setattr("harness.training.compiling.sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(UserError, match=r"needs Python's headers, .* apt install python3-dev"):
        check_compiler(on_gpu=False)
