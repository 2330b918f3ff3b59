"""The command line: parses, calls, prints. No logic."""

import os
import shlex
import sys
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from harness import __version__
from harness.errors import UserError
from harness.spaces import SearchSpace, known_spaces, load_space

if TYPE_CHECKING:
    from harness.running.runner import RunOptions, RunOutcome
    from harness.running.unit import RunningUnit
    from harness.tracking.address import Experiment

console = Console(highlight=False)
if not console.is_terminal and "COLUMNS" not in os.environ:
    console = Console(highlight=False, width=120)  # rich would take 80, where tables wrap


def main(args: list[str] | None = None) -> None:
    """Runs the command line; a mistake of the user is one sentence and exit code 2, `--debug` shows the traceback."""
    args = sys.argv[1:] if args is None else args
    debug = "--debug" in args  # wherever it stands
    args = [arg for arg in args if arg != "--debug"]
    try:
        code = commands.main(args=args, prog_name="harness", standalone_mode=False, obj={"debug": debug, "args": args})
    except click.ClickException as error:
        _fail(error.format_message())
    except UserError as error:
        if debug:
            raise
        _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:  # `harness list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str) -> NoReturn:
    click.echo(f"error: {sentence}", err=True)
    sys.exit(2)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="depth-search-harness")
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks and Ray's own output.")
def commands() -> None:
    """Does one learnt-depth run replace a search over depths?"""


Command = Callable[..., Any]


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, shown in the order given."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


settings_options = with_options(
    click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="HARNESS_DATA_DIR",
        help="Where image data sets lie.",
    ),
    click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a setting, as training.lr=0.05."
    ),
)
space_arguments = with_options(click.argument("space_name", metavar="SPACE"), settings_options)
results_option = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    help="Folder of the results.",
)
tracking_option = click.option(
    "--tracking-uri", envvar="MLFLOW_TRACKING_URI", help="MLflow server; a sqlite file beside the results by default."
)


ray_options = with_options(
    click.option("--cpus-per-trial", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True),
    click.option(
        "--gpus-per-trial", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Fractions share a GPU."
    ),
    click.option("--workers", type=click.IntRange(min=1), help="Trials at once in all; as many as fit by default."),
    click.option(
        "--max-failures", type=click.IntRange(min=0), default=2, show_default=True, help="Retries of a crashed trial."
    ),
    click.option("--fresh", is_flag=True, help="Move earlier results aside instead of continuing them."),
    click.option("--address", help="A running Ray cluster; a Ray of its own on this machine by default."),
    click.option("--storage", help="Where checkpoints go: a folder or URI that every node reaches."),
    click.option("--dry-run", is_flag=True, help="Print the plan and a forecast of its cost; run nothing."),
    results_option,
    tracking_option,
)


@commands.command()
@space_arguments
@click.option("--ldn", is_flag=True, help="Train the learnt-depth network.")
@click.option("--depth", type=click.IntRange(min=0), help="Train a network of this fixed depth.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--test", is_flag=True, help="Open the test set and show its measures too.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--cpus", type=click.IntRange(min=1), default=1, show_default=True, help="Threads to train with.")
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Continue from this file, and keep it up to date.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
def trial(
    space_name: str,
    overrides: tuple[str, ...],
    data_dir: Path | None,
    ldn: bool,
    depth: int | None,
    seed: int,
    test: bool,
    device: str,
    cpus: int,
    checkpoint: Path | None,
    as_json: bool,
) -> None:
    """Train one network in this process, without Ray."""
    space = load_space(space_name, overrides)
    config_of = _trial_config(space, ldn, depth)
    from harness.terminal.trial_view import view
    from harness.training.devices import choose_device
    from harness.training.one_trial import run_one

    config = config_of(seed)
    with _progress_bar(config.training.max_epochs, shown=console.is_terminal and not as_json) as show:
        report = run_one(
            config,
            device=choose_device(device),
            cpus=cpus,
            test=test,
            checkpoint=checkpoint,
            data_dir=data_dir,
            show=show,
        )
    if as_json:
        click.echo(report.model_dump_json())
    else:
        console.print(view(report))
    if report.record.status == "failed":
        sys.exit(1)


def _trial_config(space: SearchSpace, ldn: bool, depth: int | None) -> Callable[[int], Any]:
    from harness.records import TrialConfig

    if ldn == (depth is not None):
        raise UserError("give either --ldn or --depth N, not both and not neither")
    if depth is not None and depth > space.depth.max:
        raise UserError(f"--depth must lie in 0…{space.depth.max}, the depths of {space.name}; got {depth}")
    return lambda seed: TrialConfig.of(space, "ldn" if ldn else "ddn", space.depth.max if ldn else depth or 0, seed)


class _progress_bar:  # noqa: N801 - used like a function
    """A bar of epochs on stderr while a trial trains."""

    def __init__(self, max_epochs: int, shown: bool) -> None:
        columns = (TextColumn("epoch"), BarColumn(), TextColumn("{task.completed}/{task.total}  {task.description}"))
        stderr = Console(stderr=True)
        self._bar = Progress(*columns, TimeRemainingColumn(), console=stderr, transient=True, disable=not shown)
        self._task = self._bar.add_task("", total=max_epochs)

    def __enter__(self) -> Callable[[Any], None]:
        self._bar.start()
        return self._show

    def _show(self, progress: Any) -> None:
        text = f"validation log-likelihood {progress.val.log_likelihood:.4f}" if progress.val else ""
        self._bar.update(self._task, completed=progress.epoch, description=text)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


@commands.command()
@space_arguments
@click.option(
    "--methods",
    default="ldn,grid",
    show_default=True,
    help="Names, options, paths: ldn,asha:grace_epochs=20,my.py; or all.",
)
@click.option("--seeds", default="0", show_default=True, help="Comma-separated; each seed is a repeat of all methods.")
@click.option("--trials", type=click.IntRange(min=1), help="Budget of each search, instead of the space's.")
@click.option("--epochs", type=click.IntRange(min=1), help="Cap of epochs, instead of the space's.")
@ray_options
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    help="Trials of one search at once; 1 makes adaptive methods reproducible.",
)
@click.option("--parallel-units", type=click.IntRange(min=1), help="Searches at once.")
@click.option(
    "--max-cost", type=click.FloatRange(min=0, min_open=True), help="Device-seconds; no new trial starts past it."
)
@click.option("--refit", is_flag=True, help="Retrain each winner on train + validation, cost apart.")
@click.pass_obj
def run(
    settings: dict[str, Any],
    /,
    space_name: str,
    overrides: tuple[str, ...],
    data_dir: Path | None,
    methods: str,
    seeds: str,
    trials: int | None,
    epochs: int | None,
    dry_run: bool,
    tracking_uri: str | None,
    **options: Any,
) -> None:
    """Run searches side by side on Ray Tune; the same command again continues."""
    if trials:
        overrides += (f"budget.trials={trials}", f"budget.early_stopping_trials={trials}")
    if epochs:
        overrides += (f"training.max_epochs={epochs}",)
    space = load_space(space_name, overrides)
    seed_list = _parse_seeds(seeds)
    from harness.methods import parse_methods
    from harness.running import runner

    run_options = runner.RunOptions(data_dir=data_dir, debug=settings["debug"], **options)
    units = runner.make_units([space], parse_methods(methods), seed_list, run_options)
    if dry_run:
        from harness.running.forecast import forecast

        console.print(forecast(units, data_dir))
        return
    uri = _tracking_uri(tracking_uri, run_options.out)
    outcome, warning = _run_and_track(units, run_options, uri, tracking_uri)
    for unit in outcome.unfinished:
        console.print(f"{unit} has no result: the cost limit was reached before a trial had finished")
    if outcome.units:
        learnt = [unit.plan.method for unit in outcome.units if unit.plan.facts.learns_depth]
        reference = [*learnt, outcome.units[0].plan.method][0]
        _show_comparison(run_options.out, space.name, reference, "table", brief=True)
        console.print(f"report: {_write_report(run_options.out, space.name, reference)}", soft_wrap=True)
        if not warning:
            _log_report(uri, run_options.out, space.name)
            _print_view(uri, space.name, run_options.out)
    _say_failures(outcome)


def _run_and_track(
    units: Sequence["RunningUnit"],
    options: "RunOptions",
    uri: str,
    given_uri: str | None,
    experiment: "Experiment | None" = None,
) -> tuple["RunOutcome", str | None]:
    """Runs units with the live table and writes them to MLflow; the outcome, and a warning when MLflow failed."""
    from harness.running import runner
    from harness.terminal.live_table import live_table
    from harness.tracking.background import BackgroundTracker

    if options.address:
        _preflight(options, given_uri)
    tracker = BackgroundTracker(uri, options.out, options.address is not None, experiment)
    outcome = runner.run_units(units, options, tracker.put, lambda together: live_table(together, console))
    warning = tracker.close()
    if warning:
        click.echo(f"warning: {warning}", err=True)
    if outcome.interrupted:
        click.echo("stopped; finished trials and checkpoints are kept: the same command continues", err=True)
        sys.exit(130)
    return outcome, warning


def _say_failures(outcome: "RunOutcome") -> None:
    if outcome.failures:
        for unit, why in outcome.failures.items():
            click.echo(f"{unit} failed: {why}", err=True)
        sys.exit(1)


@commands.command()
@click.argument("name", metavar="STUDY")
@click.option("--scale", type=click.Choice(["small", "paper"]), default="small", show_default=True)
@click.option(
    "--seeds", type=click.IntRange(min=1), help="How many repeats, seeds 0 to N-1; more later adds the new ones."
)
@click.option("--vary", multiple=True, metavar="SETTING=V,V", help="Other values of a setting that the study varies.")
@settings_options
@ray_options
@click.pass_obj
def study(
    settings: dict[str, Any],
    /,
    name: str,
    scale: Any,
    seeds: int | None,
    vary: tuple[str, ...],
    overrides: tuple[str, ...],
    data_dir: Path | None,
    dry_run: bool,
    tracking_uri: str | None,
    out: Path,
    **options: Any,
) -> None:
    """Run one of the paper's experiments, draw its figures and judge its claims; run again, it continues."""
    from harness.studies.definition import experiment_name, load_study

    wanted = load_study(name, scale, vary, overrides)
    from harness.methods import parse_methods
    from harness.running import runner
    from harness.studies.conclude import conclude
    from harness.tracking.address import Experiment

    folder = out / "studies" / wanted.folder
    run_options = runner.RunOptions(out=folder, data_dir=data_dir, debug=settings["debug"], **options)
    seed_list = range(seeds or wanted.settings.seeds)
    units = runner.make_units(
        [cell.space for cell in wanted.cells], parse_methods(wanted.methods), seed_list, run_options
    )
    if dry_run:
        from harness.running.forecast import forecast

        console.print(forecast(units, data_dir))
        return
    uri = _tracking_uri(tracking_uri, out)
    note = f"**{wanted.file.title}**. Paper: {wanted.file.paper}. The page with figures and verdicts: run `report`."
    experiment = Experiment(experiment_name(wanted.name, scale), note)
    outcome, warning = _run_and_track(units, run_options, uri, tracking_uri, experiment)
    concluded = conclude(wanted, run_options, command=shlex.join(["harness", *settings["args"]]))
    for judgement in concluded.judgements:
        console.print(judgement.sentence, style="bold" if judgement.answer == "held" else "", soft_wrap=True)
    console.print(f"page: {concluded.page}\nfigures: {concluded.page.parent}", soft_wrap=True)
    if not warning:
        from harness.tracking.writer import Tracker

        Tracker(uri, experiment).log_report(wanted.cells[0].space, concluded.page.read_text(encoding="utf-8"))
        _print_view(uri, experiment.name, out)
    _say_failures(outcome)


def _print_view(uri: str, space: str, folder: Path) -> None:
    """The link of the preset view, and what to start for it to answer."""
    from harness.tracking.server import HOST, PORT
    from harness.tracking.views import links

    server = uri if uri.startswith(("http://", "https://")) else f"http://{HOST}:{PORT}"
    for name, link in list(links(uri, server, space).items())[:1]:
        console.print(f"{name}: {link}", soft_wrap=True)
    if server != uri:
        console.print(f"(that page is there while `harness ui --out {folder}` runs)", soft_wrap=True)


def _preflight(options: Any, tracking_uri: str | None) -> None:
    """On a cluster every node is asked first whether it can do what the run will want of it."""
    from harness.cluster.doctor import doctor as examine

    asked = (options.address, options.storage, tracking_uri, options.gpus_per_trial, options.cpus_per_trial)
    for each in examine(*asked):
        if not each.ok and each.fatal:
            raise UserError(f"{each.name}: {each.detail}; {each.remedy}")
        if not each.ok:
            click.echo(f"warning: {each.name}: {each.detail}; {each.remedy}", err=True)


def _parse_seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds takes whole numbers separated by commas, as 0,1,2; got {text!r}") from None
    if min(seeds) < 0:
        raise UserError(f"seeds must not be negative; got {min(seeds)}")
    for seed in seeds:
        if seeds.count(seed) > 1:
            raise UserError(f"seed {seed} is given twice")
    return seeds


def _tracking_uri(given: str | None, folder: Path) -> str:
    from harness.tracking.background import default_uri

    return given or default_uri(folder)


def _log_report(uri: str, folder: Path, space: str) -> None:
    from harness.tracking.writer import Tracker

    html = (folder / space / "report.html").read_text(encoding="utf-8")
    Tracker(uri).log_report(_read(folder, space)[0][0].plan.space, html)


@commands.command()
@click.argument("space_names", metavar="[SPACE]...", nargs=-1)
@results_option
@tracking_option
def sync(space_names: tuple[str, ...], out: Path, tracking_uri: str | None) -> None:
    """Write what MLflow lacks of the results; running it again changes nothing."""
    from harness.tracking.winners import winner_in
    from harness.tracking.writer import sync as sync_units

    uri = _tracking_uri(tracking_uri, out)
    for space in _spaces_in(out, space_names):
        done = sync_units([unit for unit in _read(out, space)[0] if unit.result], uri, winner_in(out))
        if done.warning:
            raise UserError(done.warning)
        if (out / space / "report.html").exists():
            _log_report(uri, out, space)
        console.print(f"{space}: {done.written} searches written, {done.unchanged} were there already")


@commands.command()
@click.argument("space_names", metavar="[SPACE]...", nargs=-1)
@click.option("--port", type=click.IntRange(1, 65535), default=5000, show_default=True)
@click.option("--open", "open_browser", is_flag=True, help="Open the first link in the browser.")
@results_option
@tracking_option
def ui(space_names: tuple[str, ...], port: int, open_browser: bool, out: Path, tracking_uri: str | None) -> None:
    """Show the results in MLflow's UI on 127.0.0.1 until Ctrl-C."""
    from harness.tracking.server import serving, wait_for_interrupt
    from harness.tracking.views import links

    uri = _tracking_uri(tracking_uri, out)
    studies = [] if space_names else _studies_in(out)
    shown = [*_spaces_in(out, space_names, may_be_none=bool(studies)), *studies]
    console.print("starting MLflow's server …")
    with serving(uri, port) as address:
        for experiment in shown:
            found = links(uri, address, experiment)
            for name, link in found.items():
                console.print(f"{experiment} · {name}: {link}", soft_wrap=True)
            if open_browser and found:
                webbrowser.open(next(iter(found.values())))
                open_browser = False
        console.print("Ctrl-C ends the server")
        wait_for_interrupt()


def _studies_in(folder: Path) -> list[str]:
    """The experiments of studies that have a page."""
    from harness.studies.definition import experiment_name

    pages = sorted(folder.glob("studies/*/*/page.html"))
    return [experiment_name(page.parent.name, page.parents[1].name.rpartition("-")[2]) for page in pages]


def _spaces_in(folder: Path, names: tuple[str, ...], may_be_none: bool = False) -> list[str]:
    """The spaces asked for, or all that have results."""
    found = sorted({path.parents[2].name for path in folder.glob("*/*/seed-*/plan.json")})
    if not found and not may_be_none:
        raise UserError(f"there are no results in {folder}; `harness run quickstart` makes some")
    return [_space_key(name) for name in names] or found


@commands.command()
@click.argument("space_name", metavar="SPACE")
@click.option("--reference", default="ldn", show_default=True, help="The method the others are compared with.")
@click.option("--format", "form", type=click.Choice(["table", "json", "md"]), default="table", show_default=True)
@results_option
def compare(space_name: str, reference: str, form: str, out: Path) -> None:
    """Cost and quality of the methods, paired by seed, with intervals and a verdict."""
    _show_comparison(out, _space_key(space_name), reference, form)


@commands.command()
@click.argument("space_name", metavar="SPACE")
@click.option("--reference", default="ldn", show_default=True, help="The method the others are compared with.")
@results_option
def report(space_name: str, reference: str, out: Path) -> None:
    """Write results/SPACE/report.html: figures, tables and the verdict in one file."""
    click.echo(_write_report(out, _space_key(space_name), reference))


def _space_key(name: str) -> str:
    """A space goes by its name in the results, also when it is given as a file."""
    return Path(name).stem if name.endswith((".yaml", ".yml")) else name


def _read(folder: Path, space: str) -> tuple[list[Any], list[str]]:
    from harness.running.store import read_units

    units, problems = read_units(folder, space)
    if not units:
        raise UserError(
            f"there are no results of {space!r} in {folder}; `harness run {space}` makes some"
            + (f" ({'; '.join(problems)})" if problems else "")
        )
    return units, problems


def _compared(folder: Path, space: str, reference: str) -> tuple[list[Any], Any]:
    from harness.comparing import compare as compare_units

    units, problems = _read(folder, space)
    return units, compare_units(units, reference, problems=problems)


def _show_comparison(folder: Path, space: str, reference: str, form: str, brief: bool = False) -> None:
    from harness.comparing.render import as_json, as_markdown, details, summary

    _, comparison = _compared(folder, space, reference)
    if form == "json":
        click.echo(as_json(comparison))
    elif form == "md":
        click.echo(as_markdown(comparison))
    else:
        if not brief:
            console.print(details(comparison))
        console.print(summary(comparison))


def _write_report(folder: Path, space: str, reference: str) -> Path:
    from harness.reporting.html import build_report
    from harness.running.store import write_atomically

    units, comparison = _compared(folder, space, reference)
    path = folder / space / "report.html"
    write_atomically(path, build_report(units, comparison))
    return path


@commands.command()
@click.argument("method", metavar="METHOD")
@click.option("--space", "space_name", default="quickstart", show_default=True, help="The space to plan for.")
def check(method: str, space_name: str) -> None:
    """Check that a method, a known one or a file of yours, keeps to the rules; trains nothing."""
    space = load_space(space_name)
    from harness.methods import load_method
    from harness.running.conformance import check_method

    checks = check_method(*load_method(method), space)
    table = Table("", "rule", "seen", box=None, pad_edge=False)
    for each in checks:
        table.add_row("ok" if each.ok else "NO", each.name, each.detail, style="" if each.ok else "bold red")
    console.print(table)
    if not all(each.ok for each in checks):
        sys.exit(1)


@commands.command()
@click.argument("cluster_file", type=click.Path(path_type=Path), required=False)
@click.option("--address", help="A running Ray cluster; the one on this machine by default.")
@click.option("--storage", help="Where checkpoints would go.")
@click.option("--cpus-per-trial", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True)
@click.option("--gpus-per-trial", type=click.FloatRange(min=0), default=0.0, show_default=True)
@tracking_option
def doctor(cluster_file: Path | None, address: str | None, storage: str | None, **asked: Any) -> None:
    """Check a running cluster; or, before `ray up`, a cluster file and this machine. Problems come with a remedy."""
    if cluster_file and (address or storage):
        raise UserError("a cluster file is checked before its cluster runs; give either it, or --address and --storage")
    if cluster_file:
        from harness.cluster.cluster_file import check_cluster_file
        from harness.cluster.this_machine import check_launch

        checks = [*check_cluster_file(cluster_file), *check_launch(cluster_file)]
    else:
        from harness.cluster.doctor import doctor as examine

        checks = examine(address or "auto", storage, **asked)
    for each in checks:
        mark = "ok" if each.ok else "NO" if each.fatal else "warn"
        click.echo(f"{mark:<5} {each.name:<15} {each.detail}{'' if each.ok else f'; {each.remedy}'}")
    if any(each.fatal and not each.ok for each in checks):
        sys.exit(2)


@commands.command(name="list")
def list_() -> None:
    """Search spaces, methods and studies that go by name."""
    spaces = Table("space", "what it is", box=None, pad_edge=False)
    for name in sorted(known_spaces()):
        spaces.add_row(name, load_space(name).description)
    console.print(spaces, "")
    from harness.methods import first_sentence, known_methods

    methods = Table("method", "what it is", box=None, pad_edge=False)
    for name in known_methods():
        methods.add_row(name, first_sentence(name))
    console.print(methods, "")
    from harness.studies.definition import known_studies, read_study

    studies = Table("study", "what it is", "in the paper", box=None, pad_edge=False)
    for name in sorted(known_studies()):
        file = read_study(name)
        studies.add_row(name, file.title, file.paper)
    console.print(studies)
