"""Ray for the length of a run: started on this machine for nobody else, or joined at an address. Nothing of it stays.

A Ray of our own listens on 127.0.0.1 only, asks for a token, and starts only the processes that a run needs.
"""

import contextlib
import gc
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

from harness.backends import RAY, ray_door
from harness.backends.sockets import sockets_of
from harness.cluster.doctor import answers
from harness.errors import MachineError, UserError
from harness.methods.base import TIME
from harness.running.stopping import STOPPED, Stop, exit_now
from harness.scratch import end_processes, length_below, recording_processes, scratch_folder

TRIALS_NEED = ["harness.training.imported_ahead", "harness.running.worker"]
LONGEST_FOLDER = 38 if sys.platform == "darwin" else 42  # bytes; Ray makes sockets 65 below, and 103 or 107 may be
MOST_LOST_NODES = 5  # in a row that a trial may lose without getting further; more may be its own doing
LOOKS_SECONDS = 0.2  # between two looks at whether Ray's processes are alive


@contextlib.contextmanager
def ray_session(
    address: str | None, debug: bool = False, stop: Stop | None = None, cpus: int | None = None
) -> Iterator[Path]:
    """A folder for the length of a run, and Ray: our own, or the one at `address`.

    `cpus` is how many a run can use at once. A Ray of our own takes no more of this machine's: it starts a worker for
    each, and they import what trials need while the driver is busy with other things. A Ray that this process is
    already connected to is left alone.
    """
    ray_door.check()
    with _folder_of_a_run() as folder:
        if ray.is_initialized():
            with ray_door.any_worker_serves():
                yield folder
            return
        had = sockets_of(os.getpid())
        common: dict[str, Any] = {"log_to_driver": debug, "configure_logging": debug}
        if not answers(address):
            raise UserError(f"no Ray answers at address {address!r}: nothing listens there")
        try:
            with ray_door.signals_left_alone():
                if address:
                    ray.init(address=address, **common)
                else:
                    _start_here(folder, debug, common, cpus)
        except Exception as error:  # Ray raises many kinds, a bare Exception for a node that is slow to start
            what = f"no Ray answers at address {address!r}" if address else "Ray does not start"
            raise UserError(f"{what}: {str(error).splitlines()[0]}") from error
        try:
            if address:
                yield folder
            else:
                _check_sockets(had)
                with _watched(folder, stop or Stop(), had), ray_door.any_worker_serves():
                    yield folder
        finally:
            _shut_down()


def _start_here(folder: Path, debug: bool, options: dict[str, Any], cpus: int | None = None) -> None:
    ray_door.start_here(folder, TRIALS_NEED if cpus else [], cpus, debug, options)


@contextlib.contextmanager
def lost_nodes_do_not_count() -> Iterator[None]:
    """Lets Tune try a trial again whose node is gone, as often as nodes go: `max_failures` is for the trial's own.

    By itself it does so for losses that were announced to Ray; a spot machine may go without a word. A trial that may
    be what takes its nodes down, as it gets no further from one to the next, would be tried without end: it is given
    some, then they count.
    """
    lost: dict[str, tuple[int, int]] = {}  # trial → furthest epoch, and nodes lost since it was reached

    def handle(trial: Any, error: Any) -> None:
        if error.preempted or _node_is_gone(error.actor_id):
            epoch, (furthest, losses) = int(trial.last_result.get(TIME, 0)), lost.get(trial.trial_id, (-1, 0))
            lost[trial.trial_id] = (epoch, 1) if epoch > furthest else (furthest, losses + 1)
            furthest, losses = lost[trial.trial_id]
            if losses <= MOST_LOST_NODES:
                return
            error.error_msg += (
                f"\nit lost {losses} machines without getting past epoch {furthest}, so it may be what takes them "
                f"down; from the {MOST_LOST_NODES + 1}th on such losses count (--max-failures)"
            )
        ray_door.count_failure(trial)

    with ray_door.actor_errors_go_to(handle):
        yield


@contextlib.contextmanager
def deaths_count_once() -> Iterator[None]:
    """A worker's death is told to Tune by every call to it that was under way, and each told counts as a failure.

    Worse, one that comes after the first has put the trial back into the queue ends it for good, whatever it may fail.
    And where the worker was being handed on from another trial, Tune would wait for that for ever.
    """
    told: set[tuple[str, str]] = set()

    def is_new(trial: Any, exception: Any) -> bool:
        death = trial.trial_id, getattr(exception, "actor_id", None) or ""
        if death[1] and death in told:
            return False
        told.add(death)
        return True

    with ray_door.failures_pass(is_new):
        yield


def _node_is_gone(actor_id: str | None) -> bool:
    """Of an actor that failed. Ray finds out after some seconds, so the node is asked, too."""
    node_id = ray_door.node_id_of(actor_id) if actor_id else None
    nodes = [node for node in ray.nodes() if node["NodeID"] == node_id]
    return any(
        not node["Alive"] or not answers(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}") for node in nodes
    )


def _check_sockets(driver_had: set[str]) -> None:
    """Raises MachineError where anybody could reach this Ray from another machine."""
    if reachable := ray_door.reachable_from_outside(driver_had):
        raise MachineError(
            f"Ray must listen on {ray_door.LOOPBACK} only, and other machines can reach {', '.join(reachable)}; the "
            f"run was ended before it could be misused: import harness before ray, with Ray {RAY[3:]}"
        )


def _shut_down() -> None:
    # When another thread frees an object of Ray's during this call, Ray ends the whole process. The garbage
    # collector runs in whichever thread comes along, the one that writes MLflow for example, so it has to wait.
    collecting = gc.isenabled()
    gc.disable()
    try:
        ray.shutdown()
        ray_door.read_token_again()  # the next Ray of this process may be a cluster of the user's
    finally:
        if collecting:
            gc.enable()


# --- Ray's processes die ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _watched(folder: Path, stop: Stop, driver_had: set[str]) -> Iterator[None]:
    """Ends the run when a process of Ray's dies: Ray would wait a minute for it, and end this process natively.

    Also when one that has started meanwhile, a worker, listens for other machines: most do so early, so looks at
    sockets become rare. Where this process is not ours to end, what Ray makes of it is raised as one sentence.
    """
    over = threading.Event()
    trouble: list[str] = []

    def watch() -> None:
        looks = 0
        while not over.wait(LOOKS_SECONDS):
            looks += 1
            try:
                if dead := ray_door.dead_processes():
                    raise MachineError(_says(dead))
                if looks & (looks - 1) == 0:  # the first, second, fourth, eighth …
                    _check_sockets(driver_had)
            except MachineError as error:
                trouble[:] = [str(error)]
                if stop.may_exit:
                    _leave(trouble[0], folder, stop)

    threading.Thread(target=watch, name="watches Ray", daemon=True).start()
    try:
        yield
    except Exception as error:
        if not trouble:
            raise
        raise MachineError(trouble[0]) from error
    finally:
        over.set()


def _says(dead: list[str]) -> str:
    return (
        f"Ray's {' and '.join(dead)} died on this machine (killed, or out of memory); what was reported is kept, "
        "and the same command continues"
    )


def _leave(sentence: str, folder: Path, stop: Stop) -> None:
    """At once, as if killed: Ray's own threads would print and wait. What is on disk is enough to continue."""
    end_processes(folder)
    shutil.rmtree(folder, ignore_errors=True)
    # Whoever told all processes of this user to stop, Slurm say, told Ray's, too.
    sys.stderr.write(f"{STOPPED}\n" if stop.by else f"error: {sentence}\n")
    sys.stderr.flush()
    exit_now(stop.exit_code if stop.by else 1)


# --- its folder ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _folder_of_a_run() -> Iterator[Path]:
    """Ray's session and Tune's scratch."""
    parent = _short_enough()
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folder(parent))
        except OSError as error:
            raise UserError(
                f"Ray needs a folder that exists and can be written for its files (RAY_TMPDIR, else TMPDIR); {parent} "
                f"cannot: {error.strerror}"
            ) from None
        stack.enter_context(recording_processes(folder))
        yield folder


def _short_enough() -> Path:
    """Where Ray puts its own sessions, else /tmp."""
    wanted = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return Path(wanted if length_below(wanted) <= LONGEST_FOLDER else "/tmp")
