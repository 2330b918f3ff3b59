"""Checkpoints: what a save takes as a few flat buffers and tensor by tensor, and its share of a trial's time.

Both ways write the same network of 50 blocks to the same disk in turns. The share is that of real trials on Ray Tune:
of a search that may stop its trials, and of one that does not. The same trials, trained for the same epochs, must cost
the same in both.
"""

import itertools
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

import harness
from benchmarks.steps import alternately, conv_space, row
from harness.records import TrialConfig
from harness.spaces import load_space
from harness.training.cost import PhaseTimer
from harness.training.flat import views
from harness.training.train import _Trial
from tests.tiny import images

CPU = torch.device("cpu")
SEEDS = 3


def main() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield _flat_over_tensors(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield from _shares(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield _stopped_over_not(Path(folder))


def _flat_over_tensors(folder: Path) -> str:
    config = TrialConfig.of(conv_space(), "ldn", 50, 0)
    data = images()
    trial, timer = _Trial.start(config, data, CPU), PhaseTimer(CPU)
    # Copies, as they were before there was a buffer for all of them: views of one would all save the whole of it.
    network, best = ({name: tensor.clone() for name, tensor in trial.network.state_dict().items()} for _ in range(2))
    momenta = [tensor.clone() for tensor in views(trial.optimiser.momenta, list(trial.network.parameters()))]

    new_file = (folder / f"{number}.pt" for number in itertools.count())  # the store never writes over an old one

    def tensor_by_tensor() -> None:
        torch.save({"network": network, "momenta": momenta, "best": best}, next(new_file))

    flat, tensors = alternately(lambda: trial.save(next(new_file), data, timer), tensor_by_tensor, 15)
    return row(
        f"a checkpoint of {len([*network, *momenta, *best]):,} tensors, flat over tensor by tensor",
        flat,
        tensors,
        "goal ≤ 0.10",
    )


def _shares(out: Path) -> Iterator[str]:
    results = harness.run("quickstart", ["asha", "grid"], concurrency=1, out=out, progress=False)
    for unit in results.finished:
        assert unit.result is not None
        cost = unit.result.cost
        share = cost.phases["checkpoint"] / cost.held_seconds
        yield f"{unit.plan.method}: checkpoints and reports took {share:.1%} of {cost.held_seconds:.1f} s held"


def _stopped_over_not(out: Path) -> str:
    """A search whose scheduler hears every report and stops nothing, and one without: the same trials."""
    scheduled = f"asha:grace_epochs={load_space('quickstart').training.max_epochs}"
    results = harness.run("quickstart", [scheduled, "grid"], range(SEEDS), workers=1, out=out, progress=False)
    seconds, epochs = {}, {}
    for unit in results.finished:
        for trial in unit.trials:
            key = unit.plan.method, unit.plan.seed, trial.depth
            seconds[key], epochs[key] = trial.cost.held_seconds, trial.cost.epochs
    pairs = [(key, ("grid", *key[1:])) for key in seconds if key[0] != "grid"]
    if any(epochs[one] != epochs[other] for one, other in pairs) or len(pairs) * 2 != len(seconds):
        raise RuntimeError("the two searches did not train the same trials")
    ratio = statistics.median(seconds[one] / seconds[other] for one, other in pairs)
    totals = [sum(seconds[pair[side]] for pair in pairs) for side in (0, 1)]
    return (
        f"{len(pairs)} trials, each with and without a scheduler: {totals[0]:.1f} and {totals[1]:.1f} device-seconds, "
        f"ratio {totals[0] / totals[1]:.3f}, median of pairs {ratio:.3f}   goal within 2 %"
    )
