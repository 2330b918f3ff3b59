"""What methods cost and lose over all spaces, and which of them nothing beats in both."""

from matplotlib.figure import Figure

from harness.comparing.numbers import plain
from harness.comparing.sentences import COST_WORDS
from harness.reporting.drawing import INK, MARKERS, MUTED, Drawing, draw, legend_below, plain_axis
from harness.studies.across import Across
from harness.studies.results import StudyResults
from harness.text.shown import counted

MOST_NAMED = 12  # that a legend has room for


def draw_across(found: Across, results: StudyResults) -> Drawing:
    points = {found.search: (1.0, 0.0)}
    points |= {each.method: each.point for each in found.methods if each.everywhere and each.point}
    named = list(points)
    if len(points) > MOST_NAMED:
        named = [name for name in points if name in {found.search, *found.declared, *found.front}]

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot(*zip(*(points[name] for name in found.front), strict=True), color=INK, lw=1.0, ls="--", zorder=1)
        if others := [point for name, point in points.items() if name not in named]:
            axes.plot(*zip(*others, strict=True), ls="", marker=".", color=MUTED, ms=5, alpha=0.6, label="others")
        for index, name in enumerate(named):
            marker = MARKERS[index % len(MARKERS)]
            axes.plot(*points[name], ls="", marker=marker, color=results.colour(name), mec="white", ms=7, label=name)
        axes.set_xlabel(f"{COST_WORDS[found.cost]} ÷ {found.search}'s")
        axes.set_ylabel("log-likelihood lost (nats)")
        plain_axis(axes, "x", log=True)
        legend_below(figure, axes)

    said = "; ".join(f"{name} {plain(cost, 2)} and {plain(lost, 2)}" for name, (cost, lost) in points.items())
    return draw(
        "across",
        "Cost against loss over all spaces",
        f"Each method that ran on all of {counted(len(found.spaces), 'space')}, against {found.search}: medians over "
        "spaces of the cost ratio and of the test log-likelihood lost. Down and to the left is better; the line joins "
        "methods that no other beats in both."
        + (" Named are the declared methods and those on that line." if len(named) < len(points) else ""),
        f"Cost ratio and nats lost of each method: {said}. On the front: {', '.join(found.front)}.",
        3.4,
        paint,
        png=True,
    )
