"""What every one-shot network must keep to, checked on networks of a few blocks and rows that are made up."""

import contextlib
import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from harness.data import watched_test_set
from harness.data.on_device import on_device
from harness.data.splits import Pool, TrainingData, training_data
from harness.errors import UserError
from harness.methods.base import OneShotMethod
from harness.models import ChosenNet, DepthNet, OneShotNet
from harness.models.build import check_samples
from harness.models.depth_posterior import RULES
from harness.networks import network_of, small_network
from harness.schema.identity import hashed
from harness.schema.networks import NetworkSettings, known_networks
from harness.schema.records import FINE_TUNED, Progress, TrialConfig
from harness.schema.settings import ExplicitPrior, PriorSettings, Rule, SearchSpace, UniformPrior
from harness.schema.stage import Cut
from harness.training.devices import threads
from harness.training.model_file import load_model, save_model
from harness.training.networks import at_depth, begun_with, build_network, check_a_step, chosen_network
from harness.training.train import run_trial

DEPTH, EPOCHS, SEED = 3, 6, 3


class NotKept(Exception):
    """A rule that a method breaks, in one sentence."""


class NotTried(Exception):
    """A rule that does not apply to this method or network; says what it would need."""


def require(kept: bool, otherwise: str) -> None:
    if not kept:
        raise NotKept(otherwise)


@dataclass(frozen=True)
class MethodRule:
    """A rule and its test, which says what was seen; where the rule that it builds on is broken, it is not tried."""

    name: str
    test: Callable[[], str]
    builds_on: str = ""


def method_rules(
    name: str, method: OneShotMethod, space: SearchSpace, networks: Sequence[NetworkSettings] = ()
) -> list[MethodRule]:
    """On these networks; on all that come with the harness unless some are given."""
    kits = [_Kit.of(name, method, space, each) for each in networks or map(small_network, known_networks())]

    def each(test: Callable[[_Kit], str]) -> Callable[[], str]:
        def on_one_thread() -> str:
            with threads(1):
                return ", ".join(dict.fromkeys(test(kit) for kit in kits))

        return on_one_thread

    objective = MethodRule("the objective is one finite number with a gradient", each(_objective))
    choice = MethodRule("the choice of depth lies in 0 … D", each(_choice), objective.name)
    probabilities = MethodRule(
        "predictions at every depth, and weights over depths, are probabilities", each(_probabilities), choice.name
    )
    same = MethodRule("same seed, same network", each(_same_network), probabilities.name)
    return [
        *(objective, choice, probabilities),
        MethodRule(
            "it prunes to any depth, and the pruned network predicts the same", each(_prunes), probabilities.name
        ),
        same,
        MethodRule("a trial goes on from a checkpoint to the bit", each(_resumes), same.name),
        MethodRule("fine-tuning goes on from the network cut at a depth, to the bit", each(_fine_tunes), same.name),
        MethodRule("validation labels are used as it says", each(_validation_labels), same.name),
        MethodRule("no use of test data", each(_no_test_data), probabilities.name),
    ]


@dataclass
class _Kit:
    """A small trial of the method and rows for it."""

    config: TrialConfig
    data: TrainingData

    @classmethod
    def of(cls, name: str, method: OneShotMethod, space: SearchSpace, settings: NetworkSettings) -> "_Kit":
        """Of the space only the prior is kept: how its networks train is checked, not its data."""
        training = {
            "max_epochs": EPOCHS,
            "patience": EPOCHS,
            "batch_size": 8,
            "eval_every": 1,
            "report_every": 1,
            "monitor": "none",
            "compile": False,
            "precision": "float32",
            "lr_drop_epoch": None,
        }
        changes = {
            "network": settings,
            "training": space.training.model_copy(update=training),
            "posterior": space.posterior.model_copy(update={"prior": _prior_for(space)}),
        }
        options = method.left_out_of(hashed(method))
        config = TrialConfig.of(space, name, DEPTH, SEED, options).model_copy(update=changes)
        return cls(config, made_up_rows(shape_for(settings)))

    def network(self) -> OneShotNet:
        built = build_network(self.config, self.data.sample_shape, self.data.n_classes)
        assert isinstance(built, OneShotNet)
        return built

    @functools.cached_property
    def undisturbed(self) -> tuple[OneShotNet, Progress]:
        """The trial, trained once for all rules that only look at it."""
        return self.trained()

    def rows(self) -> tuple[Tensor, Tensor]:
        rows, train_rows, _ = on_device(self.data, torch.device("cpu"))
        return rows.take(train_rows)

    def trained(self) -> tuple[OneShotNet, Progress]:
        trained = run_trial(self.config, self.data)
        progress = _finished(trained.progress)
        assert isinstance(trained.network, OneShotNet)
        return trained.network, progress


def _prior_for(space: SearchSpace) -> PriorSettings:
    prior = space.posterior.prior
    return UniformPrior(kind="uniform") if isinstance(prior, ExplicitPrior) else prior  # a list fits its own D only


def shape_for(settings: NetworkSettings) -> tuple[int, ...]:
    """The shape of a few numbers, or the smallest of some images, that a network takes."""
    images = network_of(settings).takes == "images"
    *others, last = [(1, 8, 8), (1, 16, 16), (1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 224, 224)] if images else [(3,)]
    for shape in others:
        with contextlib.suppress(UserError):
            check_samples(settings, shape)
            return shape
    check_samples(settings, last)
    return last


def made_up_rows(shape: tuple[int, ...], n: int = 36) -> TrainingData:
    """Two classes that can be told apart; the last third is the validation set."""
    images = len(shape) == 3
    rng = np.random.default_rng(SEED)
    y = np.arange(n) % 2
    x = rng.normal(size=(n, *shape[1:], shape[0]) if images else (n, *shape))
    x += y.reshape((-1, 1, 1, 1) if images else (-1, 1))
    rows = (40 * x + 100).clip(0, 255).astype(np.uint8) if images else x.astype(np.float32)
    return training_data(Pool(rows, y.astype(np.int64), 2), np.arange(2 * n // 3), np.arange(2 * n // 3, n))


def _finished(progress: Progress) -> Progress:
    require(progress.stop_reason != "failed", progress.error or "the trial failed")
    return progress


# --- the network by itself ------------------------------------------------------------------------------------------


def _objective(kit: _Kit) -> str:
    return f"{check_a_step(kit.config, kit.data):.3f}"


def _probabilities(kit: _Kit) -> str:
    network, _ = kit.undisturbed
    x, _ = kit.rows()
    with torch.inference_mode():
        log_probs, q = network.log_probs_per_depth(x), network.posterior.probabilities()
    shape = (DEPTH + 1, len(x), kit.data.n_classes)
    require(log_probs.shape == shape, f"predictions per depth have shape {tuple(log_probs.shape)} instead of {shape}")
    _require_close(log_probs.double().exp().sum(dim=-1), 1.0, "the probabilities of the classes do not sum to 1")
    require(q.shape == (DEPTH + 1,), f"there are {tuple(q.shape)} weights for {DEPTH + 1} depths")
    _require_close(q.sum(), 1.0, "the weights over depths do not sum to 1")
    require(bool((q >= 0).all()), "a weight of a depth is negative")
    return f"{DEPTH + 1} depths"


def _prunes(kit: _Kit) -> str:
    """By the formula: a posterior averages the depths that are left, anything else predicts at the last one."""
    network, _ = kit.undisturbed
    x, _ = kit.rows()
    with torch.inference_mode():
        per_depth, q = network.log_probs_per_depth(x).double().exp(), network.posterior.probabilities()
        for depth in range(DEPTH + 1):
            expected = per_depth[depth]
            if network.method.is_posterior:
                expected = q[depth:].sum() * expected + torch.tensordot(q[:depth], per_depth[:depth], dims=1)
            chosen = chosen_network(network, depth)
            for what, handed_over in (("pruned", chosen), ("loaded", _through_a_file(chosen, depth, kit))):
                blocks = len(handed_over.backbone.blocks)
                require(blocks == depth, f"the network {what} at depth {depth} has {blocks} blocks")
                got = handed_over(x).double().exp()
                _require_close(got, expected, f"the network {what} at depth {depth} predicts something else")
    return f"depths 0 … {DEPTH}"


def _through_a_file(chosen: ChosenNet, depth: int, kit: _Kit) -> ChosenNet:
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder, "model.pt"), chosen, depth, kit.config, kit.data)
        return load_model(Path(folder, "model.pt")).network


def _choice(kit: _Kit) -> str:
    network = kit.network()
    generator = torch.Generator().manual_seed(SEED)
    chooses = network.method.validation == "chooses"
    rules: tuple[Rule, ...] = RULES
    for number in range(20):
        sharpness = 10.0 ** (number % 5 - 2)
        q = torch.softmax(sharpness * torch.randn(DEPTH + 1, generator=generator, dtype=torch.float64), dim=0)
        val = -torch.rand(DEPTH + 1, generator=generator, dtype=torch.float64) if chooses else None
        for rule in rules:
            network.choose(q, val, rule)
    return "by validation" if chooses else "from its weights"


def _require_close(a: Tensor, b: Tensor | float, otherwise: str) -> None:
    apart = float((a - b).abs().max())
    require(apart < 1e-5, f"{otherwise} (by {apart:.2g})")


# --- the network in training ----------------------------------------------------------------------------------------


def _same_network(kit: _Kit) -> str:
    first, _ = kit.undisturbed
    torch.manual_seed(99)  # what a method draws must come from its own stream
    second, _ = kit.trained()
    _require_equal(first, second, "two trials with the same seed differ in")
    return f"{EPOCHS} epochs twice"


def _resumes(kit: _Kit) -> str:
    whole, last = kit.undisturbed
    with tempfile.TemporaryDirectory() as folder:
        run_trial(kit.config, kit.data, lambda progress, save: save(Path(folder, f"{progress.epoch}.pt")))
        for stop in (1, EPOCHS // 2):
            torch.manual_seed(99)
            continued = run_trial(kit.config, kit.data, resume_from=Path(folder, f"{stop}.pt"))
            same = f"a trial continued after epoch {stop} differs from an undisturbed one in"
            assert isinstance(continued.network, OneShotNet)
            _require_equal(whole, continued.network, same)
            again = _finished(continued.progress)
            require((again.posterior, again.val) == (last.posterior, last.val), f"{same} its choice or its measures")
            paid = [(cost.tflop, cost.block_passes, cost.head_passes) for cost in (again.cost, last.cost)]
            require(paid[0] == paid[1], f"{same} its cost: {paid[0]} and {paid[1]}")
    return f"after epochs 1 and {EPOCHS // 2}"


def _fine_tunes(kit: _Kit) -> str:
    """Its first step begins at the predictions of that depth alone; from a checkpoint it goes on without the whole."""
    whole, last = kit.undisturbed
    depth = last.posterior.d_opt if last.posterior else 0
    cut = Cut(kind=kit.config.kind, depth=DEPTH, options=kit.config.options, share=0.5)
    config = kit.config.model_copy(update={"kind": FINE_TUNED, "depth": depth, "options": {}, "cut": cut})
    x, _ = kit.rows()
    with torch.inference_mode():
        begun, expected = begun_with(config, kit.data, torch.device("cpu"), whole).eval()(x), at_depth(whole, depth)(x)
    require(torch.equal(begun, expected), f"the network cut at depth {depth} begins with other predictions")
    with tempfile.TemporaryDirectory() as folder:
        tuned = run_trial(
            config, kit.data, lambda progress, save: save(Path(folder, f"{progress.epoch}.pt")), whole=whole
        )
        continued = run_trial(config, kit.data, resume_from=Path(folder, "1.pt"))
    _require_equal(tuned.network, continued.network, "fine-tuning that was continued after epoch 1 differs in")
    epochs = _finished(tuned.progress).epoch
    require(epochs == EPOCHS // 2, f"fine-tuning for half of {EPOCHS} epochs took {epochs}")
    return f"depth {depth}, {epochs} epochs"


def _validation_labels(kit: _Kit) -> str:
    """With other validation labels: the same network, unless something is fitted; the same choice, unless by them."""
    y = kit.data.y.copy()
    y[kit.data.val_rows] = 1 - y[kit.data.val_rows]
    (network, last), (other, other_last) = kit.undisturbed, _Kit(kit.config, replace(kit.data, y=y)).trained()
    says = network.method.validation
    if says == "fits":
        return "it fits to them"
    _require_equal(network, other, f"it says that validation labels are {says!r}, yet they change")
    chosen = [progress.posterior.d_opt for progress in (last, other_last) if progress.posterior]
    unused = says == "chooses" or len(set(chosen)) == 1
    require(unused, "it says that validation labels are 'unused', yet they change d_opt")
    return "it chooses by them" if says == "chooses" else "unused"


def _no_test_data(kit: _Kit) -> str:
    with watched_test_set() as opened:
        kit.trained()
    require(not opened, "training opened the test set")
    return "not opened"


def _require_equal(first: DepthNet, second: DepthNet, otherwise: str) -> None:
    other = second.state_dict()
    unequal = [name for name, tensor in first.state_dict().items() if not torch.equal(tensor, other[name])]
    require(not unequal, f"{otherwise} {unequal[0] if unequal else ''}")
