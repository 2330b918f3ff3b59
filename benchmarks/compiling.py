"""Every network of quickstart as machine code, in one process: compiled or not, how far from eager, what it takes.

    python -m benchmarks compiling

Fixed depths 0 to 10 and the LDN, one after the other as on a worker that is reused, each trained for a few epochs
without and with `training.compile`. Torch's cache on disk begins empty, so the first network also pays for the header
files. Over many epochs roundings grow, as they do between two machines: the first ones show whether it is the same
network.
"""

import tempfile
from collections.abc import Iterator

import torch

from harness.data import load_training_data
from harness.schema.records import FIXED_DEPTH, Progress, TrialConfig
from harness.spaces import load_space
from harness.training.train import run_trial

EPOCHS = 2  # that are compared
TIMED = 200  # epochs after them: by then it has compiled


def reports(kind: str, depth: int, compile: bool) -> list[Progress]:
    given = {"max_epochs": EPOCHS + TIMED, "patience": EPOCHS + TIMED, "eval_every": 1, "report_every": 1}
    settings = [f"training.{name}={value}" for name, value in given.items()]
    space = load_space("quickstart", [*settings, f"training.compile={str(compile).lower()}"])
    trial = TrialConfig.of(space, kind, depth, 0)
    told: list[Progress] = []
    run_trial(trial, load_training_data(trial.data, trial.seed), lambda progress, _: told.append(progress))
    return told


def apart(eager: list[Progress], compiled: list[Progress]) -> float:
    """Largest difference in log-likelihoods of training and validation over the first epochs, in nats."""
    return max(
        abs(left - right)
        for a, b in zip(eager[:EPOCHS], compiled[:EPOCHS], strict=True)
        for left, right in zip(_numbers(a), _numbers(b), strict=True)
    )


def _numbers(progress: Progress) -> tuple[float, float]:
    assert progress.train_objective is not None and progress.val is not None
    return progress.train_objective, progress.val.log_likelihood


def training_seconds(told: list[Progress]) -> float:
    """Of the epochs after the first ones."""
    return told[-1].cost.phases["train"] - told[EPOCHS - 1].cost.phases["train"]


def main() -> Iterator[str]:
    from torch._inductor.utils import fresh_cache

    torch.set_num_threads(1)
    depths = load_space("quickstart").depth.values
    yield f"{'network':<14} compiled  nats apart in {EPOCHS} epochs  compile s  other s  training, over eager"
    with tempfile.TemporaryDirectory() as folder, fresh_cache(dir=folder):
        for kind, depth in [*((FIXED_DEPTH, depth) for depth in depths), ("ldn", depths[-1])]:
            eager, told = reports(kind, depth, compile=False), reports(kind, depth, compile=True)
            cost, ratio = told[-1].cost, training_seconds(told) / training_seconds(eager)
            compiling = cost.phases["compile"]
            yield (
                f"{kind + ' ' + str(depth):<14} {'no' if told[-1].ran_eagerly else 'yes':<8}  "
                f"{apart(eager, told):<24.1e}  {compiling:9.2f}  {cost.held_seconds - compiling:7.2f}  {ratio:.2f}"
            )
