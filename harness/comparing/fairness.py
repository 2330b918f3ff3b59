"""Fairness, checked by the program: what differs between the units of a comparison and ought to be equal."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from harness.comparing.finished import Finished
from harness.comparing.values import Difference
from harness.schema.records import FIXED_DEPTH, TrialRecord

PerUnit = Callable[[Finished], Iterable[str]]

AS_THE_SPACE = "as the space says"
LOAD = "most co-resident trials"


def differences_between(units: Sequence[Finished]) -> list[Difference]:
    """Every rule that does not hold among these units. Values of a seed may differ from another seed's only where
    the rule is per seed (the split)."""
    found = [difference for rule, read in _RULES.items() for difference in _unequal(rule, units, read)]
    for seed in sorted({unit.seed for unit in units}):
        same_seed = [unit for unit in units if unit.seed == seed]
        for rule, read in _RULES_PER_SEED.items():
            found.extend(_unequal(f"{rule}, seed {seed}", same_seed, read))
    return [*found, *_unequal_load(units), *_same_network_same_settings(units), *_ended_by_a_cap(units)]


def _unequal(rule: str, units: Sequence[Finished], read: PerUnit) -> Iterator[Difference]:
    methods_by_value: dict[str, set[str]] = {}
    for unit in units:
        for value in read(unit):
            methods_by_value.setdefault(value, set()).add(unit.method)
    if len(methods_by_value) > 1:
        parts = [f"{value} ({', '.join(sorted(methods))})" for value, methods in sorted(methods_by_value.items())]
        yield Difference(rule=rule, detail=" / ".join(parts))


def _settings(unit: Finished) -> Iterator[str]:
    """A method file may hand its trials other settings than the space's; the hash of a trial's config tells."""
    for trial in unit.trials:
        wanted = unit.plan.trial_config(trial.depth, trial.restart).hash
        yield AS_THE_SPACE if trial.config_hash == wanted else "not as the space says"


def _head_rule(unit: Finished) -> Iterator[str]:
    """A fixed-depth network pays one call of the output block per sample, a one-shot one per depth that it trains."""
    for trial in unit.trials:
        if samples := trial.cost.samples:
            most = trial.depth + 1 if trial.learns_depth else 1
            fits = samples <= trial.cost.head_passes <= samples * most
            yield "one output block per depth used" if fits else "another number of output blocks"


def _of_trials(read: Callable[[TrialRecord], object]) -> PerUnit:
    return lambda unit: {str(read(trial)) for trial in unit.trials}


def _choice(unit: Finished) -> Iterator[str]:
    if unit.plan.chooses_by_validation:
        yield f"the smallest depth within {unit.plan.space.choice_within:g} nats of the best"


_RULES: dict[str, PerUnit] = {
    "settings (optimiser, schedule, stopping rule, epoch cap, batch size, precision)": _settings,
    "device": _of_trials(lambda trial: trial.environment.device),
    "share of a device": _of_trials(lambda trial: f"{trial.cost.devices:g}"),
    "CPUs per trial": lambda unit: [f"{unit.result.cpus_per_trial:g}"],
    "GPUs per trial": lambda unit: [f"{unit.result.gpus_per_trial:g}"],
    "TF32": _of_trials(lambda trial: trial.environment.tf32),
    "deterministic algorithms": _of_trials(lambda trial: trial.environment.deterministic),
    "compiled": _of_trials(lambda trial: "no" if trial.ran_eagerly else AS_THE_SPACE),
    "threads": _of_trials(lambda trial: trial.environment.threads),
    "machine": _of_trials(lambda trial: trial.environment.machine),
    "harness version": _of_trials(lambda trial: trial.environment.harness),
    "code version": _of_trials(lambda trial: trial.environment.code),
    "Python": _of_trials(lambda trial: trial.environment.python),
    "torch": _of_trials(lambda trial: trial.environment.torch),
    "Ray": _of_trials(lambda trial: trial.environment.ray or "none"),
    "Optuna": _of_trials(lambda trial: trial.environment.optuna or "none"),
    "head cost rule": _head_rule,
    "choice of depth by validation": _choice,
}
_RULES_PER_SEED: dict[str, PerUnit] = {
    "training and validation split": _of_trials(lambda trial: trial.split_hash),
    "test set": lambda unit: [f"{unit.result.final.split_hash}, {unit.result.final.n_test} samples"],
}


def _unequal_load(units: Sequence[Finished]) -> Iterator[Difference]:
    """The most of a method over its seeds: the last unit of a run always finds an emptier machine."""
    most: dict[str, int] = {}
    for unit in units:
        most[unit.method] = max(most.get(unit.method, 0), unit.result.most_coresident_trials)
    if len(set(most.values())) > 1:
        parts = [f"{count} ({method})" for method, count in sorted(most.items())]
        yield Difference(rule=LOAD, detail=" / ".join(parts))


def _same_network_same_settings(units: Sequence[Finished]) -> Iterator[Difference]:
    """A depth is the same network in every method: equal (kind, depth, seed), equal config."""
    hashes: dict[tuple[str, int, int, int], dict[str, set[str]]] = {}
    for unit in units:
        for trial in unit.trials:
            kind = unit.method if trial.learns_depth else trial.kind  # options are part of a one-shot network
            by_hash = hashes.setdefault((kind, trial.depth, trial.seed, trial.restart), {})
            by_hash.setdefault(trial.config_hash, set()).add(unit.method)
    unequal = [key for key, by_hash in hashes.items() if len(by_hash) > 1]
    if unequal:
        kind, depth, seed, _ = unequal[0]
        network = f"fixed depth {depth}" if kind == FIXED_DEPTH else f"{kind} of depth {depth}"
        methods = sorted(set().union(*hashes[unequal[0]].values()))
        yield Difference(
            rule="same network, same settings",
            detail=f"{len(unequal)} networks were trained with several settings, such as {network}, seed {seed} "
            f"({', '.join(methods)})",
        )


def _ended_by_a_cap(units: Sequence[Finished]) -> Iterator[Difference]:
    capped = [f"{unit.method} seed {unit.seed}" for unit in units if unit.result.status == "capped"]
    if capped:
        yield Difference(
            rule="search ended by itself",
            detail=f"the cost limit ended {', '.join(capped)}: cost and choice are the limit's, not the method's",
        )
