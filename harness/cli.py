"""The command line: parses, calls, prints. No logic."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from harness import __version__
from harness.errors import UserError
from harness.spaces import SearchSpace, known_spaces, load_space

out = Console(highlight=False)


def main(args: list[str] | None = None) -> None:
    """Runs the command line; a mistake of the user is one sentence and exit code 2, `--debug` shows the traceback."""
    debug = "--debug" in (sys.argv if args is None else args)
    try:
        code = commands.main(args=args, prog_name="harness", standalone_mode=False)
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


def _fail(sentence: str) -> None:
    click.echo(f"error: {sentence}", err=True)
    sys.exit(2)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="depth-search-harness")
@click.option("--debug", is_flag=True, help="Show tracebacks and Ray's own output.")
def commands(debug: bool) -> None:
    """Does one learnt-depth run replace a search over depths?"""


def space_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """SPACE, --set and --data-dir, as every command that reads a search space takes them."""
    command = click.argument("space_name", metavar="SPACE")(command)
    command = click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a setting, as training.lr=0.05."
    )(command)
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="HARNESS_DATA_DIR",
        help="Where image data sets lie.",
    )(command)


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
    from harness.environment import choose_device
    from harness.trial import run_one
    from harness.trial_view import view

    config = config_of(seed)
    with _progress_bar(config.training.max_epochs, shown=out.is_terminal and not as_json) as show:
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
        out.print(view(report))
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
        console = Console(stderr=True)
        self._bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not shown)
        self._task = self._bar.add_task("", total=max_epochs)

    def __enter__(self) -> Callable[[Any], None]:
        self._bar.start()
        return self._show

    def _show(self, progress: Any) -> None:
        text = f"validation log-likelihood {progress.val.log_likelihood:.4f}" if progress.val else ""
        self._bar.update(self._task, completed=progress.epoch, description=text)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


@commands.command(name="list")
def list_() -> None:
    """Search spaces and methods that go by name."""
    spaces = Table("space", "what it is", box=None, pad_edge=False)
    for name in sorted(known_spaces()):
        spaces.add_row(name, load_space(name).description)
    out.print(spaces)
