"""Figures that go back to the units: anytime curves, weights over depths, calibration."""

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from harness.colours import BLUE
from harness.comparing.costs import Array, rungs_of, trajectory
from harness.comparing.finished import ByMethod, Finished
from harness.comparing.numbers import plain
from harness.comparing.tables import over_orders
from harness.comparing.values import Comparison
from harness.reporting.drawing import MUTED, Drawing, draw, legend_below, marker_of, plain_axis
from harness.reporting.posterior import DepthBelief, paint_posterior
from harness.schema.records import DepthMeasures, ReliabilityBin

GRID_POINTS = 160
FEWEST_SAMPLES = 30  # of a calibration bin; fewer say little about it


def anytime_curves(by_method: ByMethod, comparison: Comparison) -> Drawing:
    ends = {method: [unit.result.cost.device_seconds for unit in units] for method, units in by_method.items()}
    longest = max(max(costs) for costs in ends.values()) or 1.0
    grid = np.geomspace(longest / 300, longest, GRID_POINTS)
    curves = {method: _incumbents(units, grid) for method, units in by_method.items()}
    ours = by_method.get(comparison.reference, ())
    targets = [unit.result.val.log_likelihood - comparison.margins.log_likelihood for unit in ours]
    target = float(np.mean(targets)) if targets else None

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for method, values in curves.items():
            shown = np.isfinite(values).all(axis=0) & (grid <= max(ends[method]) * 1.001)
            if not shown.any():
                continue
            seeds = values[:, shown]
            mean = seeds.mean(axis=0)
            colour = comparison.colours[method]
            axes.fill_between(
                grid[shown], seeds.min(axis=0), seeds.max(axis=0), step="post", color=colour, alpha=0.15, lw=0
            )
            axes.step(grid[shown], mean, where="post", color=colour, label=method)
            marker = marker_of(method, comparison.colours)
            axes.plot(grid[shown][-1], mean[-1], marker, color=colour, mec="white", ms=7)
        if target is not None:
            label = f"{comparison.reference}'s end − margin"
            axes.axhline(target, color=MUTED, lw=1, ls=":", label=label)
        plain_axis(axes, log=True)
        axes.set_xlabel("device-seconds spent (log scale)")
        axes.set_ylabel("best validation log-likelihood so far")
        legend_below(figure, axes)

    finals = "; ".join(
        f"{method} ends at {plain(float(np.mean([unit.result.val.log_likelihood for unit in units])))}"
        for method, units in by_method.items()
    )
    return draw(
        "anytime",
        "How good, how soon",
        "Best validation log-likelihood so far against device-seconds spent: mean and range over seeds, up to the "
        f"end of the longest search (marked).{over_orders(comparison.unordered)} "
        "Dotted: the target of “cost at equal quality”.",
        f"Anytime curves: {finals}.",
        3.6,
        paint,
    )


def _incumbents(units: Sequence[Finished], grid: Array) -> Array:
    rungs = rungs_of(units)
    return np.stack([trajectory(unit, rungs).best_at(grid) for unit in units])


def weights_over_depths(by_method: ByMethod, comparison: Comparison) -> list[Drawing]:
    """The paper's figure 2, left, for each one-shot method: q(d) beside networks of a fixed depth."""
    learnt = {method: [unit for unit in units if _q(unit)] for method, units in by_method.items()}
    return [_weights_of(method, units, by_method, comparison) for method, units in learnt.items() if units]


def _weights_of(name: str, units: Sequence[Finished], by_method: ByMethod, comparison: Comparison) -> Drawing:
    exhaustive = comparison.exhaustive
    alone = [unit.result.final.per_depth_test for unit in (by_method[exhaustive] if exhaustive else ())]
    q = np.array([_q(unit) for unit in units])
    belief = DepthBelief(
        name=name,
        q=q,
        chosen=[unit.result.d_opt for unit in units],
        pruned=float(np.mean([unit.result.final.chosen.log_likelihood for unit in units])),
        fixed=_curve_over_depths(alone),
        inside=_curve_over_depths([unit.result.final.per_depth_val for unit in units]),
        colour=comparison.colours[name],
        fixed_colour=comparison.colours[exhaustive] if exhaustive else BLUE,
    )

    def paint(figure: Figure) -> None:
        legend_below(figure, *paint_posterior(figure.subplots(), belief), columns=2)

    best = ""
    if belief.best_fixed:
        depth, value = belief.best_fixed
        best = f" Stand-alone networks are best at depth {depth} with {plain(value)} nats."
    is_posterior = any(unit.result.final.posterior_gap_nats is not None for unit in units)
    return draw(
        f"weights_{re.sub('[^a-z0-9]+', '_', name)}",
        f"Which depths {name} believes in" if is_posterior else f"What {name} makes of the depths",
        ("Bars: the learnt posterior over depths. " if is_posterior else "Bars: its weights over depths. ")
        + "Dotted: validation at each depth inside the network. "
        + (
            "Line: what a network of exactly that depth reached on the test set when trained alone, mean and range "
            "over seeds. "
            if belief.fixed
            else "No method trained every depth, so there is no curve of stand-alone networks to compare with. "
        )
        + _depths_by_rule(units),
        f"q(d) peaks on average at depth {int(q.mean(axis=0).argmax())}; chosen depths per seed: "
        f"{', '.join(map(str, belief.chosen))}.{best}",
        3.7,
        paint,
    )


def _curve_over_depths(seeds: Sequence[Sequence[DepthMeasures]]) -> dict[int, list[float]]:
    """Depth → log-likelihood of each seed, for depths that all of them have."""
    curves = [{item.depth: item.measures.log_likelihood for item in items} for items in seeds]
    common = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    return {depth: [curve[depth] for curve in curves] for depth in common}


def _depths_by_rule(units: Sequence[Finished]) -> str:
    """Chosen depth, and what each rule would have chosen, as means over seeds; of a posterior, how exact it is."""
    by_rule: dict[str, list[int]] = {}
    for unit in units:
        posterior, final = unit.chosen.posterior if unit.chosen else None, unit.result.final
        depths = dict(posterior.d_opt_by_rule) if posterior else {}
        if final.d_opt_by_validation is not None:
            depths["validation"] = final.d_opt_by_validation
        if final.d_opt_exact is not None:
            depths["exact posterior"] = final.d_opt_exact
        for rule, depth in depths.items():
            by_rule.setdefault(rule, []).append(depth)
    chosen = f"{np.mean([unit.result.d_opt for unit in units]):.3g}"
    rules = ", ".join(f"{rule} {np.mean(depths):.3g}" for rule, depths in by_rule.items())
    gaps = [unit.result.final.posterior_gap_nats for unit in units]
    known = [gap for gap in gaps if gap is not None]
    gap = f"; the posterior gap is {plain(float(np.mean(known)))} nats" if known else ""
    return f"Mean d_opt {chosen}; by rule: {rules}{gap}."


def _q(unit: Finished) -> tuple[float, ...]:
    posterior = unit.chosen.posterior if unit.chosen and unit.facts.learns_depth else None
    return posterior.q if posterior else ()


def reliability(by_method: ByMethod, comparison: Comparison) -> Drawing | None:
    """The reference against the networks a search chose: the exhaustive one's, else the first other method's."""
    others = [method for method in by_method if method != comparison.reference]
    if comparison.reference not in by_method or not others:
        return None
    pair = (comparison.reference, comparison.exhaustive if comparison.exhaustive in others else others[0])
    pooled = {method: pooled_bins([unit.result.final.reliability for unit in by_method[method]]) for method in pair}
    if not all(any(item.count for item in bins) for bins in pooled.values()):
        return None
    eces = {method: float(np.mean([u.result.final.chosen.ece for u in by_method[method]])) for method in pair}

    def paint(figure: Figure) -> None:
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls="--", label="perfect calibration")
        for index, method in enumerate(pair):
            bins = [item for item in pooled[method] if item.count >= FEWEST_SAMPLES]
            rare = [item for item in pooled[method] if 0 < item.count < FEWEST_SAMPLES]
            colour, marker = comparison.colours[method], marker_of(method, comparison.colours)
            label = f"{method}, ECE {plain(eces[method])}"
            confidence = [item.confidence for item in bins]
            axes.plot(
                confidence, [item.accuracy for item in bins], marker + "-", color=colour, mec="white", ms=6, label=label
            )
            axes.plot(
                [item.confidence for item in rare],
                [item.accuracy for item in rare],
                marker,
                color=colour,
                ms=3,
                alpha=0.4,
            )
            width = (pooled[method][0].upper - pooled[method][0].lower) * 0.42
            centres = [(item.lower + item.upper) / 2 + (index - 0.5) * width for item in pooled[method]]
            total = sum(item.count for item in pooled[method])
            below.bar(centres, [100 * item.count / total for item in pooled[method]], width=width, color=colour)
        seen = [item.lower for method in pair for item in pooled[method] if item.count]
        axes.set_xlim(min(seen), 1.01)
        axes.set_ylim(max(0.0, min(seen) - 0.25), 1.02)
        axes.set_ylabel("accuracy in the bin")
        below.set_ylabel("% of samples")
        below.set_xlabel("confidence in the top class")
        legend_below(figure, axes)

    parts = "; ".join(f"{method} has a mean ECE of {plain(eces[method])}" for method in pair)
    return draw(
        "reliability",
        "Can its confidence be believed?",
        f"{pair[0]} against the networks that {pair[1]} chose, all seeds pooled, {len(pooled[pair[0]])} bins. Below "
        "the diagonal: overconfident. The lower panel says how many test samples each bin holds; bins of fewer than "
        f"{FEWEST_SAMPLES} are faint dots.",
        f"Reliability diagrams: {parts}.",
        4.2,
        paint,
    )


def pooled_bins(seeds: Sequence[Sequence[ReliabilityBin]]) -> list[ReliabilityBin]:
    """The bins of all seeds together, weighted by their counts; seeds with other bins than the first are left out."""
    edges = [(item.lower, item.upper) for item in seeds[0]] if seeds else []
    same = [bins for bins in seeds if [(item.lower, item.upper) for item in bins] == edges]
    pooled = []
    for column in zip(*same, strict=True):
        count = sum(item.count for item in column)
        pooled.append(
            ReliabilityBin(
                lower=column[0].lower,
                upper=column[0].upper,
                count=count,
                confidence=sum(item.confidence * item.count for item in column) / count if count else 0.0,
                accuracy=sum(item.accuracy * item.count for item in column) / count if count else 0.0,
            )
        )
    return pooled
