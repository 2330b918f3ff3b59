"""Ray for the length of a run: started on this machine for nobody else, or joined at an address. Nothing of it stays.

A Ray of our own listens on 127.0.0.1 only, asks for a token, and starts only the processes that a run needs.
"""

import contextlib
import functools
import gc
import os
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
from ray.tune.execution import class_cache
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial

from harness.cluster.doctor import answers
from harness.errors import MachineError, UserError
from harness.methods.base import TIME
from harness.running.stopping import STOPPED, Stop, exit_now
from harness.scratch import end_processes, length_below, recording_processes, scratch_folder

LOOPBACK = "127.0.0.1"
TRIALS_NEED = ["harness.training.imported_ahead", "harness.running.worker"]
AGENTS_PORTS = ("dashboard_agent_listen_port", "metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")
IDLE = "cat -- -"  # until its standard input is closed; Ray adds options, which are files to it
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
    with _folder_of_a_run() as folder:
        if ray.is_initialized():
            with _any_worker_serves():
                yield folder
            return
        common: dict[str, Any] = {"log_to_driver": debug, "configure_logging": debug}
        if not answers(address):
            raise UserError(f"no Ray answers at address {address!r}: nothing listens there")
        try:
            with _signals_left_alone():
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
                with _watched(folder, stop or Stop()), _any_worker_serves():
                    yield folder
        finally:
            _shut_down()


def _start_here(folder: Path, debug: bool, options: dict[str, Any], cpus: int | None = None) -> None:
    _make_token()
    here = int(ray._private.utils.get_num_cpus(True))  # as Ray counts them, in a container too
    with (
        _environment(RAY_AUTH_MODE="token"),
        _own_process_groups(),
        _loopback_only(),
        _needed_processes_only(debug),
        _no_printing(debug),
    ):
        native: Any = ray._raylet
        native.Config.initialize("")  # reads the mode again: Ray was imported before it was set
        ray.init(
            "local",  # or Ray would join whatever cluster it finds running on this machine
            include_dashboard=False,
            _node_ip_address=LOOPBACK,
            _temp_dir=str(folder),
            _system_config={
                "enable_metrics_collection": False,  # nobody reads them
                "enable_pipe_based_agent_to_parent_health_check": True,  # as by default: IDLE hangs on it
                "gcs_rpc_server_reconnect_timeout_s": 10,  # one that is gone does not come back: no use in waiting
                "preload_python_modules": TRIALS_NEED if cpus else [],
            },
            **{"num_cpus": min(cpus or here, here), **options},
        )


def _make_token() -> None:
    """Ray would make one that everybody on the machine can read."""
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", Path.home() / ".ray" / "auth_token"))
    if token.exists():
        token.chmod(0o600)
    elif "RAY_AUTH_TOKEN" not in os.environ:
        token.parent.mkdir(parents=True, exist_ok=True)
        fresh = token.with_name(f"{token.name}.{os.getpid()}")
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_hex(32), encoding="ascii")
        with contextlib.suppress(FileExistsError):  # another run was quicker
            token.hardlink_to(fresh)
        fresh.unlink()


@contextlib.contextmanager
def _signals_left_alone() -> Iterator[None]:
    """Ray would take SIGTERM for itself: natively, with a stack trace and exit code 134, and in Python."""
    with (
        _replaced(ray._private.ray_constants, RAY_DISABLE_FAILURE_SIGNAL_HANDLER=True),
        _replaced(ray._private.utils, set_sigterm_handler=lambda handler: None),
    ):
        yield


@contextlib.contextmanager
def _own_process_groups() -> Iterator[None]:
    """A signal to the run's process group (`timeout`, a closed terminal) is for the run; Ray's processes outlive it.

    They end with this process, whatever happens, where the kernel sees to it. Elsewhere Ray does, by the group.
    """
    services: Any = ray._private.services
    separate = functools.partial(services.ConsolePopen, process_group=0)
    kernel_ends_them: Any = ray._private.utils.detect_fate_sharing_support()
    with _replaced(services, **({"ConsolePopen": separate} if kernel_ends_them else {})):
        yield


@contextlib.contextmanager
def _loopback_only() -> Iterator[None]:
    """Lets Ray keep the address 127.0.0.1 as it does on a Mac. Elsewhere it takes the machine's own instead.

    At 127.0.0.1 GCS, raylet, agents, workers and driver all listen there; at any other address on all interfaces.
    """
    with _replaced(ray._private.ray_constants, ENABLE_RAY_CLUSTER=False):
        yield


@contextlib.contextmanager
def _needed_processes_only(debug: bool) -> Iterator[None]:
    """No web server, no autoscaler, no reader of logs, no agents: Ray starts them even when they are switched off.

    It waits for them, too. On two cores they take more than half of the time that Ray needs to start, and their ports.
    """

    def no_web_server(node: Any, **_: Any) -> None:
        node._webui_url = ""

    unneeded: dict[str, Any] = {"start_api_server": no_web_server, "start_monitor": lambda node: None}
    if not debug:
        unneeded["start_log_monitor"] = lambda node: None
    services: Any = ray._private.services
    start = services.start_ray_process

    def start_without_agents(command: list[str], kind: str, *rest: Any, **options: Any) -> Any:
        given = dict(word[2:].split("=", 1) for word in command if word.startswith("--") and "=" in word)
        known = {"session_dir", "node_id", "gcs-address", "store_socket_name"} <= given.keys()
        if kind != ray._private.ray_constants.PROCESS_TYPE_RAYLET or not known:
            return start(command, kind, *rest, **options)
        started = start(_without_agents(command, given), kind, *rest, **options)
        services.wait_for_node(given["gcs-address"], given["store_socket_name"])  # or Ray would sleep for a second
        return started

    with (
        _replaced(ray._private.node.Node, **unneeded),
        _replaced(services, start_ray_process=start_without_agents),
        # `uv run`, or a hook of the user's, would have an agent make environments for workers. They have this one.
        _replaced(ray._private.worker, _maybe_modify_runtime_env=lambda *_: None),
    ):
        yield


def _without_agents(raylet: list[str], given: dict[str, str]) -> list[str]:
    """Its command line, with agents that only wait for its end: it would not live without any.

    They are for pages, metrics and environments of workers, none of which a run has. Ray's own would note the ports
    at which they listen; -1 is its word for none. A raylet that ends closes its agents' standard input.
    """
    for port in AGENTS_PORTS:
        Path(given["session_dir"], f"{port}_{given['node_id']}").write_text("-1", encoding="ascii")
    return [f"{word.split('=')[0]}={IDLE}" if "_agent_command=" in word else word for word in raylet]


@contextlib.contextmanager
def _no_printing(debug: bool) -> Iterator[None]:
    """Ray prints what its processes complain about, a page of it when one of them dies."""
    with _replaced(ray._private.worker, **({} if debug else {"listen_error_messages": lambda *_: None})):
        yield


@contextlib.contextmanager
def _any_worker_serves() -> Iterator[None]:
    """Lets Tune take workers that run already, where all of them are on this machine.

    It asks for environment variables of the driver's, and Ray would start other workers to have them. Here they have
    them from the start.
    """

    def remote_class(cache: Any, trainable: Any) -> Any:
        if trainable not in cache._cache:
            cache._cache[trainable] = ray.remote(trainable)
        return cache._cache[trainable]

    node: Any = ray._private.worker._global_node
    started_here = node is not None and node.is_head()
    with _replaced(class_cache._ActorClassCache, **({"get": remote_class} if started_here else {})):
        yield


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
        trial.run_metadata.num_failures += 1

    with _replaced(Trial, _handle_ray_actor_error=handle):
        yield


@contextlib.contextmanager
def deaths_count_once() -> Iterator[None]:
    """A worker's death is told to Tune by every call to it that was under way, and each told counts as a failure.

    Worse, one that comes after the first has put the trial back into the queue ends it for good, whatever it may fail.
    And where the worker was being handed on from another trial, Tune would wait for that for ever.
    """
    told: set[tuple[str, str]] = set()
    process: Any = TuneController._process_trial_failure

    def once(controller: Any, trial: Any, exception: Any) -> None:
        death = trial.trial_id, getattr(exception, "actor_id", None) or ""
        if death[1] and death in told:
            return
        told.add(death)
        getattr(controller, "_resetting_trials", set()).discard(trial)
        process(controller, trial, exception)

    with _replaced(TuneController, _process_trial_failure=once):
        yield


def _node_is_gone(actor_id: str | None) -> bool:
    """Of an actor that failed. Ray finds out after some seconds, so the node is asked, too."""
    known: dict[str, Any] = ray._private.state.actors(actor_id) if actor_id else {}
    node_id = known.get("Address", {}).get("NodeID")
    nodes = [node for node in ray.nodes() if node["NodeID"] == node_id]
    return any(
        not node["Alive"] or not answers(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}") for node in nodes
    )


@contextlib.contextmanager
def _replaced(owner: Any, **values: Any) -> Iterator[None]:
    """Attributes of Ray's, changed for a while. One that a later Ray lacks is left out."""
    before = {name: getattr(owner, name) for name in values if hasattr(owner, name)}
    try:
        for name in before:
            setattr(owner, name, values[name])
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _shut_down() -> None:
    # When another thread frees an object of Ray's during this call, Ray ends the whole process. The garbage
    # collector runs in whichever thread comes along, the one that writes MLflow for example, so it has to wait.
    collecting = gc.isenabled()
    gc.disable()
    try:
        ray.shutdown()
    finally:
        if collecting:
            gc.enable()


# --- Ray's processes die ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _watched(folder: Path, stop: Stop) -> Iterator[None]:
    """Ends the run when a process of Ray's dies: Ray would wait a minute for it, and end this process natively.

    Where this process is not ours to end, what Ray makes of it is raised as one sentence.
    """
    over = threading.Event()
    dead: list[str] = []

    def watch(processes: Callable[[], list[str]]) -> None:
        while not over.wait(LOOKS_SECONDS):
            dead[:] = processes()
            if dead and stop.may_exit:
                _leave(_says(dead), folder, stop)

    threading.Thread(target=watch, args=[_dead_processes], name="watches Ray", daemon=True).start()
    try:
        yield
    except Exception as error:
        if not dead:
            raise
        raise MachineError(_says(dead)) from error
    finally:
        over.set()


def _dead_processes() -> list[str]:
    """Names of Ray's processes that this process has started and that have ended."""
    node: Any = ray._private.worker._global_node
    started: dict[str, list[Any]] = node.all_processes if node else {}
    return [name for name, each in started.items() if any(info.process.poll() is not None for info in each)]


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
