"""Mixed precision ends where probabilities begin. Without a GPU its policy is imitated: real autocast on this CPU's
bfloat16 may not run at all, so matrix products inside `torch.autocast` are rounded to its 8 bits by hand."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from harness.data.on_device import on_device
from harness.errors import UserError
from harness.methods import known_methods, load_method
from harness.methods.base import OneShotMethod
from harness.models import OneShotNet
from harness.networks.base import StackedBatchNorm
from harness.schema.identity import hashed
from harness.training import devices
from harness.training.devices import check_usable, prepare, start
from harness.training.networks import build_network
from harness.training.train import _Trial
from tests.tiny import config, conv_config, spirals

DEPTH = 12  # with the 13 depths 0 … 12: no other dimension below has that size
PRODUCTS = ("linear", "conv2d", "matmul", "__matmul__", "mm", "mv", "dot", "bmm", "addmm", "einsum")
ONE_SHOTS = [name for name in known_methods() if isinstance(load_method(name)[1], OneShotMethod)]


class Rounded(torch.autograd.Function):
    """To the nearest number with bfloat16's 8 bits; gradients pass as they do through a cast."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return ((x.contiguous().view(torch.int32) + 0x8000) & -0x10000).view(torch.float32)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class Imitated(TorchFunctionMode):
    """Rounds what matrix products get, as autocast to bfloat16 does; notes the shapes that it rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.rounded: list[tuple[int, ...]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in PRODUCTS:
            args = [self._rounded(each) if isinstance(each, Tensor) else each for each in args]
        return func(*args, **(kwargs or {}))

    def _rounded(self, x: Tensor) -> Tensor:
        self.rounded.append(tuple(x.shape))
        rounded: Tensor = Rounded.apply(x)
        return rounded


@contextlib.contextmanager
def imitated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Imitated]:
    """`torch.autocast` does this instead, where it is asked for at all."""
    mode = Imitated()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "autocast", lambda device, dtype, enabled: mode if enabled else contextlib.nullcontext())
        yield mode


def learnt(name: str = "ldn", conv: bool = False) -> tuple[OneShotNet, Tensor, Tensor]:
    torch.manual_seed(0)
    options = load_method(name)[1].model_dump(mode="json")
    trial = (conv_config if conv else config)(name, DEPTH).model_copy(update={"options": options})
    x = torch.randn(10, 1, 8, 8) if conv else torch.randn(10, 2)
    network = build_network(trial, tuple(x.shape[1:]), 2).train()
    assert isinstance(network, OneShotNet)
    network.backbone.autocast = torch.bfloat16
    return network, x, torch.arange(10) % 2


def test_the_gradients_of_neighbouring_depths_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-likelihoods of depths that differ by 1e-4 are one number in bfloat16, and so would be their gradients."""
    values = torch.linspace(-0.3020, -0.3008, DEPTH + 1)
    network, x, y = learnt()
    monkeypatch.setattr(network, "log_likelihood_per_depth", lambda *_: values.clone())

    def gradients() -> int:
        network.zero_grad()
        network.objective(x, y, 10**12).backward()
        logits = dict(network.posterior.named_parameters())["logits"].grad
        assert logits is not None
        return len({round(each, 9) for each in logits.tolist()})

    with imitated(monkeypatch) as policy:
        assert gradients() == DEPTH + 1
        with policy:  # the whole objective inside, as it was
            assert gradients() < (DEPTH + 1) / 2


def test_so_do_those_of_a_training_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, of the step that a trial takes, autocast wherever it asks for it: the rest of a step is not in it."""
    trial = config("ldn", DEPTH, precision="bfloat16")
    data = spirals(trial)
    values = torch.linspace(-0.3020, -0.3008, DEPTH + 1)
    monkeypatch.setattr(OneShotNet, "log_likelihood_per_depth", lambda *_: values.clone())
    started = _Trial.start(trial, data, torch.device("cpu"))
    started.epoch, started.n_train = 1, 10**12  # so that the divergence from the prior is nothing
    with imitated(monkeypatch):
        started.train_epoch(*on_device(data, torch.device("cpu")))
    logits = dict(started.network.named_parameters())["posterior.logits"].grad
    assert logits is not None and len({round(each, 9) for each in logits.tolist()}) == DEPTH + 1


@pytest.mark.parametrize("conv", [False, True], ids=["fc", "conv"])
@pytest.mark.parametrize("name", ONE_SHOTS)
def test_no_objective_is_computed_in_lower_precision(name: str, conv: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    network, x, y = learnt(name, conv)
    with imitated(monkeypatch) as policy:
        objective = network.objective(x, y, 1000)
        (-objective).backward()
        per_depth = network.log_probs_per_depth(x)
    assert objective.dtype == per_depth.dtype == torch.float32
    assert policy.rounded, "layers are to compute in it"
    assert (DEPTH + 1,) not in policy.rounded, "weights over depths must not"
    torch.testing.assert_close(per_depth.exp().sum(-1), torch.ones(per_depth.shape[:2]))


def test_validation_is_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    network, x, _ = learnt()
    with imitated(monkeypatch) as policy:
        network.eval()(x)
    assert not policy.rounded


def test_running_statistics_stay_in_float32() -> None:
    for mode in ("per_depth", "shared"):
        norm = StackedBatchNorm(3, 2, mode).train()
        norm(torch.randn(2, 10, 3, dtype=torch.float32).to(torch.float16))
        assert norm.running_mean.dtype == norm.running_var.dtype == torch.float32
        assert bool(norm.running_mean.any())


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_cpu_refuses_lower_precision(precision: str) -> None:
    with pytest.raises(UserError, match=f"training.precision {precision} is for CUDA.*use float32"):
        prepare(torch.device("cpu"), config(precision=precision).training)


def test_a_gpu_that_only_emulates_bfloat16_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No such GPU here: torch's own answers about it are made up."""
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: including_emulation)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "Tesla T4")
    with pytest.raises(UserError, match="Tesla T4 only emulates it, slowly; use float16 or float32"):
        prepare(torch.device("cuda"), config(precision="bfloat16").training)


@pytest.mark.parametrize("on", [True, False])
def test_a_trial_sets_every_switch_that_its_numbers_depend_on(on: bool) -> None:
    prepare(torch.device("cpu"), config(tf32=not on, deterministic=not on).training)  # a worker's trial before
    prepare(torch.device("cpu"), config(tf32=on, deterministic=on).training)
    try:
        assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is on
        assert torch.backends.cudnn.deterministic is torch.are_deterministic_algorithms_enabled() is on
        assert not torch.backends.cudnn.benchmark
    finally:
        prepare(torch.device("cpu"), config().training)


def test_switches_that_are_off_leave_no_trace_in_a_hash() -> None:
    """Plans of earlier versions, which did not know them, are still these plans."""
    plain = config()
    assert not {"tf32", "deterministic"} & hashed(plain)["training"].keys()
    assert len({config(tf32=a, deterministic=b).hash for a in (False, True) for b in (False, True)}) == 4
    assert config(tf32=False).hash == plain.hash


@pytest.mark.parametrize(
    ("cuda", "visible", "driver", "words"),
    [
        (None, None, None, "is built without CUDA; install a CUDA build"),
        ("12.8", "", "570.1", "CUDA_VISIBLE_DEVICES is empty, which hides all GPUs; unset it"),
        ("12.8", None, None, "nvidia-smi finds no driver; install the NVIDIA driver"),
        ("12.8", None, "450.2", "driver 450.2 does not serve torch's CUDA 12.8; install a newer driver"),
    ],
)
def test_why_there_is_no_gpu(
    cuda: str | None, visible: str | None, driver: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", cuda)
    monkeypatch.setattr(devices, "driver_version", lambda: driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(UserError, match="no GPU can be used on") as caught:
        check_usable()
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_gpu_is_brought_up_before_a_trials_clock_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU here: what would be asked of torch is noted, and the tensors are made on the CPU."""
    asked: list[Any] = []
    monkeypatch.setattr("torch.cuda.set_per_process_memory_fraction", lambda share, device: asked.append(share))
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: asked.append("empty"))
    monkeypatch.setattr("torch.cuda.synchronize", lambda device: asked.append("wait"))
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    ones = torch.ones

    def first_of_cuda(*shape: int, device: torch.device) -> Tensor:
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"], "it is read when CUDA starts"
        return ones(*shape)

    monkeypatch.setattr("torch.ones", first_of_cuda)
    start(torch.device("cpu"), 1)
    assert asked == []
    start(torch.device("cuda"), 0.25)
    start(torch.device("cuda"), 1)
    assert asked == [0.25, "empty", "wait", "empty", "wait"]
