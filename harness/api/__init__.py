"""Run, compare and report from Python: what notebooks and the command line share. Nothing is printed here.

Imports of torch, Ray and pandas stand where they are needed: a mistake in the input is answered at once.
"""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.api.planned import plan_run
from harness.api.results import Folder, Results, Space, load
from harness.errors import UserError, brief
from harness.methods import DEFAULT
from harness.options import DEFAULT_OUT, Methods, RunOptions, Seeds, Settings, with_keywords
from harness.running.inputs import space_of
from harness.schema.settings import NAME_PATTERN, SearchSpace
from harness.spaces import parse_space
from harness.text.files import checked_path, write_atomically
from harness.text.strict_yaml import parse_yaml

if TYPE_CHECKING:
    from harness.api.pulled import Pulled
    from harness.comparing import Comparison
    from harness.comparing.replays import Replay
    from harness.running.forecast import Forecast
    from harness.studies.across import Replays

__all__ = [
    "Results",
    "UserError",
    "compare",
    "export",
    "init",
    "load_results",
    "load_space",
    "pull",
    "replay",
    "replay_across",
    "report",
    "run",
]


def load_space(space: Space, *, set: Settings = ()) -> SearchSpace:
    """A search space by name or from a .yaml file; `set` replaces settings, as {"training.lr": 0.05}."""
    return space_of(space, set)


@with_keywords
def run(
    space: Space, methods: Methods = DEFAULT, seeds: Seeds = 0, *, progress: bool | None = None, **options: Any
) -> Results:
    """Runs searches side by side on Ray Tune and returns everything that the space then has in the results folder.

    The same call again trains nothing that is complete; after a crash it resumes.

    methods: "all", or a list of names (`harness list` has them), names with options ("name:option=value") and paths.
    seeds: range(3), [0, 1], "0-19" or one seed; each is a repeat of all methods.
    progress: None shows a live table in a notebook, and on stderr where that is a terminal; True also writes lines to
        stderr where it is none; False shows nothing.
    """
    planned = plan_run(space, RunOptions.of(methods=methods, seeds=seeds, **options))
    from harness.terminal.progress import shown

    def warn(sentence: str) -> None:
        warnings.warn(sentence, stacklevel=2)

    results = planned.start(shown(progress), warn).against(planned.options.reference)
    for sentence in results.went_wrong:
        if sentence not in results.warnings:  # those were told at once
            warn(sentence)
    return results


def load_results(space: Space, out: Folder = DEFAULT_OUT, reference: str | None = None) -> Results:
    """What earlier runs of a space left in the results folder; trains nothing."""
    return load(space, out, reference)


def compare(results: Results | Space, reference: str | None = None, *, out: Folder = DEFAULT_OUT) -> "Comparison":
    """Cost and quality of the methods, with intervals and a verdict; of results, or of a space that has some."""
    return _results(results, reference, out).comparison


def report(
    results: Results | Space,
    reference: str | None = None,
    *,
    out: Folder = DEFAULT_OUT,
    path: Folder | None = None,
) -> Path:
    """Writes report.html (figures, tables and the verdict in one file) and returns where it is."""
    return _results(results, reference, out).report(path)


def _results(given: Results | Space, reference: str | None, out: Folder) -> Results:
    return given.against(reference) if isinstance(given, Results) else load_results(given, out, reference)


def init(data: Folder, target: str | None = None, *, name: str | None = None) -> tuple[Path, SearchSpace, "Forecast"]:
    """Looks at a .csv, .parquet or .npz file or a folder of images and writes a search space that runs as it is.

    target: the column of a table that holds the classes.
    name: of the space and its file; the data's by default.

    Returns the file, which must not exist yet, the space, and what the default methods cost on two seeds.
    """
    from harness.data.first_space import first_space, name_for

    if name is not None and not re.fullmatch(NAME_PATTERN, name):
        raise UserError(f"--name must be a name of letters, digits, _, . and -; got {brief(name)!r}")
    path = Path(f"{name or name_for(checked_path(data, 'the data'))}.yaml")
    if path.exists():
        raise UserError(f"{path} is there already and is not overwritten; move it away, or give another name (--name)")
    text = first_space(str(data), target)
    space = parse_space({"name": path.stem, **parse_yaml(text, str(path))}, source=str(path))
    planned = plan_run(space, RunOptions(seeds=(0, 1)))
    forecast = planned.forecast()  # it reads the data: what is wrong with them shows here
    write_atomically(path, text)
    return path, space, forecast


def pull(storage: str, spaces: Sequence[Space] = (), *, out: Folder = DEFAULT_OUT) -> "list[Pulled]":
    """Brings the results that runs left in a storage, a URI, to this machine; after it, they are as if made here.

    spaces: names; all that the storage has by default. What is in the folder already is not brought again.
    """
    from harness.api.pulled import pull

    return pull(storage, spaces, out)


# --- replay -------------------------------------------------------------------------------------------------------


def replay(
    space: Space,
    methods: Methods = "all",
    *,
    search_seeds: int = 100,
    devices: int | str | Sequence[int] = 1,
    seeds: Seeds | None = None,
    choice_within: float | None = None,
    figure: Folder | None = None,
    out: Folder = DEFAULT_OUT,
    progress: bool = False,
) -> "Replay":
    """Many searches on the trials that a results folder, or a table, holds: nothing is trained, no Ray is started.

    space: its name, or the path of a table that `harness export` wrote. Where the results folder holds no trials of a
        space, those that ship with the harness are taken; `recordings` of what is returned says so.
    methods: "all" for every search over fixed depths, or a list as in `run`; one method may stand there several times
        with other options.
    search_seeds: each method searches on each training seed with so many seeds of its own.
    devices: how many devices a search has at once; a list for several numbers of them.
    seeds: training seeds, as in `run`; all that were recorded by default.
    choice_within: instead of the space's: what is trained does not depend on it, so that recordings serve every one.
    figure: an .svg file to draw cost against regret, and wall-clock against devices, into.
    progress: whether to show a bar on stderr.
    """
    from harness.api.replays import Asked, replay_one

    return replay_one(space, Asked.of(methods, search_seeds, devices, seeds, choice_within, figure, out, progress))


def replay_across(
    spaces: Sequence[Space],
    methods: Methods = "all",
    *,
    search_seeds: int = 100,
    devices: int | str | Sequence[int] = 1,
    seeds: Seeds | None = None,
    choice_within: float | None = None,
    out: Folder = DEFAULT_OUT,
    progress: bool = False,
) -> "Replays":
    """The same on several spaces, and what they say together of each method against the search over every depth.

    spaces: names or tables, each space once. One is read, judged and let go before the next.
    methods: of at most six that are named, a sign test over spaces tells whether they lose or gain log-likelihood.

    All else is as in `replay`.
    """
    from harness.api.replays import Asked, replay_several

    return replay_several(spaces, Asked.of(methods, search_seeds, devices, seeds, choice_within, None, out, progress))


def export(space: Space, table: Folder, *, out: Folder = DEFAULT_OUT) -> Path:
    """Writes the recordings of a space into one file that `replay` takes on any machine; returns where it is."""
    from harness.api.replays import recorded_in_folder

    recorded = recorded_in_folder(space, Path(out))
    from harness.replaying.tables import write_table

    write_table(Path(table), recorded)
    return Path(table)
