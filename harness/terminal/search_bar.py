"""A bar of searches on stderr while they are replayed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from harness.terminal.console import SafeConsole


@contextmanager
def search_bar(searches: int, shown: bool) -> Iterator[Callable[[], None]]:
    columns = (TextColumn("searches"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn())
    bar = Progress(*columns, console=SafeConsole(stderr=True), transient=True, disable=not shown)
    task = bar.add_task("", total=searches)
    with bar:
        yield lambda: bar.advance(task)
