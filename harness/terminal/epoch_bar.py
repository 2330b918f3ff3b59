"""A bar of epochs on stderr while one trial trains."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from harness.schema import records
from harness.terminal.console import SafeConsole


@contextmanager
def epoch_bar(max_epochs: int, shown: bool) -> Iterator[Callable[[records.Progress], None]]:
    columns = (TextColumn("epoch"), BarColumn(), TextColumn("{task.completed}/{task.total}  {task.description}"))
    bar = Progress(*columns, TimeRemainingColumn(), console=SafeConsole(stderr=True), transient=True)
    task = bar.add_task("", total=max_epochs)

    def show(progress: records.Progress) -> None:
        text = f"validation log-likelihood {progress.val.log_likelihood:.4f}" if progress.val else ""
        bar.update(task, completed=progress.epoch, description=text)

    with bar if shown else nullcontext():  # one that is switched off ends with an empty line, before Rich 14.3
        yield show
