"""How a run started from Python shows that it is at work."""

import sys

from harness.running.side_by_side import Show
from harness.terminal.console import SafeConsole
from harness.terminal.live_table import live_table
from harness.terminal.notebook import in_notebook, notebook_table


def shown(progress: bool | None) -> Show | None:
    """None: a live table in a notebook, and on stderr where that is a terminal. True: lines elsewhere; False: none.

    Never on stdout, which is the script's.
    """
    if progress is False:
        return None
    if in_notebook():
        return notebook_table
    return (
        (lambda together: live_table(together, SafeConsole(stderr=True))) if progress or sys.stderr.isatty() else None
    )
