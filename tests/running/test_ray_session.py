"""A Ray of our own: who can reach it, what is said when it dies, and what a run leaves behind."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import ray
from ray.exceptions import RayActorError
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial

from harness.errors import UserError, last_line
from harness.methods.base import TIME
from harness.options import RunOptions
from harness.running import ray_session
from harness.running.runner import _most_cpus
from tests import forked
from tests.rehearsed import make_unit
from tests.running.results import kill_nine, ledger, left_in, listening, local_ray, processes_of, wait_for

LOOPBACK = "0000000000000000FFFF00000100007F"  # 127.0.0.1 in /proc/net/tcp6, where Ray's processes listen


@pytest.fixture
def temp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path: Ray puts sockets below it."""
    with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


def begun(out: Path) -> tuple[forked.Forked, list[int]]:
    """`harness run` in mid-training, and its processes; what it prints is in `stdout` and `stderr`."""
    options = ["--methods", "deepest", "--set", "depth.max=3", "--set", "training.report_every=20"]
    words = ["run", "quickstart", *options, "--epochs", "100000", "--out", str(out)]

    def told() -> int:
        return len([event for event in ledger(out, "deepest") if event.get("report", {}).get("progress")])

    before = told()
    for name in ("stdout", "stderr"):
        (out / name).unlink(missing_ok=True)
    # Set for a cluster of the user's: ours asks for a token all the same, and for one of its own.
    another_ray = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "0" * 64, "HOME": str(out / "home")}
    driver = forked.harness(*words, env=another_ray, stdout=out / "stdout", stderr=out / "stderr", warm_workers=False)
    wait_for(lambda: told() > before or driver.poll() is not None, "a report")
    assert driver.poll() is None, (out / "stderr").read_text()
    return driver, processes_of(driver.pid)


def alive(pids: list[int]) -> list[int]:
    """Zombies that nobody has asked about do not count."""

    def state(pid: int) -> str:
        stat = Path(f"/proc/{pid}/stat")
        return stat.read_text().rpartition(")")[2].split()[0] if stat.exists() else "Z"

    return [pid for pid in pids if state(pid) != "Z"]


def recorded(folder: Path) -> set[int]:
    file = folder / "processes"
    return {int(line.split()[0]) for line in file.read_text().splitlines()} if file.exists() else set()


@pytest.mark.slow
def test_nobody_else_reaches_our_ray_its_death_is_one_sentence_and_nothing_is_left(temp: Path, tmp_path: Path) -> None:
    driver, started = begun(tmp_path)
    assert listening([driver.pid, *started]) == {LOOPBACK}
    [raylet] = processes_of(driver.pid, "/raylet")
    variables = Path(f"/proc/{raylet}/environ").read_bytes().split(b"\0")
    assert b"RAY_AUTH_MODE=token" in variables and not any(each.startswith(b"RAY_AUTH_TOKEN=") for each in variables)
    [worker] = processes_of(driver.pid, "ray::")  # one trial, one worker: none is idle, and no agent is there
    [folder] = temp.glob("harness-*/*")
    assert folder.parent.stat().st_mode & 0o077 == 0, "whatever Ray does to its own"
    token = folder / "auth_token"
    assert f"RAY_AUTH_TOKEN_PATH={token}".encode() in variables
    assert len(token.read_text()) == 64 and token.stat().st_mode & 0o777 == 0o600
    [log] = folder.glob("session_2*/logs/raylet.out")
    tail = subprocess.Popen(["tail", "-f", str(log)], stdout=subprocess.DEVNULL)  # somebody reads it
    wait_for(lambda: {*started} <= recorded(folder), "all of them on the list of whom the next run may end")
    assert driver.pid not in recorded(folder) and tail.pid not in recorded(folder)
    kill_nine(driver.pid)
    driver.wait()
    assert folder.exists(), "a killed run cannot tidy up"
    wait_for(lambda: not alive([raylet]), "the raylet's end, which the kernel sees to")
    with contextlib.suppress(ProcessLookupError):  # after some seconds it finds out that the raylet is gone
        os.kill(worker, signal.SIGSTOP)  # as one deep in native code, which does not find out

    for name in ("raylet", "gcs_server"):
        driver, processes = begun(tmp_path)
        assert alive(started) == [] and len(list(temp.glob("harness-*/*"))) == 1, "the next run tidies up"
        [pid] = processes_of(driver.pid, f"/{name}")
        kill_nine(pid)
        assert driver.wait(timeout=60) == 1
        stdout, stderr = ((tmp_path / name).read_text() for name in ("stdout", "stderr"))
        assert stderr.startswith(f"error: Ray's {name} died") and stderr.endswith("the same command continues\n")
        assert stderr.count("\n") == 1 and "(raylet)" not in stdout
        wait_for(lambda pids=processes: not alive(pids), "the end of Ray's processes")  # type: ignore[misc]
        started = processes
        assert left_in(temp) == []
    assert tail.poll() is None, "who only read a file there lives on"
    tail.kill()
    tail.wait()
    assert not (tmp_path / "home" / ".ray").exists()


def asks_for_an_environment(given: Any) -> dict[str, Any]:
    return {"env_vars": {"MINE": "1"}}


@pytest.mark.slow
@pytest.mark.usefixtures("no_ray", "warm_workers")
def test_no_environment_is_waited_for_that_nobody_would_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray has such a hook of its own for drivers that are started by `uv run`."""
    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", f"{__name__}.asks_for_an_environment")
    with local_ray(num_cpus=1):
        assert ray.get(ray.remote(lambda: "done").remote(), timeout=100) == "done"


@pytest.mark.parametrize(
    ("options", "cpus"),
    [
        (RunOptions(), 7),  # grid has seven trials
        (RunOptions(cpus_per_trial=2.0), 14),
        (RunOptions(workers=3), 3),
        (RunOptions(workers=3, cpus_per_trial=0.5), 2),
        (RunOptions(cpus_per_trial=0.1, gpus_per_trial=1.0), 1),
    ],
)
def test_no_more_workers_than_trials_at_once(options: RunOptions, cpus: int, tmp_path: Path) -> None:
    """Each takes a few hundred MB, and a large machine has many CPUs."""
    unit = make_unit(tmp_path, "grid")
    assert unit.plan.trials == 7
    assert _most_cpus([unit], options) == cpus


def test_a_folder_is_short_enough_for_sockets(temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ray_session._folder_of_a_run() as folder:
        assert folder.parent.parent == temp and folder.parent.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("RAY_TMPDIR", "/" + "long/" * 30)
    assert ray_session._short_enough() == Path("/tmp")


def test_a_folder_that_is_not_there_is_one_sentence(temp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", f"{temp}/no")
    with (
        pytest.raises(
            UserError, match=rf"^Ray needs a folder that exists .* \(RAY_TMPDIR, else TMPDIR\); {temp}/no can"
        ),
        ray_session.ray_session(None),
    ):
        pass


# --- lost nodes -----------------------------------------------------------------------------------------------------


@pytest.fixture
def node_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session, "_node_is_gone", lambda actor_id: actor_id == "on a lost node")


def tunes_trial() -> Trial:
    trial: Any = Trial("none", stub=True, max_failures=1)
    trial.storage = SimpleNamespace(trial_driver_staging_path=None)  # it has nowhere to write errors
    return cast(Trial, trial)


def lose(trial: Trial, times: int, epoch: int = 0, actor: str = "on a lost node") -> str:
    """Its worker is gone so many times, after it reported this epoch; what the last error says."""
    error = RayActorError(actor, "The actor died.")
    for _ in range(times):
        trial.update_last_result({TIME: epoch})
        error = RayActorError(actor, "The actor died.")
        trial.handle_error(error)
    return str(error)


def test_a_lost_node_is_no_failure_of_its_trial(node_is_gone: None) -> None:
    trial, other = tunes_trial(), tunes_trial()
    with ray_session.lost_nodes_do_not_count():
        assert lose(trial, ray_session.MOST_LOST_NODES) == "The actor died."
        assert lose(other, 1, actor="on a node that is up") == "The actor died."
        for epoch in range(10, 100, 10):  # it gets further from one to the next
            lose(trial, ray_session.MOST_LOST_NODES, epoch)
    assert (trial.num_failures, other.num_failures) == (0, 1)


def test_a_trial_that_takes_its_nodes_down_is_given_up_with_a_sentence(node_is_gone: None) -> None:
    trial = tunes_trial()
    with ray_session.lost_nodes_do_not_count():
        lose(trial, 1, epoch=20)
        lose(trial, ray_session.MOST_LOST_NODES - 1, epoch=10)  # it goes on from a checkpoint before that
        assert trial.num_failures == 0 and trial.should_recover()
        said = lose(trial, 2, epoch=10)
    assert trial.num_failures == 2 and not trial.should_recover()
    assert last_line(said) == (
        "it lost 7 machines without getting past epoch 20, so it may be what takes them down; from the 6th on such "
        "losses count (--max-failures)"
    )


def test_a_death_that_is_told_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By every call that was under way: the second found the trial in the queue again, and ended it for good."""
    processed: list[tuple[str, Any]] = []

    def process(controller: Any, trial: Any, exception: Any) -> None:
        processed.append((trial.trial_id, exception))

    monkeypatch.setattr(TuneController, "_process_trial_failure", process)
    one, other = Mock(trial_id="one"), Mock(trial_id="other")
    controller = SimpleNamespace(_resetting_trials={one})
    deaths: list[Exception] = [RayActorError(actor_id=actor) for actor in ("first", "first", "second")]
    mistakes: list[Exception] = [ValueError(), ValueError()]
    with ray_session.deaths_count_once():
        tell: Any = TuneController._process_trial_failure
        for trial, exception in (
            *((one, death) for death in deaths),
            (other, deaths[1]),
            *((one, e) for e in mistakes),
        ):
            tell(controller, trial, exception=exception)
    first, _, second = deaths
    assert processed == [("one", first), ("one", second), ("other", deaths[1]), *(("one", e) for e in mistakes)]
    assert not controller._resetting_trials, "no worker is being handed on to it any more"
    assert TuneController._process_trial_failure is process
