"""Replays as a figure: what a search costs against how good its choice is, and how long it takes on more devices."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.colours import colour_of
from harness.comparing.numbers import plain
from harness.comparing.replays import MethodReplay, Replay
from harness.reporting.drawing import INK, MARKERS, WIDTH_INCHES, Drawing, draw, legend_below, plain_axis


def draw_replay(replay: Replay) -> Drawing:
    points = {each.method: _point(each) for each in replay.methods}
    front = pareto_front(points)
    several = len(replay.devices) > 1

    def paint(figure: Figure) -> None:
        panels = list(figure.subplots(1, 2 if several else 1, squeeze=False)[0])
        _cost_and_regret(panels[0], replay, points, front)
        if several:
            _wall_clock(panels[1], replay)
        legend_below(figure, *panels)

    said = "; ".join(f"{method} {plain(cost)} and {plain(regret)}" for method, (cost, regret) in points.items())
    return draw(
        "replay",
        f"Searches on recorded trials of {replay.space}",
        "Left: means over all searches; the line joins methods that no other beats in both.",
        f"Device-seconds and regret in nats of each method: {said}. On the Pareto front: {', '.join(front)}.",
        3.2,
        paint,
        width=WIDTH_INCHES * (1.6 if several else 1.0),
    )


def _point(method: MethodReplay) -> tuple[float, float]:
    return method.on[0].device_seconds.mean.mean, method.on[0].regret.mean.mean


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Methods that no other beats in both cost and regret, the cheapest first."""
    kept = [
        method
        for method, (cost, regret) in points.items()
        if not any(
            other_cost <= cost and other <= regret and (other_cost, other) != (cost, regret)
            for other_cost, other in points.values()
        )
    ]
    return sorted(kept, key=lambda method: points[method])


def _cost_and_regret(axes: Axes, replay: Replay, points: Mapping[str, tuple[float, float]], front: list[str]) -> None:
    axes.plot(*zip(*(points[method] for method in front), strict=True), color=INK, lw=1.0, ls="--", zorder=1)
    for index, each in enumerate(replay.methods):
        axes.plot(*points[each.method], **_style(index, each), ls="")
    axes.set_xlabel("device-seconds")
    axes.set_ylabel(f"regret, nats ({replay.regret_on})")
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    plain_axis(axes, "x", log=True)


def _wall_clock(axes: Axes, replay: Replay) -> None:
    for index, each in enumerate(replay.methods):
        seconds = [on.wall_seconds.mean.mean for on in each.on]
        axes.plot(replay.devices, seconds, **_style(index, each), ls=":" if each.trained else "-")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(replay.devices)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("devices")
    axes.set_ylabel("seconds")


def _style(index: int, method: MethodReplay) -> dict[str, Any]:
    return {
        "marker": MARKERS[index % len(MARKERS)],
        "color": colour_of(method.method, method.colour),
        "mec": "white",
        "ms": 7,
        "label": method.method,
    }
