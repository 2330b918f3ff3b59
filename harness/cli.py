"""The command line: parses, calls, prints. No logic."""

import contextlib
import gc
import json
import logging
import os
import shlex
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource
from rich.table import Table

from harness import __version__, api
from harness.api.mlflow import log_report
from harness.api.mlflow import sync as sync_space
from harness.api.planned import plan_run
from harness.api.results import name_of, spaces_in
from harness.cluster.checks import Check
from harness.cluster.cluster_file import check_cluster_file
from harness.cluster.doctor import connected
from harness.cluster.doctor import doctor as examine
from harness.cluster.fill import fill as fill_in
from harness.cluster.this_machine import check_launch
from harness.errors import MachineError, UserError
from harness.methods import is_method, known_methods, load_method, one_shot_method
from harness.networks import is_network
from harness.options import KEYWORDS, LARGEST_SEED, RunOptions
from harness.running.inputs import space_of
from harness.running.stopping import STOPPED, ends_at_once
from harness.schema.identity import hashed
from harness.schema.records import FIXED_DEPTH, TrialConfig
from harness.schema.settings import SearchSpace
from harness.schema.stage import Stage
from harness.spaces import load_space
from harness.terminal.console import SafeConsole, safe
from harness.terminal.epoch_bar import epoch_bar
from harness.terminal.examples import epilog
from harness.terminal.flags import CheckedPath, OnceCommand, flags
from harness.terminal.settings import shown_method, shown_network, shown_space
from harness.text.files import write_atomically
from harness.text.shown import counted, one_line, redacted, shown_argument
from harness.tracking.address import check_uri
from harness.tracking.background import Destination
from harness.tracking.server import serving, wait_for_interrupt

console = SafeConsole()


def main(args: list[str] | None = None) -> None:
    """Runs the command line. A mistake is one sentence and exit code 2, a machine that failed one and 1.

    `--debug` shows the traceback.
    """
    with _little_collecting():
        _main(sys.argv[1:] if args is None else args)


def _main(args: list[str]) -> NoReturn:
    debug = "--debug" in args  # wherever it stands
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns where it cannot write to the home folder
    args = [arg for arg in args if arg != "--debug"]
    with ends_at_once() as stop:
        try:
            code = commands.main(
                args=args, prog_name="harness", standalone_mode=False, obj={"debug": debug, "args": args}
            )
        except click.ClickException as error:
            _fail(error.format_message())
        except (UserError, MachineError) as error:
            if debug:
                raise
            _fail(str(error), code=1 if isinstance(error, MachineError) else 2)
        except (click.Abort, KeyboardInterrupt):
            click.echo("stopped", err=True)
            sys.exit(stop.exit_code)
        except BrokenPipeError:  # `harness list | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


@contextlib.contextmanager
def _little_collecting() -> Iterator[None]:
    """Nearly all that a command makes is modules, which are no garbage.

    The collector would look through them again and again while they are imported, and once more at the end.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.freeze()


def _fail(sentence: str, code: int = 2) -> NoReturn:
    _say(f"error: {one_line(sentence)}", err=True)
    sys.exit(code)


def _say(text: str, err: bool = False) -> None:
    """A line, as it is: without a table's width, and safe to show."""
    click.echo(safe(text), err=err)


class Commands(click.Group):
    """Of commands with examples."""

    command_class = OnceCommand
    group_class = type  # a group of commands in it is one, too

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        cmd.epilog = epilog(str(name or cmd.name))
        super().add_command(cmd, name)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="depth-search-harness")
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks and Ray's own output.")
def commands() -> None:
    """How deep should a residual network be, and do you need to search for it?"""
    # The first sentence of a command's docstring is its line in `harness --help`: short, or click cuts it off.


# --- options that commands share ------------------------------------------------------------------------------------

_ON_RAY = ("cpus_per_trial", "gpus_per_trial", "workers", "max_failures", "fresh", "address", "wait")
_KEPT = ("storage", "take_over")
_ALL = tuple(name for name in KEYWORDS if name != "debug")  # which stands wherever one likes
results_options = flags("reference", "usd_per_hour", "out")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print the plan and a forecast of its cost, and run nothing."
)


# --- init -----------------------------------------------------------------------------------------------------------


@commands.command()
@click.argument("data")
@click.option("--target", help="Column of the table that holds the classes.")
@click.option("--name", help="Name of the search space and its file (default: the data file's name).")
def init(data: str, target: str | None, name: str | None) -> None:
    """Write a search space for your data. DATA is a .csv, .parquet or .npz file, or a folder of images."""
    path, space, forecast = api.init(data, target, name=name)
    from harness.terminal.forecast_table import forecast_table

    console.print(f"{path}: {space.description}", soft_wrap=True)
    console.print(forecast_table(forecast))
    console.print(f"next: harness run {shlex.quote(str(path))} --seeds 0,1", soft_wrap=True)


# --- run and study --------------------------------------------------------------------------------------------------


@commands.command()
@click.argument("space_name", metavar="SPACE")
@flags(*_ALL)
@dry_run_option
@click.option("--full", is_flag=True, help="End with all tables and notes, as `harness compare` shows them.")
@click.pass_obj
def run(settings: dict[str, Any], /, space_name: str, dry_run: bool, full: bool, **options: Any) -> None:
    """Run searches side by side on Ray Tune. Re-run the same command to resume."""
    planned = plan_run(space_name, _options(settings, options))
    if dry_run:
        return _print_forecast(planned)
    results = planned.start(_live_table(planned.options), _warn).against(planned.options.reference)
    _stop_if(results.interrupted)
    for unit in results.unfinished:
        console.print(f"{unit} has no result: the cost limit was reached before a trial had finished")
    if results.finished:
        _print_comparison(results, "table", full)
        console.print(f"report: {results.report()}", soft_wrap=True)
        winner = results.comparison.winner
        console.print(f"take home: seed {winner.seed} of {winner.method}: {winner.why}", soft_wrap=True)
        if results.tracked:
            log_report(results, planned.tracked_to)
            _print_view(planned.tracked_to, results.space)
    return _fail_if(results.failures)


@commands.command()
@click.argument("name", metavar="STUDY")
@click.option(
    "--scale",
    type=click.Choice(["small", "paper"]),
    default="small",
    show_default=True,
    help="Scale of the experiment: one that a laptop can run, or the paper's.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    help="Number of repeats: seeds 0 to N-1. A larger number later runs only the new seeds.",
)
@click.option(
    "--vary", multiple=True, metavar="SETTING=V,V", help="Override the values of a setting that the study varies."
)
@click.option("--methods", help="Override the study's methods; with ldn,ldn_em each of them is drawn and judged.")
@flags("data_dir", "set", *_ON_RAY, *_KEPT, "out", "tracking_uri", "experiment")
@dry_run_option
@click.pass_obj
def study(
    settings: dict[str, Any],
    /,
    name: str,
    scale: Any,
    seeds: int | None,
    vary: tuple[str, ...],
    methods: str | None,
    dry_run: bool,
    **options: Any,
) -> None:
    """Run one of the paper's experiments. Draws its figures and judges its claims; re-run to resume."""
    from harness.comparing.render import rich_table
    from harness.studies.across import as_tables as across_views
    from harness.studies.claims import as_tables, by_itself
    from harness.studies.definition import load_study
    from harness.studies.run import plan_study

    asked = _options(settings, options)
    wanted = load_study(name, scale, vary, asked.set, methods)
    planned = plan_study(wanted, asked, seeds)
    if planned.complete:
        counted_too = "; the forecast counts them, too" if dry_run else ""
        console.print(f"complete already: {planned.complete} of {counted(len(planned.units), 'unit')}{counted_too}")
    if dry_run:
        return _print_forecast(planned)
    outcome = planned.start(
        shlex.join(["harness", *map(shown_argument, settings["args"])]), _live_table(planned.options), _warn
    )
    _stop_if(outcome.interrupted)
    if outcome.concluded:
        for judgement in by_itself(outcome.concluded.judgements):
            console.print(judgement.sentence, style="bold" if judgement.answer == "held" else "", soft_wrap=True)
        if over_spaces := outcome.concluded.across:
            console.print(across_views(over_spaces))
        for view in as_tables(outcome.concluded.judgements):
            console.print(rich_table(view, {}))
        page = outcome.concluded.page
        console.print(f"page: {page}\nfigures: {page.parent}", soft_wrap=True)
    if outcome.tracked:
        _print_view(planned.tracked_to, planned.experiment.name)
    return _fail_if(outcome.failures)


def _options(settings: dict[str, Any], given: Mapping[str, Any]) -> RunOptions:
    """Those that were given: what click fills in would look like a wish of the user's."""
    source = click.get_current_context().get_parameter_source
    asked = {name: value for name, value in given.items() if source(name) is not ParameterSource.DEFAULT}
    return RunOptions.of(debug=settings["debug"], may_exit=True, **asked)


def _print_forecast(planned: Any) -> None:
    from harness.terminal.forecast_table import forecast_table

    console.print(forecast_table(planned.forecast(), planned.options.usd_per_hour))


def _live_table(options: RunOptions) -> Callable[[Any], Any]:
    """On a cluster it begins with where results are: the working folder is that of a job, or of another machine."""

    def show(together: Any) -> Any:
        from harness.terminal.live_table import live_table

        if options.address:
            console.print(f"results: {options.out} on {socket.gethostname()}", soft_wrap=True)
        return live_table(together, console)

    return show


def _warn(warning: str) -> None:
    _say(f"warning: {warning}", err=True)


def _stop_if(signum: int) -> None:
    if signum:
        _say(STOPPED, err=True)
        sys.exit(128 + signum)


def _fail_if(failures: Mapping[str, str]) -> None:
    for unit, why in failures.items():
        _say(f"{unit} failed: {why}", err=True)
    if failures:
        sys.exit(1)


def _print_view(tracked_to: Any, experiment: str) -> None:
    """The link of the preset view where a server answers; else what starts one, which prints its links then."""
    from harness.tracking.views import links

    uri = tracked_to.uri
    if not uri.startswith(("http://", "https://")):
        given = ["--tracking-uri", redacted(uri)] if tracked_to.given else ["--out", str(tracked_to.folder)]
        given += ["--experiment", tracked_to.names.experiment] if tracked_to.names.experiment else []
        console.print(f"MLflow: {shlex.join(['harness', 'ui', experiment, *given])}", soft_wrap=True)
        return
    try:
        found = links(uri, redacted(uri), experiment, tracked_to.names)
    except UserError as error:  # the run itself is well
        _warn(str(error))
        return
    for name, link in list(found.items())[:1]:
        console.print(f"{name}: {link}", soft_wrap=True)


# --- results --------------------------------------------------------------------------------------------------------


@commands.command()
@click.argument("space_name", metavar="SPACE")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "md", "csv"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
@results_options
def compare(space_name: str, reference: str | None, form: str, usd_per_hour: float | None, out: Path) -> None:
    """Say what to do, and compare the methods' cost and quality. Paired by seed, with intervals and verdicts."""
    _print_comparison(api.load_results(space_name, out, reference).priced(usd_per_hour), form, full=True)


def _print_comparison(results: api.Results, form: str, full: bool) -> None:
    """As a table: what to do and the verdicts on one screen, then all tables, or the notes that matter most."""
    from harness.comparing.render import as_csv, as_json, as_markdown, details, leading_notes, summary, verdict

    comparison, written = results.comparison, {"json": as_json, "md": as_markdown, "csv": as_csv}
    if form in written:
        _say(written[form](comparison).rstrip("\n"))
        return
    console.print(verdict(comparison))
    if full:
        console.print(summary(comparison), details(comparison))
        console.print(comparison.recommendation.sentence, style="bold")  # where a terminal's screen ends
    else:
        console.print(leading_notes(comparison))
        tables = shlex.join(["harness", "compare", results.space, "--out", str(results.out)])
        console.print(f"tables: {tables}", soft_wrap=True)


@commands.command()
@click.argument("space_names", metavar="SPACE...", nargs=-1, required=True)
@click.option(
    "--methods",
    default="all",
    show_default=True,
    help="Searches over depths to replay: names, name:option=value (a name may occur several times), or paths to "
    "your own .py files.",
)
@click.option("--search-seeds", type=int, default=100, show_default=True, help="Number of searches per training seed.")
@click.option("--devices", default="1", show_default=True, help="Number of devices of a search; several as 1,2,8.")
@click.option("--seeds", help="Training seeds, as 0,1,2 or 0-19 (default: all recorded ones).")
@click.option(
    "--choice-within", type=float, help="Override the space's choice_within (recordings serve any value of it)."
)
@click.option("--figure", type=click.Path(path_type=Path, dir_okay=False), help="Also save a figure to this .svg file.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "md"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
@flags("out")
def replay(space_names: tuple[str, ...], form: str, figure: Path | None, **options: Any) -> None:
    """Replay many searches on trained trials. SPACE is a name or a table; trains nothing and starts no Ray.

    If --out has no trials of a space, the table that ships with the harness is used. Of several spaces, all together
    are judged, too.
    """
    if len(space_names) > 1:
        if figure:
            raise UserError(f"--figure draws one space; got {len(space_names)}")
        _print_replays(api.replay_across(space_names, progress=console.is_terminal, **options), form)
        return
    replayed = api.replay(space_names[0], progress=console.is_terminal, figure=figure, **options)
    from harness.comparing.replays import as_json, as_markdown, as_tables

    if form == "table":
        console.print(as_tables(replayed))
    else:
        click.echo(as_json(replayed) if form == "json" else as_markdown(replayed), nl=False)


def _print_replays(found: Any, form: str) -> None:
    """Each space by itself, then all of them."""
    from harness.comparing.replays import as_markdown, as_tables
    from harness.studies import across

    match form:
        case "json":
            _say(found.model_dump_json(indent=2))
        case "md":
            lines = [*map(as_markdown, found.replays), "# Over spaces", "", *across.as_markdown(found.across)]
            _say("\n".join(lines).rstrip("\n"))
        case _:
            for each in found.replays:
                console.print(as_tables(each))
            console.print(across.as_tables(found.across))


@commands.command()
@click.argument("space_name", metavar="SPACE")
@click.argument("table", type=click.Path(path_type=Path, dir_okay=False))
@flags("out")
def export(space_name: str, table: Path, out: Path) -> None:
    """Write the trials of a space as one table (.json.gz). `harness replay TABLE` reads it on any machine."""
    click.echo(api.export(space_name, table, out=out))


@commands.command()
@click.argument("space_name", metavar="SPACE")
@results_options
def report(space_name: str, reference: str | None, usd_per_hour: float | None, out: Path) -> None:
    """Write the comparison with its figures as one HTML file. It is results/SPACE/report.html."""
    _say(str(api.load_results(space_name, out, reference).priced(usd_per_hour).report()))


@commands.command()
@click.argument("storage", metavar="URI")
@click.argument("space_names", metavar="[SPACE]...", nargs=-1)
@flags("out")
def pull(storage: str, space_names: tuple[str, ...], out: Path) -> None:
    """Bring results from a storage to this machine. URI is the --storage that the runs had.

    Here, compare, report, ui, sync and run work with them. Running it again brings what is new.
    """
    for each in api.pull(storage, space_names, out=out):
        searches = counted(each.searches, "search", "searches")
        console.print(f"{each.space}: {searches}, {each.complete} of them complete, in {each.out}", soft_wrap=True)


@commands.command()
@click.argument("space_names", metavar="[SPACE]...", nargs=-1)
@flags("out", "tracking_uri", "experiment", "model_name")
def sync(space_names: tuple[str, ...], out: Path, **names: Any) -> None:
    """Write the results that MLflow lacks. Running it again changes nothing."""
    to = Destination.of(RunOptions.of(out=out, **names))
    for space in map(name_of, space_names or spaces_in(out)):
        done = sync_space(space, out, to)
        written = counted(done.written, "search", "searches")
        there = "was" if done.unchanged == 1 else "were"
        console.print(f"{space}: {written} written, {done.unchanged} {there} there already")


@commands.command()
@click.argument("space_names", metavar="[SPACE]...", nargs=-1)
@click.option("--port", type=click.IntRange(1, 65535), help="Port (default: first free port from 5000).")
@click.option("--open", "open_browser", is_flag=True, help="Open the first link in the browser.")
@flags("out", "tracking_uri", "experiment")
def ui(space_names: tuple[str, ...], port: int | None, open_browser: bool, out: Path, **names: Any) -> None:
    """Show the results in MLflow's UI. It runs on 127.0.0.1 until Ctrl-C."""
    from harness.studies.run import studies_in
    from harness.tracking.views import links

    to = Destination.of(RunOptions.of(out=out, **names))
    uri = to.uri
    shown = [name_of(name) for name in space_names]
    if not shown:
        studies = studies_in(out)
        shown = [*spaces_in(out, may_be_none=bool(studies)), *studies]
    console.print("starting MLflow's server …")
    with serving(uri, port) as address:
        for experiment in shown:
            found = links(uri, redacted(address), experiment, to.names)
            for name, link in found.items():
                console.print(f"{experiment} · {name}: {link}", soft_wrap=True)
            if open_browser and found:
                webbrowser.open(next(iter(found.values())))
                open_browser = False
        console.print("Ctrl-C ends the server")
        wait_for_interrupt()


# --- one trial ------------------------------------------------------------------------------------------------------


@commands.command()
@click.argument("space_name", metavar="SPACE")
@flags("data_dir", "set", "epochs")
@click.option("--method", metavar="NAME", help="Train the network of this one-shot method.")
@click.option("--depth", type=click.IntRange(min=0), help="Train a network of this fixed depth.")
@click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    default=0,
    show_default=True,
    help="Random seed.",
)
@click.option("--test", is_flag=True, help="Also evaluate the network on the test set.")
@click.option("--device", default="auto", show_default=True, help="Device to train on: auto, cpu, cuda or cuda:N.")
@click.option("--cpus", type=click.IntRange(1, 1024), default=1, show_default=True, help="Number of CPU threads.")
@click.option("--checkpoint", type=CheckedPath(path_type=Path), help="Checkpoint to resume from and to update.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def trial(
    space_name: str,
    set: tuple[str, ...],
    epochs: int | None,
    method: str | None,
    depth: int | None,
    seed: int,
    device: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Train one network in this process, without Ray."""
    space = space_of(space_name, set, epochs=epochs)
    config = _trial_config(space, method, depth, seed)
    from harness.terminal.trial_view import view
    from harness.training.devices import choose_device
    from harness.training.one_trial import run_one

    with epoch_bar(config.training.max_epochs, shown=console.is_terminal and not as_json) as show:
        finished = run_one(config, device=choose_device(device), show=show, **options)
    if as_json:
        _say(finished.model_dump_json())
    else:
        console.print(view(finished))
    if finished.record.status == "failed":
        sys.exit(1)


def _trial_config(space: SearchSpace, method: str | None, depth: int | None, seed: int) -> Any:
    if (method is None) == (depth is None):
        raise UserError("give exactly one of --method NAME (a one-shot method) and --depth N")
    if method is not None:
        name, loaded = load_method(method)
        options = hashed(loaded)
        one_shot_method(name, options)  # a search has no network to train
        stage = Stage.of(options)
        if stage.then != type(loaded).model_fields["then"].default:
            raise UserError(
                f"harness trial trains one network, and then= trains more after it; leave it out, or use "
                f"`harness run {space.name} --methods {method}`"
            )
        return TrialConfig.of(space, name, space.depth.max, seed, stage.left_out_of(options))
    if depth is None or depth > space.depth.max:
        raise UserError(f"--depth must lie in 0…{space.depth.max}, the depths of {space.name}; got {depth}")
    return TrialConfig.of(space, FIXED_DEPTH, depth, seed)


# --- checks and lists -----------------------------------------------------------------------------------------------


@commands.command()
@click.argument("name", metavar="METHOD|NETWORK|RESULTS")
@click.option("--space", "space_name", default="quickstart", show_default=True, help="Search space to plan for.")
def check(name: str, space_name: str) -> None:
    """Check a method, a network or a folder of results.

    Takes a built-in name or your own file, and trains at most a few tiny networks. In a folder of results, records must
    agree with their ledgers.
    """
    space = load_space(space_name)
    from harness.replaying.conformance import check_method, check_results, closing

    is_folder = name not in known_methods() and Path(name).is_dir()
    if is_folder:
        checks = check_results(Path(name))
    elif is_network(name):
        from harness.api.checks import check_network

        checks = check_network(name, space)
    else:
        checks = check_method(*load_method(name), space)
    table = Table("", "results" if is_folder else "rule", "seen", box=None, pad_edge=False)
    marks = {True: ("ok", ""), False: ("NO", "bold red"), None: ("–", "dim")}
    for each in checks:
        mark, style = marks[each.ok]
        table.add_row(mark, each.name, each.detail, style=style)
    console.print(table)
    if not is_folder:
        _say(closing(checks))
    if any(each.ok is False or (is_folder and each.ok is None) for each in checks):
        sys.exit(1)


@commands.command()
@click.argument("cluster_file", type=CheckedPath(path_type=Path), required=False)
@click.option(
    "--address", help="Address of a running Ray cluster (default: RAY_ADDRESS, else the one on this machine)."
)
@click.option("--storage", help="Folder or URI for checkpoints (default: HARNESS_STORAGE).")
@click.option("--gpu", is_flag=True, help="Measure the GPU here, or one of each kind at --address; takes minutes.")
@click.option(
    "--report",
    type=CheckedPath(path_type=Path, dir_okay=False),
    default="gpu_report.json",
    show_default=True,
    help="File for everything that --gpu measured.",
)
@flags("cpus_per_trial", "gpus_per_trial", "tracking_uri")
def doctor(
    cluster_file: Path | None, address: str | None, storage: str | None, gpu: bool, report: Path, **asked: Any
) -> None:
    """Check a cluster, a cluster file before `ray up`, or a GPU. Every problem comes with a remedy."""
    if cluster_file and (address or storage or gpu):
        raise UserError(
            "a cluster file is checked before its cluster runs; give either it, or --address, --storage and --gpu"
        )
    given = {"address": address, "storage": storage, **asked}
    options = RunOptions.of(**{name: value for name, value in given.items() if value is not None})
    if cluster_file:
        checks = [*check_cluster_file(cluster_file), *check_launch(cluster_file)]
    else:
        checks = _examine(options.placed(), gpu, report)
    for each in checks:
        mark = "ok" if each.ok else "NO" if each.fatal else "warn"
        _say(f"{mark:<5} {each.name:<15} {each.detail}{'' if each.ok else f'; {each.remedy}'}")
    if any(each.fatal and not each.ok for each in checks):
        sys.exit(2)


def _examine(options: RunOptions, gpu: bool, report: Path) -> list[Check]:
    if gpu:
        return _examine_gpus(options.address, options.storage, report)
    if options.tracking_uri is not None:
        check_uri(options.tracking_uri)
    resources = options.gpus_per_trial, options.cpus_per_trial
    return examine(options.address or "auto", options.storage, options.tracking_uri, *resources)


def _examine_gpus(address: str | None, storage: str | None, path: Path) -> list[Check]:
    from harness.cluster.gpu import examine_here, examine_workers, gpu_checks

    if not path.absolute().parent.is_dir():
        raise UserError(f"--report is written into a folder that exists; {path.parent} does not")
    if address is None:
        reports = [examine_here(storage)]
    else:
        with connected(address):
            reports = examine_workers(storage)
    write_atomically(path, json.dumps([each.model_dump(mode="json") for each in reports], indent=2) + "\n")
    _say(f"{path} has all that was measured.")
    return [check for each in reports for check in gpu_checks(each)]


@commands.group()
def cluster() -> None:
    """Prepare a cluster file for `ray up`."""


@cluster.command()
@click.argument("stack")
@click.argument("cluster_file", type=CheckedPath(path_type=Path), default="ray_cluster.yaml")
@click.option("--region", help="The region of the stack (default: that of the cluster file).")
def fill(stack: str, cluster_file: Path, region: str | None) -> None:
    """Fill in a cluster file from an AWS stack.

    STACK is the name of a stack created from deploy/aws/stack.yaml.
    """
    for name, value in fill_in(stack, cluster_file, region).items():
        _say(f"{name:<14} {value}")
    _say(f"next: harness doctor {shlex.quote(str(cluster_file))}")


@commands.command()
@click.argument("name", metavar="SPACE|METHOD|NETWORK")
@flags("set")
def show(name: str, set: tuple[str, ...]) -> None:
    """Explain the settings of a space, a method or a network. Shows each value and where it comes from."""
    if is_network(name):
        if set:
            raise UserError("--set changes settings of a space; an option of a network is one, as network.width=64")
        console.print(*shown_network(name))
    elif is_method(name):
        if set:
            raise UserError(f"--set changes settings of a space; an option of a method is given as {name}:OPTION=VALUE")
        console.print(*shown_method(name))
    else:
        console.print(shown_space(name, set))


@commands.command(name="list")
def list_() -> None:
    """List the built-in search spaces, methods, networks and studies."""
    from harness.terminal.lists import known_tables

    for table in known_tables():
        console.print(table, "")
