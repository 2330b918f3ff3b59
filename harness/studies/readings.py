"""Numbers that a study's claims and figures speak of, read from the records of one cell and seed."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from harness.measures import QUALITIES
from harness.records import Measures, Posterior, SearchResult, Unit

Units = Mapping[str, Unit]  # of one cell and seed, by method; complete ones only
Reading = Callable[[Units], float]  # a KeyError says that the study did not train it, or that it has no such number
T = TypeVar("T")


# --- which unit is which ------------------------------------------------------------------------------------------


def learnt_unit(units: Units) -> Unit | None:
    """The first whose network learns its depth."""
    return next((unit for unit in units.values() if unit.plan.facts.learns_depth), None)


def deepest_unit(units: Units) -> Unit | None:
    """The first that trained the largest fixed depth and nothing else."""
    for unit in units.values():
        depths = {trial.depth for trial in unit.trials}
        if not unit.plan.facts.learns_depth and depths == {unit.plan.space.depth.values[-1]}:
            return unit
    return None


def fixed_depths(units: Units) -> dict[int, Measures]:
    """Test measures of stand-alone networks by depth: of every depth if a method trained them all, else of those that
    searches chose."""
    found: dict[int, Measures] = {}
    for unit in units.values():
        result = unit.result
        if result is None or unit.plan.facts.learns_depth:
            continue
        if unit.plan.facts.exhaustive and result.final.per_depth_test:
            return {each.depth: each.measures for each in result.final.per_depth_test}
        found.setdefault(result.d_opt, result.final.chosen)
    return found


def posterior(units: Units) -> Posterior:
    """q(d) of the learnt-depth network at its best epoch."""
    return _known(_known(learnt_unit(units)).trials[0].posterior)


def _known(value: T | None) -> T:
    if value is None:
        raise KeyError
    return value


def _learnt(units: Units) -> SearchResult:
    return _known(_known(learnt_unit(units)).result)


# --- whose quality is read ----------------------------------------------------------------------------------------


def _full(units: Units) -> Measures:
    return _known(_learnt(units).final.full)


def _at_d_opt_alone(units: Units) -> Measures:
    """Depth d_opt by itself, without the depths below it."""
    alone = {each.depth: each.measures for each in _learnt(units).final.per_depth_test}
    return alone[_learnt(units).d_opt]


def _deepest(units: Units) -> Measures:
    largest = next(iter(units.values())).plan.space.depth.values[-1]
    return fixed_depths(units)[largest]


def _best_fixed(units: Units) -> Measures:
    return _known(max(fixed_depths(units).values(), key=lambda each: each.log_likelihood, default=None))


# What the reading of a quality is called → what a table calls the network, and where its measures are.
NETWORKS: dict[str, tuple[str, Callable[[Units], Measures]]] = {
    "{}": ("LDN pruned", lambda units: _learnt(units).final.chosen),
    "full_{}": ("LDN, all depths", _full),
    "threshold_{}": ("LDN, threshold", lambda units: _learnt(units).final.by_rule["threshold"]),
    "expected_{}": ("LDN, expected depth", lambda units: _learnt(units).final.by_rule["expected"]),
    "{}_at_d_opt_alone": ("LDN, d_opt alone", _at_d_opt_alone),
    "deepest_{}": ("deepest fixed depth", _deepest),
    "best_fixed_{}": ("best fixed depth", _best_fixed),
}


def _qualities() -> dict[str, Reading]:
    """Every quality of every network."""

    def reading(of: Callable[[Measures], float], network: Callable[[Units], Measures]) -> Reading:
        return lambda units: of(network(units))

    return {
        name.format(quality.field): reading(quality.of, network)
        for quality in QUALITIES
        for name, (_, network) in NETWORKS.items()
    }


# --- depth and time -----------------------------------------------------------------------------------------------


def _saving(units: Units) -> float:
    """1 − forward time of the pruned network ÷ that of all D blocks, the two timed in turns in one process.

    A fixed-depth network of D blocks applies its output block once instead of D + 1 times, a few per cent of the time.
    """
    final = _learnt(units).final
    full = _known(final.full_forward_seconds_per_sample or None)  # nor is 0 a time
    return 1 - final.forward_seconds_per_sample / full


def _blocks_saved(units: Units) -> float:
    """What is left out of the blocks: 1 − d_opt ÷ D."""
    return 1 - _learnt(units).d_opt / next(iter(units.values())).plan.space.depth.max


READINGS: dict[str, Reading] = {
    "d_opt": lambda units: _learnt(units).d_opt,
    "d_argmax": lambda units: posterior(units).d_opt_by_rule["argmax"],
    "d_threshold": lambda units: posterior(units).d_opt_by_rule["threshold"],
    "d_expected": lambda units: posterior(units).d_opt_by_rule["expected"],
    "d_exact": lambda units: _known(_learnt(units).final.d_opt_exact),
    "posterior_gap": lambda units: _known(_learnt(units).final.posterior_gap_nats),
    **_qualities(),
    "forward_saving": _saving,
    "blocks_saved": _blocks_saved,
}
