"""Every network of every method on a pretended GPU: the CPU's numbers, from the first step to the model file, and no
step at which the host waits for the device."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness import methods
from harness.data.on_device import on_device
from harness.data.splits import LabelledSet, TrainingData
from harness.errors import UserError
from harness.methods import known_methods, load_method
from harness.methods.base import OneShotMethod
from harness.models.one_shot import Batch, Epoch, OneShotNet
from harness.schema.records import FIXED_DEPTH, Progress, TrialConfig
from harness.training import final
from harness.training.cost import trial_bytes
from harness.training.devices import start
from harness.training.environment import environment
from harness.training.final import evaluate_on_test
from harness.training.model_file import load_model, save_model
from harness.training.networks import chosen_network
from harness.training.train import best_network, run_trial
from tests.pretend_gpu import Seen, pretend_gpu
from tests.tiny import config, conv_config, images, spirals

pytestmark = pytest.mark.slow
DEPTH = 3
CPU = torch.device("cpu")
NETWORKS = [FIXED_DEPTH] + [name for name in known_methods() if isinstance(load_method(name)[1], OneShotMethod)]
KINDS = ("fc", "conv")


@pytest.fixture(autouse=True)
def only_what_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A final evaluation times forward passes, and fits a linear model on the CPU."""
    monkeypatch.setattr(final, "TIMING_REPEATS", 1)
    monkeypatch.setattr(final, "floor_of", lambda *_: None)


@pytest.fixture
def gpu() -> Iterator[Seen]:
    with pretend_gpu() as seen:
        yield seen


def trial_of(name: str, kind: str, **training: Any) -> tuple[TrialConfig, TrainingData]:
    options = {} if name == FIXED_DEPTH else load_method(name)[1].model_dump(mode="json")
    given = {"max_epochs": 4, "batch_size": 8, "options": options, "lr": 0.05, **training}
    if kind != "fc":
        return conv_config(name, DEPTH, "shared" if kind == "shared" else "per_depth", **given), images(n=72)
    trial = config(name, DEPTH, data={"kind": "spirals", "n_train": 48, "n_val": 24, "n_test": 20}, **given)
    return trial, spirals(trial)


# --- the same numbers ---------------------------------------------------------------------------------------------


def life_of_a_trial(trial: TrialConfig, data: TrainingData, device: torch.device, folder: Path) -> dict[str, Any]:
    """Everything that comes of it, without the seconds: trained, continued from the middle, evaluated, handed over."""
    folder.mkdir()

    def keep(progress: Progress, save: Callable[[Path], None]) -> None:
        save(folder / f"{progress.epoch}.pt")

    whole = run_trial(trial, data, keep, device=device).progress
    continued = run_trial(trial, data, device=device, resume_from=folder / "2.pt")
    network = best_network(folder / f"{whole.epoch}.pt", trial, data, device)
    assert {tensor.device for tensor in (*network.state_dict().values(), *continued.network.state_dict().values())} == {
        device
    }
    d_opt = whole.posterior.d_opt if whole.posterior else DEPTH
    evaluated = evaluate_on_test(network, d_opt, trial, data)
    save_model(folder / "model.pt", chosen_network(network, d_opt), d_opt, trial, data)
    return {
        "whole": _timeless(whole),
        "continued": _timeless(continued.progress),
        "final": evaluated.model_dump(
            exclude={"seconds", "forward_seconds_per_sample", "full_forward_seconds_per_sample"}
        ),
        "weights": {name: tensor.cpu() for name, tensor in continued.network.state_dict().items()},
        "model": dict(load_model(folder / "model.pt").state_dict()),
    }


def _timeless(progress: Progress) -> dict[str, Any]:
    seconds = {"cost": {"held_seconds", "phases", "peak_memory_bytes"}, "point": {"device_seconds"}}
    return progress.model_dump(exclude=seconds)


@pytest.mark.parametrize("kind", [*KINDS, "shared"])  # one norm for all depths
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gpu_gives_the_numbers_of_the_cpu(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, data = trial_of(name, kind, batch_size=16)
    unseen = LabelledSet(data.x[::5], data.y[::5].astype(np.int64))  # any rows: what counts is that they are the same
    monkeypatch.setattr(final, "load_test", lambda *_: unseen)
    expected = life_of_a_trial(trial, data, CPU, tmp_path / "cpu")
    with pretend_gpu() as gpu:
        found = life_of_a_trial(trial, data, gpu.device, tmp_path / "gpu")
        assert sum(gpu.operations.values()) > 100
        assert environment(gpu.device, trial.training).device == "a pretended GPU"
    assert expected["whole"] == expected["continued"]
    for part in ("whole", "continued", "final"):
        assert found[part] == expected[part], part
    for part in ("weights", "model"):
        unequal = [name for name, tensor in expected[part].items() if not torch.equal(found[part][name], tensor)]
        assert found[part].keys() == expected[part].keys() and not unequal, part


# --- operations and waits -----------------------------------------------------------------------------------------

# Of a step of the fixed depth: a change that needs more has to say so here. Any other network may take twice that.
OPERATIONS_PER_STEP = {"fc": 61, "conv": 122}
WAITS_PER_EPOCH = 16  # with its order, its validation, its report and the ends of its phases


def counted(trial: TrialConfig, data: TrainingData, gpu: Seen) -> tuple[Counter[str], Counter[str]]:
    gpu.take()
    run_trial(trial, data, device=gpu.device)
    return gpu.take()


def of_a_step(name: str, kind: str, gpu: Seen) -> tuple[float, Counter[str]]:
    """Operations of a step; and what an epoch of four steps waits for more often than one of two."""
    trial, data = trial_of(name, kind, max_epochs=1)
    four, two = (dataclasses.replace(data, train_rows=data.train_rows[: n * 8]) for n in (4, 2))
    (operations, waits), (fewer_operations, fewer_waits) = counted(trial, four, gpu), counted(trial, two, gpu)
    waits.subtract(fewer_waits)
    return (operations.total() - fewer_operations.total()) / 2, +waits


def waits_of_an_epoch(name: str, kind: str, gpu: Seen) -> float:
    few, many = (counted(*trial_of(name, kind, max_epochs=epochs, batch_size=24), gpu)[1] for epochs in (1, 3))
    return (many.total() - few.total()) / 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_no_step_waits_and_an_epoch_seldom_does(name: str, kind: str, gpu: Seen) -> None:
    operations, waits = of_a_step(name, kind, gpu)
    assert not waits
    assert 20 < operations <= OPERATIONS_PER_STEP[kind] * (1 if name == FIXED_DEPTH else 2)
    assert 5 < waits_of_an_epoch(name, kind, gpu) <= WAITS_PER_EPOCH


# --- what the tests above must find -------------------------------------------------------------------------------


class Good(OneShotMethod):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        return net.log_likelihood_per_depth(x, y).mean()


class TensorOfTheCpu(Good):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        return (net.log_likelihood_per_depth(x, y) * torch.ones(net.max_depth + 1)).mean()


class GeneratorOfTheCpu(Good):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        drawn = torch.rand(net.max_depth + 1, device=x.device, generator=net.random)
        return (net.log_likelihood_per_depth(x, y) * drawn).mean()


class ReadsANumber(Good):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        value = super().objective(net, x, y, n_train)
        return value * (2.0 if value.detach().item() > 0 else 1.0)


class CopiesToTheHost(Good):
    def after_step(self, net: OneShotNet, validation: Callable[[], Batch]) -> None:
        net.posterior.log_weights().detach().cpu()


class CopiesToTheDevice(Good):
    def objective(self, net: OneShotNet, x: Tensor, y: Tensor, n_train: int) -> Tensor:
        weights = torch.ones(net.max_depth + 1).to(x.device)
        return (net.log_likelihood_per_depth(x, y) * weights).mean()


class LooksForTheRight(Good):
    def after_step(self, net: OneShotNet, validation: Callable[[], Batch]) -> None:
        (net.posterior.log_weights().detach() == 0).nonzero()


class WaitsTooOften(Good):
    def after_epoch(self, net: OneShotNet, epoch: Epoch, validation: Callable[[], Batch]) -> None:
        for parameter in net.parameters():
            float(parameter.detach().sum())


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[OneShotMethod]], str]:
    def named(method: type[OneShotMethod]) -> str:
        monkeypatch.setitem(methods._own, "mine", method)
        return "mine"

    return named


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (TensorOfTheCpu, "Expected all tensors to be on the same device"),
        (GeneratorOfTheCpu, "device type for generator"),
    ],
)
def test_what_cuda_refuses_is_refused(method: type[OneShotMethod], said: str, gpu: Seen, mine: Any) -> None:
    trial, data = config(mine(method), DEPTH), spirals(config())
    with pytest.raises(RuntimeError, match=said):
        run_trial(trial, data, device=gpu.device)


@pytest.mark.parametrize("method", [ReadsANumber, CopiesToTheHost, CopiesToTheDevice, LooksForTheRight])
def test_a_step_that_waits_is_found(
    method: type[OneShotMethod], gpu: Seen, mine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.training.test_gpu.load_method", lambda name: (name, method()))
    assert of_a_step(mine(Good), "fc", gpu)[1].total() == 0
    assert of_a_step(mine(method), "fc", gpu)[1].total() == 2


def test_an_epoch_that_waits_too_often_is_found(gpu: Seen, mine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.training.test_gpu.load_method", lambda name: (name, WaitsTooOften()))
    assert waits_of_an_epoch(mine(WaitsTooOften), "fc", gpu) > WAITS_PER_EPOCH


# --- a pool that does not fit --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_rows_that_do_not_fit_are_sent_without_a_wait(
    name: str, kind: str, gpu: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.free_bytes = 100
    trial, data = trial_of(name, kind, max_epochs=2)
    on_cpu, streamed = (run_trial(trial, data, device=device) for device in (CPU, gpu.device))
    assert _timeless(streamed.progress) == _timeless(on_cpu.progress)
    unseen = LabelledSet(data.x[::5], data.y[::5].astype(np.int64))
    monkeypatch.setattr(final, "load_test", lambda *_: unseen)
    evaluated = [evaluate_on_test(each.network, 1, trial, data).chosen for each in (streamed, on_cpu)]
    assert evaluated[0] == evaluated[1]
    assert not of_a_step(name, kind, gpu)[1]


def test_rows_take_half_of_a_trials_own_share_at_most(gpu: Seen) -> None:
    data = images(n=72)
    gpu.total_bytes = 5 * data.x.nbytes
    start(gpu.device, 0.25)
    assert on_device(data, gpu.device)[0].at == CPU
    start(gpu.device, 0.5)
    assert on_device(data, gpu.device)[0].at == gpu.device


# --- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NETWORKS[:2])
@pytest.mark.parametrize("depth", [1, 8])
def test_memory_is_what_was_forecast(name: str, kind: str, depth: int, gpu: Seen) -> None:
    """Networks large enough that it is not all in the room between tensors; rows come on top."""
    more: dict[str, Any] = {"max_epochs": 2, "batch_size": 128}
    if kind == "fc":
        many = {"kind": "spirals", "n_train": 128, "n_val": 4, "n_test": 20}
        trial = config(name, depth, data=many, network={"kind": "fc", "width": 64}, **more)
        data = spirals(trial)
    else:
        network = {"kind": "conv", "channels": 16, "bottleneck": 8}
        trial, data = config(name, depth, network=network, **more), images(n=192, side=16)
        data = dataclasses.replace(data, val_rows=data.val_rows[:4])  # 2,048 at once would hide the step
    peak = run_trial(trial, data, device=gpu.device).progress.cost.peak_memory_bytes
    forecast = trial_bytes(trial, data)
    assert 0.95 * peak <= forecast + data.x.nbytes + data.y.nbytes <= 1.4 * peak


def test_a_trial_that_cannot_fit_is_refused_before_it_starts(gpu: Seen) -> None:
    trial, data = trial_of(NETWORKS[-1], "conv", batch_size=512)
    gpu.total_bytes = 2 * trial_bytes(trial, data)
    run_trial(trial, data, device=gpu.device, devices_held=0.5)
    with pytest.raises(UserError) as caught:
        run_trial(trial, data, device=gpu.device, devices_held=0.25)
    assert "a trial of depth 3 with mini-batches of 512 would need about" in str(caught.value)
    assert "is available; lower training.batch_size, depth.max or the network's width" in str(caught.value)
