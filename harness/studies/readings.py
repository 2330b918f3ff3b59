"""Numbers that a study's claims and figures speak of, read from the records of one cell and seed."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from harness.records import FinalEvaluation, Measures, Posterior, SearchResult, Unit

Units = Mapping[str, Unit]  # of one cell and seed, by method; complete ones only
T = TypeVar("T")


def _result(units: Units, *methods: str) -> SearchResult:
    """Of the first of the methods that was run; a KeyError says that the study did not train it."""
    for method in methods:
        unit = units.get(method)
        if unit and unit.result:
            return unit.result
    raise KeyError(methods[0])


def _known(value: T | None) -> T:
    """A KeyError, as for a network that was not trained, where the record has no such number."""
    if value is None:
        raise KeyError
    return value


def _ldn(units: Units) -> FinalEvaluation:
    return _result(units, "ldn").final


def posterior(units: Units) -> Posterior:
    """q(d) of the learnt-depth network at its best epoch."""
    _result(units, "ldn")
    found = units["ldn"].trials[0].posterior
    assert found is not None
    return found


def fixed_depths(units: Units) -> dict[int, Measures]:
    """Test measures of every stand-alone network that was trained, by depth."""
    result = _result(units, "grid", "deepest")
    return {each.depth: each.measures for each in result.final.per_depth_test} or {result.d_opt: result.final.chosen}


def _deepest(units: Units) -> Measures:
    depths = fixed_depths(units)
    return depths[max(depths)]


def _best_fixed(units: Units) -> Measures:
    return max(fixed_depths(units).values(), key=lambda measures: measures.log_likelihood)


def _full(units: Units) -> Measures:
    return _known(_ldn(units).full)


def _at_d_opt_alone(units: Units) -> Measures:
    """Depth d_opt by itself, without the depths below it."""
    alone = {each.depth: each.measures for each in _ldn(units).per_depth_test}
    return alone[_result(units, "ldn").d_opt]


def _saving(units: Units) -> float:
    """1 − forward time of the pruned network ÷ that of all D blocks, the two timed in turns in one process.

    A fixed-depth network of D blocks applies its output block once instead of D + 1 times, a few per cent of the time.
    """
    full = _known(_ldn(units).full_forward_seconds_per_sample or None)  # nor is 0 a time
    return 1 - _ldn(units).forward_seconds_per_sample / full


def _saving_expected(units: Units) -> float:
    """What is left out of the blocks: 1 − d_opt ÷ D."""
    result = _result(units, "ldn")
    return 1 - result.d_opt / units["ldn"].plan.space.depth.max


READINGS: dict[str, Callable[[Units], float]] = {
    "d_opt": lambda units: _result(units, "ldn").d_opt,
    "d_argmax": lambda units: posterior(units).d_opt_by_rule["argmax"],
    "d_threshold": lambda units: posterior(units).d_opt_by_rule["threshold"],
    "d_expected": lambda units: posterior(units).d_opt_by_rule["expected"],
    "d_exact": lambda units: _known(_ldn(units).d_opt_exact),
    "posterior_gap": lambda units: _known(_ldn(units).posterior_gap_nats),
    "log_likelihood": lambda units: _ldn(units).chosen.log_likelihood,
    "accuracy": lambda units: _ldn(units).chosen.accuracy,
    "ece": lambda units: _ldn(units).chosen.ece,
    "full_log_likelihood": lambda units: _full(units).log_likelihood,
    "full_accuracy": lambda units: _full(units).accuracy,
    "full_ece": lambda units: _full(units).ece,
    "threshold_log_likelihood": lambda units: _ldn(units).by_rule["threshold"].log_likelihood,
    "threshold_accuracy": lambda units: _ldn(units).by_rule["threshold"].accuracy,
    "expected_log_likelihood": lambda units: _ldn(units).by_rule["expected"].log_likelihood,
    "expected_accuracy": lambda units: _ldn(units).by_rule["expected"].accuracy,
    "accuracy_at_d_opt_alone": lambda units: _at_d_opt_alone(units).accuracy,
    "deepest_log_likelihood": lambda units: _deepest(units).log_likelihood,
    "deepest_accuracy": lambda units: _deepest(units).accuracy,
    "deepest_ece": lambda units: _deepest(units).ece,
    "best_fixed_log_likelihood": lambda units: _best_fixed(units).log_likelihood,
    "best_fixed_accuracy": lambda units: _best_fixed(units).accuracy,
    "forward_saving": _saving,
    "blocks_saved": _saving_expected,
}
