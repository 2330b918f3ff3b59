"""The live table in a notebook: one output below the cell that is replaced while the units run."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from harness.running.side_by_side import SideBySide
from harness.terminal.live_table import COLUMNS, cells, summary
from harness.text.shown import html_text

SECONDS_BETWEEN = 1.0  # a notebook's page redraws the whole output


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this code; IPython in a terminal has none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


@contextlib.contextmanager
def notebook_table(together: SideBySide) -> Iterator[Callable[[], None]]:
    began = last = time.monotonic()
    output = _display(as_html(together, began))

    def refresh() -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN:
            last = time.monotonic()
            output.update(_html(as_html(together, began)))

    yield refresh
    output.update(_html(as_html(together, began)))


def as_html(together: SideBySide, began: float) -> str:
    head = "".join(f"<th>{html_text(column)}</th>" for column in COLUMNS)
    rows = ["".join(f"<td>{html_text(cell)}</td>" for cell in cells(unit)) for unit in together.units]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    below = html_text(summary(together, began))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{below}</p>"


def _display(html: str) -> Any:
    from IPython.display import display

    return display(_html(html), display_id=True)


def _html(text: str) -> Any:
    from IPython.display import HTML

    return HTML(text)
