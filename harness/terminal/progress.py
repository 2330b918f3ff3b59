"""How a run started from Python shows that it is at work."""

from harness.running.side_by_side import Show
from harness.terminal.console import SafeConsole
from harness.terminal.live_table import live_table
from harness.terminal.notebook import in_notebook, notebook_table


def shown(progress: bool | None) -> Show | None:
    """None: a live table in a notebook, nothing elsewhere; True: in a terminal too; False: nothing anywhere."""
    if progress is False:
        return None
    if in_notebook():
        return notebook_table
    return (lambda together: live_table(together, SafeConsole())) if progress else None
