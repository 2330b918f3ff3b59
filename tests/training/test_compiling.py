"""Compiled networks: all of them, with the numbers of eager ones and compile time apart; or it is said why not."""

from pathlib import Path

import pytest

from harness.cli import main
from harness.data import load_training_data
from harness.errors import UserError
from harness.methods import parse_methods
from harness.records import FIXED_DEPTH, PHASES, Cost, Progress, TrialConfig, TrialRecord, shown_phases
from harness.running.runner import RunOptions, make_units
from harness.spaces import load_space
from harness.training import compiling
from harness.training.compiling import check_compiler
from harness.training.environment import environment
from harness.training.train import run_trial
from tests.rehearsed import small_space
from tests.tiny import config, spirals

EPOCHS = 4


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


def shortened(depth: int, compile: bool) -> TrialConfig:
    given = [f"training.{name}={EPOCHS}" for name in ("max_epochs", "patience")]
    given += ["training.eval_every=1", "training.report_every=1", f"training.compile={str(compile).lower()}"]
    return TrialConfig.of(load_space("quickstart", given), FIXED_DEPTH, depth, 0)


@pytest.mark.slow
def test_all_depths_of_quickstart_compile_in_one_worker() -> None:
    """One after the other in this process, as a worker is reused."""
    for depth in load_space("quickstart").depth.values:
        trial = shortened(depth, compile=True)
        data = load_training_data(trial.data, trial.seed)
        eager = run_trial(shortened(depth, compile=False), data).progress
        last = run_trial(trial, data).progress
        assert last.ran_eagerly == eager.ran_eagerly == "", depth
        assert last.val and eager.val and last.cost.epochs == eager.cost.epochs == EPOCHS
        assert last.train_objective == pytest.approx(eager.train_objective, abs=1e-4)
        assert last.val.log_likelihood == pytest.approx(eager.val.log_likelihood, abs=1e-4)
        phases = last.cost.phases
        assert sum(phases.values()) == pytest.approx(last.cost.held_seconds)
        assert eager.cost.phases["compile"] == 0.0
        assert phases["compile"] > 5 * (phases["train"] + phases["validate"]), "compile time is not apart"


@pytest.mark.slow
def test_a_network_that_is_not_compiled_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "GRAPHS_PER_DEPTH", 0)  # the compiler's limit is reached before the first graph
    trial, plain = config(max_epochs=3, compile=True), config(max_epochs=3)
    told: list[Progress] = []
    last = run_trial(trial, spirals(trial), lambda progress, _: told.append(progress)).progress
    assert "FailOnRecompileLimitHit" in last.ran_eagerly and "\n" not in last.ran_eagerly
    assert all(progress.ran_eagerly for progress in told)
    assert last.val == run_trial(plain, spirals(plain)).progress.val, "to the bit what it is without the compiler"
    import torch

    made_with = environment(torch.device("cpu"), trial.training)
    assert TrialRecord.of("t000", trial, "", last, made_with).ran_eagerly == last.ran_eagerly
