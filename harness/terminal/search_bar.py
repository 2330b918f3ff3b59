"""A bar of searches on stderr while they are replayed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from harness.terminal.console import SafeConsole


@contextmanager
def search_bar(searches: int, shown: bool) -> Iterator[Callable[[], None]]:
    columns = (TextColumn("searches"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn())
    bar = Progress(*columns, console=SafeConsole(stderr=True), transient=True)
    task = bar.add_task("", total=searches)
    with bar if shown else nullcontext():  # one that is switched off ends with an empty line, before Rich 14.3
        yield lambda: bar.advance(task)
