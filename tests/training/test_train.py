import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.data.on_device import DeviceRows, on_device
from harness.data.splits import TrainingData
from harness.models import OneShotNet
from harness.schema.records import Measures, Progress, TrialConfig
from harness.seeds import torch_generator
from harness.training import flat
from harness.training.evaluate import measure
from harness.training.networks import build_network
from harness.training.train import Trained, best_network, predict, run_trial
from tests.tiny import config, conv_config, data_for, images, spirals

CPU = torch.device("cpu")


class Watch:
    """Keeps every report, and the weights at each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports: list[Progress] = []

    def __call__(self, progress: Progress, save: Callable[[Path], None]) -> None:
        self.reports.append(progress)
        save(self.path(progress.epoch))

    def path(self, epoch: int) -> Path:
        return self.folder / f"{epoch}.pt"

    def weights(self, epoch: int) -> list[Tensor]:
        """As they lie in the checkpoint."""
        loaded: list[Tensor] = torch.load(self.path(epoch), weights_only=True)["network"]
        return loaded


def _laid_out(network: nn.Module) -> list[Tensor]:
    return flat.flatten(copy.deepcopy(network))


def _same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(first, second) for first, second in zip(a, b, strict=True))


def _objectives(trial: TrialConfig, data: TrainingData, tmp_path: Path) -> list[float]:
    watch = Watch(tmp_path)
    run_trial(trial, data, watch)
    return [report.point.train_objective for report in watch.reports if report.point]


# --- the epoch ----------------------------------------------------------------------------------------------------


def _plain_training(trial: TrialConfig, data: TrainingData) -> list[float]:
    """The schedule of method.md §4 once more, with nothing but torch: the objective of each epoch."""
    settings, n = trial.training, data.n_train
    rows, train_rows, _ = on_device(data, CPU)
    x, y = rows.take(train_rows)
    network = build_network(trial, data.sample_shape, data.n_classes).train()
    optimiser = torch.optim.SGD(network.parameters(), lr=settings.lr, momentum=settings.momentum)
    order = torch_generator(trial.seed, "order")
    values = []
    for epoch in range(1, settings.max_epochs + 1):
        if settings.lr_drop_epoch and epoch == settings.lr_drop_epoch + 1:
            optimiser.param_groups[0]["lr"] *= settings.lr_drop_factor
        batches = list(torch.randperm(n, generator=order).split(settings.batch_size)) if n > settings.batch_size else []
        batches = batches or [torch.arange(n)]
        if len(batches[-1]) == 1:
            batches[-2:] = [torch.cat(batches[-2:])]
        total = 0.0
        for batch in batches:
            optimiser.zero_grad()
            loss = -network.objective(x[batch], y[batch], n)
            loss.backward()
            optimiser.step()
            total -= len(batch) * loss.item()
        values.append(total / n)
    return values


@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(config("ldn", 3, batch_size=7, max_epochs=5), id="ldn, last batch of one joined"),  # 50 = 7·7 + 1
        pytest.param(config("ddn", 2, batch_size=12, max_epochs=5), id="ddn, uneven last batch"),  # 50 = 4·12 + 2
        pytest.param(config("ddn", 0, batch_size=512, max_epochs=5), id="ddn of depth 0, one batch"),
        pytest.param(
            config("ldn", 2, max_epochs=6, lr_drop_epoch=2, lr_drop_factor=0.01, lr=0.3), id="learning-rate drop"
        ),
        pytest.param(conv_config("ldn", 2, batch_size=7, max_epochs=3), id="conv ldn"),
        pytest.param(conv_config("ldn", 2, "shared", batch_size=7, max_epochs=3), id="conv ldn, shared statistics"),
        pytest.param(conv_config("ddn", 2, batch_size=7, max_epochs=3), id="conv ddn"),
    ],
)
def test_train_objective_is_the_sample_weighted_mean_of_plain_sgd(trial: TrialConfig, tmp_path: Path) -> None:
    data = data_for(trial)
    assert _objectives(trial, data, tmp_path) == pytest.approx(_plain_training(trial, data), rel=1e-4)


def test_every_network_of_a_seed_sees_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[int]] = []
    take = DeviceRows.take

    def recorded(self: DeviceRows, rows: Tensor) -> tuple[Tensor, Tensor]:
        taken.append(rows.tolist())
        return take(self, rows)

    monkeypatch.setattr(DeviceRows, "take", recorded)

    def order(trial: TrialConfig) -> list[list[int]]:
        taken.clear()
        run_trial(trial, spirals(trial))
        return [rows for rows in taken if max(rows) < 50]  # the validation rows come after the 50 training rows

    first = order(config("ddn", 0, max_epochs=3))
    assert len(first) == 3 * 4 and sorted(row for batch in first[:4] for row in batch) == list(range(50))
    assert first[:4] != first[4:8]
    assert first == order(config("ddn", 4, max_epochs=3)) == order(config("ldn", 2, max_epochs=3))
    assert first != order(config("ddn", 0, seed=1, max_epochs=3))


def test_training_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    run_trial(config(max_epochs=2), spirals(config()))
    assert torch.equal(state, torch.get_rng_state())


def test_another_seed_gives_other_numbers_and_the_same_seed_the_same() -> None:
    def run(seed: int) -> Trained:
        trial = config(seed=seed, max_epochs=3)
        return run_trial(trial, spirals(trial))

    a, b, other = run(0), run(0), run(1)
    assert _same(_laid_out(a.network), _laid_out(b.network))
    assert a.progress.val == b.progress.val and a.progress.posterior == b.progress.posterior
    assert a.progress.val != other.progress.val and a.progress.train_objective != other.progress.train_objective


# --- early stopping and the best parameters -----------------------------------------------------------------------


def _expected(train: list[float], val: list[float], trial: TrialConfig) -> tuple[int, int, str]:
    """(last epoch, best epoch, stop reason), from the values of every epoch of an uninterrupted run."""
    settings = trial.training
    best, best_epoch = -math.inf, 0
    for epoch in range(1, settings.max_epochs + 1):
        due = epoch - best_epoch >= settings.patience or epoch == settings.max_epochs
        validated = epoch % settings.eval_every == 0 or due
        if settings.monitor == "train_objective" or validated:
            value = (train if settings.monitor == "train_objective" else val)[epoch - 1]
            if value > best + settings.min_delta or best_epoch == 0:
                best, best_epoch = value, epoch
        if epoch - best_epoch >= settings.patience:
            return epoch, best_epoch, "patience"
    return settings.max_epochs, best_epoch, "cap"


ROUGH: dict[str, Any] = {"lr": 1.0, "max_epochs": 24}  # a rate at which the values go up and down


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    """Every epoch of one long training; what is monitored has no influence on the steps."""
    trial = config("ldn", 3, **ROUGH, patience=1000)
    watch = Watch(tmp_path_factory.mktemp("uninterrupted"))
    run_trial(trial, spirals(trial), watch)
    return watch


@pytest.mark.parametrize("monitor", ["train_objective", "val_objective"])
@pytest.mark.parametrize(
    ("patience", "min_delta", "eval_every"), [(1, 0.0, 1), (3, 0.0, 1), (4, 0.0, 3), (2, 0.0, 5), (5, 0.02, 1)]
)
def test_stopping_and_best_epoch(
    uninterrupted: Watch, monitor: str, patience: int, min_delta: float, eval_every: int
) -> None:
    every: dict[str, Any] = {"eval_every": eval_every, "report_every": eval_every}
    trial = config("ldn", 3, **ROUGH, monitor=monitor, patience=patience, min_delta=min_delta, **every)
    trained = run_trial(trial, spirals(trial))
    last = trained.progress
    points = [report.point for report in uninterrupted.reports if report.point]
    assert [point.epoch for point in points] == list(range(1, 25))
    train, val = [point.train_objective for point in points], [point.val_log_likelihood for point in points]
    assert (last.epoch, last.best_epoch, last.stop_reason) == _expected(train, val, trial)
    assert last.train_objective == train[last.best_epoch - 1]
    assert last.val and last.val.log_likelihood == val[last.best_epoch - 1]
    assert last.cost.epochs == last.epoch
    assert last.best_epoch < 24, "the last report holds the best parameters, not those of its epoch"
    assert _same(_laid_out(trained.network), uninterrupted.weights(last.best_epoch)), "buffers and logits included"
    assert not trained.network.training


def _script(values: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation gives these log-likelihoods, one after the other."""
    rest = iter(values)
    monkeypatch.setattr(
        "harness.training.train.measure",
        lambda *_: Measures(accuracy=0.5, log_likelihood=next(rest), ece=0.0, brier=0.0),
    )


def test_patience_counts_epochs_not_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    _script([-1.0, -0.5, -0.9, -0.8, -0.7], monkeypatch)
    trial = config(max_epochs=100, patience=6, eval_every=2, report_every=2)
    last = run_trial(trial, spirals(trial)).progress
    assert (last.best_epoch, last.epoch, last.stop_reason) == (4, 10, "patience")


def test_an_improvement_is_more_than_min_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    _script([-1.0, -0.75, -0.75], monkeypatch)  # steps of a quarter, exact in binary
    trial = config(max_epochs=3, min_delta=0.25)
    assert run_trial(trial, spirals(trial)).progress.best_epoch == 1  # a quarter is not more than a quarter
    _script([-1.0, -0.75, -0.5], monkeypatch)
    assert run_trial(trial, spirals(trial)).progress.best_epoch == 3  # counted from the best, not from the last


def test_a_last_look_when_patience_runs_out_may_keep_it_going(monkeypatch: pytest.MonkeyPatch) -> None:
    _script([-1.0, -0.5, -0.9, -0.9], monkeypatch)  # epochs 3 (patience), 5, 8 (patience) ... of eval_every 5
    trial = config(max_epochs=100, patience=3, eval_every=5, report_every=5)
    last = run_trial(trial, spirals(trial)).progress
    assert (last.best_epoch, last.epoch, last.stop_reason) == (5, 8, "patience")


def test_without_a_monitor_the_last_parameters_are_kept(uninterrupted: Watch) -> None:
    trial = config("ldn", 3, **{**ROUGH, "max_epochs": 9}, patience=2, monitor="none")
    trained = run_trial(trial, spirals(trial))
    last = trained.progress
    assert (last.epoch, last.best_epoch, last.stop_reason) == (9, 9, "cap")
    assert _same(_laid_out(trained.network), uninterrupted.weights(9))


def test_val_of_the_record_is_that_of_the_kept_parameters() -> None:
    for monitor in ("train_objective", "val_objective", "none"):
        trial = config("ldn", 3, lr=1.0, max_epochs=12, monitor=monitor)
        data = spirals(trial)
        trained = run_trial(trial, data)
        rows, _, val_rows = on_device(data, CPU)
        assert trained.progress.val == measure(predict(trained.network, rows, val_rows), rows.y[val_rows])
        assert isinstance(trained.network, OneShotNet)
        q = torch.softmax(trained.network.posterior.log_weights().double(), dim=0)
        assert trained.progress.posterior and trained.progress.posterior.q == pytest.approx(q.tolist())


def test_best_network_is_read_from_any_checkpoint(tmp_path: Path) -> None:
    trial = config("ldn", 2, lr=1.0, max_epochs=9)
    data, watch = spirals(trial), Watch(tmp_path)
    trained = run_trial(trial, data, watch)
    for report in watch.reports:
        network = best_network(watch.path(report.epoch), trial, data, CPU)
        assert not network.training
        best = _laid_out(trained.network) if report.epoch == 9 else watch.weights(report.best_epoch)
        assert _same(_laid_out(network), best)


# --- reports ------------------------------------------------------------------------------------------------------


def test_reports_come_by_epochs_with_a_fresh_validation(tmp_path: Path) -> None:
    trial = config("ldn", 3, max_epochs=11, eval_every=2, report_every=4)
    watch = Watch(tmp_path)
    run_trial(trial, spirals(trial), watch)
    assert [report.epoch for report in watch.reports] == [4, 8, 11]
    assert [report.stop_reason for report in watch.reports] == [None, None, "cap"]
    assert [report.point.epoch for report in watch.reports if report.point] == [4, 8, 11]
    seconds = [report.point.device_seconds for report in watch.reports if report.point]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize(("kind", "depth"), [("ddn", 2), ("ldn", 3), ("exits", 3)])
@pytest.mark.parametrize("monitor", ["train_objective", "val_objective"])
def test_a_validation_that_nobody_reads_is_not_made(
    kind: str, depth: int, monitor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between reports validation is for whom it chooses parameters or depth; the reports are the same without."""
    made: list[int] = []

    def counted(log_probs: Tensor, y: Tensor) -> Measures:
        made.append(len(y))
        return measure(log_probs, y)

    monkeypatch.setattr("harness.training.train.measure", counted)

    def run(eval_every: int) -> list[Progress]:
        made.clear()
        trial = config(kind, depth, max_epochs=11, monitor=monitor, eval_every=eval_every, report_every=4)
        reports: list[Progress] = []
        run_trial(trial, spirals(trial), lambda progress, _: reports.append(progress))
        return reports

    seldom = run(eval_every=4)
    often = run(eval_every=2)
    chooses = monitor == "val_objective" or kind == "exits"
    again = monitor != "val_objective"  # the best parameters, at the end
    assert len(made) == (6 if chooses else 3) + again  # after epochs 2, 4, 6, 8, 10, 11, or those with a report
    if not chooses:
        other = {"cost", "point", "depth_changed_late"}
        assert [report.model_dump(exclude=other) for report in often] == [r.model_dump(exclude=other) for r in seldom]


def test_how_often_it_reports_changes_no_number() -> None:
    def run(eval_every: int, report_every: int) -> Trained:
        trial = config(max_epochs=12, monitor="train_objective", eval_every=eval_every, report_every=report_every)
        return run_trial(trial, spirals(trial))

    assert _same(_laid_out(run(1, 1).network), _laid_out(run(5, 10).network))


def test_depth_changed_late_looks_at_the_last_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(depths: list[int]) -> bool | None:
        rest = iter(depths)
        monkeypatch.setattr("harness.training.train._q", lambda _: torch.eye(4)[next(rest)])
        trial = config("ldn", 3, max_epochs=8)
        return run_trial(trial, spirals(trial)).progress.depth_changed_late

    assert run([0, 1, 2, 3, 0, 1, 1, 1]) is False  # since epoch 6 nothing changed
    assert run([0, 0, 0, 0, 0, 0, 1, 1]) is True  # from what stood when the last quarter began
    assert run([1, 1, 1, 1, 1, 1, 1, 2]) is True
    assert run_trial(config("ddn", 1), spirals(config())).progress.depth_changed_late is None


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("monitor", ["train_objective", "val_objective"])
@pytest.mark.parametrize("max_epochs", [1, 8])
def test_a_loss_that_is_not_finite_fails_with_its_cost(monitor: str, max_epochs: int) -> None:
    trial = config("ldn", 3, lr=1e30, monitor=monitor, max_epochs=max_epochs)
    reports: list[Progress] = []
    last = run_trial(trial, spirals(trial), lambda progress, _: reports.append(progress)).progress
    assert last.stop_reason == "failed" and last.error and "epoch" in last.error
    assert last.val is None and last.posterior is None and last.point is None
    assert last.cost.held_seconds > 0 and last.cost.epochs >= 1 and last.cost.tflop > 0
    assert reports[-1] == last


def test_kept_parameters_that_predict_nonsense_fail_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """In evaluation mode a network may overflow where its training batches did not."""
    trial = config("ldn", 3, max_epochs=4, monitor="train_objective", eval_every=4, report_every=4)
    calls: list[int] = []

    def nan_at_the_second(network: Any, rows: DeviceRows, which: Tensor) -> Tensor:
        calls.append(len(which))
        return predict(network, rows, which) * (math.nan if len(calls) == 2 else 1.0)

    monkeypatch.setattr("harness.training.train.predict", nan_at_the_second)
    last = run_trial(trial, spirals(trial)).progress
    assert len(calls) == 2
    assert last.stop_reason == "failed" and last.val is None


def test_images_are_used_as_they_lie(tmp_path: Path) -> None:
    """The rows of a node are shared between trials, so a trial may not write to them."""
    data = images()
    data.x.setflags(write=False)
    data.y.setflags(write=False)
    before = data.x.copy()
    run_trial(conv_config(max_epochs=2), data)
    assert (data.x == before).all()
