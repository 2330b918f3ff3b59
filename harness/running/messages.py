"""What goes to a worker and what comes back, and where a trial's files are kept.

Tune hands dictionaries around. This is the only place that knows their keys.
"""

import contextlib
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import ray
from pydantic import Field, TypeAdapter
from ray import cloudpickle

from harness.errors import UserError, blaming
from harness.methods import register
from harness.methods.base import FINISHED, METRIC, TIME, SearchMethod
from harness.networks import register as register_network
from harness.schema.identity import Frozen
from harness.schema.records import Cost, Count, Environment, FinalEvaluation, Progress, TrialConfig
from harness.schema.settings import ArraysData, DataSettings, ImageFolderData, TableData
from harness.scratch import scratch_folder

_TASK = "task"  # in the configuration of a Tune trial
_UP_TO = "up_to"  # beside it
_PAYLOAD = "payload"  # in its reports
MODEL, ROWS = "model.pt", "rows"  # files of a unit in the storage of checkpoints


class TrainTask(Frozen):
    """One trial of a search."""

    do: Literal["train"] = "train"
    unit: str  # with `trial`, its key in the checkpoint store; of a replayed trial, that of the recorded one
    trial: str
    config: TrialConfig
    rungs: tuple[Count, ...] | None = None  # epochs after which the next report may stop it; None: any report may


class RefitTask(Frozen):
    """A fixed-depth network of the chosen depth on train + validation, for so many epochs.

    Ledgers of up to version 0.2.0 may ask for a whole one-shot network here.
    """

    do: Literal["refit"] = "refit"
    unit: str
    trial: Literal["refit"] = "refit"
    config: TrialConfig
    epochs: Count


class RetrainTask(Frozen):
    """The chosen network as a scheduler left it: its trial again, up to that epoch."""

    do: Literal["retrain"] = "retrain"
    unit: str
    trial: Literal["retrained"] = "retrained"
    config: TrialConfig
    epochs: Count
    begin_with: str | None = (
        None  # key of the trial's own last checkpoint; None: there is none, or one of a later epoch
    )


class FinalTask(Frozen):
    """The final evaluation: opens the test set, after the choice is on disk."""

    do: Literal["final"] = "final"
    unit: str
    trial: Literal["final"] = "final"
    config: TrialConfig  # of the chosen trial
    epochs: Count  # its best one
    chosen: str  # key of its checkpoint
    d_opt: Count
    deepest: Count | None = None  # depth of the space's deepest network; None in older ledgers
    others: tuple[tuple[str, Count], ...]  # checkpoints of other fixed depths, and the depths. Analysis only.
    stopped: tuple[tuple[Count, Count], ...] = ()  # depths and epochs at which other replays' choices were stopped
    refit_d_opt: Count | None  # None: there was no refit
    refit: RefitTask | None = None  # None with a depth above: that of version 0.2.0, with `config` and `epochs`
    data_hash: str | None = None  # as in the plan: the files must still be those


AnyTask = TrainTask | RefitTask | RetrainTask | FinalTask
Task = Annotated[AnyTask, Field(discriminator="do")]  # as a field of a record
_TASKS: TypeAdapter[AnyTask] = TypeAdapter(Task)


def to_worker(task: AnyTask, up_to: int | None = None) -> dict[str, Any]:
    """The configuration of the Tune trial that carries a task.

    A checkpoint of an epoch after `up_to` is not taken: the ledger has not heard of the reports before it, as the
    driver's disk was lost and the storage had less, and no search may miss one.
    """
    return {_TASK: task.model_dump_json(), _UP_TO: up_to}


def received_task(config: Mapping[str, Any]) -> AnyTask:
    return _TASKS.validate_json(config[_TASK])


def received_limit(config: Mapping[str, Any]) -> int | None:
    return config.get(_UP_TO)


class Facts(Frozen):
    """What a worker says of an attempt before its first epoch, so that one that dies early has left it."""

    host: str
    worker_start: tuple[float, float]  # seconds before and after it was handed the trial; 0 if it was warm and had rows
    resumed_from: Cost  # what the checkpoint had cost that it began with
    not_taken: Cost | None = None  # what one had cost that was further than the ledger knew
    split_hash: str
    n_train: Count
    n_val: Count
    environment: Environment
    warning: str = ""  # to be shown once


class Report(Frozen):
    """One message of a worker: the facts of an attempt, the progress of a trial, or the final evaluation."""

    facts: Facts | None = None
    progress: Progress | None = None
    final: FinalEvaluation | None = None
    saved: bool = False  # a checkpoint of this epoch is there, or under way
    kept: bool = True  # False: a trial has ended, and its last checkpoint did not arrive at the storage
    warning: str = ""  # to be shown once

    def to_tune(self) -> dict[str, Any]:
        result: dict[str, Any] = {_PAYLOAD: self.model_dump_json(), FINISHED: self.final is not None}
        if self.facts:
            result[TIME] = self.facts.resumed_from.epochs
        return result | (seen_by_search(self.progress) if self.progress else {})


def received_report(result: Mapping[str, Any]) -> Report:
    return Report.model_validate_json(result[_PAYLOAD])


def seen_by_search(progress: Progress) -> dict[str, Any]:
    """What searchers and schedulers may base a decision on."""
    metric = {METRIC: progress.val.log_likelihood} if progress.val else {}
    return {TIME: progress.epoch, FINISHED: progress.stop_reason is not None, **metric}


def packed_method(name: str, method_class: type[SearchMethod]) -> bytes:
    """A one-shot method of a user's own, by value: workers do not have its file."""
    with blaming(f"method {name}: its class cannot be sent to a worker", method_class):
        cloudpickle.register_pickle_by_value(sys.modules[method_class.__module__])
        packed: bytes = cloudpickle.dumps(method_class)
        return packed


def unpacked_method(name: str, packed: bytes) -> type[SearchMethod]:
    try:
        method_class: type[SearchMethod] = cloudpickle.loads(packed)
    except Exception as error:
        raise UserError(
            f"method {name} cannot be imported on the worker {socket.gethostname()}: {type(error).__name__}: {error}; "
            "its file may import only what is installed on every node"
        ) from error
    return method_class


@dataclass(frozen=True)
class OwnCode:
    """Users' own one-shot methods and networks: their files are where the driver is, and not on the workers."""

    methods: Mapping[str, bytes]  # name → class, packed
    networks: Sequence[tuple[str, str]]  # name and source

    def make_known(self) -> None:
        """In this process."""
        for name, packed in self.methods.items():
            register(name, unpacked_method(name, packed))
        for kind, text in self.networks:
            try:
                register_network(kind, text)
            except UserError as error:
                raise UserError(
                    f"{error} (on the worker {socket.gethostname()}; the file may import only what is installed on "
                    "every node)"
                ) from error


@dataclass(frozen=True)
class SentData:
    """Files of the user's, in the object store, by the settings of their data."""

    files: Mapping[str, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def at_hand(self, settings: DataSettings) -> Iterator[DataSettings]:
        """The settings of the same data on this machine: its files are there inside the block if they were sent."""
        sent = self.files.get(settings.model_dump_json())
        if sent is None or not isinstance(settings, ArraysData | ImageFolderData | TableData):
            yield settings
            return
        with scratch_folder(Path(tempfile.gettempdir())) as folder:
            place = folder / "data" / Path(settings.path).name
            for name, content in ray.get(sent).items():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_bytes(content)
            yield settings.model_copy(update={"path": str(place)})


NOTHING_SENT = SentData()


def checkpoint_key(unit: str, trial: str) -> str:
    return f"{unit}/{trial}.pt"


def rows_key(unit: str) -> str:
    """Of the chosen network's values per test row."""
    return f"{unit}/{ROWS}"


def model_key(unit: str) -> str:
    return f"{unit}/{MODEL}"
