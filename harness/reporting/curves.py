"""Figures that go back to the units: anytime curves, the posterior over depths, calibration."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from harness.colours import BLUE
from harness.comparing.anytime import Array, rungs_of, trajectory
from harness.comparing.finished import ByMethod, Finished
from harness.comparing.numbers import plain
from harness.comparing.tables import over_orders
from harness.comparing.values import Comparison
from harness.records import ReliabilityBin
from harness.reporting.drawing import MARKERS, MUTED, Drawing, draw, legend_below, plain_axis
from harness.reporting.posterior import DepthBelief, paint_posterior

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
        for index, (method, values) in enumerate(curves.items()):
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
            axes.plot(grid[shown][-1], mean[-1], MARKERS[index % len(MARKERS)], color=colour, mec="white", ms=7)
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


def posterior_over_depths(by_method: ByMethod, comparison: Comparison) -> Drawing | None:
    """The paper's figure 2, left: q(d) under the stand-alone networks' test log-likelihood.

    Of the first method that learns its depth: the reference, if it does. None without one.
    """
    learnt = {method: [unit for unit in units if _q(unit)] for method, units in by_method.items()}
    name = next((method for method, units in learnt.items() if units), None)
    if name is None:
        return None
    q = np.array([_q(unit) for unit in learnt[name]])
    chosen = [unit.result.d_opt for unit in learnt[name]]
    exhaustive = comparison.exhaustive
    curves = [
        {item.depth: item.measures.log_likelihood for item in unit.result.final.per_depth_test}
        for unit in (by_method[exhaustive] if exhaustive else ())
    ]
    common = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    own = float(np.mean([unit.result.final.chosen.log_likelihood for unit in learnt[name]]))
    belief = DepthBelief(
        name=name,
        q=q,
        chosen=chosen,
        pruned=own,
        fixed={depth: [curve[depth] for curve in curves] for depth in common},
        colour=comparison.colours[name],
        fixed_colour=comparison.colours[exhaustive] if exhaustive else BLUE,
    )

    def paint(figure: Figure) -> None:
        legend_below(figure, *paint_posterior(figure.subplots(), belief), columns=2)

    best = ""
    if belief.best_fixed:
        depth, value = belief.best_fixed
        best = f" Stand-alone networks are best at depth {depth} with {plain(value)} nats."
    return draw(
        "posterior",
        "Which depths the one-shot network believes in",
        "Bars: the learnt posterior over depths. "
        + (
            "Line: what a network of exactly that depth reached on the test set when trained alone, mean and range "
            "over seeds."
            if common
            else "No method trained every depth, so there is no curve of stand-alone networks to compare with."
        ),
        f"q(d) peaks on average at depth {int(q.mean(axis=0).argmax())}; chosen depths per seed: "
        f"{', '.join(map(str, chosen))}.{best}",
        3.7,
        paint,
    )


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
            colour, marker = comparison.colours[method], MARKERS[index]
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
