"""A stop that was asked for: Ctrl-C, SIGTERM (Slurm, Kubernetes, `timeout`), SIGHUP (a closed terminal)."""

import contextlib
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPING = "stopping after the running reports; Ctrl-C again ends now"
STOPPED = "stopped; finished trials and checkpoints are kept, re-run to resume"
PATIENCE_SECONDS = 15.0  # for the running reports; whoever sends SIGTERM often kills after thirty


class Stop:
    """Whether a stop was asked for, and by which signal."""

    def __init__(self, may_exit: bool = False) -> None:
        self.may_exit = may_exit  # whether the process is ours to end: that of the command line is
        self.by = 0  # the signal's number
        self.say: Callable[[str], None] = _to_stderr
        self._asked_at = 0.0

    def ask(self, signum: int) -> None:
        self.by, self._asked_at = signum, time.monotonic()
        self.say(STOPPING)

    @property
    def seconds_left(self) -> float:
        """For what runs to report once more."""
        return max(0.0, self._asked_at + PATIENCE_SECONDS - time.monotonic())

    @property
    def exit_code(self) -> int:
        """As a shell has it for a process that a signal ended; an end of input counts as Ctrl-C."""
        return 128 + (self.by or signal.SIGINT)

    @contextlib.contextmanager
    def said_by(self, say: Callable[[str], None]) -> Iterator[None]:
        before, self.say = self.say, say
        try:
            yield
        finally:
            self.say = before


@contextlib.contextmanager
def ends_at_once() -> Iterator[Stop]:
    """Whichever signal comes is a KeyboardInterrupt: for a command while it has nothing to put in order."""
    stop = Stop()

    def end(signum: int, frame: Any) -> None:
        stop.by = signum
        raise KeyboardInterrupt

    with _handled(SIGNALS, end):
        yield stop


@contextlib.contextmanager
def ends_in_order(may_exit: bool) -> Iterator[Stop]:
    """For a run. Once: the trials that run come to their next report and are kept there. Twice: at once.

    Where the process is not ours to end, a notebook's kernel say, only Ctrl-C is taken.
    """
    stop = Stop(may_exit)

    def ask(signum: int) -> None:
        if not stop.by:
            stop.ask(signum)
        elif may_exit:
            exit_now(128 + signum)
        else:
            raise KeyboardInterrupt

    if may_exit:
        with _heard_at_once(ask), _handled(SIGNALS, lambda signum, frame: None):
            yield stop
    else:
        with _handled(SIGNALS[:1], lambda signum, frame: ask(signum)):
            yield stop


def exit_now(code: int) -> None:
    """As if killed, but the terminal has its cursor back, which a live table hides."""
    with contextlib.suppress(OSError):
        if os.isatty(1):
            os.write(1, b"\x1b[?25h\n")
    os._exit(code)


@contextlib.contextmanager
def _handled(signals: Sequence[signal.Signals], handler: Callable[[int, Any], None]) -> Iterator[None]:
    """In the main thread, which alone can take signals. A SIGHUP that is ignored stays so: `nohup` asks for it.

    SIGINT is taken even so: a script's shell ignores it for what it runs in the background, and `kill -INT` is meant.
    """

    def handle(signum: int, frame: Any) -> None:
        if signum == signal.SIGHUP:
            _let_go_of_a_dead_terminal()
        handler(signum, frame)

    in_main = threading.current_thread() is threading.main_thread()
    unwanted = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    before = {each: signal.signal(each, handle) for each in signals if in_main and each not in unwanted}
    try:
        yield
    finally:
        for each, handled in before.items():
            signal.signal(each, signal.SIG_DFL if handled is None else handled)


@contextlib.contextmanager
def _heard_at_once(hear: Callable[[int], None]) -> Iterator[None]:
    """Calls `hear` from a thread, with the number of each signal that is handled.

    A handler has to wait until the main thread is back from native code; from Ray's start that takes seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def listen() -> None:
        while number := os.read(reading, 1):
            if number[0] in SIGNALS:
                hear(number[0])

    listener = threading.Thread(target=listen, name="hears signals", daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        listener.join()
        os.close(reading)


def _let_go_of_a_dead_terminal() -> None:
    """What is printed from here on goes nowhere, instead of failing."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            is_device = stat.S_ISCHR(os.fstat(descriptor).st_mode)
            if is_device and not os.isatty(descriptor):  # a terminal that is gone says that it is none
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _to_stderr(sentence: str) -> None:
    """Past Python's buffers: a signal may come while they are being written."""
    first = "\n" if os.isatty(2) else ""  # a terminal shows ^C where the cursor is
    with contextlib.suppress(OSError):
        os.write(2, f"{first}{sentence}\n".encode())
