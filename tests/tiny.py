"""Trials small enough to train in a test: configs, and image rows that need no file."""

from typing import Any

import numpy as np
import torch

from harness.data import load_training_data
from harness.data.splits import Pool, TrainingData, training_data
from harness.models import OneShotNet
from harness.schema.records import TrialConfig
from harness.training.networks import build_network

SPIRALS = {"kind": "spirals", "n_train": 50, "n_val": 20, "n_test": 30}
FC = {"kind": "fc", "width": 6}
CONV = {"kind": "conv", "channels": 6, "bottleneck": 4}
TRAINING = {"max_epochs": 8, "patience": 100, "batch_size": 16}


def config(
    kind: str = "ldn",
    depth: int = 3,
    seed: int = 0,
    *,
    data: dict[str, Any] = SPIRALS,
    network: dict[str, Any] = FC,
    posterior: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **training: Any,
) -> TrialConfig:
    return TrialConfig.model_validate(
        {
            "kind": kind,
            "depth": depth,
            "seed": seed,
            "data": data,
            "network": network,
            "posterior": posterior or {"rule": "argmax"},
            "training": {**TRAINING, **training},
            "options": options or {},
        }
    )


def conv_config(kind: str = "ldn", depth: int = 3, head_bn: str = "per_depth", **more: Any) -> TrialConfig:
    return config(kind, depth, data={"kind": "digits", "as_images": True}, network={**CONV, "head_bn": head_bn}, **more)


def spirals(config: TrialConfig) -> TrainingData:
    return load_training_data(config.data, config.seed)


def images(n: int = 30, side: int = 8, channels: int = 2, n_classes: int = 3) -> TrainingData:
    """Noise with a class-dependent brightness; the last third is the validation set."""
    rng = np.random.default_rng(7)
    y = np.arange(n) % n_classes
    x = rng.integers(0, 120, (n, side, side, channels)) + 50 * y[:, None, None, None]
    pool = Pool(x.astype(np.uint8), y.astype(np.int64), n_classes)
    return training_data(pool, np.arange(2 * n // 3), np.arange(2 * n // 3, n))


def data_for(config: TrialConfig) -> TrainingData:
    return images() if config.network.kind == "conv" else spirals(config)


def used_network(config: TrialConfig, data: TrainingData) -> Any:
    """A network whose batch statistics, affine parameters and logits are not the initial ones, in evaluation mode."""
    network = build_network(config, data.sample_shape, data.n_classes)
    generator = torch.Generator().manual_seed(3)
    network.train()
    for _ in range(3):
        network(torch.randn(9, *data.sample_shape, generator=generator))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 1:  # biases, scales and shifts
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
            elif "blocks" in name:
                parameter.mul_(1.5)
        if isinstance(network, OneShotNet):
            network.posterior.log_weights().copy_(torch.randn(config.depth + 1, generator=generator))
    return network.eval()
