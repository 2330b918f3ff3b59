"""The chosen depths against the measured curve: what the stand-alone network of every depth reached."""

from collections.abc import Sequence

from harness.comparing.finished import Finished
from harness.comparing.stages import paired
from harness.comparing.values import DepthCheck
from harness.records import Measures
from harness.statistics import mean_interval, rank_correlation


def depth_check(units: Sequence[Finished], all_depths: Sequence[Finished]) -> DepthCheck | None:
    """`all_depths`: the units of a method that trained every depth.

    Regret is a difference of measures, not of depths: the curve is often flat over many depths.

    None when no seed has a test curve to compare with.
    """
    pairs = [(unit, other) for unit, other in paired(units, all_depths) if other.result.final.per_depth_test]
    if not pairs:
        return None
    curves = [{item.depth: item.measures for item in other.result.final.per_depth_test} for _, other in pairs]
    at_choice, bests, own = [], [], []
    nearest_used = []
    for (unit, _), curve in zip(pairs, curves, strict=True):
        wanted = unit.result.d_opt
        depth = min(curve, key=lambda trained: (abs(trained - wanted), trained))
        if depth != wanted:
            nearest_used.append(unit.seed)
        at_choice.append(curve[depth])
        bests.append(max(curve.values(), key=lambda measures: measures.log_likelihood))
        own.append(unit.result.final.chosen)
    accuracies = [max(measures.accuracy for measures in curve.values()) for curve in curves]
    has_depths = any(unit.result.final.per_depth_val for unit, _ in pairs)

    def log_likelihood_regret(found: Sequence[Measures]) -> list[float]:
        return [best.log_likelihood - item.log_likelihood for best, item in zip(bests, found, strict=True)]

    return DepthCheck(
        method=units[0].method,
        seeds=tuple(unit.seed for unit, _ in pairs),
        log_likelihood_regret=mean_interval(log_likelihood_regret(at_choice)),
        accuracy_regret=mean_interval([best - item.accuracy for best, item in zip(accuracies, at_choice, strict=True)]),
        network_log_likelihood_regret=mean_interval(log_likelihood_regret(own)),
        nearest_used=tuple(nearest_used),
        rank_correlation=tuple(_correlation(*pair) for pair in pairs) if has_depths else None,
    )


def _correlation(unit: Finished, all_depths: Finished) -> float | None:
    """Spearman's ρ of validation log-likelihood per depth: inside the one network against stand-alone networks."""
    inside = {item.depth: item.measures.log_likelihood for item in unit.result.final.per_depth_val}
    alone = {trial.depth: trial.val.log_likelihood for trial in all_depths.trials if trial.val is not None}
    depths = sorted(inside.keys() & alone.keys())
    return rank_correlation([inside[depth] for depth in depths], [alone[depth] for depth in depths])
