"""What a forecast multiplies, that it times every space, and what its table says."""

import io
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from rich.console import Console

from harness.errors import UserError
from harness.methods import parse_methods
from harness.options import RunOptions
from harness.running import forecast as module
from harness.running.forecast import (
    Forecast,
    MethodForecast,
    TrialForecast,
    busy_machine,
    forecast,
    step_seconds,
    trial_to_the_cap,
)
from harness.running.runner import make_units
from harness.running.unit import RunningUnit
from harness.schema.records import Cost, Progress, TrialConfig
from harness.terminal.forecast_table import forecast_table
from harness.training.train import run_trial
from tests.pretend_gpu import pretend_gpu
from tests.rehearsed import small_space
from tests.tiny import config, images, spirals

CPU = torch.device("cpu")


def units(
    *max_depths: int, methods: str = "ldn,grid", seeds: Sequence[int] = (0,), **options: Any
) -> list[RunningUnit]:
    spaces = [small_space(name=f"D{depth}", depth={"min": 0, "max": depth}) for depth in max_depths]
    return make_units(spaces, parse_methods(methods), seeds, RunOptions(**options))


@pytest.fixture
def one_second_per_block(monkeypatch: pytest.MonkeyPatch) -> list[TrialConfig]:
    """A fixed depth d takes 1 + d seconds, a network that learns its depth ten times that; gives what was timed."""
    timed: list[TrialConfig] = []

    def trial(config: TrialConfig, *_: Any) -> TrialForecast:
        timed.append(config)
        return TrialForecast((1.0 + config.depth) * (10 if config.learns_depth else 1), tflop=0.1 * config.depth)

    monkeypatch.setattr(module, "trial_to_the_cap", trial)
    return timed


def test_every_space_has_rows_of_its_own(one_second_per_block: list[TrialConfig]) -> None:
    found = forecast(units(4, 6, seeds=(0, 1, 2)), None)
    rows = {(each.space, each.method): (each.trials, each.seeds, each.device_seconds) for each in found.methods}
    assert rows == {
        ("D4", "ldn"): (1, 3, pytest.approx(3 * 50)),
        ("D4", "grid"): (5, 3, pytest.approx(3 * (1 + 2 + 3 + 4 + 5))),
        ("D6", "ldn"): (1, 3, pytest.approx(3 * 70)),
        ("D6", "grid"): (7, 3, pytest.approx(3 * (1 + 2 + 3 + 4 + 5 + 6 + 7))),
    }
    assert found.device_seconds == pytest.approx(sum(cost for _, _, cost in rows.values()))


def test_a_space_without_its_data_is_left_out_and_named(one_second_per_block: list[TrialConfig]) -> None:
    data = {"kind": "table", "path": "nowhere.csv", "target": "y"}
    spaces = [small_space(name="there"), small_space(name="lacking", data=data)]
    several = make_units(spaces, parse_methods("grid"), [0], RunOptions())
    found = forecast(several, None)
    assert [each.space for each in found.methods] == ["there"]
    assert {config.data.kind for config in one_second_per_block} == {"spirals"}
    assert list(found.left_out) == ["lacking"] and "there is no file nowhere.csv" in found.left_out["lacking"]
    with pytest.raises(UserError, match=r"there is no file nowhere\.csv"):
        forecast(several[1:], None)


def test_a_network_is_timed_once_at_up_to_three_depths(one_second_per_block: list[TrialConfig]) -> None:
    forecast(units(6, methods="ldn,grid,random_search,asha", seeds=(0, 1)), None)
    assert sorted((config.kind, config.depth) for config in one_second_per_block) == [
        ("ddn", 0),
        ("ddn", 3),
        ("ddn", 6),
        ("ldn", 6),
    ]


def test_depths_that_are_planned_are_priced_as_such(one_second_per_block: list[TrialConfig]) -> None:
    [deepest, tpe] = forecast(units(6, methods="deepest,optuna_tpe"), None).methods
    assert deepest.device_seconds == pytest.approx(7)
    assert tpe.device_seconds == pytest.approx(tpe.trials * 4)  # the mean over what it may propose


def test_devices_held_multiply(one_second_per_block: list[TrialConfig]) -> None:
    one, two = (forecast(units(4, cpus_per_trial=cpus), None) for cpus in (1.0, 2.0))
    assert two.device_seconds == pytest.approx(2 * one.device_seconds)


def test_steps_and_validations_count_without_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def run_trial(config: TrialConfig, data: Any, report: Any, **_: Any) -> None:
        seen.update(n_train=data.n_train, training=config.training)
        train = validate = 0.0
        for step in range(10_000):
            train += 5.0 if step < 2 else 0.01
            validate += 0.004
            phases = {"train": train, "validate": validate}
            report(_progress(step, phases), lambda path: None)

    monkeypatch.setattr(module, "run_trial", run_trial)
    of = config(max_epochs=30, eval_every=10, report_every=10, batch_size=16)
    data = spirals(of)
    # 50 rows in batches of 16 are four steps (the last of two rows); 30 epochs hold three validations.
    assert trial_to_the_cap(of, data, CPU).seconds == pytest.approx(30 * 4 * 0.01 + 3 * 0.004)
    assert seen["n_train"] == 16 and seen["training"].eval_every == 1 and seen["training"].lr == of.training.lr
    of = config(max_epochs=30, eval_every=10, report_every=30, batch_size=16, monitor="train_objective")
    assert trial_to_the_cap(of, data, CPU).seconds == pytest.approx(30 * 4 * 0.01 + 0.004), "one that a report shows"


def _progress(step: int, phases: dict[str, float]) -> Progress:
    return Progress(
        epoch=step,
        stop_reason=None,
        best_epoch=step,
        train_objective=0.0,
        val=None,
        posterior=None,
        depth_changed_late=None,
        cost=Cost(phases=phases),
        point=None,
    )


@pytest.mark.parametrize("lr", [0.1, 1e30])
def test_a_real_network_is_timed_even_one_that_fails_at_once(lr: float) -> None:
    of = config(lr=lr)
    assert trial_to_the_cap(of, spirals(of), CPU).seconds > 0


def test_images_are_timed_too() -> None:
    of = config("ddn", depth=1, network={"kind": "conv", "channels": 6, "bottleneck": 4}, batch_size=8)
    assert trial_to_the_cap(of, images(), CPU).seconds > 0


def test_threads_are_as_before(one_second_per_block: list[TrialConfig]) -> None:
    before = torch.get_num_threads()
    forecast(units(2, cpus_per_trial=2.0), None)
    assert torch.get_num_threads() == before


# --- small networks on a GPU --------------------------------------------------------------------------------------


def timed_on(gpu: torch.device) -> module._Timing:
    wanted = [config for configs in module._wanted(units(4)).values() for config in configs]
    return module._time(wanted, {config.data.model_dump_json(): None for config in wanted}, gpu, 1.0)


@pytest.mark.slow
def test_steps_of_small_networks_are_timed_on_the_cpu_beside_their_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said follows from what was timed; which of the two is quicker depends on the machine's other work."""
    monkeypatch.setattr(module, "TIMED_SECONDS", 0.0)
    timed: list[tuple[str, float]] = []

    def noted(config: TrialConfig, data: Any, device: torch.device) -> float:
        timed.append((device.type, step_seconds(config, data, device)))
        return timed[-1][1]

    monkeypatch.setattr(module, "step_seconds", noted)
    with pretend_gpu() as seen:
        timing = timed_on(seen.device)
        assert sum(seen.operations.values()) > 1000
    assert timing.device == "a pretended GPU"
    *before, (on_gpu, on_cpu) = [(gpu, cpu) for (_, gpu), (_, cpu) in zip(timed[::2], timed[1::2], strict=True)]
    assert [device for device, _ in timed] == [seen.device.type, "cpu"] * (len(before) + 1)
    assert all(cpu <= gpu for gpu, cpu in before), "it ends with the first network that the GPU is worth"
    words = "CPU workers are the cheaper choice (--gpus-per-trial 0): a step of ldn of depth 4 takes"
    advice = f"{words} {on_gpu:.2g} s on this GPU and {on_cpu:.2g} s on one CPU core"
    assert timing.advice == (advice if on_cpu <= on_gpu else "")


@pytest.mark.parametrize(
    ("cpu", "timed", "advice"),
    [
        (0.004, 8, "a step of ldn of depth 4 takes 0.009 s on this GPU and 0.004 s on one CPU core"),
        (0.02, 2, ""),  # the shallowest already: no other is timed
    ],
)
def test_cpu_workers_are_named_where_every_step_is_cheaper_there(
    cpu: float, timed: int, advice: str, one_second_per_block: list[TrialConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[TrialConfig, torch.device]] = []

    def seconds(config: TrialConfig, data: Any, device: torch.device) -> float:
        asked.append((config, device))
        return cpu if device == CPU else 0.009

    monkeypatch.setattr(module, "step_seconds", seconds)
    with pretend_gpu() as seen:
        said = timed_on(seen.device).advice
    assert said.endswith(advice) and bool(said) == bool(advice)
    assert len(asked) == timed and asked[0][0].depth == 0
    assert timed_on(CPU).advice == "" and len(asked) == timed, "nothing to compare with"


def test_what_only_gpus_have_is_left_out_on_the_cpu() -> None:
    half = config(precision="bfloat16", compile=True)
    assert module._for_cpu(half) == config()


# --- the table ----------------------------------------------------------------------------------------------------


def drawn(shown: Forecast, usd_per_hour: float | None = None) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(forecast_table(shown, usd_per_hour))
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


def test_the_table_names_the_device_and_every_space_where_there_are_several() -> None:
    one, other = MethodForecast("D4", "ldn", 1, 3, 50, 150.0), MethodForecast("D6", "ldn", 1, 3, 50, 1210.0)
    several = drawn(Forecast((one, other), "Some CPU"))
    assert "D4 ldn 1 3 50 150 0 D6 ldn 1 3 50 1,210 0 all spaces all 1,360 0" in several
    assert "timed on Some CPU." in several
    alone = drawn(Forecast((one,), "Some CPU", "the run asks for GPUs and there is none here"))
    assert "D4" not in alone and "ldn 1 3 50 150 0 all 150 0" in alone and "asks for GPUs and there is none" in alone
    assert drawn(Forecast((one,), "Some GPU", advice="Take another")).endswith("on top. Take another.")


def test_the_table_sums_each_space_and_all_of_them() -> None:
    rows = [MethodForecast(space, method, 1, 3, 50, 100.0, tflop=2.0) for space in ("a", "b") for method in ("x", "y")]
    said = drawn(Forecast(tuple(rows), "Some CPU", left_out={"c": "there is no file"}))
    assert "a y 1 3 50 100 2.0 a all 200 4.0 b x" in said and "b all 200 4.0 all spaces all 400 8.0" in said
    assert "Left out: c: there is no file." in said


def test_a_price_is_a_column_of_its_own() -> None:
    """An hour and a half, and half an hour, at 1.50 dollars."""
    trained = MethodForecast("s", "ldn", 1, 3, 50, 5400.0), MethodForecast("s", "grid", 9, 3, 50, 1800.0)
    replayed = MethodForecast("s", "asha", 9, 3, 50, 0.0, replayed=True)
    shown = Forecast((*trained, replayed), "Some CPU")
    assert "ldn 1 3 50 5,400 0 2.25 grid 9 3 50 1,800 0 0.75 asha 9 3 50 replayed all 7,200 0 3.00" in drawn(shown, 1.5)
    assert "device-seconds TFLOP USD" in drawn(shown, 0.0) and "all 7,200 0 0.00" in drawn(shown, 0.0)
    assert "USD" not in drawn(shown)
    assert len(forecast_table(shown).columns) == 6 and len(forecast_table(shown, 1.5).columns) == 7


# --- a busy machine -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "threads", "cores", "busy"),
    [(0.0, 1, 2, False), (1.2, 1, 2, False), (1.4, 1, 2, True), (0.4, 2, 2, True), (30.0, 1, 64, False)],
)
def test_a_busy_machine_is_one_that_leaves_a_trial_less_than_its_share(
    others: float, threads: int, cores: int, busy: bool
) -> None:
    said = busy_machine(others, threads, cores)
    assert bool(said) == busy
    assert not said or f"other programs used {others:.1f} of {cores} cores" in said


def test_a_warning_leads_the_forecast_of_a_busy_machine(
    one_second_per_block: list[TrialConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_busy_seconds", iter(range(0, 10**9, 10**6)).__next__)
    found = forecast(units(4), None)
    assert found.busy.startswith("this machine is busy") and "Warning: this machine is busy" in drawn(found)
    monkeypatch.setattr(module, "_busy_seconds", lambda: None)  # a system that does not tell
    assert forecast(units(4), None).busy == "" and "Warning" not in drawn(forecast(units(4), None))


def test_tflop_are_forecast_as_they_are_counted(one_second_per_block: list[TrialConfig]) -> None:
    found = forecast(units(4, seeds=(0, 1)), None)
    assert {each.method: each.tflop for each in found.methods} == {
        "ldn": pytest.approx(2 * 0.4),
        "grid": pytest.approx(2 * (0.1 + 0.2 + 0.3 + 0.4)),
    }
    assert "all" in drawn(found) and found.tflop == pytest.approx(2 * 1.4)


@pytest.mark.parametrize("kind", ["ddn", "ldn"])
def test_the_forecast_in_tflop_is_what_a_trial_to_its_end_counts(kind: str) -> None:
    of = config(kind, depth=4, max_epochs=40, eval_every=10, report_every=10, patience=10**6)
    data, counted = spirals(of), []
    run_trial(of, data, lambda progress, save: counted.append(progress.cost.tflop), device=CPU)
    assert trial_to_the_cap(of, data, CPU).tflop == pytest.approx(counted[-1], rel=0.1)
