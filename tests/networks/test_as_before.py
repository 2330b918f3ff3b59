"""fc and conv are what they were before networks were files: hashes, counts of operations, and numbers.

as_before.json was written by the commit 20ec840, with the spaces below and one thread. Sums round differently on other
processors, with other threads and in other versions of torch, and training amplifies that: at the spaces' own rates,
one thread against two moves a log-likelihood by 0.07. So the rate here is a tenth and training is short, where they
differ by 0.0015 at most. What does not depend on the machine is compared to the bit. Younger methods are left out.
"""

import json
from pathlib import Path

import pytest

from harness.data import load_pool, load_training_data
from harness.methods import load_method, parse_methods
from harness.options import RunOptions
from harness.running.runner import make_unit
from harness.schema.records import FIXED_DEPTH, TrialConfig
from harness.schema.settings import SearchSpace
from harness.spaces import load_space
from harness.training.train import run_trial

BEFORE = json.loads(Path(__file__).with_name("as_before.json").read_text())
SPACES = {
    "fc": load_space("quickstart", ["training.max_epochs=20", "training.patience=20", "training.lr=0.01"]),
    "conv": load_space(
        "digits",
        [
            "data.as_images=true",
            "network={kind: conv, channels: 8, bottleneck: 4}",
            "training.max_epochs=2",
            "training.lr_drop_epoch=1",
            "training.lr=0.01",
            "depth.max=2",
        ],
    ),
}
METHODS = parse_methods("all") | {"ldn_em": load_method("ldn_em:from_start=false")[1]}  # as it was then


def configs(space: SearchSpace) -> dict[str, TrialConfig]:
    """A trial of every one-shot method, and of some fixed depths."""
    units = {name: make_unit(space, name, method, 0, RunOptions.of()) for name, method in METHODS.items()}
    one_shots = {name: unit.plan for name, unit in units.items() if unit.plan.facts.learns_depth}
    fixed = {f"ddn-{depth}": TrialConfig.of(space, FIXED_DEPTH, depth, 0) for depth in (0, 1, space.depth.max)}
    return {name: plan.trial_config(space.depth.max) for name, plan in one_shots.items()} | fixed


@pytest.mark.parametrize("kind", SPACES)
def test_plans_of_all_methods_have_their_hashes(kind: str) -> None:
    before = BEFORE[kind]["plans"]
    plans = {name: make_unit(SPACES[kind], name, METHODS[name], 0, RunOptions.of()).plan for name in before}
    assert {name: plan.hash for name, plan in plans.items()} == before


@pytest.mark.parametrize("kind", SPACES)
def test_trials_are_what_they_were(kind: str) -> None:
    space = SPACES[kind]
    data = load_training_data(space.data, 0, load_pool(space.data, None))
    now = configs(space)
    for name, before in BEFORE[kind]["trials"].items():
        config = now[name]
        trained = run_trial(config, data)
        cost, val = trained.progress.cost, trained.progress.val
        assert config.hash == before["hash"]
        assert [cost.tflop, cost.samples, cost.block_passes, cost.head_passes] == before["cost"]
        assert list(trained.network.state_dict()) == before["names"]
        assert val is not None and val.log_likelihood == pytest.approx(before["val"], abs=0.01)
        assert trained.progress.posterior is None or trained.progress.posterior.d_opt == before["d_opt"]
