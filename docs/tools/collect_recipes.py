"""Measures q under recipes, for docs/recipes.md: `python docs/tools/collect_recipes.py`, about 15 minutes of one core.

Prints the table. `before`: the recipe's optimiser trains q as it trains the weights; `after`: SGD, at posterior.lr.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from unittest.mock import patch

import torch

from harness.data import load_pool, load_training_data
from harness.data.on_device import on_device
from harness.models import DepthNet, OneShotNet
from harness.models.depth_posterior import choose_depth
from harness.schema.records import TrialConfig
from harness.schema.settings import PosteriorSettings, SearchSpace, TrainingSettings
from harness.spaces import load_space
from harness.training import train
from harness.training.final import posterior_gap
from harness.training.optimiser import SGD, AdamW, Optimiser, Rule, optimiser_of

SEEDS = range(3)
NETWORKS = {
    "fc": [],
    "staged": [
        "data.as_images=true",
        "network={kind: resnet, widths: [8, 16, 32], blocks: [1, 1]}",
        "depth.min=3",
        "depth.max=8",
    ],
}
ADAMW = ["training.optimiser=adamw", "training.lr=0.001"]
COSINE = ["training.schedule=cosine"]
RECIPES = {
    "SGD, constant": [],
    "SGD, drop": ["training.lr_drop_epoch=40"],
    "SGD, cosine": COSINE,
    "SGD, cosine, clipped at 1": [*COSINE, "training.clip_norm=1.0"],
    "AdamW, constant": ADAMW,
    "AdamW, cosine": [*ADAMW, *COSINE],
    "AdamW, cosine, clipped at 1": [*ADAMW, *COSINE, "training.clip_norm=1.0"],
}
Make = Callable[[DepthNet, TrainingSettings, PosteriorSettings], Optimiser]


def as_the_weights(network: DepthNet, settings: TrainingSettings, posterior: PosteriorSettings) -> Optimiser:
    """One rule for all parameters, q among them."""
    adamw = settings.optimiser == "adamw"
    rule: Rule = AdamW(settings.lr, settings.betas) if adamw else SGD(settings.lr, settings.momentum)
    return Optimiser({rule: list(network.parameters())})


@dataclass(frozen=True)
class Seen:
    largest_over_smallest: float
    gap_nats: float
    argmax: tuple[int, int]  # of q, of the exact posterior
    d_opt: tuple[int, int]  # by the space's rule, likewise


def seen(space: SearchSpace, seed: int, make: Make) -> Seen:
    data = load_training_data(space.data, seed, load_pool(space.data, None))
    with patch.object(train, "optimiser_of", make):
        network = train.run_trial(TrialConfig.of(space, "ldn", space.depth.max, seed), data).network
    assert isinstance(network, OneShotNet)
    rows, train_rows, _ = on_device(data, torch.device("cpu"))
    gap, exact = posterior_gap(network, rows, train_rows)
    q, rule = network.posterior.log_q().detach().exp(), space.posterior.rule
    assert rule != "validation", "the spaces of this page choose by q"
    depths = (int(q.argmax()), int(exact.argmax())), (choose_depth(q, rule), choose_depth(exact, rule))
    return Seen(float(q.max() / q.min()), gap, *depths)


def cells(found: Sequence[Seen]) -> str:
    columns: Mapping[str, list[str]] = {
        "largest ÷ smallest": [f"{each.largest_over_smallest:.1f}" for each in found],
        "gap": [f"{each.gap_nats:.0f}" for each in found],
        "argmax": ["/".join(map(str, each.argmax)) for each in found],
        "d_opt": ["/".join(map(str, each.d_opt)) for each in found],
    }
    return " | ".join(", ".join(values) for values in columns.values())


def main() -> list[str]:
    torch.set_num_threads(1)
    lines = []
    for network, changes in NETWORKS.items():
        for recipe, more in RECIPES.items():
            drop = [] if any("lr_drop_epoch" in each for each in more) else ["training.lr_drop_epoch=null"]
            space = load_space("digits", [*changes, *drop, *more])
            for when, make in (("before", as_the_weights), ("after", optimiser_of)):
                found = [seen(space, seed, make) for seed in SEEDS]
                lines.append(f"| {network} | {recipe} | {when} | {cells(found)} |")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join([*main(), ""]))
