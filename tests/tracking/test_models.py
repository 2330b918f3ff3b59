"""The logged winner loads where this package is not, and returns class log-probabilities."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import keys
from harness.models import DepthMixture, OneShotNet
from harness.records import TrialConfig
from harness.tracking.models import Winner
from harness.tracking.writer import sync
from harness.training.networks import build_network
from tests.synthetic import make_space, make_units
from tests.tracking.test_writer import SMALL, assert_complete, runs_of

CLASSES = ("cat", "dog", "owl")


def trained_a_little(network: dict[str, Any], sample_shape: tuple[int, ...], seed: int) -> DepthMixture:
    """A learnt-depth network pruned to depth 2, its running statistics and q moved away from their start."""
    space = make_space(network=network, depth={"min": 0, "max": 4})
    built = build_network(TrialConfig.of(space, "ldn", 4, seed), sample_shape, n_classes=3)
    assert isinstance(built, OneShotNet)
    optimiser = torch.optim.SGD(built.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(3):
        x, y = torch.randn(32, *sample_shape, generator=generator), torch.randint(3, (32,), generator=generator)
        optimiser.zero_grad()
        (-built.objective(x, y, n_train=32)).backward()
        optimiser.step()
    return built.pruned(2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "shape"), [({"kind": "fc", "width": 8}, (2,)), ({"kind": "conv", "channels": 8}, (1, 8, 8))]
)
def test_the_winner_loads_in_a_fresh_process_and_returns_log_probabilities(
    uri: str, tmp_path: Path, settings: dict[str, Any], shape: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(0)
    network = trained_a_little(settings, shape, seed=0)
    units = make_units(["ldn"], [0], space=SMALL)
    example = torch.randn(4, *shape, generator=generator)
    for _ in range(2):
        assert sync(units, uri, lambda unit: Winner(network, example, CLASSES)).warning is None
    assert_complete(uri, units)
    parent = next(run for run in runs_of(uri) if run.data.tags[keys.TAG_UNIT_KEY] == "synthetic/ldn/seed-0")
    assert parent.outputs is not None and len(parent.outputs.model_outputs) == 1
    script = """
import json, sys
import mlflow, torch
mlflow.set_tracking_uri(sys.argv[1])
x = torch.tensor(json.loads(sys.argv[3]))
by_torch = mlflow.pytorch.load_model(sys.argv[2])(x)
by_pyfunc = mlflow.pyfunc.load_model(sys.argv[2]).predict(x.numpy())
by_run = mlflow.pytorch.load_model(sys.argv[4])(x)
assert not any(name.startswith("harness") for name in sys.modules)
info = mlflow.models.get_model_info(sys.argv[2])
assert info.signature.outputs.input_names() == info.metadata["classes"] == ["cat", "dog", "owl"]
print(json.dumps([by_torch.tolist(), by_pyfunc.tolist(), by_run.tolist()]))
"""
    x = torch.randn(7, *shape, generator=generator)  # another batch size than the example's
    by_run = f"runs:/{parent.info.run_id}/winner"
    done = subprocess.run(
        [sys.executable, "-c", script, uri, parent.data.tags[keys.TAG_MODEL], json.dumps(x.tolist()), by_run],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    expected = network.eval()(x)
    for log_probs in json.loads(done.stdout.splitlines()[-1]):
        torch.testing.assert_close(torch.tensor(log_probs), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(expected.exp().sum(dim=1), torch.ones(7))
