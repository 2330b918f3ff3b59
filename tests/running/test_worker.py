"""A trial on a worker, without Ray: what it does with the checkpoint that it finds."""

import io
import traceback
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
import torch

from harness.errors import UserError
from harness.replaying.rehearsal import rehearse
from harness.running import worker
from harness.running.messages import (
    Facts,
    FinalTask,
    OwnCode,
    Report,
    RetrainTask,
    TrainTask,
    checkpoint_key,
    received_report,
    rows_key,
    to_worker,
)
from harness.schema.records import Progress, TrialConfig
from harness.schema.rows import hash_of
from harness.training.checkpoints import CheckpointStore
from harness.training.train import cost_in_checkpoint
from tests.rehearsed import make_unit
from tests.running.results import wait_for
from tests.tiny import config, spirals

CPU = torch.device("cpu")
CONFIG = config(max_epochs=6, report_every=2)
KEY = checkpoint_key("unit", "t000")


def trained(storage: Path, monkeypatch: pytest.MonkeyPatch, up_to: int | None = None) -> tuple[Facts, list[Progress]]:
    """What the worker said before the first epoch, and of every report."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr("harness.running.worker.tune.report", sent.append)
    one = worker._Worker(CONFIG, CheckpointStore(str(storage)), 1.0, CPU, None, (0.0, 0.0))
    one.load_data(None)
    one.train(TrainTask(unit="unit", trial="t000", config=CONFIG), up_to)
    first, *rest = [received_report(result) for result in sent]
    assert first.facts is not None
    return first.facts, [report.progress for report in rest if report.progress]


@pytest.mark.parametrize(("up_to", "begins_at"), [(None, 6), (6, 6), (4, 0), (2, 0)])
def test_a_checkpoint_further_than_the_ledger_knows_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up_to: int | None, begins_at: int
) -> None:
    """The driver's disk was lost, and the storage had less: no search may miss a report."""
    _, undisturbed = trained(tmp_path, monkeypatch)
    facts, reports = trained(tmp_path, monkeypatch, up_to)
    assert facts.resumed_from.epochs == begins_at and facts.warning == ""
    assert (facts.not_taken and facts.not_taken.epochs) == (None if begins_at else 6)
    assert [each.val for each in reports] == [each.val for each in undisturbed][-len(reports) :]
    assert [each.epoch for each in reports] == [epoch for epoch in (2, 4, 6) if epoch > begins_at] or [6]


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
    assert facts.warning.endswith("the trial starts over")
    assert facts.resumed_from.epochs == 0
    assert [report.val for report in reports] == [report.val for report in undisturbed]
    assert torch.load(damaged, weights_only=True)["config_hash"] == CONFIG.hash  # replaced


def test_a_network_whose_checkpoint_cannot_be_read_is_trained_again_for_the_final_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chosen one, and those beside it; of one that a scheduler stopped, its own end would be another network."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr("harness.running.worker.tune.report", sent.append)
    deep, shallow = config("ddn", 2, max_epochs=6), config("ddn", 1, max_epochs=6)
    others = {depth: checkpoint_key("unit", f"t00{depth}") for depth in (1, 2)}

    def work(trial: TrialConfig) -> worker._Worker:
        one = worker._Worker(trial, CheckpointStore(str(tmp_path)), 1.0, CPU, None, (0.0, 0.0))
        one.load_data(None)
        return one

    def evaluated(chosen: str) -> Report:
        others_of = tuple((key, depth) for depth, key in others.items())
        task = FinalTask(unit="unit", config=deep, epochs=6, chosen=chosen, d_opt=2, others=others_of, refit_d_opt=None)
        work(deep).final(task)
        return received_report(sent[-1])

    for depth, trial in ((1, shallow), (2, deep)):
        work(trial).train(TrainTask(unit="unit", trial=f"t00{depth}", config=trial))
    whole = evaluated(others[2])
    for key in others.values():
        (tmp_path / key).write_bytes(b"garbage")
    again = evaluated(others[2])
    assert whole.final and again.final and whole.warning == ""
    assert (again.final.chosen, again.final.per_depth_test) == (whole.final.chosen, whole.final.per_depth_test)
    assert again.warning.count("its network was trained again, charged to nobody") == 2
    assert evaluated(others[2]).warning == "", "its checkpoint is whole again"

    stopped = checkpoint_key("unit", "retrained")
    (tmp_path / stopped).write_bytes(b"garbage")
    with pytest.raises(UserError, match="cannot read a checkpoint"):
        evaluated(stopped)
    (tmp_path / others[1]).unlink()
    with pytest.raises(UserError, match="is gone from"):
        evaluated(others[2])


def test_a_choice_that_was_stopped_elsewhere_is_evaluated_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its last epoch it is the network of that depth; earlier it is another one."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr("harness.running.worker.tune.report", sent.append)
    trials = {depth: config("ddn", depth, max_epochs=6) for depth in (1, 2)}
    keys = {depth: checkpoint_key("unit", f"t00{depth}") for depth in trials}
    for depth, trial in trials.items():
        one = worker._Worker(trial, CheckpointStore(str(tmp_path)), 1.0, CPU, None, (0.0, 0.0))
        one.load_data(None)
        one.train(TrainTask(unit="unit", trial=f"t00{depth}", config=trial))
    others = tuple((key, depth) for depth, key in keys.items())
    task = FinalTask(unit="unit", config=trials[2], epochs=6, chosen=keys[2], d_opt=2, others=others, refit_d_opt=None)
    one.final(task.model_copy(update={"stopped": ((1, 2), (1, 6))}))
    final = received_report(sent[-1]).final
    assert final
    early, late = final.stopped_test
    assert (early.depth, early.epoch, late.epoch) == (1, 2, 6)
    at_the_end = {each.depth: each.measures for each in final.per_depth_test}
    assert late.measures == at_the_end[1] != early.measures
    kept = (tmp_path / rows_key("unit")).read_bytes()
    assert len(kept) == 4 * final.n_test + (final.n_test + 7) // 8 and hash_of(kept) == final.rows_hash


def test_a_refit_fits_all_labels_and_drops_the_rate_after_the_same_share_of_the_epochs(tmp_path: Path) -> None:
    whole = config("ddn", 1, max_epochs=12)
    whole = whole.model_copy(update={"training": whole.training.model_copy(update={"lr_drop_epoch": 8})})
    one = worker._Worker(whole, CheckpointStore(str(tmp_path)), 1.0, CPU, None, (0.0, 0.0))
    one.load_data(None)
    refit, data = one._refit_of(whole, 6)
    assert (refit.training.max_epochs, refit.training.lr_drop_epoch, refit.depth) == (6, 4, 1)
    assert sorted(data.train_rows) == sorted([*one.data.train_rows, *one.data.val_rows])
    assert refit.training.monitor == "none", "there are no rows left to stop by"
    assert one._refit_of(whole, whole.training.max_epochs)[0].training.lr_drop_epoch == 8


def test_rows_are_prepared_once_for_a_worker_and_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []

    def load(settings: Any, seed: int, pool: Any) -> Any:
        loaded.append(seed)
        return spirals(config(seed=seed))

    monkeypatch.setattr("harness.data.load_training_data", load)
    monkeypatch.setattr(worker, "_rows", {})
    starts = []
    for seed in (0, 0, 1, 0, 2, 1):
        one = worker._Worker(config(seed=seed), CheckpointStore(str(tmp_path)), 1.0, CPU, None, (0.0, 0.0))
        one.load_data(None)
        assert one.data.split_hash == spirals(config(seed=seed)).split_hash
        starts.append(one.worker_start[1] > 0)
    assert loaded == [0, 1, 2] and starts == [True, False, True, False, True, False]
    assert len(worker._rows) == worker.MOST_SEEDS


def test_a_trial_is_saved_seldom_and_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most every two seconds, and so that saving takes a hundredth of the time; who may stop it does not matter."""
    now = 0.0
    monkeypatch.setattr("harness.running.worker.time.monotonic", lambda: now)
    saved: list[float] = []

    class Slow(CheckpointStore):
        def save(self, key: str, write: Callable[[Path], None]) -> None:
            nonlocal now
            saved.append(now)
            now += 0.05

    saves = worker._Saves(Slow(str(tmp_path)), "t", must_keep=True)
    for _ in range(200):
        now += 0.1
        saves.save(lambda path: None, ended=False)
    assert saved[0] == pytest.approx(2.0) and len(saved) == 4  # then every 5 s
    assert all(later - earlier >= 5.0 for earlier, later in pairwise(saved))
    saves.save(lambda path: None, ended=True)
    assert len(saved) == 5


def test_a_stopped_trial_is_trained_on_to_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its own last checkpoint where that is not of a later epoch; to the bit the same network either way."""
    monkeypatch.setattr(worker, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(worker, "SAVING_SHARE", 1e9)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr("harness.running.worker.tune.report", sent.append)
    store = CheckpointStore(str(tmp_path))
    kept: dict[int, bytes] = {}

    def save(key: str, write: Callable[[Path], None]) -> None:
        CheckpointStore.save(store, key, write)
        content = (tmp_path / key).read_bytes()
        kept.setdefault(torch.load(tmp_path / key, weights_only=True)["epoch"], content)

    asked: list[str] = []

    def fetched(wanted: str) -> Any:
        asked.append(wanted)
        return CheckpointStore.fetched(store, wanted)

    monkeypatch.setattr(store, "save", save)
    monkeypatch.setattr(store, "fetched", fetched)

    def work() -> worker._Worker:
        one = worker._Worker(CONFIG, store, 1.0, torch.device("cpu"), None, (0.0, 0.0))
        one.load_data(None)
        return one

    work().train(TrainTask(unit="unit", trial="t000", config=CONFIG))
    assert asked == [KEY], "each look is a request where the storage is far away"
    for begin in (None, 2, 4, 6):  # the epoch of the checkpoint that it left
        begin_with = f"begin-{begin}.pt"
        if begin:
            (tmp_path / begin_with).write_bytes(kept[begin])
        sent.clear()
        key = checkpoint_key(f"again-{begin}", "retrained")
        work().retrain(RetrainTask(unit=f"again-{begin}", config=CONFIG, epochs=4, begin_with=begin_with))
        got, wanted = torch.load(tmp_path / key, weights_only=True), torch.load(io.BytesIO(kept[4]), weights_only=True)
        assert got["epoch"] == 4
        for part in ("network", "momenta", "best_state"):
            assert all(torch.equal(a, b) for a, b in zip(got[part], wanted[part], strict=True))
        assert asked[-2:] == [key, begin_with], "the one before is looked for where there is none of its own"
        facts = received_report(sent[0]).facts
        assert facts and facts.resumed_from.epochs == {None: 0, 2: 2, 4: 4, 6: 0}[begin]


@pytest.mark.parametrize("kind", ["file://", ""])
def test_a_storage_that_stops_answering_is_told_once_and_only_what_must_be_kept_fails(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(worker, "SAVING_SHARE", 1e9)
    (tmp_path / "blocked").write_text("a file where the folder would be")
    store, told = CheckpointStore(f"{kind}{tmp_path}/blocked"), []
    saves = worker._Saves(store, KEY, must_keep=False)

    def write(path: Path) -> None:
        path.write_text("x")

    for _ in range(3):
        saves.save(write, ended=False)
        wait_for(lambda: not store.is_busy, "the upload's end")
        told.append(saves.take_warning())
    first, second, third = told
    assert (first, third) == ("", "") and "cannot be written" in second and second.endswith(worker.AT_RISK)
    assert saves.kept
    saves.save(write, ended=True)
    assert not saves.kept and saves.take_warning() == ""
    other = worker._Saves(store, checkpoint_key("unit", "t001"), must_keep=True)
    with pytest.raises(UserError, match="cannot be written") as raised:
        other.save(write, ended=True)
    assert second.startswith(str(raised.value)), "the same sentence for every trial, so that it is told once"


def test_training_does_not_wait_for_a_storage_that_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("harness.running.worker.time.monotonic", lambda: now)
    asked: list[float] = []

    class Silent(CheckpointStore):
        is_busy = True

        def save(self, key: str, write: Callable[[Path], None]) -> None:
            asked.append(now)

    saves = worker._Saves(Silent(str(tmp_path)), "t", must_keep=False)
    told = []
    for _ in range(90):
        now += 1.0
        saves.save(lambda path: None, ended=False)
        told.append(saves.take_warning())
    assert asked == []
    assert [warning for warning in told if warning] == [f"the storage has not answered for 60 s; {worker.AT_RISK}"]
    assert told.index(told[59]) == 59 and told[59], "after a minute"


def test_a_storage_that_cannot_be_read_counts_as_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr("harness.running.worker.tune.report", sent.append)
    (tmp_path / "blocked").write_text("a file where the folder would be")
    store = CheckpointStore(f"file://{tmp_path}/blocked")
    one = worker._Worker(CONFIG, store, 1.0, torch.device("cpu"), None, (0.0, 0.0))
    one.load_data(None)
    one.train(TrainTask(unit="unit", trial="t000", config=CONFIG))
    first, *_, last = [received_report(result) for result in sent]
    assert first.facts and "cannot be read" in first.facts.warning
    assert first.facts.warning.endswith("; trials start over")
    assert last.progress and last.progress.stop_reason and not last.kept
    assert all(received_report(result).kept for result in sent[:-1])


def test_a_checkpoint_that_can_be_read_is_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path, monkeypatch)
    facts, _ = trained(tmp_path, monkeypatch)
    assert (facts.warning, facts.resumed_from.epochs) == ("", 6)


OFTEN = config(max_epochs=12, report_every=2)


def epoch_of(result: dict[str, Any]) -> int | None:
    progress = received_report(result).progress
    return progress.epoch if progress else None


@pytest.mark.parametrize(
    ("rungs", "waits_at"),
    [
        ((), [12]),  # nobody stops it: for the answer to its end
        ((3, 9), [4, 10, 12]),  # the first report from each rung on
        ((4, 5, 12), [4, 6, 12]),
        (None, [2, 4, 6, 8, 10, 12]),
    ],
)
def test_a_trial_that_reports_often_waits_only_where_it_may_be_stopped(
    rungs: tuple[int, ...] | None, waits_at: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[int | None] = []
    waited: list[int] = []
    monkeypatch.setattr("harness.running.worker.tune.report", lambda result: heard.append(epoch_of(result)))
    monkeypatch.setattr(worker, "OFTEN_SECONDS", 1e9)
    send = worker._Reports.send

    def noted(reports: worker._Reports, report: Report, ended: bool = False) -> None:
        send(reports, report, ended)
        if report.progress and reports._under_way is None:
            waited.append(report.progress.epoch)

    monkeypatch.setattr(worker._Reports, "send", noted)
    one = worker._Worker(OFTEN, CheckpointStore(str(tmp_path)), 1.0, CPU, None, (0.0, 0.0))
    one.load_data(None)
    one.train(TrainTask(unit="unit", trial="t000", config=OFTEN, rungs=rungs))
    assert waited == waits_at
    assert heard == [None, 2, 4, 6, 8, 10, 12], "in their order, one at a time"


def test_one_that_reports_seldom_waits_for_every_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs next to nothing then, and a run that is told to stop need not wait for one more report."""
    answered: list[int] = []
    monkeypatch.setattr("harness.running.worker.tune.report", lambda result: answered.append(0))
    monkeypatch.setattr(worker, "OFTEN_SECONDS", -1.0)
    reports = worker._Reports(rungs=())
    with worker._training:
        for number in range(3):
            reports.send(Report())
            assert len(answered) == number + 1 and reports._under_way is None


def test_a_trial_that_trains_on_is_kept_where_it_waits_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is told to stop answers no more: the trial goes on to its next report, and is saved as it is then."""
    monkeypatch.setattr(worker, "OFTEN_SECONDS", 1e9)
    heard: list[int | None] = []

    def report(result: dict[str, Any]) -> None:
        heard.append(epoch_of(result))
        if heard[-1] == 4:
            worker.save_now(None)  # it gets its turn when the trial waits
            raise SystemExit(0)

    monkeypatch.setattr("harness.running.worker.tune.report", report)
    one = worker._Worker(OFTEN, CheckpointStore(str(tmp_path)), 1.0, CPU, None, (0.0, 0.0))
    one.load_data(None)
    with pytest.raises(SystemExit):
        one.train(TrainTask(unit="unit", trial="t000", config=OFTEN, rungs=()))
    assert heard == [None, 2, 4]
    assert cost_in_checkpoint(tmp_path / KEY, OFTEN, CPU).epochs == 6
    assert worker._save is None and not worker._training.locked()


def test_a_run_that_is_told_to_stop_keeps_what_a_trial_has_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved by another thread, as soon as the trial waits for the answer to a report."""
    sent: list[Report] = []

    def report(result: dict[str, Any]) -> None:
        sent.append(received_report(result))
        if len(sent) == 3:
            worker.save_now(None)
            raise SystemExit(0)  # as Tune ends a trial

    monkeypatch.setattr("harness.running.worker.tune.report", report)
    one = worker._Worker(CONFIG, CheckpointStore(str(tmp_path)), 1.0, torch.device("cpu"), None, (0.0, 0.0))
    one.load_data(None)
    with pytest.raises(SystemExit):
        one.train(TrainTask(unit="unit", trial="t000", config=CONFIG))
    told = sent[-1].progress
    kept = cost_in_checkpoint(tmp_path / checkpoint_key("unit", "t000"), CONFIG, torch.device("cpu"))
    assert told and told.epoch == kept.epochs
    assert worker._save is None and not worker._training.locked()


def test_a_trial_that_is_told_to_stop_leaves_no_later_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(worker, "SAVING_SHARE", 1e9)
    sent: list[Report] = []

    def report(result: dict[str, Any]) -> None:
        sent.append(received_report(result))
        if len(sent) == 3:
            raise SystemExit(0)  # as Tune stops a trial

    monkeypatch.setattr("harness.running.worker.tune.report", report)
    one = worker._Worker(CONFIG, CheckpointStore(str(tmp_path)), 1.0, torch.device("cpu"), None, (0.0, 0.0))
    one.load_data(None)
    with pytest.raises(SystemExit):
        one.train(TrainTask(unit="unit", trial="t000", config=CONFIG))
    assert [report.progress and report.progress.epoch for report in sent] == [None, 2, 4]
    assert torch.load(tmp_path / KEY, weights_only=True)["epoch"] == 4


def test_a_gpu_of_rays_that_torch_cannot_use_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said by the worker, since only it knows its machine; it reaches whoever waits for the unit's result."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.delenv("HARNESS_LOGICAL_GPUS", raising=False)
    unit = make_unit(tmp_path, "ldn", gpus_per_trial=1.0)
    rehearse([unit], max_steps=1)
    [trial_id] = unit.live
    task = to_worker(unit.task_of(trial_id))
    try:
        worker.run_task(task, str(tmp_path), 1.0, 1.0, {}, None, str(Path.cwd()), OwnCode({}, []))
    except UserError:
        unit.on_error(trial_id, traceback.format_exc())
    again = make_unit(tmp_path, "ldn", gpus_per_trial=1.0)
    rehearse([again])
    failure = again.failure or ""
    assert f"all 1 failed or reported nothing finite; the last said: no GPU can be used on {gethostname()}: " in failure
    assert "\n" not in failure
