"""The real command line, in this process: what it prints, and one sentence with exit code 2 for every mistake."""

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from harness.cli import commands, main
from harness.schema.records import TrialRecord
from harness.terminal.examples import EXAMPLES
from harness.training.one_trial import TrialReport

LDN = ("--method", "ldn")
SMALL = ("--set", "training.max_epochs=20", "--set", "depth.max=3", "--set", "data.n_train=40")

Result = tuple[int, str, str]


@pytest.fixture
def harness(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def run(*args: Any) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(arg) for arg in args])
        printed = capsys.readouterr()
        code = end.value.code
        assert isinstance(code, int)
        return code, printed.out, printed.err

    return run


def _settings(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


# --- what works ---------------------------------------------------------------------------------------------------


def test_list(harness: Callable[..., Result]) -> None:
    code, out, err = harness("list")
    assert code == 0 and err == ""
    assert all(name in out for name in ("quickstart", "spirals", "spirals_d50", "digits"))


def test_ldn_trial(harness: Callable[..., Result]) -> None:
    code, out, err = harness("trial", "quickstart", *LDN, *SMALL)
    assert code == 0 and err == "", "silent when stdout is no terminal"
    assert "← d_opt" in out and "█" in out
    for words in ("argmax", "threshold", "expected", "exact posterior", "validation, all depths", "pruned to", "TFLOP"):
        assert words in out
    assert "test" not in out


def test_fixed_depth_trial_with_the_test_set(harness: Callable[..., Result]) -> None:
    code, out, _ = harness("trial", "quickstart", "--depth", 2, "--test", *SMALL)
    assert code == 0
    assert "fixed depth 2" in out and "d_opt" not in out
    assert any(line.startswith("test ") for line in out.splitlines())


@pytest.mark.parametrize("which", [LDN, ("--depth", 0)])
def test_json_is_one_object(harness: Callable[..., Result], which: tuple[Any, ...]) -> None:
    code, out, err = harness("trial", "quickstart", *which, "--json", "--test", *SMALL)
    assert code == 0 and err == ""
    report = TrialReport.model_validate_json(out)
    assert json.loads(report.model_dump_json()) == json.loads(out)
    assert report.test is not None and report.test.n_test == 1800
    assert report.record.status == "finished" and report.record.cost.epochs == 20
    assert TrialRecord.model_validate_json(report.record.model_dump_json()) == report.record
    if which == LDN:
        assert report.posterior_gap_nats is not None and report.posterior_gap_nats >= 0
        assert len(report.test.per_depth_test) == 4 and report.test.full is not None
    else:
        assert report.d_opt == 0 and report.test.full is None


def test_same_seed_same_numbers_other_seed_others(harness: Callable[..., Result]) -> None:
    def numbers(seed: int) -> Any:
        record = json.loads(harness("trial", "quickstart", *LDN, "--seed", seed, "--json", *SMALL)[1])["record"]
        return [record["val"], record["posterior"], record["split_hash"], record["train_objective"]]

    first = numbers(0)
    assert first == numbers(0)
    assert all(a != b for a, b in zip(first, numbers(1), strict=True))


def test_a_checkpoint_is_continued(harness: Callable[..., Result], tmp_path: Path) -> None:
    args = ("trial", "quickstart", *LDN, "--json", *SMALL, "--checkpoint", tmp_path / "x.pt")
    first, again = (json.loads(harness(*args)[1])["record"] for _ in range(2))
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]
    assert again["cost"]["held_seconds"] > first["cost"]["held_seconds"], "what was paid before is still counted"
    for same in ("val", "posterior", "train_objective", "best_epoch", "stop_reason"):
        assert first[same] == again[same]


# --- a trial that fails -------------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_is_failed_with_its_cost(harness: Callable[..., Result]) -> None:
    args = ("trial", "quickstart", *LDN, *SMALL, "--set", "training.lr=1e30")
    code, out, err = harness(*args)
    assert code == 1 and "FAILED" in out and "seconds held" in out
    assert "Traceback" not in out + err
    record = json.loads(harness(*args, "--json")[1])["record"]
    assert (record["status"], record["stop_reason"], record["val"], record["posterior"]) == (
        "failed",
        "failed",
        None,
        None,
    )
    assert record["cost"]["held_seconds"] > 0 and record["cost"]["epochs"] >= 1 and record["cost"]["tflop"] > 0


# --- mistakes -----------------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[Any, ...]] = {
    "unknown space": (["nope", *LDN], "unknown search space 'nope'", "quickstart"),
    "no file": (["no/such.yaml", *LDN], "cannot read no/such.yaml", "No such file"),
    "neither kind": (["quickstart"], "--method", "--depth"),
    "both kinds": (["quickstart", *LDN, "--depth", "1"], "--method", "--depth"),
    "a search": (["quickstart", "--method", "grid"], "'grid' searches over fixed depths"),
    "no space": ([], "SPACE"),
    "unknown option": (["quickstart", "--ldm"], "--ldm"),
    "depth beyond the space": (["quickstart", "--depth", "11"], "0…10", "11"),
    "negative depth": (["quickstart", "--depth", "-1"], "-1", "x>=0"),
    "negative seed": (["quickstart", *LDN, "--seed", "-1"], "-1", "0<=x"),
    "unknown device": (["quickstart", *LDN, "--device", "gpu"], "cuda", "'gpu'"),
    "unknown key": (
        ["quickstart", *LDN, *_settings("training.patienc=3")],
        "training.patienc",
        "'training.patience'",
    ),
    "wrong type": (
        ["quickstart", *LDN, *_settings("training.lr=fast")],
        "training.lr",
        "number",
        "'fast'",
    ),
    "override without value": (["quickstart", *LDN, *_settings("training.lr")], "KEY.PATH=VALUE"),
    "override that is no YAML": (["quickstart", *LDN, *_settings("training.lr=[1")], "YAML"),
    "min above max": (["quickstart", *LDN, *_settings("depth.min=11")], "depth.min", "min 11, max 10"),
    "negative size": (
        ["quickstart", *LDN, *_settings("data.n_train=-5")],
        "data.n_train",
        "greater than 0",
        "-5",
    ),
    "prior": (
        ["quickstart", *LDN, *_settings("posterior.prior={kind: explicit, probabilities: [0.2, 0.2]}")],
        "sum to 1",
        "0.4",
    ),
    "fewer samples than classes": (
        ["quickstart", *LDN, *_settings("data.arms=5", "data.n_train=3")],
        "at least one training sample",
        "classes without one: 3, 4 ",
    ),
    "conv on vectors": (
        ["quickstart", *LDN, *_settings("network={kind: conv}")],
        "needs images",
        "2 features",
    ),
    "bfloat16 on the CPU": (
        ["quickstart", *LDN, "--device", "cpu", *_settings("training.precision=bfloat16")],
        "bfloat16",
        "float32",
    ),
    "checkpoint into nowhere": (
        ["quickstart", *LDN, "--checkpoint", "no/such/folder/x.pt"],
        "no/such/folder",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence(harness: Callable[..., Result], name: str) -> None:
    args, *words = MISTAKES[name]
    code, out, err = harness("trial", *args)
    _assert_one_sentence(code, out, err)
    for word in words:
        assert word in err


def _assert_one_sentence(code: int, out: str, err: str) -> None:
    assert code == 2 and out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and err.endswith("\n")
    assert "Traceback" not in err


def test_a_checkpoint_of_another_config(harness: Callable[..., Result], tmp_path: Path) -> None:
    args = ("trial", "quickstart", "--depth", 1, *SMALL, "--checkpoint", tmp_path / "x.pt")
    assert harness(*args)[0] == 0
    code, out, err = harness(*args, "--seed", 1)
    _assert_one_sentence(code, out, err)
    assert "x.pt was made with other settings" in err
    (tmp_path / "x.pt").write_bytes(b"nonsense")
    code, out, err = harness(*args)
    _assert_one_sentence(code, out, err)
    assert "x.pt" in err


@pytest.mark.parametrize(
    ("content", "words"),
    [("depth: {max: 3", "not valid YAML"), ("depth: 3\n", "depth"), (b"\xff\xfe\x00", "cannot read")],
)
def test_a_bad_file(harness: Callable[..., Result], tmp_path: Path, content: str | bytes, words: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = harness("trial", path, *LDN)
    _assert_one_sentence(code, out, err)
    assert words in err and "mine.yaml" in err


@pytest.mark.parametrize("bad", ["NaN", "label", "few", "unreadable", "missing"])
def test_bad_arrays(harness: Callable[..., Result], tmp_path: Path, bad: str) -> None:
    pytest.importorskip("harness.data.arrays")
    x, y = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32), np.arange(60) % 3
    path = tmp_path / "mine.npz"
    if bad == "NaN":
        x[5, 1] = np.nan
    elif bad == "label":
        y[7] = -1
    elif bad == "few":
        x, y = x[:2], np.array([0, 5])
    if bad == "unreadable":
        path.write_bytes(b"nonsense")
    elif bad != "missing":
        np.savez(path, x_train=x, y_train=y)
    data = f"data={{kind: arrays, path: {path}}}"
    code, out, err = harness("trial", "quickstart", *LDN, *_settings(data, "training.max_epochs=20"))
    _assert_one_sentence(code, out, err)


def test_debug_shows_the_traceback() -> None:
    from harness.errors import UserError

    with pytest.raises(UserError):
        main(["--debug", "trial", "nope", *LDN])


# --- given twice --------------------------------------------------------------------------------------------------


def test_an_option_with_two_values_is_refused_in_every_command(harness: Callable[..., Result]) -> None:
    """Every option of every command that takes a value: the last one used to win without a word."""
    tried = 0
    for name, command in commands.commands.items():
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag and not option.multiple:
                word = option.opts[-1]
                code, out, err = harness(name, word, "1", word, "2")
                assert (code, out) == (2, "")
                assert err == f"error: {word} is given 2 times; give it once\n", f"{name} {word}: {err}"
                tried += 1
    assert tried > 60


def test_a_setting_that_is_set_twice_is_refused(harness: Callable[..., Result]) -> None:
    for words in (("trial", "quickstart", *LDN), ("show", "quickstart"), ("study", "width", "--dry-run")):
        code, _, err = harness(*words, *_settings("training.lr=0.1", "training.lr=0.2"))
        assert (code, err) == (2, "error: --set training.lr is given 2 times; give it once\n")
    code, _, err = harness("run", "quickstart", "--dry-run", "--trials", "3", *_settings("budget.trials=4"))
    assert code == 2 and "--trials and --set budget.trials both set the number of trials" in err
    code, _, err = harness("study", "width", "--dry-run", "--vary", "network.width=4", "--vary", "network.width=8")
    assert code == 2 and "--vary network.width is given more than once" in err


def test_a_flag_that_is_given_twice_says_the_same_twice(harness: Callable[..., Result]) -> None:
    code, out, _ = harness("trial", "quickstart", "--depth", 1, *SMALL, "--json", "--json")
    assert code == 0 and json.loads(out)


# --- help ---------------------------------------------------------------------------------------------------------


def test_help_names_no_option_that_a_command_lacks(harness: Callable[..., Result]) -> None:
    said = {name: " ".join(harness(name, "--help")[1].split()) for name in ("run", "compare")}
    assert "Folder for the results; defaults to --storage if that is a folder. [default" in said["run"]
    assert "Folder for the results. [default" in said["compare"] and "--storage" not in said["compare"]


def test_help_cuts_no_line_off_at_80_columns(harness: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = harness("--help")
    listed = out.partition("Commands:\n")[2].splitlines()
    assert code == 0 and [line.split()[0] for line in listed] == sorted(commands.commands)
    assert all(line.endswith(".") and not line.endswith("...") and len(line) <= 80 for line in listed)


def test_exactly_one_kind_of_network(harness: Callable[..., Result]) -> None:
    assert (
        harness("trial", "quickstart")[2]
        == "error: give exactly one of --method NAME (a one-shot method) and --depth N\n"
    )


def test_every_command_has_examples_that_parse(harness: Callable[..., Result]) -> None:
    path = Path(__file__).parent.parent / "docs" / "tools" / "check_documents.py"
    spec = importlib.util.spec_from_file_location("check_documents", path)
    assert spec and spec.loader
    tool = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = tool
    spec.loader.exec_module(tool)
    for name, command in commands.commands.items():
        if isinstance(command, click.Group):
            continue
        _, out, _ = harness(name, "--help")
        shown = [line.strip() for line in out.partition("Examples:\n")[2].splitlines()]
        assert shown and tuple(shown) == EXAMPLES[name]
        for line in shown:
            assert line.split()[:2] == ["harness", name]
            assert list(tool.harness_problems(shlex.split(line)[1:])) == []


def test_shells_complete_commands_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def completed(words: str, at: int) -> str:
        given = {"COMP_WORDS": words, "COMP_CWORD": str(at), "_HARNESS_COMPLETE": "bash_complete"}
        program = [sys.executable, "-m", "harness"]
        return subprocess.run(program, env={**os.environ, **given}, capture_output=True, text=True, check=False).stdout

    assert completed("harness comp", 1) == "plain,compare\n"
    assert completed("harness run quickstart --exp", 3) == "plain,--experiment\n"
