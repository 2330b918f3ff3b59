"""The one way to a terminal: what other people wrote is shown, never obeyed."""

import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from harness.text.shown import printable, without_secrets


class SafeConsole(Console):
    """Text is text: no markup in brackets, no control characters, no passwords of addresses."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **settings)
        if not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = 120  # rich would take 80, where tables wrap

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Everything that is printed, down to the cell of a table, comes through here."""
        if isinstance(renderable, str):
            renderable = safe(renderable)
        elif isinstance(renderable, Text) and safe(renderable.plain) != renderable.plain:
            renderable = renderable.copy()
            renderable.plain = safe(renderable.plain)
        return super().render(renderable, options)


def safe(text: str) -> str:
    return without_secrets(printable(text))
