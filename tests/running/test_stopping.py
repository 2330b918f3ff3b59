"""Ctrl-C, SIGTERM and SIGHUP: what they do to a run, to a command and to the terminal."""

import os
import pty
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from harness.running.stopping import PATIENCE_SECONDS, SIGNALS, STOPPED, STOPPING, ends_at_once, ends_in_order
from tests.drill import ROOT, Drill, stopped, undisturbed
from tests.running.results import ledger, wait_for

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def send(how: signal.Signals) -> None:
    os.kill(os.getpid(), how)


@pytest.mark.parametrize("how", SIGNALS)
def test_a_command_that_has_nothing_to_put_in_order_ends_at_once(how: signal.Signals) -> None:
    before = signal.getsignal(how)
    with pytest.raises(KeyboardInterrupt), ends_at_once() as stop:
        send(how)
    assert stop.exit_code == CODES[how] == 128 + how
    assert signal.getsignal(how) is before


@pytest.mark.parametrize("how", SIGNALS)
def test_a_run_says_so_and_goes_on_until_it_can_be_left(how: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    with ends_in_order(may_exit=True) as stop:
        assert not stop.by
        send(how)
        wait_for(lambda: bool(stop.by), "the signal")
        assert stop.by == how and 0 < stop.seconds_left <= PATIENCE_SECONDS
    assert capfd.readouterr().err == f"{STOPPING}\n"


def test_a_run_says_so_while_its_main_thread_is_in_native_code() -> None:
    """As it is for seconds while Ray starts: Python calls no handler until it is back."""
    program = (
        "import signal; from harness.running.stopping import ends_in_order\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "with ends_in_order(may_exit=True):\n"
        "    print('in native code', flush=True)\n"
        "    signal.sigwait([signal.SIGUSR1])"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == "in native code\n"
        process.send_signal(signal.SIGINT)
        said = process.stderr.readline()  # before it is back
        process.send_signal(signal.SIGUSR1)
    assert said == f"{STOPPING}\n" and process.returncode == 0


def test_a_second_ctrl_c_is_raised_where_the_process_is_not_ours() -> None:
    """In a notebook, whose kernel lives on. The other signals are the kernel's own business."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ends_in_order(may_exit=False) as stop, stop.said_by(lambda sentence: None):
        assert signal.getsignal(signal.SIGTERM) is before
        send(signal.SIGINT)
        send(signal.SIGINT)


def test_a_second_signal_ends_our_own_process_at_once() -> None:
    program = (
        "import os, signal; from harness.running.stopping import ends_in_order\n"
        "with ends_in_order(may_exit=True):\n"
        "    os.kill(os.getpid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGINT)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, f"{STOPPING}\n")


def test_what_is_ignored_stays_ignored() -> None:
    """As `nohup` wants it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ends_in_order(may_exit=True) as stop:
            send(signal.SIGHUP)
        assert not stop.by
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_take_no_signals() -> None:
    asked: list[int] = []

    def run() -> None:
        with ends_in_order(may_exit=True) as stop:
            asked.append(stop.by)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert asked == [0]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Drill:
    return undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.slow
@pytest.mark.parametrize("how", SIGNALS)
def test_a_real_run_stops_in_order_and_goes_on_as_if_it_had_not(
    how: signal.Signals, reference: Drill, tmp_path: Path
) -> None:
    """One moment each; `python -m tests.drill 30 --stops` takes ten."""
    moment = {signal.SIGINT: 0.3, signal.SIGTERM: 0.55, signal.SIGHUP: 0.8}[how] * reference.lines()
    outcome = stopped(1, how, lambda drill: drill.lines() >= moment, tmp_path, reference)
    assert outcome.wrong == []
    assert (outcome.code, outcome.starts) == (CODES[how], 2)


class Terminal:
    """`harness run` on a terminal of its own, with 24 lines of 100 characters."""

    def __init__(self, out: Path, temp: Path) -> None:
        options = ["--methods", "deepest", "--set", "depth.max=3", "--set", "training.report_every=20"]
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_terminal_that_is_closed_stops_the_run_in_order(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_until_it_trains()
    terminal.close()
    assert terminal.code() == 129
    last = ledger(tmp_path / "out", "deepest")[-1]
    assert last["event"] == "interrupted" and last["asked"]
