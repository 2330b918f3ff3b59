"""Numbers that a study's claims and figures speak of, read from the records of one cell and seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from harness.comparing.values import LOSS_PARTS
from harness.comparing.yardsticks import loss_parts
from harness.measures import DEVICE_SECONDS, QUALITIES, TFLOP, Measure, Outcome, Quality
from harness.schema.records import Measures, Posterior, SearchResult, Unit

Units = Mapping[str, Unit]  # of one cell and seed, by method in the study's order; complete ones only
T = TypeVar("T")


@dataclass(frozen=True)
class Seen:
    """What a reading is taken from: the unit it speaks of, beside all that were trained."""

    units: Units
    unit: Unit | None

    @property
    def result(self) -> SearchResult:
        return _known(_known(self.unit).result)

    @property
    def posterior(self) -> Posterior:
        """Weights over depths at the best epoch."""
        return _known(_known(self.unit).trials[0].posterior)


Reading = Callable[[Seen], float]  # a KeyError says that the study did not train it, or that it has no such number


def read(name: str, units: Units, method: str | None = None) -> float:
    """A reading of the method's unit; of the first whose network learns its depth where none is named.

    KeyError: there is no such network, or it has no such number.
    """
    return READINGS[name](Seen(units, units[method] if method else learnt_unit(units)))


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


def _known(value: T | None) -> T:
    if value is None:
        raise KeyError
    return value


# --- whose quality is read ----------------------------------------------------------------------------------------


def _at_d_opt_alone(seen: Seen) -> Measures:
    """Depth d_opt by itself, without the depths below it."""
    alone = {each.depth: each.measures for each in seen.result.final.per_depth_test}
    follows = _known(seen.unit).plan.stage.then is not None  # then a network of one depth is handed over
    return seen.result.final.chosen if follows else alone[seen.result.d_opt]


def _deepest(seen: Seen) -> Measures:
    largest = next(iter(seen.units.values())).plan.space.depth.values[-1]
    return fixed_depths(seen.units)[largest]


def _best_fixed(seen: Seen) -> Measures:
    return _known(max(fixed_depths(seen.units).values(), key=lambda each: each.log_likelihood, default=None))


# What the reading of a quality is called → what a table calls the network, and where its measures are.
NETWORKS: dict[str, tuple[str, Callable[[Seen], Measures]]] = {
    "{}": ("at d_opt", lambda seen: seen.result.final.chosen),
    "full_{}": ("all depths", lambda seen: _known(seen.result.final.full)),
    "threshold_{}": ("by threshold", lambda seen: seen.result.final.by_rule["threshold"]),
    "expected_{}": ("by expectation", lambda seen: seen.result.final.by_rule["expected"]),
    "{}_at_d_opt_alone": ("d_opt alone", _at_d_opt_alone),
    "deepest_{}": ("deepest fixed depth", _deepest),
    "best_fixed_{}": ("best fixed depth", _best_fixed),
}


def _qualities() -> dict[str, Reading]:
    """Every quality of every network."""

    def reading(of: Callable[[Measures], float | None], network: Callable[[Seen], Measures]) -> Reading:
        return lambda seen: _known(of(network(seen)))

    return {
        name.format(quality.field): reading(quality.of, network)
        for quality in QUALITIES
        for name, (_, network) in NETWORKS.items()
    }


# --- what a one-shot loses --------------------------------------------------------------------------------------------


def _lost(part: str) -> Callable[[Quality], Reading]:
    def reading(quality: Quality) -> Reading:
        def read_part(seen: Seen) -> float:
            whole = (unit.result for unit in seen.units.values() if unit.plan.facts.exhaustive and unit.result)
            search = _known(next((result for result in whole if result.final.per_depth_test), None))
            if not _known(seen.unit).plan.facts.learns_depth:
                raise KeyError
            return loss_parts(seen.result, search, quality)[part]

        return read_part

    return reading


def _losses() -> dict[str, Reading]:
    """`shared_weights_accuracy`, …: of accuracy and log-likelihood, against the search over every depth."""
    return {
        f"{part.replace(' ', '_')}_{quality.field}": _lost(part)(quality)
        for part in LOSS_PARTS
        for quality in QUALITIES
        if quality.better == "higher"
    }


# --- depth, time and cost -----------------------------------------------------------------------------------------


def _saving(seen: Seen) -> float:
    """1 − forward time of the pruned network ÷ that of all D blocks, the two timed in turns in one process.

    A fixed-depth network of D blocks applies its output block once instead of D + 1 times, a few per cent of the time.
    """
    final = seen.result.final
    full = _known(final.full_forward_seconds_per_sample or None)  # nor is 0 a time
    return 1 - final.forward_seconds_per_sample / full


def _blocks_saved(seen: Seen) -> float:
    """What is left out of the blocks: 1 − d_opt ÷ D."""
    return 1 - seen.result.d_opt / _known(seen.unit).plan.space.depth.max


def _cost(measure: Measure) -> Reading:
    return lambda seen: _known(measure.read(Outcome.of_search(seen.result)))


READINGS: dict[str, Reading] = {
    "d_opt": lambda seen: seen.result.d_opt,
    "d_argmax": lambda seen: seen.posterior.d_opt_by_rule["argmax"],
    "d_threshold": lambda seen: seen.posterior.d_opt_by_rule["threshold"],
    "d_expected": lambda seen: seen.posterior.d_opt_by_rule["expected"],
    "d_exact": lambda seen: _known(seen.result.final.d_opt_exact),
    "posterior_gap": lambda seen: _known(seen.result.final.posterior_gap_nats),
    **_qualities(),
    **_losses(),
    "forward_saving": _saving,
    "blocks_saved": _blocks_saved,
    "tflop": _cost(TFLOP),
    "device_seconds": _cost(DEVICE_SECONDS),
}
