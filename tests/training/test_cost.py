import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from harness.models.passes import Passes
from harness.options import RunOptions
from harness.running.runner import _memory_of_a_trial
from harness.schema.records import PHASES, Cost, TrialConfig
from harness.training.cost import PhaseTimer, flop, total, trial_bytes
from harness.training.networks import build_network
from harness.training.train import run_trial
from tests.tiny import config, conv_config, images, spirals

CPU = torch.device("cpu")


class FakeClock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_phases_sum_to_held_time() -> None:
    clock = FakeClock()
    timer = PhaseTimer(CPU, clock=clock)
    for name, seconds, idle in (("data", 1.0, 0.25), ("train", 5.0, 0.0), ("validate", 2.0, 0.5), ("train", 3.0, 0.0)):
        with timer.phase(name):
            clock.now += seconds
        clock.now += idle
    assert timer.held_seconds == 11.75
    phases = timer.phases(timer.held_seconds)
    assert phases == {
        "startup": 0.0,
        "data": 1.0,
        "compile": 0.0,
        "train": 8.0,
        "validate": 2.0,
        "checkpoint": 0.0,
        "lost": 0.0,
        "other": 0.75,
    }
    assert tuple(phases) == PHASES


def test_a_phase_inside_another_takes_its_time_out_of_it() -> None:
    clock = FakeClock()
    timer = PhaseTimer(CPU, clock=clock)
    with timer.phase("train"):
        clock.now += 1.0
        for _ in range(2):
            with timer.phase("compile"):
                clock.now += 3.0
                with timer.phase("data"):
                    clock.now += 0.5
        clock.now += 1.0
    with timer.phase("validate"):
        clock.now += 2.0
    phases = timer.phases(timer.held_seconds)
    assert (phases["train"], phases["compile"], phases["data"], phases["validate"]) == (2.0, 6.0, 1.0, 2.0)
    assert sum(phases.values()) == timer.held_seconds == 11.0


def test_a_phase_that_raises_is_charged() -> None:
    clock = FakeClock()
    timer = PhaseTimer(CPU, clock=clock)
    with pytest.raises(KeyError), timer.phase("train"):
        clock.now += 4.0
        raise KeyError
    assert timer.phases(timer.held_seconds)["train"] == 4.0


def test_a_resumed_timer_goes_on_from_what_was_paid() -> None:
    clock = FakeClock()
    paid = Cost(held_seconds=10.0, phases={"train": 7.0, "startup": 1.0, "lost": 0.5, "other": 1.5})
    timer = PhaseTimer(CPU, before=paid, clock=clock)
    with timer.phase("train"):
        clock.now += 2.0
    clock.now += 1.0
    assert timer.held_seconds == 13.0
    phases = timer.phases(timer.held_seconds)
    assert (phases["train"], phases["startup"], phases["lost"], phases["other"]) == (9.0, 1.0, 0.5, 2.5)
    assert sum(phases.values()) == 13.0


def test_a_trials_phases_sum_to_its_held_time() -> None:
    trial = config(max_epochs=3)
    clock = FakeClock()

    def ticking() -> float:
        clock.now += 0.001
        return clock.now

    cost = run_trial(trial, spirals(trial), timer=PhaseTimer(CPU, clock=ticking)).progress.cost
    assert sum(cost.phases.values()) == pytest.approx(cost.held_seconds, rel=1e-9)
    assert all(cost.phases[phase] > 0 for phase in ("data", "startup", "train", "validate", "checkpoint", "other"))


def test_total_adds_everything_and_takes_the_largest_peak() -> None:
    a = Cost(held_seconds=1, devices=2, phases={"train": 1.0}, tflop=3, epochs=4, samples=5, peak_memory_bytes=9)
    b = Cost(held_seconds=2, devices=2, phases={"lost": 2.0}, tflop=4, epochs=5, block_passes=6, head_passes=7)
    both = total([a, b])
    assert (both.held_seconds, both.devices, both.device_seconds) == (3, 2, 6)
    assert (both.tflop, both.epochs, both.samples, both.block_passes, both.head_passes) == (7, 9, 5, 6, 7)
    assert (both.phases["train"], both.phases["lost"], both.peak_memory_bytes) == (1, 2, 9)
    assert total([]).held_seconds == 0


# --- FLOPs --------------------------------------------------------------------------------------------------------


def flop_per_sample(trial: TrialConfig, sample_shape: tuple[int, ...], n_classes: int, train: bool) -> int:
    """Of a network that predicts at all of its depths, if it learns its depth, else at the last one."""
    passes = Passes(
        {trial.depth: 1}, dict.fromkeys(range(0 if trial.learns_depth else trial.depth, trial.depth + 1), 1)
    )
    return flop(trial.network, sample_shape, n_classes, passes, train)


def _direct_count(trial: TrialConfig, sample_shape: tuple[int, ...], n_classes: int, train: bool) -> float:
    """The whole network of the trial's own depth, counted on a batch of five."""
    network = build_network(trial, sample_shape, n_classes).train(train)
    x, y = torch.zeros(5, *sample_shape), torch.zeros(5, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(train):
        if train:
            network.objective(x, y, n_train=5).backward()
        else:
            network(x)
    return float(counter.get_total_flops()) / 5


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
    "trial",
    [
        *(config(kind, depth) for kind in ("ldn", "ddn") for depth in (0, 1, 4)),
        *(conv_config(kind, depth) for kind in ("ldn", "ddn") for depth in (0, 3)),
    ],
    ids=lambda trial: f"{trial.network.kind}-{trial.kind}-{trial.depth}",
)
def test_flop_count_equals_a_direct_count(trial: TrialConfig, train: bool) -> None:
    shape, n_classes = ((2,), 2) if trial.network.kind == "fc" else ((2, 8, 8), 3)
    assert flop_per_sample(trial, shape, n_classes, train) == _direct_count(trial, shape, n_classes, train)


@pytest.mark.parametrize(("kind", "heads"), [("ldn", 8), ("ddn", 1)])
def test_flop_count_of_the_fc_network_by_hand(kind: str, heads: int) -> None:
    """Two per weight and application; backward repeats it for weights and for inputs, the data's gradient apart."""
    n_in, width, depth, n_classes = 3, 6, 7, 4
    forward = 2 * (n_in * width + depth * width**2 + heads * width * n_classes)
    trial = config(kind, depth)
    assert flop_per_sample(trial, (n_in,), n_classes, train=False) == forward
    assert flop_per_sample(trial, (n_in,), n_classes, train=True) == 3 * forward - 2 * n_in * width


def test_flop_count_with_a_prior_of_the_full_depth() -> None:
    explicit = {"prior": {"kind": "explicit", "probabilities": (0.1, 0.2, 0.3, 0.25, 0.15)}, "rule": "argmax"}
    trial = config(depth=4, posterior=explicit)
    assert flop_per_sample(trial, (2,), 2, train=True) == flop_per_sample(config(depth=4), (2,), 2, train=True)
    assert run_trial(trial, spirals(trial)).progress.stop_reason == "cap"


@pytest.mark.parametrize("monitor", ["val_objective", "train_objective"])
def test_a_trial_counts_its_own_work(monitor: str) -> None:
    for trial, data in (
        (config("ldn", 3, max_epochs=5, eval_every=2, report_every=2, monitor=monitor), None),
        (conv_config("ddn", 2, max_epochs=5, eval_every=2, report_every=2, monitor=monitor), images()),
    ):
        data = data or spirals(trial)
        cost = run_trial(trial, data, devices_held=0.25).progress.cost
        heads = 4 if trial.kind == "ldn" else 1
        assert (cost.epochs, cost.samples) == (5, 5 * data.n_train)
        assert (cost.block_passes, cost.head_passes) == (cost.samples * trial.depth, cost.samples * heads)
        # validated after epochs 2, 4 and 5, and the best parameters again where they were not chosen by validation
        n_val = len(data.val_rows) * (3 if monitor == "val_objective" else 4)
        shapes = (trial, data.sample_shape, data.n_classes)
        flop = cost.samples * flop_per_sample(*shapes, train=True) + n_val * flop_per_sample(*shapes, train=False)
        assert cost.tflop == pytest.approx(flop / 1e12)
        assert cost.device_seconds == cost.held_seconds / 4
        assert cost.peak_memory_bytes > 1e6


def test_a_step_and_an_evaluation_hold_no_more_rows_than_there_are() -> None:
    data = spirals(config())
    all_of_them, far_more = (trial_bytes(config(batch_size=size), data) for size in (data.n_train, 10**8))
    assert all_of_them == far_more > trial_bytes(config(batch_size=2), data)
    assert far_more < 2**20


def test_memory_of_other_machines_is_not_this_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.running.runner.ray.is_initialized", lambda: False)
    assert _memory_of_a_trial(RunOptions()) is None, "this machine's"
    assert _memory_of_a_trial(RunOptions(address="10.0.0.1:6379")) == math.inf
    assert _memory_of_a_trial(RunOptions(address="10.0.0.1:6379", gpus_per_trial=1.0)) == math.inf
