"""Training speed: ratios of steps, epochs and forward passes, each pair timed alternately in one run."""

import itertools
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch

from harness.data import load_training_data
from harness.data.on_device import on_device
from harness.data.splits import Pool, TrainingData, training_data
from harness.methods import known_methods, load_method
from harness.methods.autogrow import GrownSoFar
from harness.methods.base import OneShotMethod
from harness.methods.udn import TruncatedPoisson
from harness.models import OneShotNet
from harness.schema.networks import network_settings
from harness.schema.records import Progress, TrialConfig
from harness.schema.settings import SearchSpace
from harness.spaces import load_space
from harness.training.networks import build_network
from harness.training.train import run_trial

Timed = Callable[[], object]


def alternately(first: Timed, second: Timed, repeats: int, after: Timed = lambda: None) -> tuple[float, float]:
    """Median seconds of each, the two taking turns, so that a busy neighbour slows both; `after` each is not timed."""
    seconds: tuple[list[float], list[float]] = ([], [])
    first(), after(), second(), after()
    for _ in range(repeats):
        for timed, taken in zip((first, second), seconds, strict=True):
            began = time.perf_counter()
            timed()
            taken.append(time.perf_counter() - began)
            after()
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def row(name: str, first: float, second: float, goal: str) -> str:
    return f"{name:<62} {first * 1e3:9.3f} ms {second * 1e3:9.3f} ms   ratio {first / second:5.2f}   {goal}"


def step(
    space: SearchSpace, kind: str, depth: int, x: torch.Tensor, y: torch.Tensor, *, at_its_dearest: bool = True
) -> Timed:
    """A bare training step: forward, backward, update; in the memory format of the inputs."""
    config = TrialConfig.of(space, kind, depth, 0)
    network = build_network(config, tuple(x.shape[1:]), int(y.max()) + 1).train()
    if x.dim() == 4 and not x.is_contiguous():
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if isinstance(network, OneShotNet) and isinstance(network.posterior, GrownSoFar):
        network.posterior.depth.fill_(depth)  # at its dearest: all blocks are grown
    if isinstance(network, OneShotNet) and isinstance(network.posterior, TruncatedPoisson) and at_its_dearest:
        network.posterior.cut.fill_(depth)
    optimiser = torch.optim.SGD(network.parameters(), 0.1, 0.5, fused=True)

    def run() -> None:
        optimiser.zero_grad()
        (-network.objective(x, y, n_train=len(y))).backward()
        optimiser.step()
        if isinstance(network, OneShotNet):
            network.method.after_step(network, lambda: (x, y))

    return run


def learnt_over_fixed() -> list[str]:
    torch.manual_seed(0)
    spirals = load_space("spirals")
    x, y = torch.randn(200, 2), torch.arange(200) % 2
    lines = []
    for depth in (20, 50):
        ldn, ddn = (step(spirals, kind, depth, x, y) for kind in ("ldn", "ddn"))
        lines.append(row(f"fc step, LDN over DDN, D = {depth}", *alternately(ldn, ddn, 60), "goal ≤ 1.30"))
    conv = conv_space()
    images = torch.randn(128, 3, 28, 28).to(memory_format=torch.channels_last)
    labels = torch.arange(128) % 10
    ldn, ddn = (step(conv, kind, 30, images, labels) for kind in ("ldn", "ddn"))
    lines.append(row("conv step, LDN over DDN, D = 30, batch 128", *alternately(ldn, ddn, 7), "goal ≤ 1.10"))
    plain = step(conv, "ldn", 30, images.contiguous(), labels)
    lines.append(row("conv LDN step, channels_last over contiguous", *alternately(ldn, plain, 5), "smaller is faster"))
    return lines


def one_shots_over_the_ldn() -> list[str]:
    """A whole training step of each one-shot, hooks after a step included, over the LDN's of the same depth."""
    torch.manual_seed(0)
    spirals, depth = load_space("spirals"), 20
    x, y = torch.randn(200, 2), torch.arange(200) % 2
    methods = {name: load_method(name)[1] for name in known_methods()}
    reference, *others = [name for name, method in methods.items() if isinstance(method, OneShotMethod)]
    ldn = step(spirals, reference, depth, x, y)
    goals = {
        **dict.fromkeys(("elastic", "elastic_kd"), "goal < 1"),
        "darts_depth": "no goal: each step also looks at validation rows",
    }
    as_it_begins = step(spirals, "udn", depth, x, y, at_its_dearest=False)
    return [
        *(
            row(
                f"fc step, {name} over {reference}, D = {depth}",
                *alternately(step(spirals, name, depth, x, y), ldn, 60),
                goals.get(name, "goal ≤ 1.10"),
            )
            for name in others
        ),
        row(f"fc step, udn over {reference}, cut at 6 of {depth}", *alternately(as_it_begins, ldn, 60), "goal < 1"),
    ]


def trial_over_bare_steps() -> list[str]:
    """A report's epochs and as many bare steps in turn: the reports of one trial do the steps, so that a machine which
    is slow for a second is slow for both. Validations, as many as the space asks for, count."""
    space = load_space("spirals", ["training.max_epochs=4000", "training.patience=4000"])
    data = load_training_data(space.data, 0)
    rows, train_rows, _ = on_device(data, torch.device("cpu"))
    lines = []
    kinds: tuple[str, ...] = ("ldn", "ddn")
    for kind in kinds:
        bare = step(space, kind, 20, *rows.take(train_rows))
        trained, validated, steps = _in_turns(TrialConfig.of(space, kind, 20, 0), data, bare)
        goal = f"goal ≤ 1.05; without its validations {trained / steps:.2f}"
        epoch = trained + validated
        lines.append(row(f"spirals D = 20, run_trial's epoch over the bare step, {kind}", epoch, steps, goal))
    return lines


def _in_turns(config: TrialConfig, data: TrainingData, bare: Timed) -> tuple[float, float, float]:
    """Median seconds of a trial's epoch, of its validations for each epoch, and of the bare step."""
    together = config.training.report_every
    phases, steps = list[Mapping[str, float]](), list[float]()

    def report(progress: Progress, save: object) -> None:
        phases.append(progress.cost.phases)
        began = time.perf_counter()
        for _ in range(together):
            bare()
        steps.append((time.perf_counter() - began) / together)

    run_trial(config, data, report)
    trained, validated = (
        statistics.median(
            (after[phase] - before[phase]) / together for before, after in itertools.pairwise(phases[:-1])
        )
        for phase in ("train", "validate")
    )
    return trained, validated, statistics.median(steps[:-1])


def image_trial_over_bare_steps() -> list[str]:
    rng = np.random.default_rng(0)
    pool = Pool(rng.integers(0, 256, (5500, 28, 28, 1), dtype=np.uint8), np.arange(5500) % 10, 10)
    data = training_data(pool, np.arange(5000), np.arange(5000, 5500))
    space = load_space("spirals", ["training.max_epochs=1", "training.batch_size=128", "training.report_every=20"])
    space = space.model_copy(update={"network": conv_space().network})
    config = TrialConfig.of(space, "ldn", 4, 0)
    rows, train_rows, val_rows = on_device(data, torch.device("cpu"))
    x, y = rows.take(train_rows[:128])
    bare = step(space, "ldn", 4, x, y)
    network = build_network(config, data.sample_shape, 10).eval()
    x_val, _ = rows.take(val_rows)

    def bare_epoch() -> None:
        for _ in range(5000 // 128 + 1):
            bare()
        with torch.inference_mode():  # an epoch ends with a validation pass, and the trial with another one
            network(x_val), network(x_val)

    trial, steps = alternately(lambda: run_trial(config, data), bare_epoch, 3)
    return [row("5,000 images, conv D = 4, run_trial over bare steps", trial, steps, "goal ≤ 1.05")]


def pruned_over_full(space: SearchSpace, x: torch.Tensor, depth: int) -> str:
    """Forward time of the pruned network, beside (c + d_opt) / (c + D), c = stem and head in block units."""
    full = build_network(TrialConfig.of(space, "ldn", depth, 0), tuple(x.shape[1:]), 10).eval()
    assert isinstance(full, OneShotNet)
    if x.dim() == 4:
        full = full.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    d_opt = depth // 2
    pruned, stem = full.pruned(d_opt).eval(), full.pruned(0).eval()
    with torch.inference_mode():
        pruned_time, full_time = alternately(lambda: pruned(x), lambda: full(x), 31)
        stem_time, _ = alternately(lambda: stem(x), lambda: full(x), 31)
    c = stem_time / ((full_time - stem_time) / depth)
    expected = (c + d_opt) / (c + depth)
    name = f"{space.network.kind} forward, d_opt = {d_opt} over D = {depth}"
    return row(name, pruned_time, full_time, f"(c + d_opt)/(c + D) = {expected:.2f}, c = {c:.1f}")


def conv_space() -> SearchSpace:
    return load_space("spirals").model_copy(update={"network": network_settings("conv")})


def main() -> list[str]:
    torch.set_num_threads(1)
    return [
        *learnt_over_fixed(),
        *one_shots_over_the_ldn(),
        *trial_over_bare_steps(),
        *image_trial_over_bare_steps(),
        pruned_over_full(load_space("spirals"), torch.randn(1800, 2), 20),
        pruned_over_full(conv_space(), torch.randn(256, 1, 28, 28).to(memory_format=torch.channels_last), 30),
    ]
