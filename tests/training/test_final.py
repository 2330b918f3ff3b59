from typing import Any

import numpy as np
import pytest
import torch

from harness.data import load_test, load_training_data
from harness.models import FixedDepthNet, OneShotNet
from harness.models.depth_posterior import RULES, choose_depth
from harness.networks.conv import PooledConv
from harness.schema.records import FinalEvaluation
from harness.schema.rows import hash_of
from harness.training.evaluate import class_reliability, measure, reliability
from harness.training.final import evaluate_on_test
from harness.training.networks import build_network, chosen_network
from harness.training.train import Trained, run_trial
from tests.tiny import config, conv_config, spirals

LDN = config("ldn", 3, max_epochs=15)


@pytest.fixture(scope="module")
def trained() -> Trained:
    return run_trial(LDN, spirals(LDN))


def test_values_per_row_are_kept_and_average_to_the_measures(trained: Trained) -> None:
    kept: list[bytes] = []
    final = evaluate_on_test(trained.network, 2, LDN, spirals(LDN), keep_rows=kept.append)
    [packed] = kept
    assert final.rows_hash == hash_of(packed)
    values = np.frombuffer(packed[: 4 * final.n_test], "<f4")
    right = np.unpackbits(np.frombuffer(packed[4 * final.n_test :], np.uint8), count=final.n_test)
    assert values.mean(dtype=float) == pytest.approx(final.chosen.log_likelihood, abs=1e-6)
    assert right.mean() == pytest.approx(final.chosen.accuracy)
    other = evaluate_on_test(trained.network, 1, LDN, spirals(LDN))
    assert other.test_hash == final.test_hash and other.rows_hash != final.rows_hash


def _test_rows(trial: Any) -> tuple[torch.Tensor, torch.Tensor]:
    data = spirals(trial)
    test = load_test(trial.data, trial.seed, data)
    return torch.from_numpy((test.x - data.mean) / data.std), torch.from_numpy(test.y)


def test_everything_about_a_learnt_depth_is_read_at_one_opening(trained: Trained) -> None:
    network = trained.network
    assert isinstance(network, OneShotNet)
    final = evaluate_on_test(network, 2, LDN, spirals(LDN))
    x, y = _test_rows(LDN)
    with torch.no_grad():
        pruned, full, per_depth = network.pruned(2).eval()(x), network(x), network.log_probs_per_depth(x)

    def close(a: Any, b: Any) -> None:
        assert a.model_dump() == pytest.approx(b.model_dump(), abs=1e-5)

    close(final.chosen, measure(pruned, y))
    close(final.full, measure(full, y))
    assert [part.depth for part in final.per_depth_test] == [0, 1, 2, 3]
    for part, log_probs in zip(final.per_depth_test, per_depth, strict=True):
        close(part.measures, measure(log_probs, y))
    assert [bar.count for bar in final.reliability] == [bar.count for bar in reliability(pruned, y)]
    assert [bar.count for bar in final.full_class_reliability] == [bar.count for bar in class_reliability(full, y)]
    q = network.posterior.log_q().exp()
    for rule in RULES:
        with torch.no_grad():
            close(final.by_rule[rule], measure(network.pruned(choose_depth(q, rule)).eval()(x), y))
    assert len(final.per_depth_val) == 4
    assert final.n_test == 30 and final.split_hash == spirals(LDN).split_hash
    width, depth = 6, 2
    assert final.parameters == (2 * width + width) + depth * (width**2 + 3 * width) + (2 * width + 2) + (depth + 1)
    assert final.posterior_gap_nats is not None and final.posterior_gap_nats >= 0
    assert final.full_forward_seconds_per_sample and final.forward_seconds_per_sample > 0
    assert FinalEvaluation.model_validate_json(final.model_dump_json()) == final


def test_the_full_network_is_left_as_it_was(trained: Trained) -> None:
    before = {name: tensor.clone() for name, tensor in trained.network.state_dict().items()}
    evaluate_on_test(trained.network, 1, LDN, spirals(LDN))
    assert all(torch.equal(before[name], tensor) for name, tensor in trained.network.state_dict().items())


def test_a_fixed_depth_is_handed_over_as_it_is() -> None:
    trial = config("ddn", 1, max_epochs=3)
    network = run_trial(trial, spirals(trial)).network
    assert isinstance(network, FixedDepthNet) and chosen_network(network, 1) is network
    others = {depth: run_trial(config("ddn", depth, max_epochs=3), spirals(trial)).network for depth in (2, 0)}
    final = evaluate_on_test(network, 1, trial, spirals(trial), others=others)  # type: ignore[arg-type]
    x, y = _test_rows(trial)
    with torch.no_grad():
        assert final.chosen.model_dump() == pytest.approx(measure(network(x), y).model_dump(), abs=1e-5)
    assert [part.depth for part in final.per_depth_test] == [0, 2]
    assert final.full is None and final.posterior_gap_nats is None


# --- the size of the network ----------------------------------------------------------------------------------------


def multiply_adds_of(network: torch.nn.Module, x: torch.Tensor) -> int:
    """By other code: every linear layer and convolution says its shape while one sample passes."""
    counted = 0

    def count(layer: torch.nn.Module, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        nonlocal counted
        if isinstance(layer, torch.nn.Linear):
            counted += out.numel() * layer.in_features
        if isinstance(layer, torch.nn.Conv2d):
            height, width = (size + isinstance(layer, PooledConv) for size in layer.kernel_size)  # pooling widens it
            counted += out.numel() * height * width * layer.in_channels // layer.groups

    hooks = [layer.register_forward_hook(count) for layer in network.modules()]
    with torch.no_grad():
        network(x)
    for hook in hooks:
        hook.remove()
    return counted


@pytest.mark.parametrize("make", [config, conv_config], ids=["fc", "conv"])
@pytest.mark.parametrize("depth", [0, 2, 5])
def test_the_size_is_what_another_count_says(make: Any, depth: int) -> None:
    """Of a fixed depth; of a posterior, which is that and the output blocks it keeps; of a method that keeps one."""
    for kind, heads in (("ddn", 1), ("ldn", depth + 1), ("elastic", 1)):
        trial = make(kind, depth if kind == "ddn" else 6)
        data = load_training_data(trial.data, trial.seed)
        network = build_network(trial, data.sample_shape, data.n_classes).eval()
        final = evaluate_on_test(network, depth, trial, data, deepest=6)
        x = torch.zeros(1, *data.sample_shape)
        chosen = chosen_network(network, depth)
        assert final.multiply_adds == multiply_adds_of(chosen, x) > 0
        [fixed, deepest] = (
            build_network(make("ddn", blocks), data.sample_shape, data.n_classes).eval() for blocks in (depth, 6)
        )
        head = multiply_adds_of(fixed.backbone.head, torch.zeros(1, 1, _features(fixed)))
        assert final.multiply_adds == multiply_adds_of(fixed, x) + (heads - 1) * head
        assert final.deepest_multiply_adds == multiply_adds_of(deepest, x)
        assert final.forward_seconds_per_sample > 0 and (final.deepest_forward_seconds_per_sample or 0) > 0
        for each in final.per_depth_test:
            alone = build_network(make("ddn", each.depth), data.sample_shape, data.n_classes).eval()
            assert each.multiply_adds == multiply_adds_of(alone, x)


def _features(network: Any) -> int:
    return int(next(network.backbone.head.parameters()).shape[-1])


def test_evaluating_twice_is_the_same_opening(trained: Trained) -> None:
    first, second = (evaluate_on_test(trained.network, 2, LDN, spirals(LDN)).model_dump() for _ in range(2))
    for timed in ("seconds", "forward_seconds_per_sample", "full_forward_seconds_per_sample"):
        del first[timed], second[timed]
    del first["floor"]["seconds"], second["floor"]["seconds"]
    assert first == second


def test_the_test_set_is_standardised_by_the_training_set() -> None:
    x, _ = _test_rows(LDN)
    assert np.abs(x.mean(dim=0).numpy()).max() > 1e-4, "its own mean would be zero"
