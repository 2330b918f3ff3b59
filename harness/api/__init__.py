"""Run, compare and report from Python: what notebooks and the command line share. Nothing is printed here.

Imports of torch, Ray and pandas stand where they are needed: a mistake in the input is answered at once.
"""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.api.planned import import_ray_quietly, plan_run
from harness.api.results import Folder, Results, Space, load, methods_in, name_of, no_results
from harness.errors import UserError, brief
from harness.methods import DEFAULT
from harness.options import DEFAULT_OUT, Methods, RunOptions, Seeds, Settings, seeds_of, with_keywords
from harness.running.inputs import devices_of, methods_of, space_of
from harness.schema.settings import NAME_PATTERN, SearchSpace
from harness.spaces import parse_space
from harness.text.files import checked_path, write_atomically
from harness.text.strict_yaml import parse_yaml

if TYPE_CHECKING:
    from harness.api.pulled import Pulled
    from harness.comparing import Comparison
    from harness.comparing.replays import Replay
    from harness.replaying.recorded import Recorded
    from harness.running.forecast import Forecast

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
    if isinstance(search_seeds, bool) or not isinstance(search_seeds, int) or search_seeds < 1:
        raise UserError(f"search_seeds must be a whole number, at least 1; got {search_seeds!r}")
    numbers, wanted = devices_of(devices), None if seeds is None else seeds_of(seeds)
    drawn = None if figure is None else checked_path(figure, "the figure")
    if drawn and (drawn.suffix != ".svg" or not drawn.absolute().parent.is_dir()):
        raise UserError(f"the figure must be an .svg file in a folder that exists; got {str(figure)!r}")
    recorded, source = _recorded(space, Path(out))
    if choice_within is not None:
        recorded = recorded.choosing_within(choice_within)
    loaded = methods_of(methods)
    if methods == "all":
        loaded = {row: method for row, method in loaded.items() if method.can_be_replayed}
    from harness.replaying.searches import replay_searches
    from harness.terminal.search_bar import search_bar

    if wanted is not None:
        recorded = recorded.with_seeds(wanted)
    total = len(loaded) * len(recorded.seeds) * search_seeds * len(numbers)
    with search_bar(total, progress) as done:
        replayed = replay_searches(recorded, loaded, search_seeds, numbers, done).model_copy(
            update={"recordings": source}
        )
    if drawn:
        from harness.reporting.replays import draw_replay

        write_atomically(drawn, draw_replay(replayed).standalone_svg)
    return replayed


def export(space: Space, table: Folder, *, out: Folder = DEFAULT_OUT) -> Path:
    """Writes the recordings of a space into one file that `replay` takes on any machine; returns where it is."""
    recorded = _recorded_in(space, Path(out))
    from harness.replaying.tables import write_table

    write_table(Path(table), recorded)
    return Path(table)


def _recorded(space: Space, out: Path) -> "tuple[Recorded, str]":
    """Of a table; of the results of a space; or else of the table that ships with it. And which of them it was."""
    import_ray_quietly()
    from harness.replaying.recorded import NoRecordings
    from harness.replaying.tables import ENDING, read_table, shipped_tables

    if str(space).endswith(ENDING) and not isinstance(space, SearchSpace):
        return read_table(Path(space)), str(space)
    name = name_of(space)
    try:
        return _recorded_in(space, out), str(out / name)
    except NoRecordings:
        if name not in shipped_tables():
            raise
    shipped = read_table(shipped_tables()[name])
    # With the settings that the space has now, which may be a user's own of this name: then it says what differs.
    return shipped.model_copy(
        update={"space": space_of(space)}
    ), f"the table that ships with the harness, as {out} has none"


def _recorded_in(space: Space, out: Path) -> "Recorded":
    import_ray_quietly()
    from harness.replaying.recorded import NoRecordings, recorded_in

    name = name_of(space)
    if not methods_in(out / name):
        raise NoRecordings(no_results(space, out))
    return recorded_in(out, name)
