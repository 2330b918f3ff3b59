"""Studies of real networks, trained in this process: what a run leaves on disk, checkpoints included, without Ray."""

from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from harness.data import load_training_data
from harness.data.splits import TrainingData
from harness.methods import parse_methods
from harness.methods.base import SearchMethod
from harness.models import FixedDepthNet
from harness.options import RunOptions
from harness.running.ledger import Suggested
from harness.running.messages import TrainTask, checkpoint_key
from harness.running.runner import make_units
from harness.running.unit import RunningUnit
from harness.schema.records import Progress, SearchResult, TrialConfig, TrialRecord
from harness.schema.settings import SearchSpace
from harness.studies.definition import Study
from harness.studies.results import StudyResults, read_results
from harness.training.checkpoints import CheckpointStore
from harness.training.environment import environment
from harness.training.final import evaluate_on_test
from harness.training.train import Trained, run_trial
from tests.synthetic import sum_of_costs

CPU = torch.device("cpu")


def train_study(study: Study, out: Path, storage: Path, seeds: Iterable[int]) -> StudyResults:
    for seed in seeds:
        for cell in study.cells:
            for name, method in parse_methods(study.methods).items():
                _train_unit(cell.space, name, method, seed, out, CheckpointStore(str(storage)))
    return read_results(study, out)


def _train_unit(
    space: SearchSpace, name: str, method: SearchMethod, seed: int, out: Path, store: CheckpointStore
) -> None:
    [unit] = make_units([space], {name: method}, [seed], RunOptions(out=out))
    if unit.folder.is_complete:
        return
    unit.folder.claim(unit.plan, fresh=False)
    data = load_training_data(space.data, seed)
    depths = space.depth.values if unit.plan.facts.exhaustive else [space.depth.max]
    configs = [unit.plan.trial_config(depth) for depth in depths]
    key = unit.folder.begin()
    for config in configs:
        name = f"t{config.depth}"
        unit.folder.append(Suggested(trial=name, task=TrainTask(unit=key, trial=name, config=config)))
    trained = [run_trial(config, data, _saver(store, key, config.depth)) for config in configs]
    _complete(unit, configs, trained, data)


def _saver(store: CheckpointStore, key: str, depth: int) -> Callable[[Progress, Callable[[Path], None]], None]:
    def report(progress: Progress, save: Callable[[Path], None]) -> None:
        if progress.stop_reason:
            store.save(checkpoint_key(key, f"t{depth}"), save)

    return report


def _complete(unit: RunningUnit, configs: list[TrialConfig], trained: list[Trained], data: TrainingData) -> None:
    trials = tuple(
        TrialRecord.of(f"t{config.depth}", config, data.split_hash, each.progress, environment(CPU, config.training))
        for config, each in zip(configs, trained, strict=True)
    )
    best = max(range(len(trials)), key=lambda index: trials[index].val.log_likelihood)  # type: ignore[union-attr]
    chosen = trials[best]
    assert chosen.val is not None
    d_opt = chosen.posterior.d_opt if chosen.posterior else chosen.depth
    others = {c.depth: t.network for c, t in zip(configs, trained, strict=True) if isinstance(t.network, FixedDepthNet)}
    plan = unit.plan
    result = SearchResult(
        space=plan.space.name,
        method=plan.method,
        options=plan.options,
        seed=plan.seed,
        plan_hash=plan.hash,
        status="complete",
        chosen_trial=chosen.trial_id,
        d_opt=d_opt,
        d_opt_in_range=True,
        val=chosen.val,
        final=evaluate_on_test(
            trained[best].network, d_opt, configs[best], data, others if plan.facts.exhaustive else None
        ),
        cost=sum_of_costs([trial.cost for trial in trials]),
        worker_start_device_seconds=0.0,
        trials=len(trials),
        trials_by_status={"finished": len(trials)},
        duplicates=0,
        wall_seconds=1.0,
        driver_seconds=0.1,
        concurrency=plan.concurrency,
        order_dependent=False,
        cpus_per_trial=plan.cpus_per_trial,
        gpus_per_trial=plan.gpus_per_trial,
        most_coresident_trials=1,
        labels_fit=data.n_train,
        labels_chosen_with=len(data.val_rows),
    )
    unit.folder.complete(trials, result)
