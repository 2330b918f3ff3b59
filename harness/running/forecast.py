"""What a study will cost at most, from timing a few training steps before anything is spent."""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

from harness.data import load_pool, load_training_data
from harness.data.on_device import mini_batches, on_device
from harness.records import FIXED_DEPTH, TrialConfig
from harness.running.unit import RunningUnit
from harness.seeds import torch_generator
from harness.spaces import SearchSpace
from harness.training.networks import build_network

WARM_UP_STEPS = 2
TIMED_STEPS = 5


def forecast(units: Sequence[RunningUnit], data_dir: Path | None) -> Table:
    """Trials and device-seconds per method, if every trial trains to the cap; stopping rules make it less."""
    space = units[0].plan.space
    torch.set_num_threads(max(1, int(units[0].plan.cpus_per_trial)))
    seconds = epoch_seconds(space, data_dir)
    table = Table("method", "trials a seed", "seeds", "device-seconds at most", box=None, pad_edge=False)
    total = 0.0
    for method in dict.fromkeys(unit.plan.method for unit in units):
        of_method = [unit for unit in units if unit.plan.method == method]
        kind = of_method[0].plan.trial_config(0).kind
        depths = (space.depth.max,) if of_method[0].plan.facts.learns_depth else space.depth.values
        per_trial = space.training.max_epochs * statistics.fmean(seconds[kind](depth) for depth in depths)
        trials = of_method[0].plan.trials
        cost = per_trial * trials * len(of_method) * of_method[0].plan.devices
        total += cost
        table.add_row(method, str(trials), str(len(of_method)), f"{cost:,.0f}")
    table.add_row("all", "", "", f"{total:,.0f}", style="bold")
    table.caption = (
        f"timed here, {TIMED_STEPS} steps at up to three depths; every trial to the cap of {space.training.max_epochs} "
        "epochs, without worker start; early stopping makes it less"
    )
    return table


def epoch_seconds(space: SearchSpace, data_dir: Path | None) -> dict[str, np.poly1d]:
    """Seconds per epoch by depth: a straight line for fixed depths, one value for the LDN, which has one depth."""
    values = space.depth.values
    timed: dict[str, list[int]] = {
        "ldn": [space.depth.max],
        FIXED_DEPTH: sorted({values[0], values[len(values) // 2], values[-1]}),
    }
    data = load_training_data(space.data, 0, load_pool(space.data, data_dir))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows, train_rows, _ = on_device(data, device)
    batches = mini_batches(train_rows, space.training.batch_size, torch_generator(0, "order"))
    lines: dict[str, np.poly1d] = {}
    for kind, depths in timed.items():
        measured = []
        for depth in depths:
            config = TrialConfig.of(space, kind, depth, 0)
            network = build_network(config, data.sample_shape, data.n_classes).to(device).train()
            optimiser = torch.optim.SGD(network.parameters(), space.training.lr, fused=True)
            times = []
            for step in range(WARM_UP_STEPS + TIMED_STEPS):
                x, y = rows.take(batches[step % len(batches)])
                began = time.perf_counter()
                optimiser.zero_grad()
                (-network.objective(x, y, data.n_train)).backward()
                optimiser.step()
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                times.append(time.perf_counter() - began)
            measured.append(statistics.median(times[WARM_UP_STEPS:]) * len(batches))
        lines[kind] = np.poly1d(np.polyfit(depths, measured, deg=min(1, len(depths) - 1)))
    return lines
