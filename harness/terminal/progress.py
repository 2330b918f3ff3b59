"""How a run started from Python shows that it is at work."""

from rich.console import Console

from harness.running.side_by_side import Show
from harness.terminal.live_table import live_table
from harness.terminal.notebook import in_notebook, notebook_table


def shown(progress: bool | None) -> Show | None:
    """None: a live table in a notebook, nothing elsewhere; True: in a terminal too; False: nothing anywhere."""
    if progress is False:
        return None
    if in_notebook():
        return notebook_table
    return (lambda together: live_table(together, Console(highlight=False))) if progress else None
