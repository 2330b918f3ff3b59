"""Runs units side by side on Ray Tune: the only caller of `tune.Tuner`."""

import contextlib
import logging
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import tune

from harness.backends.one_writer import Writer, only_writer
from harness.backends.storage import Storage, is_uri
from harness.cluster.slots import ClusterSlots
from harness.data import Pool, data_hash, load_pool, load_training_data
from harness.errors import UserError, full_disk_told
from harness.methods import RECORDER, code_of, known_methods, parse_methods
from harness.methods.base import METRIC, MODE, OneShotMethod, SearchMethod
from harness.networks import own_sources
from harness.options import RunOptions
from harness.running.ahead import check_machines, send_data
from harness.running.ledger import watching
from harness.running.messages import NOTHING_SENT, OwnCode, SentData, model_key, packed_method, rows_key
from harness.running.mirror import Arrived, Mirror, fetch
from harness.running.ray_session import deaths_count_once, lost_nodes_do_not_count, ray_session
from harness.running.replay import ReplayedUnit
from harness.running.search import plan_of
from harness.running.side_by_side import (
    Answers,
    Lender,
    SharedCallback,
    SharedScheduler,
    SharedSearch,
    Show,
    SideBySide,
    StopAsked,
)
from harness.running.stopping import ends_in_order
from harness.running.store import UnitFolder, check_same_network, declare_looks, read_plans
from harness.running.unit import RunningUnit
from harness.running.worker import run_task, save_now
from harness.schema.comparable import difference
from harness.schema.identity import hashed
from harness.schema.records import FIXED_DEPTH, SearchResult, TrialConfig, Unit, UnitPlan
from harness.schema.settings import SearchSpace
from harness.text.files import check_writable, write_atomically
from harness.training.checkpoints import CheckpointStore
from harness.training.compiling import check_compiler
from harness.training.devices import device_of_trial, memory_for
from harness.training.networks import check_a_step, check_network, check_network_fits, check_trial_fits


@dataclass(frozen=True)
class RunOutcome:
    units: tuple[Unit, ...]  # those asked for that are complete, by this run or an earlier one
    failures: Mapping[str, str]  # unit, or space that could not be begun → sentence
    unfinished: tuple[str, ...]  # units that the cost limit or a stop left without a result
    interrupted: int  # by which signal it was told to stop; 0: it was not

    @property
    def results(self) -> tuple[SearchResult, ...]:
        return tuple(unit.result for unit in self.units if unit.result)


def make_units(
    spaces: Sequence[SearchSpace], methods: Mapping[str, SearchMethod], seeds: Sequence[int], options: RunOptions
) -> list[RunningUnit]:
    """All units, spaces and methods interleaved by seed. Plans are checked; nothing is written."""
    several = len(spaces) > 1
    make = _with_replays if options.replay else _all_live
    return [
        unit
        for seed in seeds
        for space in spaces
        for unit in make(space, methods, seed, options, space.name if several else "")
    ]


def _all_live(
    space: SearchSpace, methods: Mapping[str, SearchMethod], seed: int, options: RunOptions, cell: str
) -> list[RunningUnit]:
    units = [make_unit(space, name, method, seed, options, cell) for name, method in methods.items()]
    first: dict[str, RunningUnit] = {}  # by the configuration of its one-shot network
    for unit in units:
        if unit.plan.facts.learns_depth:
            lender = first.setdefault(unit.plan.trial_config(space.depth.max).hash, unit)
            unit.lenders = () if lender is unit else (Lender(lender),)
    return units


def _with_replays(
    space: SearchSpace, methods: Mapping[str, SearchMethod], seed: int, options: RunOptions, cell: str
) -> list[RunningUnit]:
    """What has to be trained comes first: networks that are in no recording, and every depth once. All other searches
    are replayed. What follows a one-shot's training comes after every depth, one of which may be what it asks for."""
    if not any(method.exhaustive for method in methods.values()):
        methods = {**methods, **parse_methods(RECORDER)}
    trained = {name: method for name, method in methods.items() if method.exhaustive or not method.can_be_replayed}
    in_order = sorted(trained, key=lambda name: getattr(trained[name], "then", None) is not None)
    live = _all_live(space, {name: trained[name] for name in in_order}, seed, options, cell)
    recorder = next(unit for unit in live if unit.plan.facts.exhaustive)
    for unit in live:
        if unit.plan.stage.then in ("retrain", "top"):
            unit.lenders += (Lender(recorder),)
    replayed = {name: method for name, method in methods.items() if name not in trained}
    return live + [make_unit(space, name, method, seed, options, cell, recorder) for name, method in replayed.items()]


def make_unit(
    space: SearchSpace,
    name: str,
    method: SearchMethod,
    seed: int,
    options: RunOptions,
    cell: str = "",
    recorder: RunningUnit | None = None,
) -> RunningUnit:
    """Where a run calls a method's `plan`: once for each seed. With a `recorder`, the search is replayed from it."""
    space.training.check_device(options.gpus_per_trial > 0)
    if space.training.compile and options.address is None:  # other machines say it themselves
        check_compiler(on_gpu=options.gpus_per_trial > 0)
    search_plan = plan_of(name, method, space, seed)
    plan = UnitPlan(
        space=space,
        method=name,
        options=hashed(method),
        seed=seed,
        trials=search_plan.n_trials + (method.most_trials if isinstance(method, OneShotMethod) else 0),
        cpus_per_trial=options.cpus_per_trial,
        gpus_per_trial=options.gpus_per_trial,
        concurrency=options.simulated_devices if recorder else options.concurrency,
        refit=options.refit,
        facts=method.facts(),
        usd_per_hour=options.usd_per_hour,
        replayed=recorder is not None,
        code=code_of(name.partition(":")[0]),
    )
    folder = UnitFolder(options.out, space.name, name, seed)
    if recorder:
        return ReplayedUnit(plan, method, search_plan, folder, cell, recorder=recorder)
    return RunningUnit(plan, method, search_plan, folder, cell)


def run_units(
    units: Sequence[RunningUnit],
    options: RunOptions,
    on_complete: Callable[[Unit], None] = lambda unit: None,
    show: Show | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> RunOutcome:
    """Runs what is not complete yet. `on_complete` is called for each unit as it becomes complete, or was.

    `tell` hears at once what the run waits for before it can begin, and which spaces it has to leave out.
    """
    check_writable(options.out, "the output folder")  # nothing is left there: the run may still be refused
    CheckpointStore(checkpoint_root(options)).check_writable()
    full = full_disk_told(options.out, checkpoint_root(options), tempfile.gettempdir())
    with full, only_writer(options.take_over, tell) as writer:
        return _run_as(writer, units, options, on_complete, show or show_nothing, tell)


def _run_as(
    writer: Writer,
    units: Sequence[RunningUnit],
    options: RunOptions,
    on_complete: Callable[[Unit], None],
    show: Show,
    tell: Callable[[str], None],
) -> RunOutcome:
    spaces = sorted({unit.plan.space.name for unit in units})
    arrived = _fetched(units, options)
    if arrived is not None and any(options.fresh or not unit.folder.is_complete for unit in units):
        for space in spaces:
            writer.hold(str(options.storage), f"{options.kept_below}/{space}".lstrip("/"))
        arrived = _fetched(units, options)  # what another run, which has ended by now, had not sent before
    _check_plans(units, options)
    for space in spaces:
        declare_looks(options.out, space, options.looks, options.fresh, write=False)
    waiting = [unit for unit in units if options.fresh or not unit.folder.is_complete]
    _note_data(waiting, options.data_dir)
    _check_plans(waiting, options)
    complete = {unit.key: unit.folder.read() for unit in units if unit not in waiting}
    cost_before = _spent(complete.values())
    for unit_read in complete.values():  # told again: a run that was killed may not have passed it on
        on_complete(unit_read)
    interrupted = 0
    pools, broken = _load_pools(waiting, options.data_dir, _memory_of_a_trial(options))
    if broken.keys() == set(spaces):
        raise next(iter(broken.values()))
    for space, why in broken.items():
        tell(f"{space} is left out: {why}")
    waiting = [unit for unit in waiting if unit.plan.space.name not in broken]
    if waiting:
        code = own_code(waiting)
        storage = checkpoint_root(options)

        def finish(unit: RunningUnit) -> None:
            kept = {model_key: unit.folder.model_path, rows_key: unit.folder.rows_path}
            for key, path in kept.items():
                with CheckpointStore(storage).fetched(key(unit.storage_key)) as found:
                    if found:
                        write_atomically(path, found.read_bytes())
            writer.check()
            complete[unit.key] = unit.complete()  # last: whoever sees a result sees its model
            on_complete(complete[unit.key])

        with (
            _quiet_ray(options.debug),
            ends_in_order(options.may_exit) as stop,
            ray_session(options.address, options.debug, stop, _most_cpus(waiting, options)) as folder,
        ):
            cluster = ClusterSlots(options.gpus_per_trial, options.cpus_per_trial, options.address is not None)
            cluster.await_first(options.wait, tell, lambda: stop.by)
            references = _put(pools)
            del pools  # the object store has the rows
            sent = NOTHING_SENT
            if options.address is not None:
                sent = send_data(waiting, options.data_dir, tell)
                check_machines(waiting, code, sent, options.data_dir)
            for space in sorted({unit.plan.space.name for unit in waiting}):
                writer.hold(str(options.out), space)
            for unit in waiting:  # only now: a mistake in the resources must leave no plan behind
                unit.folder.may_write = writer.check
                unit.plan = unit.folder.claim(unit.plan, options.fresh)
            for space in spaces:
                declare_looks(options.out, space, options.looks, options.fresh)
            with _mirrored(units, arrived, options, writer, tell):
                limits = (*_room(cluster, options), options.parallel_units, options.max_cost)
                together = SideBySide(waiting, *limits, finish, cost_before, stop)
                if not stop.by:  # while Ray started
                    _fit(together, cluster, references, code, sent, storage, options, show, folder, writer)
        interrupted = stop.by
    failed = {unit.key: unit.failure for unit in waiting if unit.failure}
    failures = {space: str(why) for space, why in broken.items()} | failed
    unfinished = [unit.key for unit in waiting if unit.key not in complete and not unit.failure]
    in_order = tuple(complete[unit.key] for unit in units if unit.key in complete)
    return RunOutcome(in_order, failures, tuple(unfinished), interrupted)


def _spent(units: Iterable[Unit]) -> float:
    """Device-seconds: a trial that several units were told of began once, and was paid for once."""
    trials = (trial for unit in units if not unit.plan.replayed for trial in unit.trials)
    spent = {(trial.config_hash, trial.seed, trial.started_at): trial.cost.device_seconds for trial in trials}
    return sum(spent.values())


def _fetched(units: Sequence[RunningUnit], options: RunOptions) -> dict[str, Arrived] | None:
    """What a storage behind a URI has of the results; the folder then has it, too. None: there is no such storage."""
    if options.storage is None or not is_uri(options.storage):
        return None
    spaces = sorted({unit.plan.space.name for unit in units})
    anew = {unit.folder.name for unit in units} if options.fresh else ()
    return fetch(Storage(options.storage, options.kept_below), options.out, spaces, anew)


@contextlib.contextmanager
def _mirrored(
    units: Sequence[RunningUnit],
    arrived: Mapping[str, Arrived] | None,
    options: RunOptions,
    writer: Writer,
    tell: Callable[[str], None],
) -> Iterator[None]:
    """What the block writes goes to the storage, too, where that is a URI."""
    if arrived is None:
        yield
        return
    mirror = Mirror(Storage(str(options.storage), options.kept_below), options.out, writer, tell)
    for unit in units:
        mirror.follow(unit.folder, arrived)
    with mirror.running():
        yield


def _check_plans(units: Sequence[RunningUnit], options: RunOptions) -> None:
    """What cannot continue, or could not be compared with what the results folder has, is not trained."""
    if not options.fresh:
        for unit in units:
            unit.folder.check(unit.plan)
            check_same_network(options.out, unit.plan)
    for space in sorted({unit.plan.space.name for unit in units}):
        ours = [unit.plan for unit in units if unit.plan.space.name == space]
        asked = {(plan.method, plan.seed) for plan in ours}
        there = [plan for plan in read_plans(options.out, space) if (plan.method, plan.seed) not in asked]
        if found := difference([*there, *ours]):
            other = "--storage" if options.storage and is_uri(options.storage) else "--out"
            raise UserError(
                f"the results in {options.out / space} could not be compared with what this run would add: {found}; "
                f"give the same, another {other}, or --fresh with all methods and seeds that are there"
            )


def _note_data(units: Sequence[RunningUnit], data_dir: Path | None) -> None:
    """Once for a run, before the rows are loaded: what changes after that is found at the final evaluation."""
    hashes: dict[str, str | None] = {}
    for unit in units:
        settings = unit.plan.space.data
        key = settings.model_dump_json()
        if key not in hashes:
            hashes[key] = data_hash(settings, data_dir)
        unit.plan = unit.plan.model_copy(update={"data_hash": hashes[key]})


def _most_cpus(units: Sequence[RunningUnit], options: RunOptions) -> int:
    """That all trials which may run at once ask for."""
    trials = sum(unit.plan.trials for unit in units)
    return max(1, math.ceil(min(trials, options.workers or trials) * options.cpus_per_trial))


def _room(cluster: ClusterSlots, options: RunOptions) -> tuple[int, int]:
    """Trials that may run at once, and trials that may wait: none where --workers is below what Tune would start."""
    capacity = cluster.capacity
    slots = min(capacity, options.workers or capacity)
    return slots, slots if slots == capacity else 0


def checkpoint_root(options: RunOptions) -> str:
    return options.storage or str((options.out / "checkpoints").resolve())


def _fit(
    together: SideBySide,
    cluster: ClusterSlots,
    pools: Mapping[str, Any],
    code: OwnCode,
    sent: SentData,
    storage: str,
    options: RunOptions,
    show: Show,
    folder: Path,
    writer: Writer,
) -> None:
    trainable = tune.with_parameters(
        run_task,
        storage=storage,
        cpus=options.cpus_per_trial,
        gpus=options.gpus_per_trial,
        pools=pools,
        data_dir=str(options.data_dir.resolve()) if options.data_dir else None,
        working_dir=str(Path.cwd()),
        own_code=code,
        sent=sent,
    )
    resources = {"cpu": options.cpus_per_trial, "gpu": options.gpus_per_trial}
    with show(together) as refresh, lost_nodes_do_not_count(), deaths_count_once(), watching() as together.watch:

        def keep_up() -> None:
            writer.check()
            together.make_room(*_room(cluster, options))
            refresh()

        answers = Answers(together)
        tuner = tune.Tuner(
            tune.with_resources(trainable, resources),
            tune_config=tune.TuneConfig(
                metric=METRIC,
                mode=MODE,
                search_alg=SharedSearch(together),
                scheduler=SharedScheduler(together, answers, save_now),
                reuse_actors=True,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name="harness",
                storage_path=str(folder / "tune"),
                failure_config=tune.FailureConfig(max_failures=options.max_failures),
                callbacks=[SharedCallback(together, answers, keep_up, storage)],
                verbose=2 if options.debug else 0,
                progress_reporter=tune.CLIReporter(),  # in a notebook Ray's default would clear the cell's output
            ),
        )
        with contextlib.suppress(StopAsked):
            tuner.fit()
        refresh()  # the last unit's end came after the last step


def own_code(units: Sequence[RunningUnit]) -> OwnCode:
    """Users' own one-shot methods and networks, for the workers."""
    classes = {unit.plan.method_file: type(unit.method) for unit in units if unit.plan.facts.learns_depth}
    methods = {name: packed_method(name, each) for name, each in classes.items() if name not in known_methods()}
    return OwnCode(methods, own_sources(unit.plan.space.network for unit in units))


def _memory_of_a_trial(options: RunOptions) -> float | None:
    """Bytes of a GPU of this machine, or None: the machine's own. Of a Ray that is elsewhere its workers know."""
    if options.address is not None or ray.is_initialized():
        return math.inf
    if options.gpus_per_trial == 0:
        return None
    return memory_for(device_of_trial(options.gpus_per_trial), options.gpus_per_trial)


def _load_pools(
    units: Sequence[RunningUnit], data_dir: Path | None, memory: float | None
) -> tuple[dict[str, Pool | None], dict[str, UserError]]:
    """The rows by their settings: spaces with the same data share them. None where every seed draws its own.

    And what is wrong with a space, which shows here, before Ray is started and before anything is written; the others
    can do without it.
    """
    pools: dict[str, Pool | None] = {}
    broken: dict[str, UserError] = {}
    for name in dict.fromkeys(unit.plan.space.name for unit in units):
        try:
            _check_space([unit.plan for unit in units if unit.plan.space.name == name], pools, data_dir, memory)
        except UserError as error:
            broken[name] = error
    return pools, broken


def _check_space(
    plans: Sequence[UnitPlan], pools: dict[str, Pool | None], data_dir: Path | None, memory: float | None
) -> None:
    """Whether its data can be read and split, which depends on no seed, whether its network takes them and fits into
    the memory of a trial, and whether each one-shot method can take a step with them."""
    space, seed = plans[0].space, plans[0].seed
    key = space.data.model_dump_json()
    if key not in pools:
        pools[key] = load_pool(space.data, data_dir)
    data = load_training_data(space.data, seed, pools[key])
    deepest = TrialConfig.of(space, FIXED_DEPTH, space.depth.max, seed)
    check_network_fits(space.network, data.sample_shape, data.n_classes, space.depth.max)
    check_network(space, data)
    check_trial_fits(deepest, data, memory)
    for plan in {plan.method: plan for plan in plans if plan.facts.learns_depth}.values():
        trial = plan.trial_config(space.depth.max)
        check_trial_fits(trial, data, memory)
        check_a_step(trial, data)


def _put(pools: Mapping[str, Pool | None]) -> dict[str, Any]:
    """References into the object store, which holds rows once per node."""
    return {key: ray.put(pool) for key, pool in pools.items() if pool}


@contextlib.contextmanager
def show_nothing(together: SideBySide) -> Iterator[Callable[[], None]]:
    yield lambda: None


@contextlib.contextmanager
def _quiet_ray(debug: bool) -> Iterator[None]:
    """Ray warns about the result files and snapshots that it was told not to write."""
    logger = logging.getLogger("ray")
    before = logger.level
    logger.setLevel(before if debug else logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
