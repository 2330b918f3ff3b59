"""A live table of the units while searches run; plain lines where the output is not a terminal."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.running.ledger import TrialLog
from harness.running.result import handed_over_depth
from harness.running.side_by_side import SideBySide
from harness.running.stopping import STOPPING
from harness.running.unit import RunningUnit
from harness.text.shown import counted

PLAIN_SECONDS = 10.0  # between plain lines
HINT = "Ctrl-C stops, re-run to resume"
AROUND = 4  # lines of a screen that are no units: heading, those that are left out, what Ctrl-C does, summary


@contextlib.contextmanager
def live_table(together: SideBySide, console: Console) -> Iterator[Callable[[], None]]:
    began = time.monotonic()
    told: set[str] = set()
    if not console.is_terminal:
        yield _plain(together, console, began, told)
        return
    screen = _Screen(together, console, began)
    with (
        Live(screen, console=console, refresh_per_second=4, transient=True) as live,
        together.stop.said_by(lambda sentence: None),  # the screen says it
    ):

        def refresh() -> None:
            _show_news(together, console, told)
            screen.draw()

        yield refresh
        live.transient = not together.stop.by  # a run that is stopped leaves what it had reached


class _Screen:
    """The units as they were drawn last, and a line that knows of a stop at once.

    Live asks for it from a thread of its own, also while the run is busy with something else.
    """

    def __init__(self, together: SideBySide, console: Console, began: float) -> None:
        self._together, self._console, self._began = together, console, began
        self.draw()

    def draw(self) -> None:
        self._table = table(self._together, rows=max(1, self._console.height - AROUND))
        self._summary = summary(self._together, self._began)

    def __rich__(self) -> RenderableType:
        stopping = Text(STOPPING, style="bold")
        return Group(self._table, stopping if self._together.stop.by else Text(HINT, style="dim"), Text(self._summary))


def _plain(together: SideBySide, console: Console, began: float, told: set[str]) -> Callable[[], None]:
    shown: dict[str, str] = {}
    next_line = time.monotonic() + PLAIN_SECONDS

    silent = False

    def refresh() -> None:
        nonlocal next_line, silent
        _show_news(together, console, told)
        waiting = together.waits_for()
        if waiting and not silent:
            console.print(waiting, soft_wrap=True)
        silent = waiting is not None
        for unit in together.units:
            state = _state(unit)
            if state in {"complete", "failed"} and shown.get(unit.key) != state:
                shown[unit.key] = state
                console.print(f"{unit.key}: {state}, {unit.device_seconds:.1f} device-seconds", soft_wrap=True)
        if time.monotonic() >= next_line:
            next_line = time.monotonic() + PLAIN_SECONDS
            over = sum(unit.is_over for unit in together.units)
            trials = sum(len(_ended(unit)) for unit in together.units)
            so_far = f"{over}/{counted(len(together.units), 'unit')}, {counted(trials, 'trial')}"
            console.print(
                f"{so_far}, {together.device_seconds:.1f} device-seconds, about {_left(together, began)} left",
                soft_wrap=True,
            )

    return refresh


COLUMNS = ("unit", "trials", "running", "device-s", "best val LL", "depth", "state")


def table(together: SideBySide, rows: int) -> Table:
    """At most so many units: those at work before those that are over, and those before others that wait."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        shown.add_column(column, justify="left" if column in {"unit", "state"} else "right", no_wrap=column == "unit")
    first = sorted(together.units, key=lambda unit: (_state(unit) == "waiting", unit.is_over))[:rows]
    for unit in together.units:
        if unit in first:
            shown.add_row(*cells(unit), style="dim" if unit.is_over else "")
    if left_out := [_state(unit) for unit in together.units if unit not in first]:
        counts = ", ".join(f"{number} {state}" for state, number in Counter(left_out).items())
        shown.add_row(f"and {counts}", style="dim")
    return shown


def cells(unit: RunningUnit) -> tuple[str, ...]:
    """One unit's row, in the order of COLUMNS."""
    best, depth = _best(unit)
    return (
        unit.key,
        f"{len(_ended(unit))}/{unit.plan.trials}",
        str(len(unit.running)) if unit.running else "",
        f"{unit.device_seconds:.1f}",
        best,
        depth,
        _state(unit),
    )


def summary(together: SideBySide, began: float) -> str:
    """Time and cost so far, and a guess at the rest; in a long silence, what is waited for."""
    so_far = (
        f"{time.monotonic() - began:.0f} s, {together.device_seconds:.1f} device-seconds, "
        f"about {_left(together, began)} left"
    )
    return "; ".join(filter(None, (so_far, together.waits_for())))


def _ended(unit: RunningUnit) -> list[TrialLog]:
    return [log for log in unit.search_logs() if log.status is not None]


def _best(unit: RunningUnit) -> tuple[str, str]:
    """Best validation log-likelihood so far, and the depth it would hand over."""
    known = [(p.val.log_likelihood, log) for log in unit.search_logs() if (p := log.progress) and p.val]
    if not known:
        return "", ""
    value, log = max(known, key=lambda pair: pair[0])
    return f"{value:.4f}", str(handed_over_depth(log))


def _state(unit: RunningUnit) -> str:
    if unit.result:
        return "complete"
    if unit.failure:
        return "failed"
    if unit.choice:
        return next((task for task in ("retrained", "refit") if task in unit.live.values()), "test")
    return "searching" if unit.logs else "waiting"


def _left(together: SideBySide, began: float) -> str:
    """From the trials done per second so far; early-stopped ones make it a guess."""
    trained = [unit for unit in together.units if not unit.plan.replayed]
    done = sum(len(_ended(unit)) for unit in trained)
    planned = sum(len(_ended(unit)) if unit.is_over else unit.plan.trials for unit in trained)
    if not done:
        return "?"
    seconds = (time.monotonic() - began) / done * max(0, planned - done)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _show_news(together: SideBySide, console: Console, shown: set[str]) -> None:
    """Once each: a worker's warning; the last lines of a failed trial's error, and where the rest is."""
    for unit in together.units:
        if unit.remark and unit.remark not in shown:
            shown.add(unit.remark)
            console.print(f"{unit.key}: {unit.remark}", soft_wrap=True)
        for log in unit.logs.values():
            key = f"{unit.key} {log.name}"
            for warning in log.warnings:
                if warning not in shown:  # a storage that is away is so for all trials
                    shown.add(warning)
                    console.print(f"{key}: {warning}", soft_wrap=True)
            if log.status == "failed" and key not in shown:
                shown.add(key)
                tail = "\n  ".join((log.error or "no error was given").strip().splitlines()[-5:])
                console.print(f"{key} failed, its cost counts:\n  {tail}\n  ({unit.folder.path}/ledger.jsonl)")
        if unit.failure and unit.key not in shown:
            shown.add(unit.key)
            console.print(f"{unit.key} failed: {unit.failure}")
