"""The only door to what is private of Ray's: no other file touches such a name, or an argument with an underscore.

`NAMES` is the list: what each name is for, and what happens in a Ray that lacks it. `check` refuses one without a
required name before anything starts; an optional one that is missing is a line in the debug log. A new name is a new
row: the tests take it away and look whether the row says the truth.
"""

import contextlib
import functools
import importlib
import inspect
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule
from ray.tune.search import BasicVariantGenerator

from harness.backends import ON_LOOPBACK, RAY, check_ray_version
from harness.backends.sockets import beyond_loopback, family, sockets_of
from harness.errors import UserError

LOOPBACK = "127.0.0.1"
AGENTS_PORTS = ("dashboard_agent_listen_port", "metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")
IDLE = "cat -- -"  # until its standard input is closed; Ray adds options, which are files to it

log = logging.getLogger(__name__)

# Set by running/__init__.py, and read when Ray was imported: not for what else this process starts (`ray start`).
if ON_LOOPBACK in os.environ.items():
    del os.environ[ON_LOOPBACK[0]]


# --- the list -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Private:
    """A name of Ray's that its documentation does not promise."""

    owner: str  # module, or module:class or function
    name: str  # an attribute, one that `__init__` sets, or an argument
    required: bool
    purpose: str
    without: str  # what happens in a Ray that lacks it
    together: str = ""  # names of one group are used together or not at all
    concerns_a_run: bool = True  # False: its module is not imported for a run

    def __str__(self) -> str:
        return f"{self.owner.replace(':', '.')}.{self.name}"

    def look_up(self) -> Any:
        """What has the name. Raises ImportError or AttributeError where this Ray has no such thing."""
        module, _, path = self.owner.partition(":")
        return functools.reduce(getattr, path.split(".") if path else [], importlib.import_module(module))


@functools.cache
def is_there(private: Private) -> bool:
    """Whether this Ray has it."""
    try:
        owner = private.look_up()
    except (ImportError, AttributeError):
        return False
    if hasattr(owner, private.name):
        return True
    if isinstance(owner, type):
        inits: list[Any] = [vars(each).get("__init__") for each in owner.__mro__]
        return any(private.name in init.__code__.co_names for init in inits if hasattr(init, "__code__"))
    code: Any = getattr(inspect.unwrap(owner), "__code__", None) if callable(owner) else None
    return code is not None and private.name in {*code.co_varnames, *code.co_consts}  # it may take it from **kwargs


def are_there(*privates: Private) -> bool:
    """Whether this Ray has all of them, and all that is used together with them."""
    groups = {each.together for each in privates} - {""}
    return all(is_there(each) for each in NAMES if each in privates or each.together in groups)


def _required(owner: str, name: str, purpose: str, without: str) -> Private:
    return Private(owner, name, True, purpose, without)


def _optional(owner: str, name: str, purpose: str, without: str, together: str = "") -> Private:
    return Private(owner, name, False, purpose, without, together)


_INIT = "ray._private.worker:init"  # not `ray.init`, which whoever traces calls may have replaced
_CONTROLLER = "ray.tune.execution.tune_controller:TuneController"
_NODE, _SERVICES, _WORKER = "ray._private.node:Node", "ray._private.services", "ray._private.worker"
_CONSTANTS, _UTILS = "ray._private.ray_constants", "ray._private.utils"
_ASHA = "ray.tune.schedulers:AsyncHyperBandScheduler"

# Who can reach a Ray of a run's own.
ADDRESS = _required(_INIT, "_node_ip_address", "puts Ray on 127.0.0.1", "Ray listens where other machines reach it")
FOLDER = _required(_INIT, "_temp_dir", "keeps Ray's files in the folder of the run", "they stay in /tmp")
CONFIG = _required(_INIT, "_system_config", "passes on Ray's own settings", "workers do not import ahead")
CLUSTERS = _optional(
    *(_CONSTANTS, "ENABLE_RAY_CLUSTER", "keeps the address 127.0.0.1, as Ray does by itself on a Mac"),
    "if Ray was imported before the harness it listens elsewhere, and the look at its sockets ends the run",
)
MODE_AGAIN = _required(
    *("ray._raylet:Config", "initialize", "reads again whether a token is asked for"),
    "whoever is on this machine can run code in the Ray of a run",
)
TOKEN_AGAIN = _required(
    *("ray._raylet:AuthenticationTokenLoader", "instance", "reads the token of this run"),
    "Ray keeps the token of the run before",
)
GLOBAL_NODE = _required(
    *(_WORKER, "_global_node", "knows Ray's processes"),
    "sockets cannot be looked at, and the death of a process of Ray's is waited for",
)

# Signals.
NATIVE_HANDLER = _required(
    *(_CONSTANTS, "RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "leaves SIGTERM to the run"),
    "a stop by SIGTERM ends the run at once, with exit code 134",
)
SIGTERM_HANDLER = _required(
    *(_UTILS, "set_sigterm_handler", "leaves SIGTERM to the run"), "a stop by SIGTERM keeps nothing"
)
POPEN = _required(
    *(_SERVICES, "ConsolePopen", "starts Ray's processes in groups of their own"),
    "a signal to the run, Ctrl-C too, ends Ray under it",
)
FATE = _required(
    *(_UTILS, "detect_fate_sharing_support", "knows whether the kernel ends Ray's processes with the run"),
    "they may outlive it",
)

# Failures.
ACTOR_ERROR = _required(
    *("ray.tune.experiment:Trial", "_handle_ray_actor_error", "does not count lost machines as failures of a trial"),
    "a few lost spot machines fail a trial",
)
TRIAL_FAILURE = _required(
    *(_CONTROLLER, "_process_trial_failure", "counts the death of a worker once"),
    "one death counts as several and may end its trial for good",
)
RESETTING = _required(
    *(_CONTROLLER, "_resetting_trials", "forgets a worker that died while it was handed on"), "the run waits for ever"
)
FAILURES = _required(
    *("ray.tune.experiment:Trial", "run_metadata", "counts failures of a trial"),
    "one that always fails is tried for ever",
)
TRIALS_WORKER = _required(
    *("ray.tune.experiment:Trial", "temporary_state", "has running trials saved when the run is stopped"),
    "a stop loses what they did since their last checkpoint",
)
ACTORS = _required(
    *("ray._private.state", "actors", "finds the machine of a worker that died"),
    "lost machines count as failures of a trial",
)

# Searches.
SEARCHER_METRIC = _required(
    *("ray.tune.search:Searcher", "_metric", "tells a searcher what it searches for"), "it cannot search"
)
SEARCHER_MODE = _required(
    *("ray.tune.search:Searcher", "_mode", "tells a searcher which way is better"), "it cannot search"
)
TRIAL_IDS = _required(
    *("ray.tune.search:BasicVariantGenerator", "_uuid_prefix", "gives each search trial ids of its own"),
    "two searches may share trials",
)
HARD_STOP = _required(
    *("ray.tune.schedulers:MedianStoppingRule", "_hard_stop", "refuses schedulers that pause trials"),
    "a paused trial would wait for ever",
)
ASHA_MODE = _optional(
    *(_ASHA, "_mode", "leaves a scheduler the mode that its method gave"), "Tune leaves it, too, without a word"
)
TIME_ATTR = _optional(
    *(_ASHA, "_time_attr", "refuses a scheduler that waits for a time which no report has"),
    "the first report ends such a run",
)
LAST_TRIALS = _optional(
    *(_ASHA, "_stop_last_trials", "knows at which epochs ASHA decides"), "a network is kept at every report"
)
BRACKETS = _optional(_ASHA, "_brackets", LAST_TRIALS.purpose, LAST_TRIALS.without)
RUNGS = _optional("ray.tune.schedulers.async_hyperband:_Bracket", "_rungs", LAST_TRIALS.purpose, LAST_TRIALS.without)

# Full use of the devices.
WRAPPED = _optional(
    *("ray.tune.execution.tune_controller:TrialRunnerWrapper", "_tune_controller", "starts workers for all devices"),
    "a large cluster fills slowly",
)
PENDING = _optional(_CONTROLLER, "update_max_pending_trials", WRAPPED.purpose, WRAPPED.without)
TRIAL_TO_ACTOR = _optional(
    *(_CONTROLLER, "_trial_to_actor", "keeps workers that are starting"),
    "short trials wait longer",
)
ACTOR_MANAGER = _optional(_CONTROLLER, "_actor_manager", TRIAL_TO_ACTOR.purpose, TRIAL_TO_ACTOR.without)
_TOGETHER = "answers together"
ANSWER = _optional(
    *(_CONTROLLER, "_execute_action", "lets reports that wait share one write to the disk"),
    *("each report has its own", _TOGETHER),
)
ARRIVING = _optional(
    *("ray.air.execution._internal.actor_manager:RayActorManager", "_actor_task_events", ANSWER.purpose),
    *(ANSWER.without, _TOGETHER),
)
NUM_CPUS = _optional(
    *(_UTILS, "get_num_cpus", "counts CPUs as Ray does, in a container too"), "those of the whole machine are counted"
)
ERRORS = _optional(
    *(_WORKER, "listen_error_messages", "keeps a page of Ray's from the terminal when a process dies"), "it is printed"
)

# Fewer processes: Ray starts in a quarter of the time (`python -m benchmarks ray_start`). All or nothing, as
# a Ray whose agents are idle must not be asked for environments of workers.
_FEW = "few processes"
_FEW_PURPOSE, _FEW_WITHOUT = "starts only the processes that a run needs", "Ray starts in about four times the time"
WEB_SERVER = _optional(_NODE, "start_api_server", _FEW_PURPOSE, _FEW_WITHOUT, _FEW)
WEB_ADDRESS = _optional(_NODE, "_webui_url", _FEW_PURPOSE, _FEW_WITHOUT, _FEW)
MONITOR = _optional(_NODE, "start_monitor", _FEW_PURPOSE, _FEW_WITHOUT, _FEW)
LOG_MONITOR = _optional(_NODE, "start_log_monitor", _FEW_PURPOSE, _FEW_WITHOUT, _FEW)
START_PROCESS = _optional(_SERVICES, "start_ray_process", _FEW_PURPOSE, _FEW_WITHOUT, _FEW)
WAIT_FOR_NODE = _optional(_SERVICES, "wait_for_node", _FEW_PURPOSE, _FEW_WITHOUT, _FEW)
RAYLET = _optional(_CONSTANTS, "PROCESS_TYPE_RAYLET", _FEW_PURPOSE, _FEW_WITHOUT, _FEW)
ENVIRONMENTS = _optional(_WORKER, "_maybe_modify_runtime_env", _FEW_PURPOSE, _FEW_WITHOUT, _FEW)
ACTOR_CLASS = _optional("ray.tune.execution.class_cache:_ActorClassCache", "get", _FEW_PURPOSE, _FEW_WITHOUT, _FEW)
ACTOR_CACHE = _optional("ray.tune.execution.class_cache:_ActorClassCache", "_cache", _FEW_PURPOSE, _FEW_WITHOUT, _FEW)

# Cluster files. What checks them colours the terminal, and resets it when the process ends.
CLUSTER_FILES, CLUSTER_DEFAULTS = (
    Private(
        *("ray.autoscaler._private.util", name, False, "checks a cluster file as `ray up` will"),
        *("`harness doctor FILE` leaves that to `ray up`", "cluster files"),
        concerns_a_run=False,
    )
    for name in ("validate_config", "prepare_config")
)

NAMES = tuple(each for each in list(vars().values()) if isinstance(each, Private))


def _note(missing: Private) -> None:
    about = missing, missing.purpose, missing.without
    log.debug("Ray %s has no %s, which %s; without it: %s", ray.__version__, *about)


@functools.cache
def check() -> None:
    """Raises UserError where this Ray lacks something that a run cannot do without."""
    check_ray_version()
    missing = [each for each in NAMES if each.concerns_a_run and not is_there(each)]
    for each in missing:
        _note(each)
    if needed := [each for each in missing if each.required]:
        named = "; ".join(f"{each}, which {each.purpose} (else {each.without})" for each in needed)
        raise UserError(f"a run needs what Ray {ray.__version__} does not have: {named}; install a tried one, {RAY}")


@contextlib.contextmanager
def _replaced(values: Mapping[Private, Any]) -> Iterator[None]:
    """Other values for a while. Optional names that are missing, or whose group is incomplete, are left out."""
    owners = {each: each.look_up() for each in values if each.required or are_there(each)}
    before = {each: getattr(owner, each.name) for each, owner in owners.items()}
    try:
        for each, owner in owners.items():
            setattr(owner, each.name, values[each])
        yield
    finally:
        for each, value in before.items():
            setattr(owners[each], each.name, value)


# --- start and end ------------------------------------------------------------------------------------------------


def start_here(folder: Path, ahead: list[str], cpus: int | None, debug: bool, options: Mapping[str, Any]) -> None:
    """A Ray of this process's own, on this machine, in this folder; its workers import what is named `ahead`.

    It takes no more than so many CPUs. It listens on 127.0.0.1 and asks for a token, which only the folder holds.
    """
    here = int(NUM_CPUS.look_up().get_num_cpus(True)) if are_there(NUM_CPUS) else os.cpu_count() or 1
    with (
        _environment(**dict([ON_LOOPBACK])),
        _asking_for_a_token(folder),
        _own_process_groups(),
        _replaced({CLUSTERS: False}),
        _needed_processes_only(debug),
        _replaced({} if debug else {ERRORS: lambda *_: None}),
    ):
        ray.init(
            "local",  # or Ray would join whatever cluster it finds running on this machine
            include_dashboard=False,
            _node_ip_address=LOOPBACK,
            _temp_dir=str(folder),
            _system_config={
                "enable_metrics_collection": False,  # nobody reads them
                "enable_pipe_based_agent_to_parent_health_check": True,  # as by default: IDLE hangs on it
                "gcs_rpc_server_reconnect_timeout_s": 10,  # one that is gone does not come back: no use in waiting
                "preload_python_modules": ahead,
            },
            **{"num_cpus": min(cpus or here, here), **options},
        )


@contextlib.contextmanager
def signals_left_alone() -> Iterator[None]:
    """Ray would take SIGTERM for itself: natively, with a stack trace and exit code 134, and in Python."""
    with _replaced({NATIVE_HANDLER: True, SIGTERM_HANDLER: lambda handler: None}):
        yield


@contextlib.contextmanager
def _asking_for_a_token(folder: Path) -> Iterator[None]:
    """A Ray that is started meanwhile asks for the token in this folder; the user's own, at home, is not for it.

    Ray would write one to the user's home, where it makes every later Ray expect that clusters ask for tokens.
    """
    token = folder / "auth_token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="ascii")
    with _environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token), RAY_AUTH_TOKEN=None):
        read_token_again()  # Ray was imported before
        yield


def read_token_again() -> None:
    """Whether to send a token, and which, from the environment as it is now: a later Ray is another one."""
    native: Any = MODE_AGAIN.look_up()
    native.initialize("")
    loader: Any = TOKEN_AGAIN.look_up()
    loader.instance().reset_cache()


@contextlib.contextmanager
def _own_process_groups() -> Iterator[None]:
    """A signal to the run's process group (`timeout`, a closed terminal) is for the run; Ray's processes outlive it.

    They end with this process, whatever happens, where the kernel sees to it. Elsewhere Ray does, by the group.
    """
    separate = functools.partial(POPEN.look_up().ConsolePopen, process_group=0)
    kernel_ends_them: Any = FATE.look_up().detect_fate_sharing_support()
    with _replaced({POPEN: separate} if kernel_ends_them else {}):
        yield


@contextlib.contextmanager
def _needed_processes_only(debug: bool) -> Iterator[None]:
    """No web server, no autoscaler, no reader of logs, no agents: Ray starts them even when they are switched off.

    It waits for them, too. On two cores they take more than half of the time that Ray needs to start, and their ports.
    """
    if not are_there(START_PROCESS):
        yield
        return

    def no_web_server(node: Any, **_: Any) -> None:
        setattr(node, WEB_ADDRESS.name, "")

    services: Any = START_PROCESS.look_up()
    start, raylet = services.start_ray_process, RAYLET.look_up().PROCESS_TYPE_RAYLET

    def start_without_agents(command: list[str], kind: str, *rest: Any, **options: Any) -> Any:
        given = dict(word[2:].split("=", 1) for word in command if word.startswith("--") and "=" in word)
        if kind != raylet or not {"session_dir", "node_id", "gcs-address", "store_socket_name"} <= given.keys():
            return start(command, kind, *rest, **options)
        started = start(_without_agents(command, given), kind, *rest, **options)
        services.wait_for_node(given["gcs-address"], given["store_socket_name"])  # or Ray would sleep for a second
        return started

    unneeded: dict[Private, Any] = {WEB_SERVER: no_web_server, MONITOR: lambda node: None}
    if not debug:
        unneeded[LOG_MONITOR] = lambda node: None
    # `uv run`, or a hook of the user's, would have an agent make environments for workers. They have this one.
    with _replaced({**unneeded, START_PROCESS: start_without_agents, ENVIRONMENTS: lambda *_: None}):
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
def any_worker_serves() -> Iterator[None]:
    """Lets Tune take workers that run already, where all of them are on this machine.

    It asks for environment variables of the driver's, and Ray would start other workers to have them. Here they have
    them from the start.
    """

    def remote_class(cache: Any, trainable: Any) -> Any:
        if trainable not in cache._cache:
            cache._cache[trainable] = ray.remote(trainable)
        return cache._cache[trainable]

    node = _own_node()
    with _replaced({ACTOR_CLASS: remote_class} if node is not None and node.is_head() else {}):
        yield


@contextlib.contextmanager
def _environment(**values: str | None) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


# --- its processes ------------------------------------------------------------------------------------------------


def _own_node() -> Any:
    return GLOBAL_NODE.look_up()._global_node


def _started() -> dict[str, list[Any]]:
    """What this process has started for Ray, by name."""
    node = _own_node()
    return node.all_processes if node else {}


def dead_processes() -> list[str]:
    """Names of Ray's processes that this process has started and that have ended."""
    return [name for name, each in _started().items() if any(info.process.poll() is not None for info in each)]


def reachable_from_outside(driver_had: set[str]) -> list[str]:
    """`name at address:port` where a Ray of our own, its workers and this process listen for other machines.

    The driver may be a user's process with sockets of its own: those that it `had` before Ray are left out.
    """
    if not Path("/proc/net/tcp").exists():
        log.debug("there is no /proc here to look up where Ray listens")
        return []
    ours = family(info.process.pid for each in _started().values() for info in each)
    sockets = {pid: sockets_of(pid) for pid in ours}
    return beyond_loopback({**sockets, os.getpid(): sockets_of(os.getpid()) - driver_had})


def node_id_of(actor_id: str) -> str | None:
    """The machine of a worker, as Ray calls it."""
    known: dict[str, Any] = ACTORS.look_up().actors(actor_id)
    node_id: str | None = known.get("Address", {}).get("NodeID")
    return node_id


# --- Tune ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def actor_errors_go_to(handle: Callable[[Any, Any], None]) -> Iterator[None]:
    """Tune calls it with a trial and the error of its worker, and counts nothing itself."""
    with _replaced({ACTOR_ERROR: handle}):
        yield


def count_failure(trial: Any) -> None:
    trial.run_metadata.num_failures += 1


def worker_of(trial: Any) -> Any:
    """The actor that runs it."""
    return trial.temporary_state.ray_actor


@contextlib.contextmanager
def failures_pass(admit: Callable[[Any, Any], bool]) -> Iterator[None]:
    """Tune processes a failure of a trial where this says so, of the trial and its exception.

    A worker that was being handed on to the trial is not waited for any more.
    """
    process: Any = getattr(TRIAL_FAILURE.look_up(), TRIAL_FAILURE.name)

    def admitted(controller: Any, trial: Any, exception: Any) -> None:
        if admit(trial, exception):
            controller._resetting_trials.discard(trial)
            process(controller, trial, exception)

    with _replaced({TRIAL_FAILURE: admitted}):
        yield


def start_workers_for(tune_controller: Any, trials: int) -> None:
    """By itself Tune would start workers one after the other, or for as many CPUs as it saw at first."""
    if are_there(WRAPPED, PENDING):
        tune_controller._tune_controller.update_max_pending_trials(trials)


def has_worker(tune_controller: Any, trial: Any) -> bool:
    """Whether a worker was given its devices and is starting for this trial. Tune tells nobody else."""
    if not are_there(WRAPPED, TRIAL_TO_ACTOR, ACTOR_MANAGER):
        return False
    controller = tune_controller._tune_controller
    actor = controller._trial_to_actor.get(trial)
    return actor is not None and bool(controller._actor_manager.is_actor_started(actor))


def can_answer_later(tune_controller: Any) -> bool:
    """Whether a report may be left without a decision (NOOP) for now: its trial waits, and `answer` lets it go on."""
    return are_there(WRAPPED, ACTOR_MANAGER, ANSWER, ARRIVING)


def answer(tune_controller: Any, trial: Any, decision: str) -> None:
    tune_controller._tune_controller._execute_action(trial, decision)


def another_report_is_here(tune_controller: Any) -> bool:
    """Tune's loop takes one at a time."""
    waited_for = list(tune_controller._tune_controller._actor_manager._actor_task_events.get_futures())
    return bool(waited_for) and bool(ray.wait(waited_for, timeout=0, fetch_local=False)[0])


def pauses_softly(scheduler: Any) -> bool:
    return isinstance(scheduler, MedianStoppingRule) and not scheduler._hard_stop


def mode_of(scheduler: Any) -> str | None:
    mode: str | None = getattr(scheduler, ASHA_MODE.name, None)
    return mode


def time_attribute(scheduler_or_searcher: Any) -> str | None:
    time: str | None = getattr(scheduler_or_searcher, TIME_ATTR.name, None)
    return time


def rungs_of(scheduler: Any) -> set[float] | None:
    """Times at which a scheduler like ASHA decides; None: unknown, it may be at any report."""
    if type(scheduler) is not AsyncHyperBandScheduler or not are_there(LAST_TRIALS, BRACKETS, RUNGS):
        return None
    if scheduler._stop_last_trials:
        return None
    return {rung for bracket in scheduler._brackets for rung, _ in bracket._rungs}


def give_metric(searcher: Any, metric: str, mode: str) -> None:
    """To one that was made without; what it was made with stays."""
    searcher._metric, searcher._mode = searcher.metric or metric, searcher.mode or mode


def give_trial_ids(search_alg: Any, prefix: str) -> None:
    """Its ids begin with five digits of the clock: units planned in the same half millisecond would share them."""
    if isinstance(search_alg, BasicVariantGenerator):
        search_alg._uuid_prefix = prefix


# --- cluster files ------------------------------------------------------------------------------------------------


def validate_cluster_file(config: dict[str, Any]) -> None:
    """Raises what Ray objects to, with its own defaults filled in."""
    if are_there(CLUSTER_FILES):
        util: Any = CLUSTER_FILES.look_up()
        util.validate_config(util.prepare_config(config))
    else:
        _note(CLUSTER_DEFAULTS if is_there(CLUSTER_FILES) else CLUSTER_FILES)
