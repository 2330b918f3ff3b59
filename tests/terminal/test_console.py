"""What other people wrote is shown on the terminal, never obeyed."""

import io

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harness.terminal.console import SafeConsole


def test_markup_control_characters_and_passwords_are_not_obeyed() -> None:
    console = SafeConsole(file=io.StringIO(), width=200)
    hostile = "[bold]x[/nothing] \x1b[31m \x9b5m \u202e http://me:s3cr/t@host/x"
    table = Table("name")
    table.add_row(hostile)
    table.add_row(Text(hostile))
    console.print(hostile)
    console.print(Panel(Text(hostile)), table, f"- {hostile}")
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count("[bold]x[/nothing] �[31m �5m � http://host/x") == 5
    assert not set(shown) & set("\x1b\x9b\u202e") and "s3cr" not in shown
