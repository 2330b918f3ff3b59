"""The final evaluation of a unit: the only place where the test set is opened.

It runs once, after the choice of network is on disk, and evaluates everything at once, so that nothing can be chosen
by what it shows. Repeating it after a crash, with the same choice, is the same opening.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.data import load_test
from harness.data.on_device import DeviceRows, on_device
from harness.data.splits import Array, TrainingData
from harness.models import ChosenNet, DepthNet, FixedDepthNet, OneShotNet
from harness.models.depth_posterior import RULES, best_depth, choose_depth
from harness.models.one_shot import log_probs_of
from harness.schema.records import DepthMeasures, FinalEvaluation, StoppedMeasures, TrialConfig
from harness.schema.rows import hash_of
from harness.schema.settings import AnyRule
from harness.training.cost import Sizes
from harness.training.devices import wait_for
from harness.training.evaluate import class_reliability, exact_posterior, measure, per_class, reliability, row_values
from harness.training.floor import floor_of
from harness.training.networks import at_depth, build_network, chosen_network
from harness.training.train import predict, predict_per_depth

TIMING_REPEATS = 9
TIMING_BATCH = 512


def evaluate_on_test(
    network: DepthNet,
    d_opt: int,
    config: TrialConfig,
    data: TrainingData,
    others: Mapping[int, FixedDepthNet] | None = None,
    refit: tuple[ChosenNet, TrainingData] | None = None,
    data_dir: Path | None = None,
    stopped: Mapping[tuple[int, int], FixedDepthNet] | None = None,
    deepest: int | None = None,
    keep_rows: Callable[[bytes], None] = lambda packed: None,
) -> FinalEvaluation:
    """Opens the test set for the chosen `network`; `others` are the search's other fixed depths, for analysis only.

    `stopped`: networks of a depth as they were at an epoch. `keep_rows` is given the chosen network's values per row.

    `deepest`: the space's deepest network, to which the size of the chosen one is relative.

    `refit` is the network to hand over after a refit, with the data it was fitted to, whose statistics it expects.
    """
    test = load_test(config.data, config.seed, data, data_dir)
    floor = floor_of(data, test)
    began = time.perf_counter()
    device = next(network.parameters()).device
    rows = DeviceRows(test.x, test.y, data.mean, data.std, device)
    everything = torch.arange(len(test.y), device=rows.at)

    chosen = chosen_network(network, d_opt)
    log_probs = predict(chosen, rows, everything)
    result: dict[str, Any] = {
        "chosen": measure(log_probs, rows.y),
        "reliability": reliability(log_probs, rows.y),
        "class_reliability": class_reliability(log_probs, rows.y),
        "per_class": per_class(log_probs, rows.y, data.class_names, _rows_of_classes(data, test.y)),
        "n_test": len(test.y),
        "split_hash": data.split_hash,
        "floor": floor,
        "parameters": sum(parameter.numel() for parameter in chosen.parameters()),
    }
    sizes = Sizes(
        config.network,
        data.sample_shape,
        data.n_classes,
        max(config.depth, deepest or 0, *(others or {}), *(depth for depth, _ in stopped or {})),
    )
    result["multiply_adds"] = sizes.at(len(chosen.backbone.blocks), chosen.backbone.n_heads)
    timed: dict[str, torch.nn.Module] = {"forward_seconds_per_sample": chosen}
    if isinstance(network, OneShotNet):
        result |= _one_shot_analysis(network, rows, everything, data, config.posterior.rule, sizes)
        timed["full_forward_seconds_per_sample"] = network
    if deepest is not None:
        result["deepest_multiply_adds"] = sizes.at(deepest)
        timed["deepest_forward_seconds_per_sample"] = _fixed(deepest, network, config, data, others or {})
    result |= dict(zip(timed, _forward_seconds(list(timed.values()), rows, everything), strict=True))
    values = row_values(log_probs, rows.y).packed()
    keep_rows(values)
    result |= {"rows_hash": hash_of(values), "test_hash": hash_of(*test.identity)}
    if stopped:
        result["stopped_test"] = tuple(
            StoppedMeasures(
                depth=depth,
                epoch=epoch,
                measures=measure(predict(each, rows, everything), rows.y),
                multiply_adds=sizes.at(depth),
            )
            for (depth, epoch), each in stopped.items()
        )
    if others:
        per_depth = {depth: measure(predict(other, rows, everything), rows.y) for depth, other in others.items()}
        result["per_depth_test"] = tuple(
            DepthMeasures(depth=d, measures=m, multiply_adds=sizes.at(d)) for d, m in sorted(per_depth.items())
        )
    if refit:
        refitted, refit_data = refit
        as_refitted = DeviceRows(test.x, test.y, refit_data.mean, refit_data.std, device)
        result["refit"] = measure(predict(refitted, as_refitted, everything), rows.y)
    return FinalEvaluation(**result, seconds=time.perf_counter() - began)


def _rows_of_classes(data: TrainingData, y_test: Array) -> list[int]:
    """How many rows of each class there are, in training, validation and test set together."""
    used = np.concatenate([data.y[data.train_rows], data.y[data.val_rows], y_test])
    counts: list[int] = np.bincount(used, minlength=data.n_classes).tolist()
    return counts


def _fixed(
    depth: int, network: DepthNet, config: TrialConfig, data: TrainingData, others: Mapping[int, FixedDepthNet]
) -> torch.nn.Module:
    """A network of this depth, to be timed: what it predicts is nobody's concern, so that it may be untrained."""
    if isinstance(network, OneShotNet):
        return at_depth(network, depth)
    if depth == config.depth:
        return network
    if depth in others:
        return others[depth]
    untrained = build_network(config.model_copy(update={"depth": depth}), data.sample_shape, data.n_classes)
    return untrained.to(next(network.parameters()).device).eval()


def _one_shot_analysis(
    network: OneShotNet,
    test: DeviceRows,
    everything: Tensor,
    data: TrainingData,
    rule: AnyRule,
    sizes: Sizes,
) -> dict[str, Any]:
    """All depths averaged, every depth by itself, the depth by each rule; of a posterior, how exact it is."""
    rows, train_rows, val_rows = on_device(data, test.device)
    full = predict(network, test, everything)
    per_depth_val = _per_depth(network, rows, val_rows, sizes)
    q = network.posterior.log_q().detach().exp()
    by_rule: dict[str, ChosenNet] = {rule: chosen_network(network, choose_depth(q, rule)) for rule in RULES}
    by_validation = best_depth(torch.tensor([each.measures.log_likelihood for each in per_depth_val]))
    by_rule["validation"] = at_depth(network, by_validation)
    result: dict[str, Any] = {
        "full": measure(full, test.y),
        "full_reliability": reliability(full, test.y),
        "full_class_reliability": class_reliability(full, test.y),
        "by_rule": {rule: measure(predict(chosen, test, everything), test.y) for rule, chosen in by_rule.items()},
        "d_opt_by_validation": by_validation,
        "per_depth_test": _per_depth(network, test, everything, sizes),
        "per_depth_val": per_depth_val,
    }
    if network.method.is_posterior:
        gap, exact = posterior_gap(network, rows, train_rows)
        by_exact = None if rule == "validation" else choose_depth(exact, rule)
        result |= {"posterior_gap_nats": gap, "d_opt_exact": int(exact.argmax()), "d_opt_by_exact": by_exact}
    return result


def posterior_gap(network: OneShotNet, rows: DeviceRows, train_rows: Tensor) -> tuple[float, Tensor]:
    """log Σ_i β_i Π_n p(y_n | x_n, i) − ELBO, and the exact posterior: one pass over the training set."""
    network.eval()
    with torch.inference_mode():
        per_depth = sum(
            log_probs_of(network.log_probs_per_depth(x), y).double().sum(dim=1) for x, y in rows.chunks(train_rows)
        )
        assert isinstance(per_depth, Tensor)
        log_exact, log_evidence = exact_posterior(per_depth, network.posterior.log_beta)
        # Normalised in float64: an error of 1e-7 in Σ q times a log-likelihood of -1e5 would show in the gap.
        log_q = torch.log_softmax(network.posterior.log_weights().double(), dim=0)
        terms = log_q.exp() * (per_depth + network.posterior.log_beta.double() - log_q)
        elbo = float(torch.where(log_q.isinf(), 0.0, terms).sum())  # a depth that q leaves out adds nothing
    return log_evidence - elbo, log_exact.exp()


def _per_depth(network: OneShotNet, rows: DeviceRows, which: Tensor, sizes: Sizes) -> tuple[DepthMeasures, ...]:
    log_probs, y = predict_per_depth(network, rows, which), rows.labels(which)
    return tuple(
        DepthMeasures(depth=d, measures=measure(alone, y), multiply_adds=sizes.at(d))
        for d, alone in enumerate(log_probs)
    )


def _forward_seconds(networks: Sequence[torch.nn.Module], rows: DeviceRows, everything: Tensor) -> list[float]:
    """Seconds per sample of a forward pass over one batch: the networks take turns, and the fastest of each counts.

    A neighbour on the machine can only make a pass slower, so the fastest is the least disturbed.
    """
    x, _ = rows.take(everything[:TIMING_BATCH])
    fastest = [math.inf] * len(networks)
    with torch.inference_mode():
        for _ in range(TIMING_REPEATS):
            for index, network in enumerate(networks):
                began = time.perf_counter()
                network(x)
                wait_for(x.device)
                fastest[index] = min(fastest[index], time.perf_counter() - began)
    return [seconds / len(x) for seconds in fastest]
