"""Results that stand for every recommendation, made without training, and what each view shows of them.

`python -m tests.canned FOLDER` writes, for each, what the terminal, the report, MLflow's note and Python say; with
Chromium also pictures of the report (two widths) and of MLflow's page.
"""

import argparse
import io
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.api.results import Results
from harness.comparing import Comparison, compare
from harness.comparing.render import verdict
from harness.reporting import build_report
from harness.schema.records import Unit
from harness.tracking.server import serving
from harness.tracking.views import links
from harness.tracking.writer import Tracker, sync
from tests.synthetic import make_space, make_units, with_chosen_log_likelihood

METHODS = ("ldn", "grid", "asha")
DEEP = {"min": 0, "max": 40, "step": 4}  # the deepest of them is far worse than the best
WIDE = {"accuracy": 0.6, "log_likelihood": 1.0, "ece": 0.1}  # margins wider than what lies between the depths


def _ldn_fails_on_three_seeds() -> list[Unit]:
    space = make_space(name="one_method_fails", depth=DEEP)
    units = make_units(METHODS, range(20), space=space, ldn_accuracy=0.01, ldn_log_likelihood=0.06)
    for seed in (3, 7, 11):
        units = with_chosen_log_likelihood(units, "ldn", seed, -3.0)
    return units


@dataclass(frozen=True)
class Canned:
    units: Sequence[Unit]
    action: str
    sentence: str
    rests_on: str  # a part of it
    risks: str  # the same


CANNED: dict[str, Canned] = {
    "search pays, and one training replaces it": Canned(
        make_units(METHODS, range(12), space=make_space(name="search_pays", depth=DEEP)),
        "one-shot",
        "Use ldn instead of a search: it matches grid at 0.22 of its cost.",
        "as good in accuracy and log-likelihood, better in ECE",
        "worse by the margin or more on 1 of 12 seeds",
    ),
    "no search is needed": Canned(
        make_units(METHODS, range(12), space=make_space(name="no_search")),
        "no search",
        "Train 10 blocks and do not search: the deepest network stays within the margins of grid's choice, at 0.16 of "
        "its cost.",
        "12 seeds, the deepest network − grid's choice: accuracy +0.0014 (−0.0016 to +0.0044), log-likelihood −0.0153",
        "worse by the margin or more on none of 12 seeds",
    ),
    "any depth will do": Canned(
        make_units(METHODS, range(12), space=make_space(name="any_depth", margins=WIDE)),
        "any depth",
        "Any depth will do, so do not search: the cheapest is 0 blocks.",
        "best and worst depth differ by 0.45 in accuracy, 0.61 nats in log-likelihood and 0.0027 in ECE, less than the "
        "margins (0.6, 1 nats and 0.1)",
        "smaller margins may ask for a search after all",
    ),
    "not decided": Canned(
        make_units(METHODS, range(4), space=make_space(name="not_decided")),
        "not decided",
        "Not decided: 4 more seeds, about 35 seconds, should tell whether the deepest network, at 0.16 of grid's cost, "
        "is as good as a search.",
        "4 seeds, the deepest network − grid's choice: accuracy",
        "until then grid's choice is the safe one",
    ),
    "one method fails on some seeds": Canned(
        _ldn_fails_on_three_seeds(),
        "search",
        "Search with grid: it beats the deepest network and a random depth, and no cheaper method is shown to match "
        "it. ldn, at 0.22 of the cost, is not safe: it falls outside the margin on 3 of 20 seeds.",
        "20 seeds, a random depth − grid's choice: accuracy",
        "none in quality, since it trains every depth; on most seeds ldn would have been enough",
    ),
    "a cheaper search will do": Canned(
        make_units(
            ("grid", "asha"),
            range(12),
            space=make_space(
                name="cheaper_search",
                depth=DEEP,
                budget={"early_stopping_trials": 7},
                margins={"accuracy": 0.01, "log_likelihood": 0.08, "ece": 0.02},
            ),
        ),
        "search",
        "Search with asha: it matches grid at 0.63 of its cost.",
        "12 seeds: as good in accuracy, log-likelihood and ECE",
        "worse by the margin or more on 1 of 12 seeds",
    ),
    "nothing else is cheaper": Canned(
        make_units(("grid", "asha"), range(12), space=make_space(name="grid_alone", depth=DEEP)),
        "search",
        "Search with grid: it beats the deepest network and a random depth, and no cheaper method is shown to match "
        "it.",
        "12 seeds, a random depth − grid's choice: accuracy",
        "none that these seeds show: no other method is shown to be cheaper",
    ),
}


def in_terminal(comparison: Comparison, width: int = 100) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(verdict(comparison))
    return console.export_text()


def in_python(units: Sequence[Unit]) -> Results:
    return Results(space=units[0].plan.space.name, out=Path("results"), units=tuple(units))


def into_mlflow(units: Sequence[Unit], uri: str) -> str:
    """Writes them, the way a run does; the experiment's note, as MLflow has it."""
    assert sync(units, uri).warning is None
    tracker, space = Tracker(uri), units[0].plan.space
    tracker.conclude(units, compare(units))
    found = tracker.client.get_experiment_by_name(f"depth-search/{space.name}")
    assert found is not None
    return str(found.tags["mlflow.note.content"])


def render(folder: Path, names: Sequence[str]) -> None:
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    for name in names:
        units = CANNED[name].units
        place = folder / units[0].plan.space.name
        place.mkdir(parents=True, exist_ok=True)
        comparison = compare(units)
        report = build_report(units, comparison)
        results = in_python(units)
        (place / "terminal.txt").write_text(in_terminal(comparison), encoding="utf-8")
        (place / "report.html").write_text(report, encoding="utf-8")
        (place / "note.md").write_text(into_mlflow(units, uri), encoding="utf-8")
        (place / "python.txt").write_text(f"{results.recommendation()}\n\n{results}\n", encoding="utf-8")
        Tracker(uri).log_report(units[0].plan.space, report)


def pictures(folder: Path, names: Sequence[str]) -> None:
    from playwright.sync_api import sync_playwright

    from tests.tracking.test_browser import CHROMIUM, FLAGS, NO_ASSISTANT
    from tests.tracking.test_server import free_port

    uri = f"sqlite:///{folder / 'mlflow.db'}"
    with ExitStack() as stack:
        server = stack.enter_context(serving(uri, free_port()))
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        stack.callback(browser.close)
        for name in names:
            space = CANNED[name].units[0].plan.space.name
            for width in (1200, 390):
                page = browser.new_page(viewport={"width": width, "height": 900})
                page.goto((folder / space / "report.html").absolute().as_uri())
                page.screenshot(path=folder / space / f"report-{width}.png")
                page.screenshot(path=folder / space / f"report-{width}-whole.png", full_page=True)
                page.close()
            page = browser.new_page(viewport={"width": 1600, "height": 1200})
            page.set_default_timeout(240_000)
            page.add_init_script(NO_ASSISTANT)
            for number, (title, address) in enumerate(links(uri, server, space).items()):
                page.goto(address)
                _settled(page)
                page.screenshot(path=folder / space / f"mlflow-{number}-{title.split()[0].lower()}.png")
            page.close()


def _settled(page: Any) -> None:
    """MLflow asks its server for news all the time, so nothing says that it is done."""
    page.wait_for_load_state("load")
    page.wait_for_timeout(15_000)


def _chosen(words: Sequence[str]) -> Iterator[str]:
    return (name for name in CANNED if not words or any(word in name for word in words))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="results whose name has one of these")
    given = parser.parse_args()
    names = list(_chosen(given.only))
    given.folder.mkdir(parents=True, exist_ok=True)
    render(given.folder, names)
    if shutil.which("chromium"):
        pictures(given.folder, names)


if __name__ == "__main__":
    main()
