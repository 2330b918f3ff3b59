"""A trial on a worker, without Ray: what it does with the checkpoint that it finds."""

from pathlib import Path
from typing import Any

import pytest
import torch

from harness.records import Progress
from harness.running import worker
from harness.running.messages import Facts, TrainTask, checkpoint_key, received_report
from harness.training.checkpoints import CheckpointStore
from tests.tiny import config

CONFIG = config(max_epochs=6, report_every=2)
KEY = checkpoint_key("unit", "t000")


def trained(storage: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Facts, list[Progress]]:
    """What the worker said before the first epoch, and of every report."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr("harness.running.worker.tune.report", sent.append)
    one = worker._Worker(CONFIG, CheckpointStore(str(storage)), 1.0, torch.device("cpu"), None, (0.0, 0.0))
    one.load_data(None)
    one.train(TrainTask(unit="unit", trial="t000", config=CONFIG, may_be_stopped=True))
    first, *rest = [received_report(result) for result in sent]
    assert first.facts is not None
    return first.facts, [report.progress for report in rest if report.progress]


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 and then nothing"], ids=["empty", "garbage", "torn"])
def test_a_checkpoint_that_cannot_be_read_counts_as_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    _, undisturbed = trained(tmp_path / "whole", monkeypatch)
    damaged = tmp_path / "damaged" / KEY
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(content)
    facts, reports = trained(tmp_path / "damaged", monkeypatch)
    assert f"cannot read a checkpoint from {damaged}" in facts.warning
    assert facts.warning.endswith("the trial starts anew")
    assert facts.resumed_from.epochs == 0
    assert [report.val for report in reports] == [report.val for report in undisturbed]
    assert torch.load(damaged, weights_only=True)["config_hash"] == CONFIG.hash  # replaced


def test_a_checkpoint_that_can_be_read_is_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path, monkeypatch)
    facts, _ = trained(tmp_path, monkeypatch)
    assert (facts.warning, facts.resumed_from.epochs) == ("", 6)
