"""What runs on a worker: one trial, the refit or the final evaluation of a unit, inside a Tune function trainable.

torch is imported inside the functions, so that its import is measured as the `startup` it is.
"""

import contextlib
import functools
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune

from harness.errors import UserError
from harness.running.messages import (
    NOTHING_SENT,
    Facts,
    FinalTask,
    OwnCode,
    RefitTask,
    Report,
    RetrainTask,
    SentData,
    StageTask,
    TrainTask,
    checkpoint_key,
    model_key,
    received_limit,
    received_task,
    rows_key,
)
from harness.schema.records import Cost, Progress, TrialConfig
from harness.training.checkpoints import CheckpointStore

if TYPE_CHECKING:
    import torch

    from harness.data.splits import TrainingData
    from harness.schema.settings import DataSettings

CHECKPOINT_SECONDS = 2.0  # between checkpoints, at least; results do not depend on it
SAVING_SHARE = 0.01  # of the time between checkpoints that they may take
SILENT_SECONDS = 60.0  # without an answer of the storage, after which it is told
OFTEN_SECONDS = 0.5  # between reports of a trial that has no time to wait for their answers
AT_RISK = (
    "the run goes on; at risk is what trials train after their last checkpoint that arrived: it is trained again if "
    "their worker dies, and if their network is chosen"
)

MOST_SEEDS = 2  # whose rows a worker keeps: a run goes from seed to seed

_worker_is_fresh = True
_rows: dict[tuple[str, int, Any], "TrainingData"] = {}  # by data settings, seed and pool
_training = threading.Lock()  # held while a trial trains, not while it waits for the answer to a report
_save: Callable[[], None] | None = None  # saves the trial as it is; None: there is nothing to save


def save_now(trainable: Any) -> None:
    """Run on a worker by a driver that is told to stop: what its trial has reached is kept, once it waits."""
    with _training:
        if _save:
            _save()


def run_task(
    config: dict[str, Any],
    storage: str,
    cpus: float,
    gpus: float,
    pools: Mapping[str, Any],
    data_dir: str | None,
    working_dir: str,
    own_code: OwnCode,
    sent: SentData = NOTHING_SENT,
) -> None:
    """Tune's trainable. `config` carries the task; `pools` refer into the object store, by the data's settings."""
    began, before = time.perf_counter(), time.process_time()
    if Path(working_dir).is_dir():
        os.chdir(working_dir)  # Tune stands in a folder of the trial's own; a relative data.path is from the user's
    if gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a trial that was given no GPU must not touch one

    import torch

    from harness.training import (
        compiling,
        devices,
        train,  # noqa: F401 - its import is part of the worker's start
    )

    device = devices.device_of_trial(gpus)
    devices.start(device, gpus)
    task = received_task(config)
    if task.config.training.compile:
        compiling.load_compiler()
    # A worker serves trials of many searches, so its start is no cost of the one that happens to come first: it is
    # recorded beside the cost. Before the trial it is processor time (Ray may have started the process long ago).
    global _worker_is_fresh
    worker_start = (before, time.perf_counter() - began) if _worker_is_fresh else (0.0, 0.0)
    _worker_is_fresh = False
    torch.set_num_threads(max(1, int(cpus)))
    own_code.make_known()
    devices_held, folder = gpus or cpus, Path(data_dir) if data_dir else None
    worker = _Worker(task.config, CheckpointStore(storage), devices_held, device, folder, worker_start, sent)
    worker.load_data(pools.get(task.config.data.model_dump_json()))
    match task:
        case TrainTask():
            worker.train(task, received_limit(config))
        case StageTask():
            worker.follow(task, received_limit(config))
        case RefitTask():
            worker.refit(task)
        case RetrainTask():
            worker.retrain(task)
        case FinalTask():
            worker.final(task)


class _Worker:
    """A task with what this worker has: devices, checkpoints, rows."""

    data: "TrainingData"

    def __init__(
        self,
        config: TrialConfig,
        checkpoints: CheckpointStore,
        devices_held: float,
        device: "torch.device",
        data_dir: Path | None,
        worker_start: tuple[float, float],
        sent: SentData = NOTHING_SENT,
    ) -> None:
        self.config = config
        self.checkpoints = checkpoints
        self.devices_held = devices_held
        self.device = device
        self.data_dir = data_dir
        self.worker_start = worker_start
        self.sent = sent

    def load_data(self, pool: Any) -> None:
        """This seed's rows of the pool, which the node holds once for all trials.

        Their statistics and their hash take seconds where rows are many. Like a worker's start, that is no cost of the
        trial that happens to be the first of its seed here.
        """
        import ray

        from harness.data import load_training_data

        key = (self.config.data.model_dump_json(), self.config.seed, pool)
        if key not in _rows:
            began = time.perf_counter()
            rows = load_training_data(self.config.data, self.config.seed, ray.get(pool) if pool else None)
            while len(_rows) >= MOST_SEEDS:
                del _rows[next(iter(_rows))]
            _rows[key] = rows
            before, after = self.worker_start
            self.worker_start = before, after + time.perf_counter() - began
        self.data = _rows[key]

    def train(self, task: TrainTask, up_to: int | None = None) -> None:
        key = checkpoint_key(task.unit, task.trial)
        self._run(self.config, self.data, key, rungs=task.rungs, must_keep=False, up_to=up_to)

    def follow(self, task: StageTask, up_to: int | None) -> None:
        """What follows a one-shot's training."""
        whole = self._whole(self.config, task.cut_from)
        self._run(self.config, self.data, checkpoint_key(task.unit, task.trial), whole=whole, up_to=up_to)

    def _whole(self, config: TrialConfig, key: str | None) -> Any:
        """The one-shot network that a fine-tuned one is cut from; where its checkpoint is no more, trained again."""
        if config.one_shot is None or key is None:
            return None
        with contextlib.suppress(UserError):  # gone, or none
            return self._read(key, config.one_shot, self.data)
        self._train_again(key, config.one_shot, self.data)
        return self._read(key, config.one_shot, self.data)

    def refit(self, task: RefitTask) -> None:
        """A network of the chosen depth on train + validation, for as many epochs as are asked for."""
        self._run(*self._refit_of(task.config, task.epochs), checkpoint_key(task.unit, task.trial))

    def retrain(self, task: RetrainTask) -> None:
        """A trial again, up to the epoch at which a scheduler stopped it: to the bit the same network."""
        key = checkpoint_key(task.unit, task.trial)
        self._run(self.config, self.data, key, begin_with=task.begin_with, last_epoch=task.epochs)

    def _refit_of(self, config: TrialConfig, epochs: int) -> tuple[TrialConfig, "TrainingData"]:
        """No early stopping: there are no rows left to stop by. The rate drops after the same share of the epochs."""
        import numpy as np

        from harness.data.splits import Pool, training_data

        settings = config.training.model_copy(
            update=config.training.lasting(epochs) | {"patience": epochs + 1, "monitor": "none", "min_delta": 0.0}
        )
        pool = Pool(self.data.x, self.data.y, self.data.n_classes)
        rows = np.sort(np.concatenate([self.data.train_rows, self.data.val_rows]))
        return config.model_copy(update={"training": settings}), training_data(pool, rows, self.data.val_rows)

    def _run(
        self,
        config: TrialConfig,
        data: "TrainingData",
        key: str,
        begin_with: str | None = None,
        last_epoch: int | None = None,
        rungs: tuple[int, ...] | None = (),
        must_keep: bool = True,
        whole: Any = None,
        up_to: int | None = None,
    ) -> None:
        """Goes on from the checkpoint `key`, else from `begin_with`, else from the start; not from one after `up_to`.

        `must_keep`: it fails where its last checkpoint does not arrive, since what follows begins with that.
        """
        saves, reports = _Saves(self.checkpoints, key, must_keep), _Reports(rungs)
        with _training, contextlib.ExitStack() as fetched, contextlib.suppress(_Reached):
            resume_from, warning = None, ""
            try:
                resume_from = fetched.enter_context(self.checkpoints.fetched(key))
                if resume_from is None and begin_with:
                    resume_from = fetched.enter_context(self.checkpoints.fetched(begin_with))
            except UserError as error:
                warning = f"{error}; trials start over"
            try:
                self._run_from(
                    resume_from, fetched.close, warning, config, data, saves, reports, last_epoch, up_to, whole
                )
            finally:
                _nothing_to_save()

    def _run_from(
        self,
        resume_from: Path | None,
        resumed: Callable[[], None],
        warning: str,
        config: TrialConfig,
        data: "TrainingData",
        saves: "_Saves",
        reports: "_Reports",
        last_epoch: int | None,
        up_to: int | None,
        whole: Any,
    ) -> None:
        from harness.training.cost import PhaseTimer
        from harness.training.environment import environment
        from harness.training.train import cost_in_checkpoint, run_trial

        before, not_taken = None, None
        if resume_from:
            try:
                before = cost_in_checkpoint(resume_from, config, self.device)
                if last_epoch is not None and before.epochs > last_epoch:
                    raise UserError(f"the checkpoint {resume_from} is of epoch {before.epochs}, after {last_epoch}")
            except UserError as error:  # it counts as absent, and the next one replaces it
                resume_from, before, warning = None, None, f"{error}; the trial starts over"
        if before and up_to is not None and before.epochs > up_to:
            resume_from, before, not_taken = None, None, before
        timer = PhaseTimer(self.device, before)
        facts = Facts(
            host=socket.gethostname(),
            worker_start=self.worker_start,
            resumed_from=before or Cost(),
            not_taken=not_taken,
            split_hash=data.split_hash,
            n_train=data.n_train,
            n_val=len(data.val_rows),
            environment=environment(self.device, config.training),
            warning=warning,
        )
        known: set[str] = set()  # warnings that were told

        def report(progress: Progress, save: Callable[[Path], None]) -> None:
            global _save
            resumed()  # the copy of a checkpoint that was fetched would outlive a worker that is killed
            reached = last_epoch is not None and progress.epoch >= last_epoch
            ended = reached or progress.stop_reason is not None
            failed = progress.stop_reason == "failed"  # non-finite weights must not replace good ones
            _save = None if failed else lambda: saves.keep(save)
            reports.settle()  # before a later checkpoint is there: none is further than the next report
            if ended:
                _save = None
            saved = not failed and saves.save(save, ended)
            told = {saves.take_warning(), _not_compiled(config, progress)} - known - {""}
            known.update(told)
            reports.send(
                Report(progress=progress, saved=saved, kept=saves.kept, warning="; ".join(sorted(told))), ended
            )
            if reached:
                raise _Reached

        reports.send(Report(facts=facts))
        run_trial(
            config,
            data,
            report,
            device=self.device,
            devices_held=self.devices_held,
            resume_from=resume_from,
            timer=timer,
            whole=whole,
        )

    def final(self, task: FinalTask) -> None:
        with self.sent.at_hand(self.config.data) as data:
            self._final(task, data)

    def _final(self, task: FinalTask, files: "DataSettings") -> None:
        """Opens the test set, after the choice is on disk, and leaves the chosen network beside the checkpoints."""
        from harness.data import data_hash
        from harness.models import FixedDepthNet
        from harness.training.final import evaluate_on_test
        from harness.training.model_file import save_model
        from harness.training.networks import chosen_network

        found = data_hash(files, self.data_dir) if task.data_hash else None
        if found != task.data_hash:
            raise UserError(
                f"the data files on {socket.gethostname()} are not those that the search was trained on (hash of their "
                f"bytes: {found}, wanted {task.data_hash}); put those back, or use --fresh to start over"
            )
        warnings: list[str] = []

        def load(key: str, config: TrialConfig, data: "TrainingData") -> Any:
            try:
                return self._read(key, config, data)
            except _Unreadable as error:
                if key == checkpoint_key(task.unit, "retrained"):  # its own end is not where the trial was stopped
                    raise UserError(str(error)) from None
                warnings.append(f"{error}; its network was trained again, charged to nobody")
            self._train_again(key, config, data, whole=self._whole(config, task.cut_from))
            return self._read(key, config, data)

        network = load(task.chosen, self.config, self.data)
        others: dict[int, FixedDepthNet] = {
            depth: load(key, self.config.model_copy(update={"depth": depth, "restart": 0}), self.data)
            for key, depth in task.others
        }
        refit = None
        if task.refit_d_opt is not None:
            asked = task.refit or RefitTask(unit=task.unit, config=self.config, epochs=task.epochs)
            refit_config, refit_data = self._refit_of(asked.config, asked.epochs)
            refitted = load(checkpoint_key(task.unit, "refit"), refit_config, refit_data)
            refit = (chosen_network(refitted, task.refit_d_opt), refit_data)
        stopped = {(depth, epoch): self._as_stopped(task.unit, depth, epoch) for depth, epoch in task.stopped}
        values: list[bytes] = []
        evaluation = evaluate_on_test(
            network,
            task.d_opt,
            self.config.model_copy(update={"data": files}),
            self.data,
            others,
            refit,
            self.data_dir,
            stopped,
            task.deepest,
            values.append,
        )
        handed_over = chosen_network(network, task.d_opt)

        def save(path: Path) -> None:
            save_model(path, handed_over, task.d_opt, self.config, self.data)

        def save_rows(path: Path) -> None:
            path.write_bytes(values[0])

        self.checkpoints.save(rows_key(task.unit), save_rows)
        self.checkpoints.save(model_key(task.unit), save)
        self.checkpoints.settle()
        tune.report(Report(final=evaluation, warning="; ".join(warnings)).to_tune())

    def _read(self, key: str, config: TrialConfig, data: "TrainingData") -> Any:
        """The best network in a checkpoint."""
        from harness.training.train import best_network

        with self.checkpoints.fetched(key) as path:
            if path is None:
                raise UserError(f"the checkpoint {key} is gone from {self.checkpoints.root}")
            try:
                return best_network(path, config, data, self.device)
            except UserError as error:
                raise _Unreadable(str(error)) from None

    def _as_stopped(self, unit: str, depth: int, epoch: int) -> Any:
        """A fixed depth as it was when a scheduler stopped it; trained again, charged to nobody."""
        config, key = self.config.model_copy(update={"depth": depth}), checkpoint_key(unit, f"stopped-{depth}-{epoch}")
        self._train_again(key, config, self.data, epoch)
        return self._read(key, config, self.data)

    def _train_again(
        self,
        key: str,
        config: TrialConfig,
        data: "TrainingData",
        last_epoch: int | None = None,
        whole: Any = None,
    ) -> None:
        """A trial to its end or to an epoch, in place of its checkpoint: to the bit the same network."""
        from harness.training.train import run_trial

        def keep(progress: Progress, save: Callable[[Path], None]) -> None:
            reached = last_epoch is not None and progress.epoch >= last_epoch
            if reached or progress.stop_reason is not None:
                self.checkpoints.save(key, save)
            if reached:
                raise _Reached

        with contextlib.suppress(_Reached):
            run_trial(config, data, keep, device=self.device, devices_held=self.devices_held, whole=whole)
        self.checkpoints.settle()


def _not_compiled(config: TrialConfig, progress: Progress) -> str:
    """A sentence about it, if the compiler gave up."""
    if not progress.ran_eagerly:
        return ""
    return f"{config.kind} of depth {config.depth} runs without torch.compile, which gave up: {progress.ran_eagerly}"


class _Unreadable(UserError):
    """A checkpoint is there, and is none."""


class _Reached(Exception):
    """A trial has come to the epoch that was asked for."""


class _Reports:
    """Tells Tune what a trial has reached. Tune answers each report: go on, or stop, which is a SystemExit.

    The answer takes some milliseconds, which can be a tenth of a small network's time. So a trial that reports often
    trains on meanwhile, except where the answer may be a stop: nobody would pay for what it trained in vain. It waits
    before its next report at the latest.
    """

    def __init__(self, rungs: tuple[int, ...] | None) -> None:
        self._rungs = rungs
        self._epoch, self._last = 0, time.monotonic()  # of the last report
        self._under_way: Future[None] | None = None

    def send(self, report: Report, ended: bool = False) -> None:
        self._under_way = _messenger().submit(tune.report, report.to_tune())
        since, before = time.monotonic() - self._last, self._epoch
        self._last += since
        if report.progress:
            self._epoch = report.progress.epoch
        may_stop = self._rungs is None or any(before < rung <= self._epoch for rung in self._rungs)
        if ended or may_stop or since > OFTEN_SECONDS:
            self.settle()

    def settle(self) -> None:
        """Waits for the answer. The trial does nothing meanwhile: it may be saved."""
        under_way, self._under_way = self._under_way, None
        if under_way:
            _training.release()
            try:
                under_way.result()
            finally:
                _training.acquire()


@functools.cache
def _messenger() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="report")


def _nothing_to_save() -> None:
    global _save
    _save = None


class _Saves:
    """Checkpoints of a trial: at its end, and before that as often as they take next to nothing of its time.

    The rule is the same for all methods. Whether a scheduler may stop a trial does not matter: what a stopped one had
    reached since its last checkpoint is trained again if it is chosen, and charged to nobody.
    """

    def __init__(self, checkpoints: CheckpointStore, key: str, must_keep: bool) -> None:
        self._checkpoints, self._key, self._must_keep = checkpoints, key, must_keep
        self.kept = True  # False: it has ended, and the last one did not arrive
        self._last, self._took = time.monotonic(), 0.0
        self._warning = ""
        self._warned = False

    def save(self, write: Callable[[Path], None], ended: bool) -> bool:
        """Whether it was time for one."""
        since = time.monotonic() - self._last
        if not ended and since < max(CHECKPOINT_SECONDS, self._took / SAVING_SHARE):
            return False
        if not ended and self._checkpoints.is_busy:  # training does not wait for a storage
            if since >= SILENT_SECONDS:
                self._warn(f"the storage has not answered for {SILENT_SECONDS:.0f} s")
            return False
        began = time.monotonic()
        try:
            self._checkpoints.save(self._key, write)
        except UserError as error:  # the one before did not arrive; this one is under way
            self._warn(str(error))
        if ended:
            self._end()
        self._last = time.monotonic()
        self._took = self._last - began
        return True

    def keep(self, write: Callable[[Path], None]) -> None:
        """The run ends here: the one that continues begins with this."""
        self._checkpoints.save(self._key, write)
        self._checkpoints.settle()

    def _end(self) -> None:
        """The final evaluation needs the last one: if this trial is chosen, it is trained again from the one before."""
        try:
            self._checkpoints.settle()
        except UserError as error:
            if self._must_keep:
                raise
            self.kept = False
            self._warn(str(error))

    def _warn(self, error: str) -> None:
        if not self._warned:
            self._warning = f"{error}; {AT_RISK}"
        self._warned = True

    def take_warning(self) -> str:
        """To be told once."""
        warning, self._warning = self._warning, ""
        return warning
