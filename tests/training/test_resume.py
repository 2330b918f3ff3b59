"""A trial that is interrupted and continued gives, to the bit, what the undisturbed one gives."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.errors import UserError
from harness.schema.records import CurvePoint, Progress, TrialConfig
from harness.training.train import run_trial
from tests.tiny import config, conv_config, data_for

TRIALS = [
    pytest.param(config("ldn", 3, max_epochs=12, lr=0.5), id="ldn"),
    pytest.param(config("ddn", 2, max_epochs=12, lr=1.0, monitor="train_objective"), id="ddn, training monitored"),
    pytest.param(config("ldn", 3, max_epochs=40, lr=1.0, patience=5, min_delta=0.05), id="patience across the border"),
    pytest.param(
        config("ldn_em", 3, max_epochs=12, lr=0.5, options={"warm_up": 0.6, "from_start": True}),
        id="in the warm-up of ldn_em",
    ),
    pytest.param(config("exits", 3, max_epochs=12, lr=0.5), id="depth by validation"),
    pytest.param(conv_config("ldn", 2, max_epochs=8, lr_drop_epoch=5, batch_size=7), id="conv, rate drops afterwards"),
    pytest.param(conv_config("ddn", 2, max_epochs=8, lr_drop_epoch=2, batch_size=7), id="conv, rate dropped before"),
]


class Recorder:
    """Keeps the reports and a checkpoint at each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.reports: list[Progress] = []

    def __call__(self, progress: Progress, save: Callable[[Path], None]) -> None:
        self.reports.append(progress)
        save(self.folder / f"{progress.epoch}.pt")

    @property
    def points(self) -> list[CurvePoint]:
        return [report.point.model_copy(update={"device_seconds": 0.0}) for report in self.reports if report.point]


def _timeless(progress: Progress) -> dict[str, Any]:
    """All of a report but the seconds and the memory, which no two runs share."""
    values = progress.model_dump()
    for measured in ("held_seconds", "phases", "peak_memory_bytes"):
        del values["cost"][measured]
    if values["point"]:
        del values["point"]["device_seconds"]
    return values


def _assert_equal(a: Any, b: Any, where: str = "checkpoint") -> None:
    """Equal in every bit, through nested containers."""
    assert type(a) is type(b), where
    if isinstance(a, Tensor):
        assert torch.equal(a, b), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            if key != "cost":
                _assert_equal(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            _assert_equal(left, right, f"{where}[{index}]")
    else:
        assert a == b, where


@pytest.mark.parametrize("trial", TRIALS)
def test_half_and_half_equals_the_whole(trial: TrialConfig, tmp_path: Path) -> None:
    data = data_for(trial)
    straight, second = Recorder(tmp_path / "straight"), Recorder(tmp_path / "second")
    whole = run_trial(trial, data, straight)
    half = whole.progress.epoch // 2
    torch.manual_seed(99)  # a new process would have another global state
    continued = run_trial(trial, data, second, resume_from=straight.folder / f"{half}.pt")

    # The checkpoint's own report comes first: it may have died with whoever listened.
    assert second.points == straight.points[half - 1 :]
    assert _timeless(continued.progress) == _timeless(whole.progress)
    last = f"{whole.progress.epoch}.pt"
    ends = [torch.load(recorder.folder / last, weights_only=True) for recorder in (straight, second)]
    _assert_equal(ends[0], ends[1])
    _assert_equal(dict(whole.network.state_dict()), dict(continued.network.state_dict()))


def test_patience_is_really_crossed(tmp_path: Path) -> None:
    trial: Any = TRIALS[2].values[0]
    last = run_trial(trial, data_for(trial)).progress
    assert last.stop_reason == "patience" and last.best_epoch < last.epoch


def test_continued_cost_includes_what_the_checkpoint_had_paid(tmp_path: Path) -> None:
    trial = config("ldn", 2, max_epochs=4)
    data = data_for(trial)
    recorder = Recorder(tmp_path / "a")
    run_trial(trial, data, recorder)
    checkpoint = recorder.folder / "2.pt"
    saved = torch.load(checkpoint, weights_only=True)
    paid = json.loads(saved["cost"])
    paid["held_seconds"] += 1000.0
    paid["phases"]["train"] += 1000.0
    torch.save({**saved, "cost": json.dumps(paid)}, checkpoint)
    cost = run_trial(trial, data, resume_from=checkpoint).progress.cost
    assert cost.held_seconds > 1000.0 and cost.phases["train"] > 1000.0
    assert sum(cost.phases.values()) == pytest.approx(cost.held_seconds)
    assert cost.epochs == 4 and cost.samples == 4 * data.n_train


def test_a_finished_trial_is_not_trained_again(tmp_path: Path) -> None:
    trial = config("ldn", 2, max_epochs=4)
    data = data_for(trial)
    recorder, again = Recorder(tmp_path / "a"), Recorder(tmp_path / "b")
    whole = run_trial(trial, data, recorder)
    repeated = run_trial(trial, data, again, resume_from=recorder.folder / "4.pt")
    assert _timeless(repeated.progress) == _timeless(whole.progress)
    _assert_equal(dict(whole.network.state_dict()), dict(repeated.network.state_dict()))


@pytest.mark.parametrize(
    "other", [config(lr=0.2), config(seed=1), config(depth=2), config("ddn"), config(max_epochs=9)], ids=str
)
def test_a_checkpoint_of_other_settings_is_refused(other: TrialConfig, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a")
    run_trial(config(), data_for(config()), recorder)
    with pytest.raises(UserError, match="made with other settings"):
        run_trial(other, data_for(other), resume_from=recorder.folder / "4.pt")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", None, "tensor", "other dict"])
def test_a_file_that_is_no_checkpoint_is_refused(content: bytes | str | None, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        torch.save(torch.zeros(3) if content == "tensor" else {"weights": torch.zeros(3)}, path)
    with pytest.raises(UserError, match=r"x\.pt"):
        run_trial(config(), data_for(config()), resume_from=path)


# --- in processes of their own ------------------------------------------------------------------------------------

_CHILD = """
import json, sys, torch
from pathlib import Path
from harness.schema.records import TrialConfig
from harness.training.train import run_trial
from tests.tiny import data_for
torch.set_num_threads(1)
trial, out = TrialConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])
for name, checkpoint in (("continued", Path(sys.argv[3])), ("straight", None)):
    points = []
    def report(progress, save):
        points.append([progress.point.train_objective, progress.point.val_log_likelihood])
        if progress.stop_reason:
            save(out / f"{name}.pt")
    last = run_trial(trial, data_for(trial), report, resume_from=checkpoint).progress
    print(json.dumps([points, last.val.model_dump(), last.posterior.model_dump(mode="json")]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("trial", [TRIALS[0], TRIALS[5]])
def test_same_numbers_in_another_process(trial: TrialConfig, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "here")
    here = run_trial(trial, data_for(trial), recorder).progress
    half = here.epoch // 2
    assert here.val and here.posterior
    measures = [here.val.model_dump(), here.posterior.model_dump(mode="json")]
    points = [[point.train_objective, point.val_log_likelihood] for point in recorder.points]

    arguments = [trial.model_dump_json(), str(tmp_path), str(recorder.folder / f"{half}.pt")]
    command = [sys.executable, "-c", _CHILD, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    continued, straight = map(json.loads, done.stdout.splitlines())
    assert straight == [points, *measures]
    assert continued == [points[half - 1 :], *measures]  # the report of the checkpoint comes first
    end = torch.load(recorder.folder / f"{here.epoch}.pt", weights_only=True)
    for name in ("straight", "continued"):
        _assert_equal(torch.load(tmp_path / f"{name}.pt", weights_only=True), end)
