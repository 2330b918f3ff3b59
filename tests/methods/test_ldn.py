import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from harness.data.on_device import on_device
from harness.models import FixedDepthNet, OneShotNet
from harness.models.one_shot import log_probs_of
from harness.schema.records import FIXED_DEPTH, TrialConfig
from harness.training.evaluate import exact_posterior
from harness.training.final import posterior_gap
from harness.training.networks import build_network
from tests.tiny import config, conv_config, data_for, used_network

BACKBONES = [
    pytest.param(config(depth=4), id="fc"),
    pytest.param(conv_config(head_bn="per_depth"), id="conv-per_depth"),
    pytest.param(conv_config(head_bn="shared"), id="conv-shared"),
]


def _rows(trial: TrialConfig) -> tuple[torch.Tensor, torch.Tensor]:
    rows, train_rows, _ = on_device(data_for(trial), torch.device("cpu"))
    return rows.take(train_rows)


def _log_likelihoods(network: OneShotNet, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """Σ_n log p(y_n | x_n, d=i) in float64."""
    with torch.no_grad():
        log_probs = network.log_probs_per_depth(x).double().numpy()
    return np.asarray(log_probs[:, np.arange(len(y)), y.numpy()].sum(axis=1))


# --- the objective ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trial", BACKBONES)
def test_optimised_logits_reach_the_exact_posterior(trial: TrialConfig) -> None:
    network, (x, y) = used_network(trial, data_for(trial)), _rows(trial)
    network.requires_grad_(False)
    logits = network.posterior.logits.requires_grad_(True)
    optimiser = torch.optim.LBFGS([logits], max_iter=200, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def step() -> torch.Tensor:
        optimiser.zero_grad()
        loss: torch.Tensor = -len(y) * network.objective(x, y, n_train=len(y))
        loss.backward()
        return loss

    for _ in range(5):
        optimiser.step(step)

    joint = network.posterior.log_beta.double().numpy() + _log_likelihoods(network, x, y)
    log_evidence = np.logaddexp.reduce(joint)
    q = network.posterior.log_q().exp().detach().numpy()
    assert np.abs(q - np.exp(joint - log_evidence)).max() < 1e-3
    assert 1e-3 < q.max() < 1 - 1e-3, "a posterior on one depth would make the check empty"
    elbo = len(y) * float(network.objective(x, y, n_train=len(y)).detach())
    assert elbo == pytest.approx(log_evidence, rel=1e-4)


def test_exact_posterior_agrees_with_its_formula() -> None:
    log_likelihoods, log_beta = torch.tensor([-3.0, -1.0, -2.5]), torch.tensor([0.5, 0.3, 0.2]).log()
    joint = np.array([0.5 * np.exp(-3.0), 0.3 * np.exp(-1.0), 0.2 * np.exp(-2.5)])
    log_q, log_evidence = exact_posterior(log_likelihoods, log_beta)
    assert log_q.exp().tolist() == pytest.approx((joint / joint.sum()).tolist(), rel=1e-6)
    assert log_evidence == pytest.approx(float(np.log(joint.sum())), rel=1e-6)


@settings(max_examples=30)
@given(logits=st.lists(st.floats(-30, 30), min_size=5, max_size=5))
def test_elbo_never_exceeds_the_log_evidence(logits: list[float]) -> None:
    trial = config(depth=4)
    network, (x, y) = used_network(trial, data_for(trial)), _rows(trial)
    with torch.no_grad():
        network.posterior.logits.copy_(torch.tensor(logits))
        elbo = len(y) * float(network.objective(x, y, n_train=len(y)))
    joint = network.posterior.log_beta.double().numpy() + _log_likelihoods(network, x, y)
    assert elbo <= np.logaddexp.reduce(joint) + 1e-4

    rows, train_rows, _ = on_device(data_for(trial), torch.device("cpu"))
    gap, exact = posterior_gap(network, rows, train_rows)
    assert gap == pytest.approx(np.logaddexp.reduce(joint) - elbo, abs=1e-3)
    assert gap >= -1e-9
    assert int(exact.argmax()) == int(joint.argmax())


def test_posterior_gap_is_zero_at_the_exact_posterior() -> None:
    trial = config(depth=4)
    network, (x, y) = used_network(trial, data_for(trial)), _rows(trial)
    joint = network.posterior.log_beta.double().numpy() + _log_likelihoods(network, x, y)
    with torch.no_grad():
        network.posterior.logits.copy_(torch.from_numpy(joint - joint.max()))
    rows, train_rows, _ = on_device(data_for(trial), torch.device("cpu"))
    assert posterior_gap(network, rows, train_rows)[0] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("trial", [*BACKBONES, pytest.param(config("ddn", 2), id="ddn")])
def test_batches_of_a_partition_average_to_the_full_objective(trial: TrialConfig) -> None:
    network, (x, y) = used_network(trial, data_for(trial)), _rows(trial)
    n = len(y)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = float(network.objective(x, y, n_train=n))
        parts = sum(len(part) / n * float(network.objective(x[part], y[part], n_train=n)) for part in order.split(7))
    assert parts == pytest.approx(whole, rel=1e-5)


def test_mini_batch_objective_is_unbiased() -> None:
    """The mean over all batches of two that six samples have is the objective of the six."""
    trial = config(depth=2)
    network, (x, y) = used_network(trial, data_for(trial)), _rows(trial)
    x, y = x[:6], y[:6]
    with torch.no_grad():
        batches = [torch.tensor(pair) for pair in itertools.combinations(range(6), 2)]
        mean = np.mean([float(network.objective(x[pair], y[pair], n_train=6)) for pair in batches])
        assert mean == pytest.approx(float(network.objective(x, y, n_train=6)), rel=1e-5)


def test_objective_is_the_formula() -> None:
    trial = config(depth=3)
    network, (x, y) = used_network(trial, data_for(trial)), _rows(trial)
    log_q = network.posterior.log_q().detach().double().numpy()
    kl = float((np.exp(log_q) * (log_q - network.posterior.log_beta.double().numpy())).sum())
    fit = float(np.exp(log_q) @ _log_likelihoods(network, x, y)) / len(y)
    assert float(network.objective(x, y, n_train=1234).detach()) == pytest.approx(fit - kl / 1234, rel=1e-5)


# --- learnt depth against fixed depth -----------------------------------------------------------------------------


def _fixed_depth_twin(learnt: OneShotNet, trial: TrialConfig, depth: int) -> FixedDepthNet:
    """A stand-alone network of `depth` blocks that is given the learnt-depth network's weights by name."""
    data = data_for(trial)
    fixed = trial.model_copy(update={"kind": FIXED_DEPTH, "depth": depth})
    twin = build_network(fixed, data.sample_shape, data.n_classes).eval()
    assert isinstance(twin, FixedDepthNet)
    source = learnt.state_dict()
    for name, tensor in twin.state_dict().items():
        given = source[name]
        tensor.copy_(given if given.shape == tensor.shape else given[depth : depth + 1])  # per-depth statistics
    return twin


@pytest.mark.parametrize("trial", BACKBONES)
def test_each_depth_equals_a_fixed_depth_network_with_the_same_weights(trial: TrialConfig) -> None:
    learnt, (x, _) = used_network(trial, data_for(trial)), _rows(trial)
    with torch.no_grad():
        per_depth = learnt.log_probs_per_depth(x)
        for depth in range(trial.depth + 1):
            fixed = _fixed_depth_twin(learnt, trial, depth)(x)
            torch.testing.assert_close(per_depth[depth], fixed, atol=2e-5, rtol=1e-5)
    assert (per_depth[1:] - per_depth[:-1]).abs().amax(dim=(1, 2)).min() > 1e-2, "the depths must differ to be compared"


def test_fc_forward_is_the_recursion() -> None:
    trial = config(depth=3)
    network, (x, _) = used_network(trial, data_for(trial)), _rows(trial)
    state = {name: tensor.double().numpy() for name, tensor in network.backbone.state_dict().items()}

    def linear(name: str, a: np.ndarray) -> np.ndarray:
        return np.asarray(a @ state[f"{name}.weight"].T + state[f"{name}.bias"])

    def log_softmax(z: np.ndarray) -> np.ndarray:
        return z - np.logaddexp.reduce(z, axis=1, keepdims=True)

    a = linear("stem.1", x.double().numpy())
    expected = [log_softmax(linear("head", a))]
    for i in range(3):
        h = np.maximum(linear(f"blocks.{i}.0", a), 0.0)
        bn = {part: state[f"blocks.{i}.2.{part}"] for part in ("running_mean", "running_var", "weight", "bias")}
        a = a + (h - bn["running_mean"]) / np.sqrt(bn["running_var"] + 1e-5) * bn["weight"] + bn["bias"]
        expected.append(log_softmax(linear("head", a)))
    got = network.log_probs_per_depth(x).detach().numpy()
    np.testing.assert_allclose(got, np.stack(expected), atol=2e-5)


@pytest.mark.parametrize("trial", BACKBONES)
def test_one_pass_and_one_call_of_the_head(trial: TrialConfig) -> None:
    data = data_for(trial)
    learnt = used_network(trial, data)
    fixed = used_network(trial.model_copy(update={"kind": "ddn"}), data)
    x, _ = _rows(trial)
    for network, n_heads in ((learnt, trial.depth + 1), (fixed, 1)):
        calls: list[tuple[nn.Module, torch.Tensor]] = []
        for module in (network.backbone.stem, network.backbone.head, *network.backbone.blocks):
            module.register_forward_hook(lambda module, inputs, _, calls=calls: calls.append((module, inputs[0])))
        network(x)
        assert len(calls) == 1 + trial.depth + 1
        module, stack = calls[-1]
        assert module is network.backbone.head and len(stack) == n_heads


# --- pruning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trial", BACKBONES)
def test_pruned_network_predicts_by_the_formula(trial: TrialConfig) -> None:
    network, (x, _) = used_network(trial, data_for(trial)), _rows(trial)
    with torch.no_grad():
        p = network.log_probs_per_depth(x).double().exp().numpy()
        q = network.posterior.log_q().double().exp().numpy()
        for depth in range(trial.depth + 1):
            expected = np.tensordot(q[:depth], p[:depth], axes=1) + q[depth:].sum() * p[depth]
            np.testing.assert_allclose(network.pruned(depth)(x).exp().numpy(), expected, atol=1e-5)
        np.testing.assert_allclose(network(x).exp().numpy(), np.tensordot(q, p, axes=1), atol=1e-5)


@pytest.mark.parametrize("trial", BACKBONES)
def test_pruning_removes_blocks_and_leaves_the_full_network_alone(trial: TrialConfig) -> None:
    network = used_network(trial, data_for(trial))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}

    def size(module: nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    for depth in range(trial.depth + 1):
        pruned = network.pruned(depth)
        gone = trial.depth - depth
        assert len(pruned.backbone.blocks) == depth
        assert size(pruned) == size(network) - gone * size(network.backbone.blocks[0]) - gone  # and its logits
        with torch.no_grad():
            for parameter in pruned.parameters():
                parameter.zero_()
    after = network.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_log_probs_of_takes_each_labels_own() -> None:
    log_probs = torch.arange(12.0).reshape(2, 3, 2)
    assert log_probs_of(log_probs, torch.tensor([1, 0, 1])).tolist() == [[1, 2, 5], [7, 8, 11]]
