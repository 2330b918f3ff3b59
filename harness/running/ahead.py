"""What other machines will need of the user's, settled before the first trial: code that imports there, and data files.

A machine's disk is its own. Rows to train on go through Ray, but the test set is read at the end of a search, on
whichever machine happens to do it. Without a look ahead all would be paid for before it turns out to be missing.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import ray

from harness.cluster.nodes import first_line, on_each_node
from harness.data import data_hash, own_files
from harness.errors import UserError
from harness.running.messages import OwnCode, SentData
from harness.running.unit import RunningUnit
from harness.schema.settings import ArraysData, DataSettings, ImageFolderData, TableData
from harness.text.shown import shown_bytes

MOST_SENT = 2**30  # bytes of a user's own data files that go through Ray's object store, which is in memory

PATIENCE_SECONDS = 1200.0  # a machine may have to download a data set first


def send_data(units: Sequence[RunningUnit], data_dir: Path | None, tell: Callable[[str], None]) -> SentData:
    """The user's own data files, where they are not too large; `tell` hears what is sent."""
    found = {unit.plan.space.data.model_dump_json(): unit.plan.space.data for unit in units}
    sent = {}
    for key, settings in found.items():
        files = own_files(settings, data_dir)
        size = sum(file.stat().st_size for file in files.values())
        if files and size <= MOST_SENT:
            sent[key] = ray.put({name: file.read_bytes() for name, file in files.items()})
            tell(f"{_named(settings)} ({shown_bytes(size)}) is sent to the machines of the cluster")
    return SentData(sent)


def check_machines(units: Sequence[RunningUnit], code: OwnCode, sent: SentData, data_dir: Path | None) -> None:
    """Each machine that is up imports the user's code and finds the data that was not sent; raises UserError."""
    wanted = {
        unit.plan.space.data.model_dump_json(): (unit.plan.space.data, unit.plan.data_hash)
        for unit in units
        if unit.plan.data_hash
    }
    read = [each for key, each in wanted.items() if key not in sent.files]
    if not (read or code.methods or code.networks):
        return
    nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    arguments = code, read, data_dir and str(data_dir.resolve()), str(Path.cwd())
    answers = on_each_node(what_is_missing, dict.fromkeys(nodes, arguments), PATIENCE_SECONDS)
    for node, answer in answers.items():
        if problem := first_line(answer) if isinstance(answer, Exception) else answer:
            raise UserError(f"{nodes[node]} cannot train this: {problem}")


def what_is_missing(
    code: OwnCode, wanted: Sequence[tuple[DataSettings, str]], data_dir: str | None, working_dir: str
) -> str | None:
    """On the machine where it is called; None: nothing."""
    began_in = Path.cwd()
    if Path(working_dir).is_dir():
        os.chdir(working_dir)
    try:
        code.make_known()
        for settings, expected in wanted:
            if data_hash(settings, Path(data_dir) if data_dir else None) != expected:
                return _without(settings)
    except UserError as error:
        return str(error)
    finally:
        os.chdir(began_in)
    return None


def _without(settings: DataSettings) -> str:
    if not isinstance(settings, ArraysData | ImageFolderData | TableData):
        return f"its files of {settings.kind} are not those that the driver has; delete them there (--data-dir)"
    return (
        f"it does not have {_named(settings)} as the driver has it, and more than {shown_bytes(MOST_SENT)} is not sent "
        "with a run; put the files on every machine under this path, or into a folder that all of them share"
    )


def _named(settings: DataSettings) -> str:
    return getattr(settings, "path", settings.kind)
