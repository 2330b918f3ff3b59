"""The real command, stopped, killed and damaged in many ways and given again: it ends like an undisturbed run.

`make drill` does more.
"""

import os
import pty
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.running.stopping import STOPPED, STOPPING
from tests.drill import Drill, Fault, How, Stopping, drilling, run, undisturbed
from tests.forked import ROOT
from tests.running.results import ledger, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_workers")]
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
QUICK = How(workers=1, forked=True)  # each start, of a program or of a worker, takes longer than all of the training
FAULTS = [
    Fault("driver", 0.0),  # before anything was reported
    Fault("worker", 0.25),
    Fault("torn ledger", call=9),  # of a driver that is killed for it, as for the next
    Fault("garbage checkpoint"),
    Fault("driver in final"),
    Fault("mlflow", call=2, after=True),
]
REPLAY_FAULTS = [
    Fault("rename", call=3),  # by which a ledger appears
    Fault("driver in final"),
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Drill:
    return undisturbed(tmp_path_factory.mktemp("undisturbed"), QUICK)


def test_killed_and_damaged_and_given_again_it_ends_like_an_undisturbed_run(reference: Drill, tmp_path: Path) -> None:
    outcome = run(1, FAULTS, tmp_path, reference)
    assert outcome.wrong == []
    assert outcome.starts >= 4


def test_so_does_one_whose_searches_are_replayed(tmp_path: Path) -> None:
    """A replayed ledger appears as a whole, by a rename: killed before it or after it, and in what follows."""
    outcome = run(1, REPLAY_FAULTS, tmp_path, undisturbed(tmp_path, replace(QUICK, replay=True)))
    assert outcome.wrong == []
    assert outcome.starts >= 3


def test_stopped_in_order_by_each_signal_it_goes_on_as_if_it_had_not_been(reference: Drill, tmp_path: Path) -> None:
    """One after the other; `python -m tests.drill 30 --stops` takes ten moments of each."""
    outcome = Stopping(1)
    with drilling(tmp_path, outcome, QUICK) as drill:
        for how, moment in ((signal.SIGINT, 0.3), (signal.SIGTERM, 0.6), (signal.SIGHUP, 0.9)):
            due = moment * reference.lines()
            drill.start()
            drill.wait(lambda due=due: drill.takes_signals and drill.lines() >= due)  # type: ignore[misc]
            drill.stop(how, outcome)
            assert outcome.code == CODES[how], outcome.wrong
        drill.finish()
        outcome.wrong += [*drill.judge(reference), *drill.tells_of_a_death()]
    assert outcome.wrong == []
    assert outcome.starts == 4


class Terminal:
    """`harness run` on a terminal of its own, with 24 lines of 100 characters."""

    def __init__(self, out: Path, temp: Path) -> None:
        options = [
            "--methods",
            "deepest",
            "--set",
            "depth.max=3",
            "--set",
            "training.report_every=20",
            "--workers",
            "1",
        ]
        words = [sys.executable, "-m", "harness", "run", "quickstart", *options, "--epochs", "100000"]
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.environ.update(RAY_TMPDIR=str(temp), PYTHONPATH=str(ROOT), COLUMNS="100", LINES="24", TERM="xterm")
            os.execv(sys.executable, [*words, "--out", str(out)])
        self.shown = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._out = out

    def _read(self) -> None:
        while True:
            try:
                self.shown += os.read(self._master, 65536).decode(errors="replace")
            except OSError:
                return

    def wait_until_it_trains(self) -> None:
        wait_for(lambda: any(event["event"] == "report" for event in ledger(self._out, "deepest")), "a report")

    def press_ctrl_c(self) -> None:
        os.write(self._master, b"\x03")

    def close(self) -> None:
        os.close(self._master)

    def code(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.code()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp") as temp:  # short: Ray puts sockets below it
        opened = Terminal(tmp_path / "out", Path(temp))
        try:
            yield opened
        finally:
            opened.end()


def test_ctrl_c_on_a_terminal_says_so_below_the_table_which_stays(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_until_it_trains()
    before = len(terminal.shown)
    terminal.press_ctrl_c()
    wait_for(lambda: STOPPING in terminal.shown[before:], "the sentence")
    assert terminal.code() == 130
    wait_for(lambda: STOPPED in terminal.shown, "the last word")
    last = terminal.shown.rpartition("best val LL")[2]
    assert "deepest/seed-0" in last and STOPPING in last and last.rstrip().endswith(STOPPED)
    assert "\x1b[?25h" in last  # the cursor is there again
    assert (
        ledger(tmp_path / "out", "deepest")[-1] | {"asked": True, "event": "interrupted"}
        == ledger(tmp_path / "out", "deepest")[-1]
    )


def test_a_terminal_that_is_closed_stops_the_run_in_order(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_until_it_trains()
    terminal.close()
    assert terminal.code() == 129
    last = ledger(tmp_path / "out", "deepest")[-1]
    assert last["event"] == "interrupted" and last["asked"]
