"""Figures of cost: what a search costs, where the time goes, how long one waits."""

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.comparing.numbers import inverse, mean_and_spread, plain, ratio_with_ends
from harness.comparing.values import Comparison
from harness.measures import DEVICE_SECONDS
from harness.reporting.drawing import INK, Drawing, draw, legend_below, marker_of, plain_axis
from harness.schema.records import SHOWN_PHASES

# Apart from the methods' colours, ordered from the useful to the wasted; light and dark alternate.
PHASE_COLOURS = {
    "startup": "#d0d7de",
    "data": "#ddcc77",
    "compile": "#117733",
    "train": "#332288",
    "stage": "#aa4499",
    "validate": "#88ccee",
    "checkpoint": "#44aa99",
    "lost": "#cc6677",
    "other": "#6e7781",
}


def cost_bars(comparison: Comparison) -> Drawing:
    rows = comparison.search.rows
    phases = {item.method: item for item in comparison.phases}
    stage = comparison.search
    ratios = {
        stage.name_of(pair): inverse(pair.cost_ratios[DEVICE_SECONDS.key])
        if stage.against
        else pair.cost_ratios[DEVICE_SECONDS.key]
        for pair in stage.pairs
        if DEVICE_SECONDS.key in pair.cost_ratios
    }
    refitted = comparison.refit is not None
    ends = [item.total + item.worker_start + (item.refit or 0.0) for item in phases.values()]
    widest = max(*ends, *(cost for row in rows for cost in row.per_seed[DEVICE_SECONDS.key])) or 1.0

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for place, row in enumerate(rows):
            item, colour = phases[row.method], comparison.colours[row.method]
            axes.barh(place, item.total, color=colour, height=0.62)
            axes.barh(
                place, item.worker_start, left=item.total, color="white", edgecolor=colour, hatch="////", height=0.62
            )
            end = item.total + item.worker_start
            if refitted:
                axes.barh(place, item.refit or 0.0, left=end, color=colour, alpha=0.3, height=0.62)
                end += item.refit or 0.0
            points = row.per_seed[DEVICE_SECONDS.key]
            axes.plot(points, [place + 0.31] * len(points), "o", ms=3.2, color="white", mec=INK, mew=0.7)
            found = ratios.get(row.method)
            text = plain(item.total) + " s" + (f"  ·  {ratio_with_ends(found)}" if found else "")
            axes.text(max(end, *points) + widest * 0.025, place, text, va="center", fontsize=8.5)
        axes.set_yticks(range(len(rows)), [row.method for row in rows])
        axes.invert_yaxis()
        axes.set_xlim(0, widest * 1.42)
        axes.set_xlabel("device-seconds per search")
        axes.grid(axis="y", visible=False)
        plain_axis(axes)

    parts = "; ".join(f"{row.method} {mean_and_spread(row.values[DEVICE_SECONDS.key])}" for row in rows)
    return draw(
        "cost",
        "What a search costs",
        "Mean over seeds; dots are single seeds. Hatched: starting workers, which methods share; not in the numbers"
        + (", pale: refit" if refitted else "")
        + f". The factor is a method's cost ÷ {stage.against or comparison.reference}'s, paired by seed.",
        f"Bars of device-seconds per method: {parts}.",
        0.8 + 0.42 * len(rows),
        paint,
    )


def wall_clock_lines(comparison: Comparison) -> Drawing:
    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for item in comparison.wall_clock:
            known = [(devices, value) for devices, value in item.seconds.items() if value is not None]
            if known:
                axes.plot(
                    *zip(*known, strict=True),
                    marker=marker_of(item.method, comparison.colours),
                    color=comparison.colours[item.method],
                    mec="white",
                    ms=7,
                    label=item.method,
                )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator([1, 2, 4, 8]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("devices")
        axes.set_ylabel("seconds, modelled")
        legend_below(figure, axes)

    parts = "; ".join(
        f"{item.method} {', '.join('no fit' if v is None else plain(v) for v in item.seconds.values())}"
        for item in comparison.wall_clock
    )
    return draw(
        "wallclock",
        "Waiting time on more devices (modelled)",
        "Scheduled from recorded trial durations, not measured on so many devices. A search of independent trials "
        "gains from every device; an adaptive one as its replays say, or else up to the concurrency it ran with; a "
        "single trial not at all.",
        f"Modelled seconds at 1, 2, 4 and 8 devices: {parts}.",
        3.0,
        paint,
    )


def phases_stacked(comparison: Comparison) -> Drawing:
    methods = comparison.phases
    used = [phase for phase in SHOWN_PHASES if any(item.device_seconds[phase] > 0 for item in methods)]

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for place, item in enumerate(methods):
            whole = sum(item.device_seconds.values()) or 1.0
            left = 0.0
            for phase in used:
                share = 100 * item.device_seconds[phase] / whole
                label = phase if place == 0 else None
                hatch = "xxx" if phase == "lost" else None
                colour = PHASE_COLOURS[phase]
                axes.barh(
                    place,
                    share,
                    left=left,
                    color=colour,
                    edgecolor="white",
                    lw=0.5,
                    hatch=hatch,
                    height=0.62,
                    label=label,
                )
                left += share
        axes.set_yticks(range(len(methods)), [item.method for item in methods])
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of the device time of all trials")
        axes.grid(axis="y", visible=False)
        legend_below(figure, axes, columns=4)

    parts = "; ".join(
        f"{item.method}: " + ", ".join(f"{phase} {plain(item.device_seconds[phase])}" for phase in used)
        for item in methods
    )
    return draw(
        "phases",
        "Where the device time went",
        "Every second that a trial held its devices belongs to one phase; failed, stopped and repeated work included.",
        f"Device-seconds per phase: {parts}.",
        1.2 + 0.36 * len(methods),
        paint,
    )
