"""Compiled networks: all of them, with the numbers of eager ones and compile time apart; or it is said why not.

Most tests trace networks as torch.compile does and run what was traced without making machine code of it: that is
where networks are misread, graphs run out and phases are entered, and it takes a second instead of ten.
`python -m benchmarks compiling` makes machine code of every depth of quickstart.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.cli import main
from harness.errors import UserError
from harness.measures import shown_phases
from harness.methods import known_methods, load_method, parse_methods
from harness.options import RunOptions
from harness.running.runner import make_units
from harness.schema.records import FIXED_DEPTH, PHASES, SHOWN_PHASES, Cost, Progress, TrialConfig, TrialRecord
from harness.spaces import load_space
from harness.training import compiling
from harness.training.compiling import check_compiler
from harness.training.cost import PhaseTimer
from harness.training.environment import environment
from harness.training.train import run_trial
from tests.rehearsed import small_space
from tests.tiny import config, conv_config, data_for, spirals

ONE_SHOTS = [name for name in known_methods() if load_method(name)[1].learns_depth]


def test_phases_of_earlier_records_read_and_show_as_they_did() -> None:
    earlier = Cost(held_seconds=3.0, phases={phase: 0.5 for phase in PHASES if phase != "compile"})
    assert shown_phases([earlier.phases]) == tuple(phase for phase in PHASES if phase != "compile")
    assert shown_phases([earlier.phases, {"compile": 1.0}]) == PHASES
    assert shown_phases([earlier.phases, {"compile": 1.0, "stage": 1.0}]) == SHOWN_PHASES
    assert "ran_eagerly" not in TrialRecord.model_json_schema()["required"]


@pytest.mark.parametrize(
    ("names", "gone"), [("PRIVATE_NAMES", "torch.nn.Module._gone"), ("PRIVATE_MODULES", "torch._gone")]
)
def test_a_torch_without_what_compiling_needs_is_one_sentence(
    names: str, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, names, (gone.removeprefix("torch.nn.Module."),))
    with pytest.raises(UserError, match=rf"^training.compile needs {gone}, which torch .* does not have; install"):
        check_compiler(on_gpu=False)


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


@pytest.fixture
def only_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "BACKEND", "eager")


class NotedPhases(PhaseTimer):
    """Which phases were inside which."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.noted: list[tuple[str, ...]] = []
        self._around: tuple[str, ...] = ()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        before = self._around
        self._around = (*before, name)
        self.noted.append(self._around)
        try:
            with super().phase(name):
                yield
        finally:
            self._around = before


def trained(trial: TrialConfig, compile: bool, timer: PhaseTimer | None = None) -> list[Progress]:
    """A report of every epoch."""
    changes = {"compile": compile, "eval_every": 1, "report_every": 1}
    trial = trial.model_copy(update={"training": trial.training.model_copy(update=changes)})
    told: list[Progress] = []
    run_trial(trial, data_for(trial), lambda progress, _: told.append(progress), timer=timer)
    return told


def numbers(told: list[Progress]) -> list[tuple[float | None, float | None]]:
    return [(each.train_objective, each.val.log_likelihood if each.val else None) for each in told]


def quickstart(kind: str, depth: int) -> TrialConfig:
    return TrialConfig.of(load_space("quickstart", ["training.max_epochs=3"]), kind, depth, 0)


@pytest.mark.slow
def test_all_depths_of_quickstart_compile_in_one_worker(only_traced: None) -> None:
    """One after the other in this process, as a worker is reused: many more graphs than torch's limit of eight."""
    from torch._dynamo.utils import counters

    before = counters["stats"]["unique_graphs"]
    trials = [(FIXED_DEPTH, depth) for depth in load_space("quickstart").depth.values]
    for kind, depth in [*trials, ("ldn", trials[-1][1])]:
        timer = NotedPhases()
        told = trained(quickstart(kind, depth), compile=True, timer=timer)
        assert told[-1].ran_eagerly == "", (kind, depth)
        assert numbers(told) == numbers(trained(quickstart(kind, depth), compile=False)), (kind, depth)
        assert {("train", "compile"), ("validate", "compile")} <= set(timer.noted), "compile time is not apart"
        phases = told[-1].cost.phases
        assert sum(phases.values()) == pytest.approx(told[-1].cost.held_seconds)
    assert counters["stats"]["unique_graphs"] - before >= 2 * (len(trials) + 1), "of training, of validation"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONE_SHOTS)
def test_every_one_shot_network_is_compiled_as_it_is(kind: str, only_traced: None) -> None:
    """Also one that asks for other depths from step to step, and with a last mini-batch that is smaller."""
    trial = config(kind, max_epochs=3, options=load_method(kind)[1].model_dump(mode="json"))
    told = trained(trial, compile=True)
    assert told[-1].ran_eagerly == ""
    assert numbers(told) == numbers(trained(trial, compile=False)), "to the bit: the same operations in the same order"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FIXED_DEPTH, "elastic"])
def test_machine_code_has_the_numbers_of_eager_networks(kind: str) -> None:
    trial = config(kind, depth=1, max_epochs=3, batch_size=64)
    eager, told = trained(trial, compile=False), trained(trial, compile=True)
    assert told[-1].ran_eagerly == eager[-1].ran_eagerly == ""
    assert told[-1].cost.phases["compile"] > eager[-1].cost.phases["compile"] == 0.0
    for (train, val), (train_eager, val_eager) in zip(numbers(told), numbers(eager), strict=True):
        assert (train, val) == (pytest.approx(train_eager, abs=1e-5), pytest.approx(val_eager, abs=1e-5))


@pytest.mark.slow
def test_convolutions_are_compiled_as_they_are(only_traced: None) -> None:
    trial = conv_config("elastic", depth=2, max_epochs=2)
    told = trained(trial, compile=True)
    assert told[-1].ran_eagerly == ""
    assert numbers(told) == numbers(trained(trial, compile=False))


@pytest.mark.slow
def test_a_network_that_is_not_compiled_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "GRAPHS_PER_DEPTH", 0)  # the compiler's limit is reached before the first graph
    trial, plain = config(max_epochs=3, compile=True), config(max_epochs=3)
    told: list[Progress] = []
    last = run_trial(trial, spirals(trial), lambda progress, _: told.append(progress)).progress
    assert "FailOnRecompileLimitHit" in last.ran_eagerly and "\n" not in last.ran_eagerly
    assert all(progress.ran_eagerly for progress in told)
    assert last.val == run_trial(plain, spirals(plain)).progress.val, "to the bit what it is without the compiler"
    made_with = environment(torch.device("cpu"), trial.training)
    assert TrialRecord.of("t000", trial, "", last, made_with).ran_eagerly == last.ran_eagerly


@pytest.mark.slow
def test_so_does_one_whose_backward_pass_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch compiles it when it is first run, unless told otherwise, after the forward pass has gone well."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.utils import make_boxed_func

    def gives_up(*_: object) -> None:
        raise NotImplementedError("no code for this backward pass")

    def as_it_is(graph: torch.fx.GraphModule, _: object) -> object:
        return make_boxed_func(graph.forward)

    monkeypatch.setattr(compiling, "BACKEND", aot_autograd(fw_compiler=as_it_is, bw_compiler=gives_up))
    trial, plain = config(max_epochs=3, compile=True), config(max_epochs=3)
    last = run_trial(trial, spirals(trial)).progress
    assert "no code for this backward pass" in last.ran_eagerly
    assert last.val == run_trial(plain, spirals(plain)).progress.val
