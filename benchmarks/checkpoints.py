"""Checkpoints: what a save takes as a few flat buffers and tensor by tensor, and its share of a trial's time.

Both ways write the same network of 50 blocks to the same disk in turns; then such a network is trained twice: saved by
the workers' rule, and tensor by tensor at every report, as trials that may be stopped once were. The other shares are
those of real trials on Ray Tune: of a search that may stop its trials, and of one that does not. The same trials,
trained for the same epochs, must cost the same in both.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

import harness
from benchmarks.steps import alternately, conv_space, row
from harness.running.worker import _Saves
from harness.schema.records import Cost, Progress, TrialConfig
from harness.spaces import load_space
from harness.training.checkpoints import CheckpointStore
from harness.training.cost import PhaseTimer
from harness.training.flat import views
from harness.training.train import _Trial, run_trial
from tests.tiny import images

CPU = torch.device("cpu")
SEEDS = 3
EPOCHS = 40


def main() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield _flat_over_tensors(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield _share_at_fifty_blocks(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield from _shares(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield _stopped_over_not(Path(folder))


def _flat_over_tensors(folder: Path) -> str:
    data = images()
    trial, timer = _Trial.start(TrialConfig.of(conv_space(), "ldn", 50, 0), data, CPU), PhaseTimer(CPU)
    tensors = _one_by_one(trial)
    file = folder / "checkpoint"  # new each time: the store never writes over an old one, and keeps one of a trial
    flat, each = alternately(
        lambda: trial.save(file, data, timer), lambda: torch.save(tensors, file), 30, after=file.unlink
    )
    n_tensors = sum(map(len, tensors))
    return row(f"a checkpoint of {n_tensors:,} tensors, flat over tensor by tensor", flat, each, "goal ≤ 0.10")


def _one_by_one(trial: _Trial) -> list[list[Tensor]]:
    """Copies, as they were before there was a buffer for all of them: views of one would all save the whole of it."""
    network, best = ([tensor.clone() for tensor in trial.network.state_dict().values()] for _ in range(2))
    momenta = [tensor.clone() for tensor in views(trial.optimiser.state, list(trial.network.parameters()))]
    return [network, momenta, best]


def _share_at_fifty_blocks(folder: Path) -> str:
    """Of held time, with a report after every epoch: 96 images of 28 × 28 in one mini-batch."""
    often = {"max_epochs": EPOCHS, "patience": EPOCHS, "eval_every": 1, "report_every": 1}
    space = conv_space()
    space = space.model_copy(update={"training": space.training.model_copy(update=often)})
    config, data = TrialConfig.of(space, "ldn", 50, 0), images(n=144, side=28, channels=1, n_classes=10)
    store = CheckpointStore(str(folder))
    saves, tensors = _Saves(store, "flat", must_keep=True), _one_by_one(_Trial.start(config, data, CPU))

    def by_rule(progress: Progress, save: Callable[[Path], None]) -> None:
        saves.save(save, ended=progress.stop_reason is not None)

    def every_time(progress: Progress, save: Callable[[Path], None]) -> None:
        store.save("each", lambda path: torch.save(tensors, path))

    now, before = (run_trial(config, data, report).progress.cost for report in (by_rule, every_time))
    shares = [cost.phases["checkpoint"] / cost.held_seconds for cost in (now, before)]
    return (
        f"50 blocks on images, {EPOCHS} reports: checkpoints take {shares[0]:.2%} of {now.held_seconds:.1f} s held; "
        f"tensor by tensor at every report {shares[1]:.2%} of {before.held_seconds:.1f} s   goal ≤ 1 %"
    )


def _shares(out: Path) -> Iterator[str]:
    results = harness.run("quickstart", ["asha", "grid"], concurrency=1, out=out, progress=False)
    for unit in results.finished:
        assert unit.result is not None
        cost = unit.result.cost
        share = cost.phases["checkpoint"] / cost.held_seconds
        yield f"{unit.plan.method}: checkpoints and reports took {share:.1%} of {cost.held_seconds:.1f} s held"


def _stopped_over_not(out: Path) -> str:
    """A search whose scheduler hears every report and stops nothing, and one without: the same trials.

    Each search goes first once, so that a machine that becomes slower favours neither. A scheduler can only cost what
    is not a step: those of the same network differ by a few per cent from one time to the next, whoever trains it.
    """
    scheduled = f"asha:grace_epochs={load_space('quickstart').training.max_epochs}"
    costs: dict[tuple[str, str, int, int], Cost] = {}
    for methods in ([scheduled, "grid"], ["grid", scheduled]):
        first = methods[0]
        results = harness.run("quickstart", methods, range(SEEDS), workers=1, out=out / first, progress=False)
        for unit in results.finished:
            for trial in unit.trials:
                costs[unit.plan.method, first, unit.plan.seed, trial.depth] = trial.cost
    pairs = [(cost, costs["grid", *key[1:]]) for key, cost in costs.items() if key[0] != "grid"]
    if any(one.epochs != other.epochs for one, other in pairs) or len(pairs) * 2 != len(costs):
        raise RuntimeError("the two searches did not train the same trials")
    median = statistics.median(one.held_seconds / other.held_seconds for one, other in pairs)
    with_it, without = (sum(cost.held_seconds for cost in side) for side in zip(*pairs, strict=True))
    beside = [sum(map(_beside_steps, side)) for side in zip(*pairs, strict=True)]
    return (
        f"{len(pairs)} trials, each with and without a scheduler: {with_it:.1f} and {without:.1f} device-seconds, "
        f"ratio {with_it / without:.3f}, median of pairs {median:.3f}; beside the steps {beside[0]:.2f} and "
        f"{beside[1]:.2f} s, {(beside[0] - beside[1]) / without:+.2%} of all   goal within 2 %"
    )


def _beside_steps(cost: Cost) -> float:
    """What reports, checkpoints, answers and starts took."""
    return cost.held_seconds - cost.phases["train"] - cost.phases["validate"]
