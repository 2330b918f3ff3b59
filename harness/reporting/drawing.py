"""How every figure looks, and how it becomes accessible, self-contained SVG."""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from harness.comparing.numbers import plain
from harness.text.shown import html_text, printable

WIDTH_INCHES = 5.2  # of one column of the report: text stays readable when a phone shows it at full width
PNG_DPI = 200
INK = "#24292f"
MUTED = "#6e7781"
MARKERS = "osD^vPX*"


def marker_of(method: str, colours: Mapping[str, str]) -> str:
    """The same in every figure of a comparison; `colours` are those of its methods."""
    return MARKERS[list(colours).index(method) % len(MARKERS)]


_STYLE: dict[Any, Any] = {  # matplotlib types the keys by a list of all of them
    "svg.fonttype": "none",  # text stays text: it can be read, searched and scaled
    "svg.hashsalt": "depth-search-harness",  # the same figure, the same bytes
    "text.parse_math": False,  # names are users' text: a $ in them is no formula
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.edgecolor": "#8c959f",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e9ed",
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
}


@dataclass(frozen=True)
class Drawing:
    """A finished figure: `description` says in words what it shows, for those who cannot see it."""

    name: str
    title: str
    caption: str
    description: str
    svg: str
    width: float = WIDTH_INCHES
    png: bytes = b""  # for places that take no SVG; drawn when asked for

    @property
    def standalone_svg(self) -> str:
        """As a file: inside a page the size is the page's to give."""
        found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', self.svg)
        assert found is not None
        return self.svg.replace("<svg ", f'<svg width="{found[1]}pt" height="{found[2]}pt" ', 1) + "\n"


def draw(
    name: str,
    title: str,
    caption: str,
    description: str,
    height: float,
    paint: Callable[[Figure], None],
    *,
    width: float = WIDTH_INCHES,
    png: bool = False,
) -> Drawing:
    """Runs `paint` on an empty figure of so many inches and keeps the SVG, with `png` the same as pixels too."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure)
        raw, pixels = io.StringIO(), io.BytesIO()
        figure.savefig(raw, format="svg", metadata={"Date": None, "Creator": None})
        if png:
            figure.set_layout_engine("none")  # it is laid out already, which takes longer than the drawing
            figure.savefig(pixels, format="png", dpi=PNG_DPI, metadata={"Software": None})
    svg = _embeddable(printable(raw.getvalue()), name, title, description)
    return Drawing(name, title, caption, description, svg, width, pixels.getvalue())


def _embeddable(svg: str, name: str, title: str, description: str) -> str:
    """The <svg> element alone: ids made unique to the figure, size left to the page, title and description added."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    head, body = svg.split(">", 1)
    view_box = re.search(r'viewBox="[^"]+"', head)
    opening = (
        f'<svg {view_box.group(0) if view_box else ""} xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" role="img" aria-labelledby="{name}-title {name}-desc">'
    )
    texts = f'<title id="{name}-title">{html_text(title)}</title><desc id="{name}-desc">{html_text(description)}</desc>'
    return opening + texts + body.strip()


def _tick(value: float, _: object) -> str:
    text = plain(value, 3)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


PLAIN = FuncFormatter(_tick)  # 0.5, 20, 5,000


def plain_axis(axes: Axes, which: str = "x", log: bool = False) -> None:
    """Plain numbers, no powers of ten; on a log axis a few round ones of every decade. Call it last."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    if log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
        axis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high < 10 * low else (1.0, 2.0, 5.0)))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(PLAIN)


def legend_below(figure: Figure, *axes: Axes, columns: int = 3) -> None:
    """One legend for all of these axes, each label once."""
    found: dict[str, Artist] = {}
    for each in axes:
        handles, labels = each.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            found.setdefault(label, handle)
    if found:
        figure.legend(found.values(), list(found), loc="outside lower center", ncols=min(columns, len(found)))
