"""Figures of quality: what cost buys, and whether the reference is worse than a margin allows."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.comparing.numbers import plain, signed
from harness.comparing.tables import confidence
from harness.comparing.values import ALL_PARTS, Comparison, MethodRow
from harness.judging.words import shown
from harness.measures import ACCURACY, DEVICE_SECONDS, LOG_LIKELIHOOD, SIZE, Measure
from harness.reporting.drawing import INK, MUTED, Drawing, draw, legend_below, marker_of, plain_axis
from harness.statistics import Interval


def quality_against_cost(comparison: Comparison) -> Drawing:
    return _quality_against(
        DEVICE_SECONDS, comparison, "quality", "Quality against cost", "device-seconds per search (log scale)"
    )


def quality_against_size(comparison: Comparison) -> Drawing | None:
    """None where a result of an earlier version does not say how large its network is."""
    if not all(SIZE.key in row.values for row in comparison.search.rows):
        return None
    label = "multiply-adds ÷ the deepest network's (log scale)"
    return _quality_against(SIZE, comparison, "size", "Quality against the size of the network", label)


def _quality_against(x: Measure, comparison: Comparison, name: str, title: str, label: str) -> Drawing:
    rows = comparison.search.rows
    measures = [measure for measure in comparison.qualities if measure.better == "higher"]
    fronts = {measure.key: pareto_front(rows, measure.key, x.key) for measure in measures}

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(measures), 1, sharex=True, squeeze=False)[:, 0]
        for axes, measure in zip(panels, measures, strict=True):
            front = sorted(
                (row.values[x.key].mean, row.values[measure.key].mean)
                for row in rows
                if row.method in fronts[measure.key]
            )
            axes.step(*zip(*front, strict=True), where="post", color=MUTED, lw=1.1, ls="--", label="Pareto front")
            for row in rows:
                cost, quality = row.values[x.key], row.values[measure.key]
                colour, marker = comparison.colours[row.method], marker_of(row.method, comparison.colours)
                axes.plot(
                    row.per_seed[x.key],
                    row.per_seed[measure.key],
                    marker,
                    ms=3,
                    color=colour,
                    alpha=0.35,
                )
                axes.errorbar(
                    cost.mean,
                    quality.mean,
                    xerr=cost.half_width if cost.low is not None and cost.low > 0 else None,  # the axis is logarithmic
                    yerr=quality.half_width,
                    fmt=marker,
                    color=colour,
                    mec="white",
                    ms=8,
                    lw=1.2,
                    label=row.method,
                )
            axes.set_title(f"test {measure.title}" + (f" ({measure.unit})" if measure.unit else ""))
            if measure.key == ACCURACY.key:
                low, high = axes.get_ylim()
                axes.set_ylim(low, min(high, 1.0 + 0.05 * (1.0 - low)))  # an interval may pass 1, an accuracy cannot
        plain_axis(panels[-1], log=True)
        panels[-1].set_xlabel(label)
        legend_below(figure, panels[0])

    parts = "; ".join(
        f"{row.method}: {x.title} {plain(row.values[x.key].mean)}, "
        + ", ".join(f"{measure.title} {plain(row.values[measure.key].mean)}" for measure in measures)
        for row in rows
    )
    best = "; ".join(f"{measure.title}: {', '.join(fronts[measure.key])}" for measure in measures)
    return draw(
        name,
        title,
        "Up and to the left is better. Large marks: means with 95 % intervals; small ones: seeds. Dashed: the Pareto "
        "front of the means, methods that nothing else beats in both.",
        f"{parts}. On the Pareto front: {best}.",
        2.3 * len(measures),
        paint,
    )


def pareto_front(rows: Sequence[MethodRow], key: str, cost: str = DEVICE_SECONDS.key) -> list[str]:
    """Methods whose mean is beaten by no other in both cost, or size, and quality (higher is better)."""
    points = {row.method: (row.values[cost].mean, row.values[key].mean) for row in rows}
    return [
        method
        for method, (spent, quality) in points.items()
        if not any(
            other_cost <= spent and other >= quality and (other_cost, other) != (spent, quality)
            for other_cost, other in points.values()
        )
    ]


def verdict_intervals(comparison: Comparison) -> Drawing | None:
    """The advantage of each judged method with its interval, against the margin; None without a pair."""
    pairs = comparison.search.pairs
    if not pairs:
        return None
    margins = comparison.judged
    names = [comparison.search.name_of(pair) for pair in pairs]
    against = comparison.search.against
    what = f"every method over {against}" if against else f"{pairs[0].method} over every method"

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(margins), 1, squeeze=False)[:, 0]
        for axes, (measure, margin) in zip(panels, margins.items(), strict=True):
            for place, (pair, name) in enumerate(zip(pairs, names, strict=True)):
                mean, low, high = _advantage(pair.differences[measure.key], measure)
                faint = 0.35 if pair.withheld else 1.0
                colour = comparison.colours[name]
                if low is not None and high is not None:
                    axes.plot([low, high], [place, place], color=colour, lw=2.4, alpha=faint, solid_capstyle="butt")
                axes.plot(
                    mean, place, marker_of(name, comparison.colours), color=colour, mec="white", ms=7, alpha=faint
                )
            left, right = axes.get_xlim()
            left, right = min(left, -1.6 * margin), max(right, 0.6 * margin)
            axes.axvspan(left, -margin, color="#d55e00", alpha=0.10, lw=0)
            axes.axvline(-margin, color="#a04000", lw=1, ls="--")
            axes.axvline(0, color=MUTED, lw=0.8)
            axes.set_xlim(left, right)
            axes.set_ylim(len(pairs) - 0.5, -0.5)
            axes.set_yticks(range(len(pairs)), names)
            axes.set_title(f"{measure.title}, margin {margin:g}" + (f" {measure.unit}" if measure.unit else ""))
            axes.grid(axis="y", visible=False)
            axes.xaxis.set_major_locator(MaxNLocator(6))
        panels[-1].set_xlabel("← worse  ·  better →")

    outcomes = "; ".join(
        f"{pair.method} against {pair.baseline} "
        + (
            ", ".join(f"{m.title} {shown(pair.verdicts[m.key].outcome)}" for m in margins if m.key in pair.verdicts)
            or "withheld"
        )
        for pair in pairs
    )
    return draw(
        "verdict",
        f"What is lost against {against}?" if against else f"What does {pairs[0].method} lose?",
        f"Mean advantage of {what} with its {confidence(comparison.search)} t interval, paired by seed. "
        "Right of the grey line it is better; between the grey and the dashed line it is worse, by less than the "
        "margin. Pale: withheld.",
        f"Verdicts: {outcomes}.",
        0.5 + len(margins) * (0.55 + 0.22 * len(pairs)),
        paint,
    )


def losses(comparison: Comparison) -> Drawing | None:
    """The three parts of each one-shot's loss side by side; None where not every depth was trained."""
    found = comparison.losses
    if not found:
        return None

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        paint_losses(axes, [(each.method, each.parts[LOG_LIKELIHOOD.key]) for each in found])
        legend_below(figure, axes)

    return draw(
        "losses",
        "Where do one-shots lose?",
        f"Test log-likelihood that each one-shot loses against the choice of {comparison.exhaustive}, in three parts "
        "that add up, with 95 % t intervals: the wrong depth was chosen; its weights serve every depth; depths are "
        "averaged. Right of the line is lost.",
        "; ".join(f"{each.method}: {losses_in_words(each.parts[LOG_LIKELIHOOD.key])}" for each in found) + ".",
        1.1 + 0.55 * len(found),
        paint,
    )


PART_COLOURS = {"wrong depth": "#0072b2", "shared weights": "#d55e00", "averaging": "#009e73", ALL_PARTS: INK}


def paint_losses(axes: Axes, rows: Sequence[tuple[str, Mapping[str, Interval]]]) -> None:
    """A line for each method; its parts below each other, their sum as a diamond."""
    for place, (_, parts) in enumerate(rows):
        for number, (part, colour) in enumerate(PART_COLOURS.items()):
            each, at = parts[part], place - 0.27 + 0.18 * number
            label = part if place == 0 else None
            if part == ALL_PARTS:
                axes.errorbar(each.mean, at, xerr=each.half_width, fmt="D", color=colour, ms=4.5, lw=1.2, label=label)
            else:
                axes.barh(at, each.mean, 0.16, xerr=each.half_width, color=colour, ecolor=MUTED, label=label)
    axes.use_sticky_edges = False  # a diamond at 0 is seen whole
    axes.axvline(0, color=MUTED, lw=0.8)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel("test log-likelihood lost (nats)")


def losses_in_words(parts: Mapping[str, Interval]) -> str:
    return ", ".join(f"{part} {signed(each)}" for part, each in parts.items())


def _advantage(difference: Interval, measure: Measure) -> tuple[float, float | None, float | None]:
    if measure.better == "higher":
        return difference.mean, difference.low, difference.high
    low = None if difference.high is None else -difference.high
    return -difference.mean, low, None if difference.low is None else -difference.low
