"""What results are held against: networks of every depth, what needs no network, and how sharp the space is."""

from collections.abc import Iterator, Sequence
from statistics import fmean, median, stdev

from harness.comparing.finished import ByMethod, Finished, paired
from harness.comparing.numbers import MINUS, plain, ratio
from harness.comparing.values import ClassRow, DepthCheck, Floor, MethodRow, Resolution
from harness.measures import BALANCED_ACCURACY, QUALITIES
from harness.schema.records import FinalEvaluation, Measures, TrialRecord
from harness.schema.settings import SearchSpace
from harness.statistics import ENOUGH_RESOLUTION, mean_interval, rank_correlation

LINEAR, GUESS = "linear model", "class frequencies"

# --- networks of every depth --------------------------------------------------------------------------------------


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


def depth_spread(all_depths: Sequence[Finished]) -> dict[str, float]:
    """How far the best and the worst depth lie apart on the test set, by measure: largest − smallest mean over seeds.

    `all_depths` as above; empty where no seed has a test curve. A margin wider than this would let any depth pass.
    """
    curves = [unit.result.final.per_depth_test for unit in all_depths if unit.result.final.per_depth_test]
    by_depth: dict[int, list[Measures]] = {}
    for item in (item for curve in curves for item in curve):
        by_depth.setdefault(item.depth, []).append(item.measures)
    if not by_depth:
        return {}
    found = {quality.key: [quality.of_all(measured) for measured in by_depth.values()] for quality in QUALITIES}
    means = {key: [fmean(values) for values in curve if values] for key, curve in found.items() if all(curve)}
    return {key: max(values) - min(values) for key, values in means.items()}


# --- the floor ----------------------------------------------------------------------------------------------------


def floor(by_method: ByMethod) -> Floor | None:
    """A linear model and guessing, once per seed: all methods have the same rows. None where no result has it."""
    units = [unit for group in by_method.values() for unit in group]
    found = {unit.seed: floor for unit in units if (floor := unit.result.final.floor)}
    if not found:
        return None
    seeds = tuple(sorted(found))
    return Floor(
        linear=_row(LINEAR, seeds, [found[seed].linear for seed in seeds]),
        guess=_row(GUESS, seeds, [found[seed].guess for seed in seeds]),
        not_converged=tuple(seed for seed in seeds if not found[seed].converged),
        below=tuple(sentence for group in by_method.values() for sentence in _below(group)),
    )


def _row(name: str, seeds: tuple[int, ...], measures: Sequence[Measures]) -> MethodRow:
    found = {quality.key: quality.of_all(measures) for quality in (*QUALITIES, BALANCED_ACCURACY)}
    per_seed = {key: tuple(values) for key, values in found.items() if values}
    values = {key: mean_interval(found) for key, found in per_seed.items()}
    return MethodRow(method=name, seeds=seeds, values=values, per_seed=per_seed)


def _below(units: Sequence[Finished]) -> Iterator[str]:
    """A sentence where the method's mean is worse than the linear model's on the same seeds."""
    finals = [unit.result.final for unit in units if unit.result.final.floor]
    parts = []
    for quality in QUALITIES:
        own = quality.of_all(final.chosen for final in finals)
        linear = quality.of_all(final.floor.linear for final in finals if final.floor)
        if quality.better == "higher" and own and linear and sum(own) < sum(linear):
            means = [f"{sum(values) / len(values):.3f}".replace("-", MINUS) for values in (own, linear)]
            parts.append(f"{quality.title} {means[0]} against {means[1]}")
    if parts:
        yield f"{units[0].method} is below a linear model on the same rows: {', '.join(parts)}."


# --- the classes --------------------------------------------------------------------------------------------------


def classes(by_method: ByMethod) -> tuple[ClassRow, ...]:
    """Every class with its rows and each method's recall, a mean over seeds; none where a result has no classes."""
    finals = {method: [unit.result.final for unit in units] for method, units in by_method.items()}
    everything = [final.per_class for group in finals.values() for final in group]
    if len({tuple(each.name for each in per_class) for per_class in everything}) != 1:
        return ()
    return tuple(
        ClassRow(
            name=each.name,
            rows=each.rows,
            recall={
                method: fmean(known) if (known := _recalls(group, number)) else None for method, group in finals.items()
            },
        )
        for number, each in enumerate(everything[0])
    )


def _recalls(finals: Sequence[FinalEvaluation], number: int) -> list[float]:
    found = [final.per_class[number].recall for final in finals]
    return [recall for recall in found if recall is not None]


# --- the resolution of the space ----------------------------------------------------------------------------------


def resolution(by_method: ByMethod, space: SearchSpace) -> Resolution | None:
    """How far the depths lie apart against how much the value that chooses between them jitters.

    Read from every fixed depth that was trained to its end; a depth is the same network in every method. All values
    are validation log-likelihoods, and all middles are medians:

        jitter          change from report to report over the last quarter of training, over trials
        between depths  gap of the other depths to the seed's best one, over depths, then over seeds
        between seeds   standard deviation over seeds at equal depth, over depths
        resolution      between depths ÷ jitter

    None where no two depths of a seed were trained to their end, or their curves have no two reports.
    """
    units = [unit for group in by_method.values() for unit in group]
    trials = {(trial.seed, trial.depth): trial for unit in units for trial in unit.trials if _is_complete(trial)}
    jitters = [jitter for trial in trials.values() if (jitter := trial.jitter) is not None]
    by_seed: dict[int, list[float]] = {}
    by_depth: dict[int, list[float]] = {}
    for (seed, depth), trial in trials.items():
        assert trial.val is not None
        by_seed.setdefault(seed, []).append(trial.val.log_likelihood)
        by_depth.setdefault(depth, []).append(trial.val.log_likelihood)
    gaps = [_gap_to_best(values) for values in by_seed.values() if len(values) > 1]
    if not jitters or not gaps:
        return None
    over_seeds = [stdev(values) for values in by_depth.values() if len(values) > 1]
    between_seeds = median(over_seeds) if over_seeds else None
    return _judged(median(jitters), median(gaps), between_seeds, space)


def _is_complete(trial: TrialRecord) -> bool:
    return not trial.learns_depth and trial.status == "finished" and trial.val is not None


def _gap_to_best(values: Sequence[float]) -> float:
    *others, best = sorted(values)
    return median(best - value for value in others)


def _judged(jitter: float, between_depths: float, between_seeds: float | None, space: SearchSpace) -> Resolution:
    enough = between_depths > 0 and between_depths >= ENOUGH_RESOLUTION * jitter
    found = between_depths / jitter if jitter else None
    measured = f"depths differ by {plain(between_depths, 2)} nats, validation jitters by {plain(jitter, 2)}"
    if between_seeds is not None:
        measured += f", seeds differ by {plain(between_seeds, 2)}"
    if enough:
        verdict = "this space can tell depths apart"
    else:
        how = "cannot tell" if between_depths <= jitter else "can hardly tell"
        verdict = f"this space {how} depths apart; what helps: {_remedies(space)}"
    if found is not None:
        measured += f" (resolution {ratio(found)})"
    return Resolution(
        jitter=jitter,
        between_depths=between_depths,
        between_seeds=between_seeds,
        ratio=found,
        enough=enough,
        sentence=f"{measured}: {verdict}.",
    )


def _remedies(space: SearchSpace) -> str:
    drop = [] if space.training.lr_drop_epoch else ["a drop of the rate (training.lr_drop_epoch)"]
    return ", ".join([*drop, "more validation rows (data)", "more epochs (training.max_epochs)"])
