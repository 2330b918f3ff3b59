"""The paper's figure 2, left: q(d) as bars, with what networks of a fixed depth reach laid over it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from harness.colours import GREEN
from harness.comparing.numbers import plain
from harness.reporting.drawing import INK

WINDOW = 4.0  # nats below the best


@dataclass(frozen=True)
class DepthBelief:
    """The weights over depths of one one-shot network's seeds, beside networks of a fixed depth."""

    name: str  # of the network
    q: np.ndarray  # (seeds, D+1)
    chosen: list[int]  # d_opt of each seed
    pruned: float  # mean test log-likelihood of the network pruned to d_opt
    fixed: Mapping[int, Sequence[float]]  # depth → test log-likelihood of each seed's stand-alone network
    colour: str
    fixed_colour: str
    inside: Mapping[int, Sequence[float]] = field(default_factory=dict)  # the same on validation, inside the network

    @property
    def best_fixed(self) -> tuple[int, float] | None:
        """The best depth of the stand-alone networks and its mean; None where none was trained."""
        means = {depth: float(np.mean(values)) for depth, values in self.fixed.items()}
        return max(means.items(), key=lambda item: item[1]) if means else None


def paint_posterior(axes: Axes, belief: DepthBelief) -> list[Axes]:
    """Bars of the mean with the seeds' range as whiskers. Returns the axes that a legend speaks of."""
    q, colour = belief.q, belief.colour
    depths, mean = np.arange(q.shape[1]), q.mean(axis=0)
    axes.bar(depths, mean, color=colour, alpha=0.35, width=0.85, label="q(d), mean over seeds")
    if len(q) > 1:
        axes.vlines(depths, q.min(axis=0), q.max(axis=0), color=colour, lw=0.8, label="q(d), range over seeds")
    # Seeds that chose the same depth stand above each other, so that they can be counted.
    step = 0.05 * float(q.max())
    ranks = [belief.chosen[:seed].count(depth) for seed, depth in enumerate(belief.chosen)]
    heights = [float(q[:, depth].max()) + (0.7 + rank) * step for depth, rank in zip(belief.chosen, ranks, strict=True)]
    axes.plot(belief.chosen, heights, "v", color=INK, mec="white", mew=0.6, ms=6, label="d_opt, each seed")
    axes.set_ylim(0, max(float(q.max()) * 1.3, max(heights) + step))
    axes.set_xlabel("depth d (residual blocks)")
    axes.set_ylabel("weight q(d)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    return [axes, _paint_quality(axes, belief)] if belief.fixed or belief.inside else [axes]


def _paint_quality(axes: Axes, belief: DepthBelief) -> Axes:
    twin = axes.twinx()
    twin.grid(visible=False)
    twin.spines["right"].set_visible(True)
    values = [value for curve in (belief.fixed, belief.inside) for each in curve.values() for value in each]
    floor = _floor([*values, belief.pruned])
    if belief.inside:
        depths = sorted(belief.inside)
        means = [max(float(np.mean(belief.inside[depth])), floor) for depth in depths]
        twin.plot(depths, means, ":", color=INK, lw=1.2, label=f"{belief.name} at each depth, validation")
    if belief.fixed:
        _paint_fixed(twin, belief, floor)
    twin.axhline(belief.pruned, color=GREEN, ls="--", lw=1.4, label=f"{belief.name} pruned to d_opt, test")
    twin.margins(y=0.12)
    twin.set_ylabel("log-likelihood (nats)")
    return twin


def _paint_fixed(twin: Axes, belief: DepthBelief, floor: float) -> None:
    depths = sorted(belief.fixed)
    seeds = [belief.fixed[depth] for depth in depths]
    colour = belief.fixed_colour
    means = np.array([float(np.mean(each)) for each in seeds])
    lows, highs = [max(min(each), floor) for each in seeds], [max(*each, floor) for each in seeds]
    twin.fill_between(depths, lows, highs, color=colour, alpha=0.15, lw=0)
    size = 4 if len(depths) <= 25 else 3
    shown = np.maximum(means, floor)
    twin.plot(depths, shown, "o-", ms=size, color=colour, mec="white", mew=0.5, label="stand-alone networks, test")
    for depth, mean in zip(depths, means, strict=True):
        if mean < floor:  # one network that fell apart must not flatten all the others
            twin.annotate(
                plain(mean), (depth, floor), (0, -3), textcoords="offset points", ha="center", va="top", color=colour
            )


def _floor(values: Sequence[float]) -> float:
    """The lowest value that is drawn in its place: others lie more than WINDOW below the best."""
    best = max(values)
    return min(value for value in values if value >= best - WINDOW)
