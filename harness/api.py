"""Run, compare and report from Python: what notebooks and the command line share. Nothing is printed here.

Imports of torch, Ray and pandas stand where they are needed: a mistake in the input is answered at once.
"""

import contextlib
import functools
import importlib
import logging
import re
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError, brief, full_disk_told, nearest
from harness.measures import HEADLINE
from harness.methods import DEFAULT
from harness.running.inputs import (
    Methods,
    Seeds,
    Settings,
    check_numbers,
    devices_of,
    looks_of,
    methods_of,
    options_of,
    seeds_of,
    space_of,
)
from harness.schema.records import Looks, Unit
from harness.schema.settings import NAME_PATTERN, SearchSpace
from harness.spaces import known_spaces, parse_space
from harness.text.files import checked_path
from harness.text.shown import counted, html_text
from harness.text.strict_yaml import parse_yaml

if TYPE_CHECKING:
    import pandas as pd

    from harness.comparing import Comparison
    from harness.replaying.recorded import Recorded
    from harness.replaying.searches import Replay
    from harness.running.forecast import Forecast
    from harness.running.runner import RunOptions
    from harness.running.side_by_side import Show
    from harness.running.unit import RunningUnit
    from harness.tracking.tracked_run import Destination, Warn
    from harness.tracking.writer import Synced
    from harness.training.predict import Predictor

__all__ = ["Results", "UserError", "compare", "export", "init", "load_results", "load_space", "replay", "report", "run"]

Space = SearchSpace | str | Path  # a space, its name, or a .yaml file
Folder = Path | str
DEFAULT_OUT = Path("results")


def load_space(space: Space, *, set: Settings = ()) -> SearchSpace:
    """A search space by name or from a .yaml file; `set` replaces settings, as {"training.lr": 0.05}."""
    return space_of(space, set)


# --- results ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """Everything in the results folder of one space, read once and compared once. A notebook shows it as a table."""

    space: str
    out: Path
    units: tuple[Unit, ...]  # method × seed, unfinished ones included
    reference: str | None = None  # that the others are compared with; None: the first one that learns its depth
    problems: tuple[str, ...] = ()  # a sentence for every unit that could not be read
    looks: Looks = field(default_factory=Looks)  # at how many seeds verdicts are looked at
    failures: Mapping[str, str] = field(default_factory=dict)  # of the run that gave these results: unit → why
    unfinished: tuple[str, ...] = ()  # units that it left without a result: cost limit, or interrupted
    interrupted: int = 0  # by which signal it was told to stop; 0: it was not
    tracked: bool = False  # whether it wrote its units to MLflow
    warnings: tuple[str, ...] = ()  # of it: MLflow could not be written, for example

    @property
    def finished(self) -> tuple[Unit, ...]:
        return tuple(unit for unit in self.units if unit.result)

    @functools.cached_property
    def comparison(self) -> "Comparison":
        """Cost and quality of the methods, paired by seed, with intervals and verdicts."""
        from harness.comparing import compare

        return compare(self.units, self.reference, problems=self.problems, looks=self.looks)

    def against(self, reference: str | None) -> "Results":
        """The same results, compared with another reference."""
        return self if reference in (None, self.reference) else replace(self, reference=reference)

    def priced(self, usd_per_hour: float | None) -> "Results":
        """The same results at this price of a device-hour; None leaves the prices that they were run with."""
        check_numbers({"usd_per_hour": usd_per_hour})
        if usd_per_hour is None:
            return self
        price = {"usd_per_hour": usd_per_hour}
        results = [unit.result and unit.result.model_copy(update=price) for unit in self.units]
        units = [unit.model_copy(update={"result": result}) for unit, result in zip(self.units, results, strict=True)]
        return replace(self, units=tuple(units))

    def frame(self) -> "pd.DataFrame":
        """One row for every finished method × seed, with its cost and its test measures."""
        from harness.reporting.frames import unit_frame

        return unit_frame(self.units)

    def trials(self) -> "pd.DataFrame":
        """One row for every trial, failed and early-stopped ones included."""
        from harness.reporting.frames import trial_frame

        return trial_frame(self.units)

    def verdicts(self) -> "pd.DataFrame":
        """One row for every pair of methods and measure: is the first worse, and by more than the margin?"""
        from harness.reporting.frames import verdict_frame

        return verdict_frame(self.comparison)

    def model(self, method: str, seed: int = 0) -> "Predictor":
        """The network that a method chose on a seed; it predicts from rows as they are in the data set.

        A one-shot method of your own is given as its file ("mine.py"), in a session that has not run it.
        """
        from harness.methods import parse_methods
        from harness.running.store import UnitFolder
        from harness.training.predict import Predictor

        if ".py" in method:  # a one-shot network of the user's own needs its file to be built
            [method] = parse_methods(method)
        path = UnitFolder(self.out, self.space, method, seed).model_path
        if not path.exists():
            have = [f"{unit.plan.method} seed {unit.plan.seed}" for unit in self.finished]
            raise UserError(f"{method} seed {seed} has no model in {self.out}; valid: {', '.join(have) or 'none yet'}")
        return Predictor.load(path)

    def winner(self) -> "Predictor":
        """The network to take home; `comparison.winner` says whose it is, and why."""
        winner = self.comparison.winner
        return self.model(winner.method, winner.seed)

    @functools.cached_property
    def html(self) -> str:
        """The report: one HTML page with figures, tables and the verdict."""
        from harness.reporting.html import build_report

        return build_report(self.units, self.comparison)

    def report(self, path: Folder | None = None) -> Path:
        """Writes the report, into the results folder unless a path is given; returns where it is."""
        from harness.running.store import write_atomically

        target = Path(path) if path else self.out / self.space / "report.html"
        html = self.html
        try:
            with full_disk_told(target):
                write_atomically(target, html)
        except OSError as error:
            raise UserError(f"the report {target} cannot be written: {error.strerror}") from None
        return target

    def _counts(self) -> str:
        seeds: dict[str, int] = {}
        for unit in self.finished:
            seeds[unit.plan.method] = seeds.get(unit.plan.method, 0) + 1
        return ", ".join(f"{method} on {counted(n, 'seed')}" for method, n in seeds.items()) or "none yet"

    @property
    def went_wrong(self) -> list[str]:
        """A sentence for each thing in this run that did not go as asked."""
        stopped = ["the run was interrupted; the same call resumes it"] if self.interrupted else []
        failed = [f"{unit} failed: {why}" for unit, why in self.failures.items()]
        capped = [f"{unit} has no result: the cost limit was reached first" for unit in self.unfinished]
        return [*stopped, *failed, *([] if self.interrupted else capped), *self.warnings, *self.problems]

    def __repr__(self) -> str:
        wrong = "".join(f"; {sentence}" for sentence in self.went_wrong)
        return f"<Results of {self.space} in {self.out}: {self._counts()}{wrong}>"

    def _repr_html_(self) -> str:
        try:
            headline = self.comparison.headline
        except UserError as error:  # nothing finished, or mixed settings: the rows are still there to be looked at
            headline = str(error)
        shown = ["method", "seed", *(measure.key for measure in HEADLINE)]
        table = self.frame()[shown].to_html(index=False, float_format="{:.4g}".format)
        wrong = "".join(f"<li>{html_text(sentence)}</li>" for sentence in self.went_wrong)
        wrong = f"<ul>{wrong}</ul>" if wrong else ""
        return f"<p><b>{html_text(self.space)}</b>: {html_text(headline)}</p>{wrong}{table}"


def load_results(space: Space, out: Folder = DEFAULT_OUT, reference: str | None = None) -> Results:
    """What earlier runs of a space left in the results folder; trains nothing."""
    return _load(space, out, reference)


def _load(space: Space, out: Folder, reference: str | None, known: Sequence[Unit] = ()) -> Results:
    """`known` units need not be read again."""
    from harness.running.store import read_looks, read_units

    name, folder = name_of(space), checked_path(out, "out")
    units, problems = read_units(folder, name, known)
    if not units:
        raise UserError(_no_results(space, folder) + (f" ({'; '.join(problems)})" if problems else ""))
    return Results(name, folder, tuple(units), reference, tuple(problems), read_looks(folder, name))


def _finished_seeds(out: Path, space: str) -> set[str]:
    folders = [path.parent.name for path in (out / space).glob("*/seed-*/result.json")]
    return {name for name in folders if ".moved-" not in name}


def methods_in(folder: Path) -> list[str]:
    """The methods that have results of a space."""
    return sorted({path.parents[1].name for path in folder.glob("*/seed-*/plan.json")})


def _check_reference(reference: str | None, methods: Sequence[str]) -> None:
    """Before a run: a typing mistake must not be found out after it."""
    if reference is not None and reference not in methods:
        raise UserError(
            f"the reference must be a method with results; got {reference!r}, {nearest(reference, methods)}"
        )


def spaces_in(out: Path, may_be_none: bool = False) -> list[str]:
    """The spaces that have results."""
    found = sorted({path.parents[2].name for path in out.glob("*/*/seed-*/plan.json")})
    if not found and not may_be_none:
        raise UserError(f"there are no results in {out}; {_remedy('quickstart', out)}")
    return found


def _remedy(space: str, out: Path) -> str:
    where = "" if out == DEFAULT_OUT else f" --out {shlex.quote(str(out))}"
    return f"`harness run {shlex.quote(space)}{where}` makes some"


def name_of(space: Space) -> str:
    """A space goes by its name in the results, also when it is given as a file."""
    if isinstance(space, SearchSpace):
        return space.name
    checked_path(space, "a search space")
    if not _is_file(space):
        return str(space)
    return load_space(space).name if Path(space).exists() else Path(space).stem


def _is_file(space: Path | str) -> bool:
    return str(space).endswith((".yaml", ".yml"))


def _no_results(space: Space, out: Path) -> str:
    name, there = name_of(space), spaces_in(out, may_be_none=True)
    runs = not isinstance(space, SearchSpace) and (_is_file(space) or name in known_spaces())
    remedy = f"({nearest(name, there)})" if there and not runs else _remedy(str(space) if runs else "quickstart", out)
    return f"there are no results of {name!r} in {out}; {remedy}"


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


# --- run ----------------------------------------------------------------------------------------------------------


def run(
    space: Space,
    methods: Methods = DEFAULT,
    seeds: Seeds = 0,
    *,
    set: Settings = (),
    trials: int | None = None,
    epochs: int | None = None,
    out: Folder = DEFAULT_OUT,
    reference: str | None = None,
    progress: bool | None = None,
    concurrency: int | None = None,
    workers: int | None = None,
    parallel_units: int | None = None,
    cpus_per_trial: float = 1.0,
    gpus_per_trial: float = 0.0,
    max_cost: float | None = None,
    usd_per_hour: float | None = None,
    max_failures: int = 2,
    refit: bool = False,
    replay: bool = False,
    until_verdict: bool = False,
    looks: Seeds | None = None,
    fresh: bool = False,
    address: str | None = None,
    wait: float = 600.0,
    storage: str | None = None,
    data_dir: Folder | None = None,
    tracking_uri: str | None = None,
    debug: bool = False,
) -> Results:
    """Runs searches side by side on Ray Tune and returns everything that the space then has in the results folder.

    The same call again trains nothing that is complete; after a crash it resumes. The options are those of
    `harness run` (`harness run --help` explains each).

    methods: "all", or a list of names (`harness list` has them), names with options ("name:option=value") and paths.
    seeds: range(3), [0, 1], "0-19" or one seed; each is a repeat of all methods.
    set: settings of the space to replace, as {"training.lr": 0.05} or ["training.lr=0.05"].
    trials, epochs: budget of each search and cap of each trial, instead of the space's.
    until_verdict: takes the seeds in steps and stops when every verdict is decided; `looks` are the steps.
    progress: None shows a live table in a notebook, True in a terminal too, False none.
    """
    planned = plan_run(
        space,
        methods,
        seeds,
        reference=reference,
        set=set,
        trials=trials,
        epochs=epochs,
        tracking_uri=tracking_uri,
        until_verdict=until_verdict,
        looks=looks,
        out=out,
        concurrency=concurrency,
        workers=workers,
        parallel_units=parallel_units,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
        max_cost=max_cost,
        usd_per_hour=usd_per_hour,
        max_failures=max_failures,
        refit=refit,
        replay=replay,
        fresh=fresh,
        address=address,
        wait=wait,
        storage=storage,
        data_dir=data_dir,
        debug=debug,
    )
    from harness.terminal.progress import shown

    def warn(sentence: str) -> None:
        warnings.warn(sentence, stacklevel=2)

    results = planned.start(shown(progress), warn).against(reference)
    for sentence in results.went_wrong:
        if sentence not in results.warnings:  # those were told at once
            warn(sentence)
    return results


def _import_ray_quietly() -> None:
    """In a notebook, Ray and the tqdm that it imports ask for ipywidgets, which nothing here uses."""
    logging.getLogger("ray.widgets").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")
        importlib.import_module("harness.running.runner")


@dataclass(frozen=True)
class PlannedRun:
    """Units ready to start. So far nothing was started and nothing written."""

    space: SearchSpace
    units: Sequence["RunningUnit"]
    options: "RunOptions"
    tracked_to: "Destination"

    def forecast(self) -> "Forecast":
        from harness.running.forecast import forecast

        return forecast(self.units, self.options.data_dir, self.options.address)

    def start(self, show: "Show | None" = None, warn: "Warn" = lambda warning: None) -> Results:
        """Runs what is not complete yet; `warn` hears at once what `warnings` holds at the end."""
        results = self._run(show, warn)
        if results.tracked and results.finished and not results.interrupted:
            _conclude(results, self.tracked_to.uri)
        return results

    def _run(self, show: "Show | None", warn: "Warn") -> Results:
        from harness.running.store import note_looks
        from harness.tracking.tracked_run import run_tracked

        told: list[str] = []

        def keep(warning: str) -> None:
            told.append(warning)
            warn(warning)

        options = self.options
        seeds = list(dict.fromkeys(unit.plan.seed for unit in self.units))
        before = 0 if options.fresh else len(_finished_seeds(options.out, self.space.name))
        for look in options.looks or (len(seeds),):
            units = [unit for unit in self.units if unit.plan.seed in seeds[:look]]
            outcome, tracked = run_tracked(units, options, self.tracked_to, show, keep, "harness.reporting.html")
            options = replace(options, fresh=False)  # the next look builds on this one
            results = replace(
                _load(self.space, options.out, None, outcome.units),
                failures=outcome.failures,
                unfinished=outcome.unfinished,
                interrupted=outcome.interrupted,
                tracked=tracked,
                warnings=tuple(told),
            )
            if outcome.interrupted or outcome.failures or outcome.unfinished or not results.finished:
                return results
            seen = [unit for unit in results.units if unit.plan.seed in seeds[:look]]  # a run before may have gone on
            if options.looks and replace(results, units=tuple(seen)).comparison.is_decided:
                return results
        if not options.looks:
            seen_at = len(_finished_seeds(options.out, self.space.name))
            results = replace(results, looks=note_looks(options.out, self.space.name, before, seen_at))
        return results


def plan_run(
    space: Space,
    methods: Methods,
    seeds: Seeds,
    *,
    reference: str | None = None,
    set: Settings = (),
    trials: int | None = None,
    epochs: int | None = None,
    tracking_uri: str | None = None,
    until_verdict: bool = False,
    looks: Seeds | None = None,
    **options: Any,
) -> PlannedRun:
    """Checks what is asked for; `options` are those of RunOptions."""
    wanted = space_of(space, set, trials, epochs)
    seed_list = seeds_of(seeds)
    options["looks"] = looks_of(looks, until_verdict, seed_list)
    _import_ray_quietly()
    loaded = methods_of(methods)
    run_options = options_of(**options)
    _check_reference(reference, [*loaded, *methods_in(run_options.out / wanted.name)])
    from harness.running.runner import make_units
    from harness.tracking.tracked_run import Destination

    units = make_units([wanted], loaded, seed_list, run_options)
    return PlannedRun(wanted, units, run_options, Destination(tracking_uri, run_options.out))


def init(data: Folder, target: str | None = None, *, name: str | None = None) -> tuple[Path, SearchSpace, "Forecast"]:
    """Looks at a .csv, .parquet or .npz file or a folder of images and writes a search space that runs as it is.

    target: the column of a table that holds the classes.
    name: of the space and its file; the data's by default.

    Returns the file, which must not exist yet, the space, and what the default methods cost on two seeds.
    """
    from harness.data.first_space import first_space, name_for
    from harness.running.store import write_atomically

    if name is not None and not re.fullmatch(NAME_PATTERN, name):
        raise UserError(f"--name must be a name of letters, digits, _, . and -; got {brief(name)!r}")
    path = Path(f"{name or name_for(checked_path(data, 'the data'))}.yaml")
    if path.exists():
        raise UserError(f"{path} is there already and is not overwritten; move it away, or give another name (--name)")
    text = first_space(str(data), target)
    space = parse_space({"name": path.stem, **parse_yaml(text, str(path))}, source=str(path))
    forecast = plan_run(space, DEFAULT, "0,1").forecast()  # it reads the data: what is wrong with them shows here
    write_atomically(path, text)
    return path, space, forecast


# --- replay -------------------------------------------------------------------------------------------------------


def replay(
    space: Space,
    methods: Methods = "all",
    *,
    search_seeds: int = 100,
    devices: int | str | Sequence[int] = 1,
    seeds: Seeds | None = None,
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
    figure: an .svg file to draw cost against regret, and wall-clock against devices, into.
    progress: whether to show a bar on stderr.
    """
    check_numbers({"search_seeds": search_seeds})
    numbers, wanted = devices_of(devices), None if seeds is None else seeds_of(seeds)
    drawn = None if figure is None else checked_path(figure, "the figure")
    if drawn and (drawn.suffix != ".svg" or not drawn.absolute().parent.is_dir()):
        raise UserError(f"the figure must be an .svg file in a folder that exists; got {str(figure)!r}")
    recorded, source = _recorded(space, Path(out))
    loaded = methods_of(methods)
    if methods == "all":
        loaded = {row: method for row, method in loaded.items() if not method.learns_depth}
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
        from harness.replaying.figure import draw_replay
        from harness.running.store import write_atomically

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
    _import_ray_quietly()
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
    _import_ray_quietly()
    from harness.replaying.recorded import NoRecordings, recorded_in

    name = name_of(space)
    if not methods_in(out / name):
        raise NoRecordings(_no_results(space, out))
    return recorded_in(out, name)


# --- MLflow -------------------------------------------------------------------------------------------------------


def log_report(results: Results, uri: str) -> None:
    """Puts the report into the space's experiment in MLflow, in place of an earlier one."""
    _log_page(results, results.html, uri)


def _conclude(results: Results, uri: str) -> None:
    """Tells MLflow what only all units together say: means over seeds, and whose network to take home."""
    from harness.tracking.writer import Tracker

    with contextlib.suppress(UserError):  # units that cannot be compared; whoever asks for the comparison is told
        Tracker(uri).conclude(results.finished, results.comparison.winner)


def _log_page(results: Results, html: str, uri: str) -> None:
    from harness.tracking.writer import Tracker

    Tracker(uri).log_report(results.units[0].plan.space, html)


def sync(space: Space, out: Path, uri: str) -> "Synced":
    """Writes what MLflow lacks of a space's results, and the report that is there."""
    from harness.tracking.models import model_in
    from harness.tracking.writer import sync as sync_units

    results = load_results(space, out)
    done = sync_units(results.finished, uri, model_in(out))
    if done.warning:
        raise UserError(done.warning)
    _conclude(results, uri)
    page = out / results.space / "report.html"
    if page.exists():
        _log_page(results, page.read_text(encoding="utf-8"), uri)
    return done
