"""Learnt functions as colour maps of the input plane: rows of maps with the training points on top."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from harness.colours import BLUE, VERMILION
from harness.data.splits import Array, TrainingData
from harness.errors import UserError
from harness.reporting.drawing import INK, Drawing, draw
from harness.studies.figures.lines import WIDE_INCHES
from harness.studies.networks import CLASS, TrainedNetwork

PIXELS = 120  # of a map's side
POINTS_SHOWN = 200  # of the training set; more would hide the map
# Tints of the points' own colours: a point on the wrong side stands out, one on the right side can still be seen.
_COLOURS = LinearSegmentedColormap.from_list("classes", ["#7fb8d8", "#ffffff", "#eaae7f"])
_MARGIN = 1.15  # the plane around the outermost point


@dataclass(frozen=True)
class Map:
    title: str
    probability: Array  # of class 1, PIXELS × PIXELS
    framed: bool = False


@dataclass(frozen=True)
class Row:
    name: str
    data: TrainingData
    maps: Sequence[Map]


def maps_of(trained: TrainedNetwork, depths: Sequence[int]) -> list[Map]:
    """Single depths, not marginalised."""
    per_depth = trained.per_depth(_plane(trained.data))
    return [Map(f"d = {depth}", _square(per_depth[depth])) for depth in depths]


def marginal_map(trained: TrainedNetwork) -> Map:
    return Map(f"d ≤ {trained.d_opt}", _square(trained.marginal(_plane(trained.data))), framed=True)


def depths_shown(deepest: int, at_most: int) -> list[int]:
    """From 0 to the deepest, closer together where networks are shallow."""
    places = deepest * np.linspace(0, 1, at_most) ** 1.6
    return sorted({round(float(place)) for place in places})


def draw_rows(
    name: str, title: str, caption: str, rows: Sequence[Row], chosen: Sequence[str], gone: Sequence[str]
) -> Drawing:
    """A row for every network; `chosen` says its depth in words, `gone` names those without a checkpoint."""
    missing = f" No checkpoint is left of: {', '.join(gone)}." if gone else ""
    return draw(
        name,
        title,
        caption + missing,
        f"Colour maps of learnt functions. {'; '.join(chosen) or 'No network is left to draw'}.",
        _height(rows),
        lambda figure: _paint_rows(figure, rows),
        width=WIDE_INCHES,
        png=True,
    )


def _paint_rows(figure: Figure, rows: Sequence[Row]) -> None:
    if not rows:
        figure.text(0.5, 0.5, "no checkpoint is left to draw from", ha="center")
        return
    columns = max(len(row.maps) for row in rows)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    image = None
    for axes_row, row in zip(grid, rows, strict=True):
        for column, axes in enumerate(axes_row):
            if column >= len(row.maps):
                axes.set_axis_off()
                continue
            image = _paint(axes, row.maps[column], row.data)
        axes_row[0].set_ylabel(f"{row.name}\nx₂")
        reach = _reach(row.data) / _MARGIN
        axes_row[0].set_yticks([-reach, 0, reach], [f"{-reach:.0f}".replace("-", "−"), "0", f"{reach:.0f}"])
    grid[-1, 0].set_xlabel("x₁")
    if image is not None:
        figure.colorbar(image, ax=grid, location="bottom", shrink=0.4, aspect=35, label="probability of class 1")


def _height(rows: Sequence[Row]) -> float:
    """So that maps are square and fill the width."""
    columns = max((len(row.maps) for row in rows), default=1)
    side = (WIDE_INCHES - 0.6) / columns
    return 0.8 + len(rows) * (side + 0.2)


def _paint(axes: Axes, shown: Map, data: TrainingData) -> AxesImage:
    reach = _reach(data)
    axes.set_title(shown.title, fontsize=8.5, loc="center", pad=3)
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
        if shown.framed:
            spine.set_color(INK)
            spine.set_linewidth(1.6)
    image = axes.imshow(
        shown.probability,
        extent=(-reach, reach, -reach, reach),
        origin="lower",
        cmap=_COLOURS,
        vmin=0,
        vmax=1,
        interpolation="none",
    )
    rows = data.train_rows[:POINTS_SHOWN]
    for of_class, colour in ((data.y[rows] != CLASS, BLUE), (data.y[rows] == CLASS, VERMILION)):
        x = data.x[rows][of_class]
        axes.plot(x[:, 0], x[:, 1], "o", ms=1.5, color=colour, mew=0)
    return image


def _plane(data: TrainingData) -> Array:
    if data.sample_shape != (2,):
        raise UserError(f"maps and readout draw functions of two inputs; these samples have shape {data.sample_shape}")
    side = np.linspace(-_reach(data), _reach(data), PIXELS)
    across, up = np.meshgrid(side, side)
    return np.stack([across.ravel(), up.ravel()], axis=1)


def _square(values: Array) -> Array:
    return values.reshape(PIXELS, PIXELS)


def _reach(data: TrainingData) -> float:
    return float(np.abs(data.x[data.train_rows]).max()) * _MARGIN
