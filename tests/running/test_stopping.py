"""Ctrl-C, SIGTERM and SIGHUP: what they do to a run and to a command. test_disturbed.py has them on real runs."""

import os
import signal
import subprocess
import sys
import threading
from subprocess import PIPE

import pytest

from harness.running.stopping import PATIENCE_SECONDS, SIGNALS, STOPPING, ends_at_once, ends_in_order
from tests.running.results import wait_for

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
    assert capfd.readouterr().err == "stopping after the running reports; Ctrl-C again ends now\n"


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
