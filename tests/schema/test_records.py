import pytest
from pydantic import ValidationError

from harness.errors import UserError
from harness.schema.records import Cost, Measures, Progress, StopReason, TrialConfig, TrialRecord
from harness.training.devices import choose_device
from harness.training.environment import environment
from harness.training.train import run_trial
from tests.synthetic import make_units
from tests.tiny import config, conv_config, spirals


def test_config_survives_json_and_has_one_hash() -> None:
    explicit = {"prior": {"kind": "explicit", "probabilities": (0.25, 0.25, 0.25, 0.25)}, "rule": "threshold"}
    for trial in (config(), conv_config("ddn"), config(posterior=explicit, lr_drop_epoch=3)):
        again = TrialConfig.model_validate_json(trial.model_dump_json())
        assert again == trial and again.hash == trial.hash


def test_hash_changes_with_every_setting() -> None:
    others = [
        config("ddn"),
        config(depth=4),
        config(seed=1),
        config(lr=0.2),
        config(network={"kind": "fc", "width": 7}),
    ]
    assert len({trial.hash for trial in (config(), *others)}) == 6


@pytest.mark.parametrize("trial", [config(max_epochs=2), config("ddn", 1, max_epochs=2), config(lr=1e30)])
def test_progress_and_record_survive_json(trial: TrialConfig) -> None:
    data = spirals(trial)
    progress = run_trial(trial, data).progress
    assert Progress.model_validate_json(progress.model_dump_json()) == progress
    record = TrialRecord.of("t0", trial, data.split_hash, progress, environment(choose_device("cpu"), trial.training))
    assert TrialRecord.model_validate_json(record.model_dump_json()) == record
    assert record.config_hash == trial.hash and record.cost == progress.cost


@pytest.mark.parametrize(
    ("stop_reason", "status"),
    [("cap", "finished"), ("patience", "finished"), ("failed", "failed"), (None, "stopped")],
)
def test_status_follows_from_the_stop_reason(stop_reason: StopReason | None, status: str) -> None:
    trial = config(max_epochs=1)
    last = run_trial(trial, spirals(trial)).progress.model_copy(update={"stop_reason": stop_reason})
    record = TrialRecord.of("t0", trial, "hash", last, environment(choose_device("cpu"), trial.training))
    assert (record.status, record.stop_reason) == (status, stop_reason or "scheduler")


def test_values_are_strict_finite_and_frozen() -> None:
    with pytest.raises(ValidationError):
        Measures(accuracy=float("nan"), log_likelihood=0.0, ece=0.0, brier=0.0)
    with pytest.raises(ValidationError):
        Cost(held_seconds=-1.0)
    with pytest.raises(ValidationError):
        Cost(held_secnds=1.0)  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        config(lr="0.1")
    with pytest.raises(ValidationError, match="frozen"):
        Cost().epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", ["gpu", "tpu:0", "meta", "cuda:99", ""])
def test_a_device_that_is_not_there_is_an_error(name: str) -> None:
    with pytest.raises(UserError):
        choose_device(name)


def _with_curve(values: list[float], every: int = 1) -> TrialRecord:
    (unit,) = make_units(("grid",), [0])
    first = unit.trials[0]
    points = [
        first.curve[0].model_copy(update={"epoch": every * number, "val_log_likelihood": value})
        for number, value in enumerate(values, start=1)
    ]
    return first.model_copy(update={"curve": tuple(points)})


def test_jitter_is_the_median_change_over_the_last_quarter() -> None:
    wild = [-3.0, 5.0, -7.0, 2.0, 0.0, 1.0, -1.0, -2.0, -1.0]  # epochs 1 to 9
    assert _with_curve([*wild, -0.9, -1.2, -1.1]).jitter == pytest.approx(0.1)  # |9→10|, |10→11|, |11→12|
    assert _with_curve([*wild, -0.9, -1.2, -1.1], every=20).jitter == pytest.approx(0.1)
    assert _with_curve([-1.0, -0.5]).jitter == pytest.approx(0.5)
    assert _with_curve([-1.0]).jitter is None and _with_curve([]).jitter is None
