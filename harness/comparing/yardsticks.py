"""What results are held against: networks of every depth, what needs no network, and how sharp the space is."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from harness.comparing.finished import ByMethod, Finished, paired
from harness.comparing.numbers import MINUS, ROUNDING, plain, ratio
from harness.comparing.values import ALL_PARTS, LOSS_PARTS, ClassRow, DepthCheck, Floor, Loss, MethodRow, Resolution
from harness.measures import BALANCED_ACCURACY, QUALITIES, Quality
from harness.schema.records import FIXED_DEPTH, FinalEvaluation, Measures, SearchResult, TrialRecord
from harness.schema.settings import SearchSpace
from harness.statistics import mean_interval, rank_correlation
from harness.text.shown import counted

Array = NDArray[np.float64]

EXCHANGES = 999  # tables in which depths mean nothing
BY_CHANCE = 0.05  # the share of them that may stand out as much as what was found
_CANNOT = "cannot tell depths apart"
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


def loss(units: Sequence[Finished], all_depths: Sequence[Finished]) -> Loss | None:
    """Where a one-shot loses against the choice of the search that trained every depth; None: it is no one-shot, or no
    seed has a test curve."""
    pairs = [(unit, other) for unit, other in paired(units, all_depths) if other.result.final.per_depth_test]
    if not pairs or not units[0].facts.learns_depth:
        return None
    results = [(unit.result, other.result) for unit, other in pairs]
    found = {
        quality.key: [loss_parts(own, search, quality) for own, search in results]
        for quality in QUALITIES
        if quality.better == "higher" and all(_in_records(quality, *pair) for pair in results)
    }
    per_seed = {
        key: {part: tuple(each[part] for each in seeds) for part in (*LOSS_PARTS, ALL_PARTS)}
        for key, seeds in found.items()
    }
    return Loss(
        method=units[0].method,
        seeds=tuple(unit.seed for unit, _ in pairs),
        parts={key: {part: mean_interval(values) for part, values in parts.items()} for key, parts in per_seed.items()},
        per_seed=per_seed,
        nearest_used=tuple(
            unit.seed for unit, other in pairs if _nearest(unit.result, other.result) != unit.result.d_opt
        ),
    )


def loss_parts(own: SearchResult, search: SearchResult, quality: Quality) -> dict[str, float]:
    """Of one seed, with G(d) the network of depth d that the search trained, and the one-shot's of depth d_opt alone:

        wrong depth      G(the search's choice) − G(d_opt)
        shared weights   G(d_opt) − the one-shot's d_opt alone
        averaging        the one-shot's d_opt alone − what it hands over

    What follows a one-shot's training hands over a network of one depth: that is its d_opt alone.
    """
    at = {each.depth: _value(quality, each.measures) for each in search.final.per_depth_test}
    inside = {each.depth: _value(quality, each.measures) for each in own.final.per_depth_test}
    handed_over, best = _value(quality, own.final.chosen), _value(quality, search.final.chosen)
    alone, trained = inside.get(own.d_opt, handed_over), at[_nearest(own, search)]
    parts = (best - trained, trained - alone, alone - handed_over)
    return {**dict(zip(LOSS_PARTS, parts, strict=True)), ALL_PARTS: best - handed_over}


def _nearest(own: SearchResult, search: SearchResult) -> int:
    """The depth that was trained alone next to d_opt: itself, unless it lies off the space's steps."""
    depths = [each.depth for each in search.final.per_depth_test]
    return min(depths, key=lambda trained: (abs(trained - own.d_opt), trained))


def _in_records(quality: Quality, *results: SearchResult) -> bool:
    """Whether they have it: results that were written before a measure came have it nowhere."""
    return all(quality.of(result.final.chosen) is not None for result in results)


def _value(quality: Quality, measures: Measures) -> float:
    found = quality.of(measures)
    assert found is not None, "asked for by `loss` only where it is in the records"
    return found


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
    """Of every fixed depth that was trained to its end; a depth is the same network in every method.

    None where fewer than two depths were trained to their end on fewer than two seeds.
    """
    units = [unit for group in by_method.values() for unit in group]
    trials = {(trial.seed, trial.depth): trial for unit in units for trial in unit.trials if _is_complete(trial)}
    jitters = [jitter for trial in trials.values() if (jitter := trial.jitter) is not None]
    values = {key: trial.val.log_likelihood for key, trial in trials.items() if trial.val}
    return resolution_of(values, median(jitters) if jitters else None, space)


def _is_complete(trial: TrialRecord) -> bool:
    is_drawn_once = trial.kind == FIXED_DEPTH and not trial.restart
    return is_drawn_once and trial.status == "finished" and trial.val is not None


def resolution_of(
    values: Mapping[tuple[int, int], float], jitter: float | None, space: SearchSpace
) -> Resolution | None:
    """How far depths lie apart, against how much single networks scatter; `values` by seed and depth.

        between depths  standard deviation of the depths' means over seeds
        scatter         standard deviation of what is left of a value without its seed's and its depth's mean
        resolution      between depths ÷ scatter

    Depths are told apart where that is at least 1, and more than chance gives: more than in 95 % of EXCHANGES tables in
    which the depths of every seed were exchanged at random.
    """
    seeds = sorted({seed for seed, _ in values})
    depths = sorted({depth for _, depth in values if all((seed, depth) in values for seed in seeds)})
    if len(seeds) < 2 or len(depths) < 2:
        return None
    table = np.array([[values[seed, depth] for depth in depths] for seed in seeds])
    between, scatter = _between_and_scatter(table)
    exchanged = np.random.default_rng(0).permuted(np.tile(table, (EXCHANGES, 1, 1)), axis=2)
    by_chance = _ratio(*_between_and_scatter(exchanged))
    found, limit = float(_ratio(between, scatter)), float(np.quantile(by_chance, 1 - BY_CHANCE, method="higher"))
    best = tuple(depths[place] for place in table.argmax(axis=1))
    differ = found > limit and float(between) > ROUNDING
    enough = differ and found >= 1
    said = (
        f"the standard deviation between depths is {plain(float(between), 2)} nats, that of single networks "
        f"{plain(float(scatter), 2)} (resolution {ratio(found) if math.isfinite(found) else 'beyond measure'}; chance "
        f"alone gives up to {ratio(limit) if math.isfinite(limit) else 'any'}), {_agreement(best)}"
    )
    verdict = "good and bad depths can be told apart"
    if not differ and math.factorial(len(depths)) ** (len(seeds) - 1) * BY_CHANCE < 1:
        # Not even depths that all seeds rank alike could stand out.
        counts = f"{len(seeds)} seeds with {len(depths)} depths"
        verdict = f"{counts} are too few to say whether this space tells depths apart"
    elif not enough:
        how = "can hardly tell depths apart, since single networks scatter more" if differ else _CANNOT
        verdict = f"this space {how}; what helps: {_remedies(space)}"
    return Resolution(
        jitter=jitter,
        between_depths=float(between),
        scatter=float(scatter),
        between_seeds=float(table.mean(axis=1).std(ddof=1)),
        ratio=found if math.isfinite(found) else None,
        by_chance=limit if math.isfinite(limit) else None,
        best_depths=best,
        enough=enough,
        sentence=f"{said}: {verdict}.",
    )


def _between_and_scatter(tables: Array) -> tuple[Array, Array]:
    """Of tables (…, seeds, depths)."""
    seeds, depths = tables.shape[-2:]
    of_depths, of_seeds = tables.mean(axis=-2, keepdims=True), tables.mean(axis=-1, keepdims=True)
    left = tables - of_depths - of_seeds + tables.mean(axis=(-2, -1), keepdims=True)
    scatter = np.sqrt((left**2).sum(axis=(-2, -1)) / ((seeds - 1) * (depths - 1)))
    return of_depths[..., 0, :].std(axis=-1, ddof=1), scatter


def _ratio(between: Array, scatter: Array) -> Array:
    return np.where(
        scatter > ROUNDING, between / np.maximum(scatter, ROUNDING), np.where(between > ROUNDING, np.inf, 0)
    )


def _agreement(best: Sequence[int]) -> str:
    """`7 of 10 seeds agree on depth 4`; `the best depth varies by seed (0 to 12)`."""
    common, count = Counter(best).most_common(1)[0]
    if 2 * count > len(best):
        return f"{count} of {counted(len(best), 'seed')} agree on depth {common}"
    return f"the best depth varies by seed ({min(best)} to {max(best)})"


def _remedies(space: SearchSpace) -> str:
    drop = [] if space.training.falls else ["a drop of the rate (training.lr_drop_epoch)"]
    return ", ".join([*drop, "more validation rows (data)", "more epochs (training.max_epochs)"])
