"""A fault drill: small searches, disturbed at random, given again until they are complete, compared to the bit.

    python -m tests.drill 100            drills 1 to 100
    python -m tests.drill --only 37      one of them again
    python -m tests.drill 20 --replay    runs whose searches over depths are replayed
    python -m tests.drill 100 --jobs 2   two at a time; each trains on one core
    python -m tests.drill 30 --stops     runs that are told to stop, by Ctrl-C, SIGTERM and SIGHUP in turn
    python -m tests.drill 30 --hostile   clocks that step, a stopped driver, changed files, another user, MLflow away

A drill is a number: it seeds which faults there are, and at which event of the ledgers each comes. A stop comes at a
moment of the clock, anywhere between the program's first and last second.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mlflow import MlflowClient

from harness import api, keys
from harness.errors import UserError
from harness.methods import RECORDER
from harness.running.ledger import Chosen, Ended, Interrupted, Reported, Started, Suggested
from harness.running.result import contradictions
from harness.running.stopping import SIGNALS
from harness.running.store import UnitFolder
from harness.spaces import load_space
from tests import disturbed, warm
from tests.forked import ROOT, Forked
from tests.running.results import left_in, processes_of, read, set_words, small

METHODS = ("ldn", "asha", "optuna_tpe")
SETTINGS = set_words(
    small("depth.max=3", "training.max_epochs=200", "training.patience=200", "training.report_every=20")
)
SILENCE_SECONDS = 180.0  # without a new event: it hangs
FIRST_WORD_SECONDS = 2.0  # after a signal; where nothing else keeps the machine busy
OUTSIDE = ("driver", "worker", "raylet", "gcs_server", "ctrl-c", "worker in final", "driver in final")
INSIDE = ("rename", "mlflow", "full disk")
BETWEEN = ("torn ledger", "garbage checkpoint", "empty checkpoint")
HOSTILE_OUTSIDE = ("driver stopped", "clock back", "clock forward", "second user")
HOSTILE_INSIDE = ("mlflow away", "sqlite read-only", "plan writing")
HOSTILE_BETWEEN = ("data changed", "method changed", "symlinked results", "init")
STOPPED_SECONDS = 60.0
METHOD = """
from ray import tune
from ray.tune.search import BasicVariantGenerator

from harness.methods.base import SearchMethod, SearchPlan


class Mine(SearchMethod):
    def plan(self, space, budget, seed):
        return SearchPlan({"depth": tune.grid_search([1, 2])}, BasicVariantGenerator(), num_samples=1)
"""
SPACE = """
name: quickstart
data: {kind: arrays, path: rows.npz}
network: {kind: fc, width: 20}
depth: {min: 0, max: 10}
training: {max_epochs: 1000, patience: 200, eval_every: 20, report_every: 20}
"""


@dataclass(frozen=True)
class Fault:
    kind: str
    moment: float = 0.0  # of all events: 0 at the first, 1 at the last
    call: int = 1  # of the function that a fault inside the driver is in
    after: bool = False  # that call, or before it


def faults_of(number: int) -> list[Fault]:
    rng = random.Random(f"drill {number}")
    kinds = [rng.choice((*OUTSIDE, *INSIDE)) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.4:  # files can be damaged only where a run is down
        kinds = ["driver", rng.choice(BETWEEN), *kinds[1:]]
    moments = sorted(rng.random() for _ in kinds)
    return [
        Fault(kind, moment, rng.randint(1, 12), rng.random() < 0.5) for kind, moment in zip(kinds, moments, strict=True)
    ]


def hostile_faults_of(number: int) -> list[Fault]:
    """One of each kind in turn, and one or two others; a driver that is killed, now and then."""
    rng, kinds = random.Random(f"hostile {number}"), (*HOSTILE_OUTSIDE, *HOSTILE_INSIDE, *HOSTILE_BETWEEN)
    chosen = [kinds[number % len(kinds)], *rng.sample((*kinds, "driver"), rng.randint(0, 2))]
    moments = sorted(rng.random() for _ in chosen)
    return [
        Fault(kind, moment, rng.randint(1, 8), rng.random() < 0.5) for kind, moment in zip(chosen, moments, strict=True)
    ]


@dataclass
class Outcome:
    """What became of a drill; `wrong` is empty when all is well."""

    number: int
    faults: list[str] = field(default_factory=list)
    starts: int = 0
    began: float = field(default_factory=time.monotonic)
    wrong: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Until now, or until it was judged."""
        return (self.ended or time.monotonic()) - self.began

    ended: float = 0.0

    def __str__(self) -> str:
        return ", ".join(self.faults)


@dataclass
class Stopping(Outcome):
    """What became of a run that was told to stop."""

    code: int = 0  # 0: it had ended before
    came_after: float = 0.0  # seconds since the start of the command
    said_after: float = 0.0  # since the signal
    ended_after: float = 0.0
    finals: int = 0  # times that a final evaluation was started, in all units

    def __str__(self) -> str:
        return (
            f"{self.faults[0]} at {self.came_after:.1f} s, a word after {self.said_after:.2f} s, the end after "
            f"{self.ended_after:.1f} s with {self.code}, {self.finals} finals started"
        )


@dataclass(frozen=True)
class How:
    """How a search is run."""

    replay: bool = False  # searches over depths are replayed
    workers: int = 2
    forked: bool = False  # from a process that has imported everything, instead of started as a program
    own: bool = False  # with data and a method file of the user's own


class Drill:
    """One search, disturbed and given again."""

    def __init__(self, out: Path, temp: Path, outcome: Outcome, how: How) -> None:
        self.out, self.temp, self.outcome, self.how = out, temp, outcome, how
        self.methods: tuple[str, ...] = (*METHODS, RECORDER) if how.replay else METHODS
        self.methods += ("mine",) if how.own else ()
        self.real = out.with_name(f"{out.name}.real")  # where results are that a link stands for
        self.driver: subprocess.Popen[str] | Forked | None = None

    def clear(self) -> None:
        """Nothing is wrong, so nobody will look at it."""
        self.out.unlink() if self.out.is_symlink() else shutil.rmtree(self.out)
        for folder in (self.real, self.home):
            shutil.rmtree(folder, ignore_errors=True)

    # --- the command ---------------------------------------------------------------------------------------------

    def start(self, fault: str = "") -> None:
        space, methods = "quickstart", [*METHODS]
        if self.how.own:
            self.give_files()
            space, methods = str(self.home / "space.yaml"), [*METHODS, str(self.home / "mine.py")]
        words = ["run", space, "--methods", ",".join(methods), "--concurrency", "1", "--out", str(self.out)]
        words += ["--data-dir", str(self.home)]
        words += ["--tracking-uri", self.uri, *SETTINGS]
        words += ["--workers", str(self.how.workers), *(["--replay"] if self.how.replay else [])]
        self.temp.mkdir(exist_ok=True)
        self.outcome.starts += 1
        env = {"DRILL_FAULT": fault, "RAY_TMPDIR": str(self.temp), "TMPDIR": str(self.temp)}
        env |= {"RAY_USAGE_STATS_ENABLED": "0", "MLFLOW_DISABLE_TELEMETRY": "true"}
        if self.how.forked:
            self.driver = Forked(disturbed.main, words, env=env, stderr=self.stderr)
        else:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "tests.disturbed", *words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **env},
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=self.stderr.open("a"),
                text=True,
            )
        self.started_at = time.monotonic()

    @property
    def home(self) -> Path:
        """Of the user's own files."""
        return self.out.parent / f"{self.out.name}.own"

    def give_files(self, flipped: int = 0, depths: str = "[1, 2]") -> None:
        """Rows whose file always has the same size and time, a method, a space."""
        self.home.mkdir(exist_ok=True)
        rng = np.random.default_rng(0)
        y = np.arange(500) % 2
        x = (rng.normal(size=(500, 2)) + 2 * y[:, None]).astype(np.float32)
        y[:flipped] = 1 - y[:flipped]
        np.savez(self.home / "rows.npz", x_train=x, y_train=y)
        (self.home / "mine.py").write_text(METHOD.replace("[1, 2]", depths))
        (self.home / "space.yaml").write_text(SPACE)
        for file in self.home.iterdir():
            os.utime(file, ns=(1, 1))

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.out}.db"

    @property
    def stderr(self) -> Path:
        return self.out.parent / f"{self.out.name}.stderr"

    def finish(self) -> None:
        """The same command until it is complete: a fault may leave units that the next run tries again."""
        for _ in range(4):
            if self.is_down:
                self.start()
            self.wait(lambda: False)
            if self.driver and self.driver.returncode == 0:
                break

    @property
    def age(self) -> float:
        return time.monotonic() - self.started_at

    @property
    def is_down(self) -> bool:
        return self.driver is None or self.driver.poll() is not None

    def end(self, how: int) -> None:
        """Sends the driver a signal, if it still runs, and waits for its end."""
        if self.driver and self.driver.poll() is None:
            self.driver.send_signal(how)
        self.wait(lambda: self.is_down)

    def wait(self, reached: Callable[[], bool]) -> None:
        """Until then, or until the driver has ended. A hang is noted and the driver killed."""
        seen, since = -1, time.monotonic()
        while not reached() and not self.is_down:
            if (now := self.lines()) != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > SILENCE_SECONDS:
                self.outcome.wrong.append("hang")
                os.killpg(self.driver.pid, signal.SIGKILL) if self.driver else None
            time.sleep(0.02)

    # --- what it has written --------------------------------------------------------------------------------------

    def ledgers(self) -> list[Path]:
        return [self.folder(method).path / "ledger.jsonl" for method in self.methods]

    def lines(self) -> int:
        return sum(path.read_bytes().count(b"\n") for path in self.ledgers() if path.exists())

    def folder(self, method: str) -> UnitFolder:
        return UnitFolder(self.out, "quickstart", method, 0)

    def final_runs(self) -> bool:
        said = [path.read_bytes() for path in self.ledgers() if path.exists()]
        start, end = b'"event":"start","trial":"final"', b'"event":"end","trial":"final"'
        return any(text.rfind(start) > text.rfind(end) for text in said)

    @property
    def takes_signals(self) -> bool:
        """Whether the driver has come so far that it answers SIGTERM itself; Python's own start does not."""
        assert self.driver
        status = Path(f"/proc/{self.driver.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

    def stop(self, how: signal.Signals, outcome: Stopping) -> None:
        """Sends a signal to all of the driver's process group, as a terminal or `timeout` does."""
        if self.is_down:
            return
        assert self.driver
        told, before = time.monotonic(), self.stderr.stat().st_size
        os.killpg(self.driver.pid, how)
        while self.stderr.stat().st_size == before and not self.is_down:
            time.sleep(0.002)
        said = time.monotonic()
        self.wait(lambda: self.is_down)
        outcome.code = self.driver.returncode or 0
        if outcome.code == 0:
            return
        outcome.came_after, outcome.ended_after = told - self.started_at, time.monotonic() - told
        outcome.said_after = said - told
        first_word = self.stderr.read_text()[before:]
        if outcome.code != 128 + how:
            outcome.wrong.append(f"exit code {outcome.code}, wanted {128 + how}")
        if not first_word.lstrip().startswith("stop"):
            outcome.wrong.append(f"it said {first_word[:200]!r}")

    def tells_of_a_death(self) -> Iterator[str]:
        """What a run that was only told to stop must not say afterwards."""
        for note in api.load_results("quickstart", self.out).comparison.notes:
            if "killed" in note or "died" in note or "told to stop" in note:
                yield note
        for method in self.methods:
            if any(isinstance(event, Interrupted) and not event.asked for event in self.folder(method).events()):
                yield f"{method}: a trial was left by a driver that did not say so"

    def final_starts(self) -> int:
        events = (event for method in self.methods for event in self.folder(method).events())
        return sum(isinstance(event, Started) and event.trial == "final" for event in events)

    # --- faults ---------------------------------------------------------------------------------------------------

    def disturb(self, fault: Fault, all_lines: int) -> None:
        if fault.kind in INSIDE:
            if not self.is_down:
                self.end(signal.SIGKILL)
            self.start(f"{fault.kind}:{fault.call}:{'after' if fault.after else 'before'}")
            self.wait(lambda: self.is_down)
            self.expect(1 if fault.kind == "full disk" else -signal.SIGKILL)
            if self.driver and self.driver.returncode == 1 and "the disk that holds" not in self.stderr.read_text():
                self.outcome.wrong.append("a full disk was not called that")
            return
        if fault.kind in BETWEEN:
            self.damage(fault)
            return
        if fault.kind in HOSTILE_BETWEEN:
            if self.driver is None:
                self.start()  # so that there is something that the change could spoil
                due = max(len(self.methods), round(fault.moment * all_lines))
                self.wait(lambda: self.lines() >= due)
            if not self.is_down:
                self.end(signal.SIGKILL)
            self.change(fault)
            return
        if fault.kind in HOSTILE_INSIDE:
            if not self.is_down:
                self.end(signal.SIGKILL)
            kind = "rename" if fault.kind == "plan writing" else fault.kind
            self.start(f"{kind}:{fault.call}:{'after' if fault.after else 'before'}")
            self.wait(lambda: self.is_down)
            self.expect(-signal.SIGKILL if kind == "rename" else 0)
            return
        if fault.kind.startswith("clock"):
            if not self.is_down:
                self.end(signal.SIGKILL)
            self.start(f"{fault.kind}:{fault.call}:{'after' if fault.after else 'before'}")
        if self.is_down:
            self.start()
        in_final = fault.kind.endswith("in final")
        due = round(fault.moment * all_lines)
        self.wait(lambda: self.final_runs() if in_final else self.lines() >= due)
        if self.is_down:
            return
        assert self.driver
        match fault.kind.split()[0]:
            case "driver" if fault.kind == "driver stopped":
                self.driver.send_signal(signal.SIGSTOP)
                time.sleep(STOPPED_SECONDS)
                self.driver.send_signal(signal.SIGCONT)
            case "clock":
                self.end(signal.SIGKILL)  # the next one has the machine's own clock
            case "second":
                self.let_another_user_try()
            case "driver":
                self.end(signal.SIGKILL)
            case "ctrl-c":
                self.wait(lambda: self.takes_signals)  # a driver may have been started only just now
                self.end(signal.SIGINT)
                self.expect(130)
            case "worker":
                for pid in processes_of(self.driver.pid, "ray::ImplicitFunc")[:1]:
                    kill(pid)
            case what:
                for pid in processes_of(self.driver.pid, what):
                    kill(pid)
                self.wait(lambda: self.is_down)
                self.expect(1)

    def expect(self, code: int) -> None:
        """The driver ended as this fault ends it, or had finished before it came."""
        if self.driver and self.driver.returncode not in (0, code):
            self.outcome.wrong.append(f"exit code {self.driver.returncode}, wanted {code}")

    def damage(self, fault: Fault) -> None:
        """As a crash does: a line that was being written, the checkpoints of trials that are open."""
        if not self.is_down:
            self.end(signal.SIGKILL)
        for path in self.ledgers():
            if fault.kind == "torn ledger" and path.exists() and not (path.parent / "result.json").exists():
                last = path.read_bytes().splitlines()[-1]
                with path.open("ab") as file:
                    file.write(last[: len(last) // fault.call])
        for method in self.methods:
            if "checkpoint" in fault.kind and not self.folder(method).is_complete:
                events = list(self.folder(method).events())
                ended = {event.trial for event in events if isinstance(event, Ended)}
                begun = {event.trial for event in events if isinstance(event, Started)} - ended
                for trial in begun:
                    for path in (self.out / "checkpoints").glob(f"quickstart/{method}/seed-0/*/{trial}.pt"):
                        path.write_bytes(b"" if fault.kind.startswith("empty") else b"garbage")

    def change(self, fault: Fault) -> None:
        """What the user did to the files while no run was at work; a run with other ones is refused in a sentence."""
        planned = {method for method in self.methods if (self.folder(method).path / "plan.json").exists()}
        match fault.kind:
            case "symlinked results":
                if self.out.is_dir() and not self.out.is_symlink():
                    self.out.rename(self.real)
                    self.out.symlink_to(self.real, target_is_directory=True)
            case "init":
                self.init(fault)
            case "data changed" if planned:
                missing = [method for method in self.methods if not self.folder(method).is_complete]
                self.refused({"flipped": 100}, "data", bool(missing))
            case "method changed" if "mine" in planned:
                self.refused({"depths": "[0, 2]"}, "code.method mine.py", True)

    def refused(self, files: dict[str, Any], said: str, surely: bool) -> None:
        give, before = self.give_files, self.stderr.read_text() if self.stderr.exists() else ""
        ledgers = [path.read_bytes() for path in self.ledgers() if path.exists()]
        self.give_files = partial(give, **files)  # type: ignore[method-assign]
        try:
            self.start()
            self.wait(lambda: self.is_down)
        finally:
            self.give_files = give  # type: ignore[method-assign]
        assert self.driver
        sentence = self.stderr.read_text()[len(before) :]
        if surely and (self.driver.returncode != 2 or said not in sentence or sentence.count("error: ") != 1):
            self.outcome.wrong.append(f"changed files: exit code {self.driver.returncode}, it said {sentence[-300:]!r}")
        if surely and [path.read_bytes() for path in self.ledgers() if path.exists()] != ledgers:
            self.outcome.wrong.append("changed files: something was trained with them")

    def init(self, fault: Fault) -> None:
        """`harness init`, killed when it writes, and given again: the file is whole, or says that it is there."""
        self.give_files()
        folder = self.home / "init"
        folder.mkdir(exist_ok=True)
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.home)}
        for disturbance in (f"rename:1:{'after' if fault.after else 'before'}", ""):
            done = subprocess.run(
                [sys.executable, "-m", "tests.disturbed", "init", str(self.home / "rows.npz"), "--name", "first"],
                *(), cwd=folder, env={**env, "DRILL_FAULT": disturbance}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            known = done.returncode == 2 and "is there already" in done.stderr
            if not disturbance and not known and (done.returncode or done.stderr):
                self.outcome.wrong.append(f"init: exit code {done.returncode}, it said {done.stderr[-300:]!r}")
        if sorted(path.name for path in folder.iterdir()) != ["first.yaml"]:
            self.outcome.wrong.append(f"init left {sorted(path.name for path in folder.iterdir())}")
        load_space(str(folder / "first.yaml"))
        shutil.rmtree(folder)

    def let_another_user_try(self) -> None:
        """To delete and to replace whatever a run at work has, and to end it."""
        assert self.driver
        for folder in (self.out.parent, self.temp):
            folder.chmod(0o755)  # they may look for it
        tries = (
            'find "$0" "$1" -mindepth 1 -delete -print 2>/dev/null; find "$0" "$1" -writable ! -type l 2>/dev/null;'
            'touch "$0/theirs" "$1/theirs" 2>/dev/null; ls "$0/theirs" "$1/theirs" 2>/dev/null; kill -9 $2 2>/dev/null'
        )
        tried = subprocess.run(
            ["sh", "-c", tries, str(self.out), str(self.temp), str(self.driver.pid)],
            user="nobody", group="nogroup", extra_groups=(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if tried.stdout:
            self.outcome.wrong.append(f"another user could change {tried.stdout[:300]}")

    # --- judgement ------------------------------------------------------------------------------------------------

    def judge(self, reference: "Drill") -> Iterator[str]:
        trials = 0
        for method in self.methods:
            try:
                unit, events = self.folder(method).read(), list(self.folder(method).events())
            except UserError as error:
                yield f"{method} cannot be read: {error}"
                continue
            if unit.result is None:
                yield f"{method} has no result"
                continue
            if read(self.out, method) != read(reference.out, method):
                yield f"{method} differs from the reference"
            trials += len(unit.trials)
            stepped = 3600.0 * sum(kind.startswith("clock") for kind in self.outcome.faults)  # or the machine was off
            if not 0 <= unit.result.wall_seconds <= self.outcome.seconds + 60 + stepped:
                yield f"{method}: {unit.result.wall_seconds} s of wall time in a drill of {self.outcome.seconds} s"
            yield from (f"{method}: {said}" for said in contradictions(unit, events))
            for trial in unit.trials:
                waited = trial.cost.phases.get("other", 0.0) + trial.cost.phases.get("checkpoint", 0.0)
                if waited > STOPPED_SECONDS / 2:
                    yield f"{method} {trial.trial_id}: {waited:.1f} s of waiting are in its cost"
                held, attempts = trial.cost.held_seconds, sum(attempt.held_seconds for attempt in trial.attempts)
                if abs(sum(trial.cost.phases.values()) - held) > 1e-6 or abs(attempts - held) > 1e-6:
                    yield f"{method} {trial.trial_id}: phases {trial.cost.phases} do not sum to held {held}"
            suggested = [event.trial for event in events if isinstance(event, Suggested)]
            if len(suggested) != len(set(suggested)) or sum(isinstance(event, Chosen) for event in events) != 1:
                yield f"{method}: a trial was suggested twice, or not exactly one choice made"
            opened = [event for event in events if isinstance(event, Reported) and event.report.final]
            ends = [event.status for event in events if isinstance(event, Ended) and event.trial == "final"]
            if (len(opened), ends.count("finished")) != (1, 1):
                yield f"{method}: {len(opened)} final evaluations were reported, and ended {', '.join(ends)}"
            ended: set[str] = set()
            for event in events:
                if isinstance(event, Ended) and event.status != "failed":
                    ended.add(event.trial)
                if isinstance(event, Started) and event.trial in ended:
                    yield f"{method} {event.trial} was started after its end"
        if left := [str(path.relative_to(self.out.resolve())) for path in self.out.resolve().rglob("*.partial")]:
            yield f"left behind: {', '.join(left)}"
        if left := left_in(self.temp):
            yield f"left behind in the temporary folder: {', '.join(left[:5])}"
        searches = len(self.methods)
        wanted = {keys.KIND_SEARCH: searches, keys.KIND_MEAN: searches, keys.KIND_TRIAL: trials, keys.KIND_REPORT: 1}
        if (tree := self.tree()) != wanted:
            yield f"MLflow has {tree}, wanted {wanted}"
        if "<svg" not in (self.out / "quickstart" / "report.html").read_text(encoding="utf-8"):
            yield "the report has no figures"
        if "Traceback" in (said := self.stderr.read_text()) or "*** SIG" in said:
            yield "a stack trace was printed"

    def tree(self) -> dict[str, int]:
        client = MlflowClient(self.uri)
        experiment = client.get_experiment_by_name("depth-search/quickstart")
        runs = client.search_runs([experiment.experiment_id], max_results=1000) if experiment else []
        return dict(Counter(run.data.tags[keys.TAG_KIND] for run in runs if run.info.status != "RUNNING"))


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it was quicker
        os.kill(pid, signal.SIGKILL)


@contextmanager
def drilling(folder: Path, outcome: Outcome, how: How) -> Iterator[Drill]:
    temp = Path(tempfile.mkdtemp(prefix="hd-", dir="/tmp"))  # short: Ray puts sockets below it
    drill = Drill(folder / f"drill-{outcome.number}", temp, outcome, how)
    outcome.began = time.monotonic()
    try:
        yield drill
    finally:
        if drill.driver and drill.driver.poll() is None:
            os.killpg(drill.driver.pid, signal.SIGKILL)
        outcome.ended = time.monotonic()
        shutil.rmtree(temp, ignore_errors=True)


def undisturbed(folder: Path, how: How) -> Drill:
    outcome = Outcome(0)
    with drilling(folder, outcome, how) as reference:
        reference.start()
        reference.wait(lambda: False)
    assert (wrong := list(reference.judge(reference))) == [], wrong
    return reference


def run(number: int, faults: list[Fault], folder: Path, reference: Drill) -> Outcome:
    """One drill, from its first fault to its judgement; what it wrote is kept only if something is wrong."""
    outcome = Outcome(number)
    with drilling(folder, outcome, reference.how) as drill:
        for fault in faults:
            outcome.faults.append(fault.kind)
            drill.disturb(fault, reference.lines())
        drill.finish()
        outcome.wrong += drill.judge(reference)
    if not outcome.wrong:
        drill.clear()
    return outcome


def stopped(number: int, how: signal.Signals, due: Callable[[Drill], bool], folder: Path, reference: Drill) -> Stopping:
    """A run that is told to stop when it is due, and given again."""
    outcome = Stopping(number, [how.name])
    with drilling(folder, outcome, reference.how) as drill:
        Path(drill.uri.removeprefix("sqlite:///")).unlink(missing_ok=True)  # of one that came too late
        drill.start()
        drill.wait(lambda: drill.takes_signals and due(drill))
        drill.stop(how, outcome)
        drill.finish()
        outcome.finals = drill.final_starts()
        outcome.wrong += [*drill.judge(reference), *drill.tells_of_a_death()]
    if not outcome.wrong:
        drill.clear()
    return outcome


def stop(number: int, folder: Path, reference: Drill) -> Stopping:
    """By one of the signals, at a moment that is drawn from the length of the undisturbed run."""
    rng, how = random.Random(f"stop {number}"), SIGNALS[number % len(SIGNALS)]
    outcome = Stopping(number)
    while not outcome.code and not outcome.wrong:  # it may come too late
        moment = rng.random() * reference.outcome.seconds
        outcome = stopped(number, how, lambda drill, due=moment: drill.age >= due, folder, reference)  # type: ignore[misc]
    if outcome.said_after > FIRST_WORD_SECONDS:
        outcome.wrong.append(f"its first word took {outcome.said_after:.1f} s")
    return outcome


def table(outcomes: list[Outcome]) -> str:
    """By kind of fault: how many drills had it, and what was wrong in them."""
    lines = [f"{'fault':<20}{'drills':>8}{'wrong':>8}"]
    kinds = Counter(kind for outcome in outcomes for kind in set(outcome.faults))
    for kind, count in sorted(kinds.items()):
        wrong = sum(bool(outcome.wrong) for outcome in outcomes if kind in outcome.faults)
        lines.append(f"{kind:<20}{count:>8}{wrong:>8}")
    starts, seconds = sum(each.starts for each in outcomes), sum(each.seconds for each in outcomes)
    good = sum(not outcome.wrong for outcome in outcomes)
    lines.append(f"{good} of {len(outcomes)} equal to the reference; {starts} starts in {seconds / 60:.0f} minutes")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drills", type=int, nargs="?", default=10)
    parser.add_argument("--only", type=int, help="the number of one drill")
    parser.add_argument("--first", type=int, default=1, help="the number of the first one")
    parser.add_argument("--keep", type=Path, help="where to work; the default is a temporary folder")
    parser.add_argument("--replay", action="store_true", help="of runs whose searches over depths are replayed")
    parser.add_argument("--jobs", type=int, default=1, help="drills at a time")
    parser.add_argument("--stops", action="store_true", help="of runs that are told to stop")
    parser.add_argument("--hostile", action="store_true", help="what no crash does: clocks, changed files, other users")
    asked = parser.parse_args()
    numbers = [asked.only] if asked.only else range(asked.first, asked.first + asked.drills)
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="harness-drill-"))
    folder.mkdir(parents=True, exist_ok=True)
    warmed = ExitStack()
    if asked.hostile:  # nothing of it is about a program's start
        for each in (warm.server(), warm.workers()):
            warmed.enter_context(each)
    how = How(asked.replay, workers=1, forked=True, own=True) if asked.hostile else How(asked.replay)
    reference = undisturbed(folder, how)
    faults = hostile_faults_of if asked.hostile else faults_of
    outcomes: list[Outcome] = []

    def drill(number: int) -> Outcome:
        return stop(number, folder, reference) if asked.stops else run(number, faults(number), folder, reference)

    with ThreadPoolExecutor(asked.jobs) as pool:
        for outcome in pool.map(drill, numbers):
            outcomes.append(outcome)
            verdict = "; ".join(outcome.wrong) or "equal"
            told = f"{outcome.seconds:5.0f} s  {outcome.starts} starts  {outcome}"
            print(f"{outcome.number:>4}  {told}: {verdict}", flush=True)
    warmed.close()
    print("\n" + table(outcomes))
    if any(outcome.wrong for outcome in outcomes):
        sys.exit(f"what they wrote is kept in {folder}")
    if not asked.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
