"""The logged winner loads where this package is not, and returns class log-probabilities."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from harness import keys
from harness.tracking.models import Winner
from harness.tracking.writer import sync
from tests.synthetic import make_units
from tests.tracking.test_writer import SMALL, assert_complete, runs_of


class Network(nn.Module):
    """A small residual net with batch statistics: in training mode its answers would depend on the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(2, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.BatchNorm1d(8))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.stem(x)
        return torch.log_softmax(self.head(hidden + self.block(hidden)), dim=-1)


@pytest.mark.slow
def test_the_winner_loads_in_a_fresh_process_and_returns_log_probabilities(uri: str, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    network = Network()
    network(torch.randn(64, 2, generator=generator))  # moves the running statistics away from their start
    units = make_units(["ldn", "random_search"], [0], space=SMALL)
    example = torch.randn(4, 2, generator=generator)
    for _ in range(2):
        assert sync(units, uri, lambda unit: Winner(network, example)).warning is None
    assert_complete(uri, units)
    parent = next(run for run in runs_of(uri) if run.data.tags[keys.TAG_UNIT_KEY] == "synthetic/ldn/seed-0")
    assert len(parent.outputs.model_outputs) == 1
    script = """
import json, sys
import mlflow, torch
mlflow.set_tracking_uri(sys.argv[1])
x = torch.tensor(json.loads(sys.argv[3]))
by_torch = mlflow.pytorch.load_model(sys.argv[2])(x)
by_pyfunc = mlflow.pyfunc.load_model(sys.argv[2]).predict(x.numpy())
by_run = mlflow.pytorch.load_model(sys.argv[4])(x)
assert not any(name.startswith("harness") for name in sys.modules)
print(json.dumps([by_torch.tolist(), by_pyfunc.tolist(), by_run.tolist()]))
"""
    x = torch.randn(7, 2, generator=generator)  # another batch size than the example's
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
