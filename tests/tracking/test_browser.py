"""The printed links in a real Chromium: MLflow's preset views are no documented interface, so they are looked at.

Screenshots go to the test's folder, or to $HARNESS_SCREENSHOTS.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import keys
from harness.comparing import compare
from harness.measures import ACCURACY, DEVICE_SECONDS, HEADLINE, LOG_LIKELIHOOD
from harness.schema.records import Unit
from harness.tracking.server import serving
from harness.tracking.views import links
from harness.tracking.writer import Tracker, sync
from tests.synthetic import METHODS, make_units
from tests.tracking.test_server import free_port

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install Debian's `chromium` to run this test"),
]
# The panel of MLflow's assistant opens by itself on the first visit and covers a third of the page.
NO_ASSISTANT = "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"
LONGEST_MS = 240_000
PLOTS = """() => [...document.querySelectorAll('.js-plotly-plot')].map(plot => ({
    x: plot.layout.xaxis.title?.text ?? '', y: plot.layout.yaxis.title?.text ?? '', scale: plot.layout.xaxis.type ?? '',
    points: plot.data.flatMap(trace => trace.x ? [...trace.x] : []), kinds: plot.data.map(trace => trace.type),
    colours: plot.data.flatMap(trace => [trace.marker?.color, trace.line?.color].flat()).filter(Boolean),
}))"""


@pytest.fixture(scope="module")
def units() -> list[Unit]:
    return make_units(METHODS, range(3))


@pytest.fixture(scope="module")
def addresses(units: list[Unit], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    uri = f"sqlite:///{tmp_path_factory.mktemp('browser') / 'mlflow.db'}"
    assert sync(units, uri).warning is None
    Tracker(uri).conclude(units, compare(units))
    Tracker(uri).log_report(units[0].plan.space, "<!doctype html><h1>The verdict first</h1>")
    with serving(uri, free_port()) as server:
        yield links(uri, server, units[0].plan.space.name)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the `dev` extra)")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1800, "height": 2300})
    page.set_default_timeout(LONGEST_MS)
    page.add_init_script(NO_ASSISTANT)
    yield page
    folder = Path(os.environ.get("HARNESS_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"mlflow_{request.node.name.removeprefix('test_')}.png")
    page.close()


def by_cost(units: list[Unit]) -> list[str]:
    finished = [(unit.result.cost.device_seconds, unit) for unit in units if unit.result]
    return [f"{unit.plan.method}/s{unit.plan.seed}" for _, unit in sorted(finished, key=lambda pair: pair[0])]


def names_in_the_list(page: Any) -> list[str]:
    links = page.locator(".ag-row a[href*='/runs/']").all()
    rows = sorted((link.bounding_box()["y"], link.inner_text()) for link in links if link.is_visible())
    return [name for _, name in rows]


def plots(page: Any, count: int) -> list[dict[str, Any]]:
    """The charts in view, drawn with data."""
    drawn = f"() => ({PLOTS})().filter(plot => plot.points.length).length >= {count}"
    page.wait_for_function(drawn)
    found: list[dict[str, Any]] = page.evaluate(PLOTS)
    return found


def test_one_shot_vs_search(page: Any, addresses: dict[str, str], units: list[Unit]) -> None:
    page.goto(addresses["One-shot vs search"])
    page.get_by_text(f"{DEVICE_SECONDS.key} vs. {ACCURACY.key}").wait_for()
    charts = plots(page, 3)
    assert names_in_the_list(page) == by_cost(units)
    scatter = [chart for chart in charts if chart["x"] == DEVICE_SECONDS.key]
    assert {chart["y"] for chart in scatter} == {ACCURACY.key, LOG_LIKELIHOOD.key}
    costs = sorted(unit.result.cost.device_seconds for unit in units if unit.result)
    for chart in scatter:
        assert sorted(chart["points"]) == pytest.approx(costs, rel=1e-3)
    (anytime,) = [chart for chart in charts if chart["scale"] == "log"]
    assert len(anytime["points"]) > 100
    page.get_by_text(keys.ANYTIME_VAL_LOG_LIKELIHOOD, exact=True).first.wait_for()
    check_colours(charts, units)


def test_mean_over_seeds(page: Any, addresses: dict[str, str], units: list[Unit]) -> None:
    page.goto(addresses["Mean over seeds"])
    for method in METHODS:
        page.get_by_text(f"{method}, mean of 3 seeds").first.wait_for()
    charts = plots(page, 3)
    accuracies = [chart for chart in charts if chart["y"] == ACCURACY.key]
    assert accuracies, "accuracy against cost, and against size where the page has room for it"
    assert {len(chart["points"]) for chart in accuracies} == {len(METHODS)}, "one dot per method, not per run"
    check_colours(charts, units)


def check_colours(charts: list[dict[str, Any]], units: list[Unit]) -> None:
    """A method has the report's colour in every chart."""
    of_methods = {colour.lower() for colour in compare(units).colours.values()}
    assert len(of_methods) == len(METHODS)
    shown = [{colour[:7].lower() for colour in chart["colours"]} for chart in charts]  # a band's is #rrggbbaa
    assert all(colours <= of_methods for colours in shown), "some charts are of one method alone"
    assert all(
        colours == of_methods for chart, colours in zip(charts, shown, strict=True) if chart["y"] == ACCURACY.key
    )


def test_table(page: Any, addresses: dict[str, str], units: list[Unit]) -> None:
    page.goto(addresses["Table"])
    page.get_by_text("ldn/s0").wait_for()
    page.wait_for_function(f"() => document.querySelectorAll('.ag-row a[href*=\"/runs/\"]').length >= {len(units)}")
    assert names_in_the_list(page) == by_cost(units)
    for key in (measure.key for measure in HEADLINE):
        page.locator(".ag-header-cell", has_text=key).first.wait_for()


def test_report(page: Any, addresses: dict[str, str]) -> None:
    page.goto(addresses["Report"])
    page.frame_locator("iframe").get_by_text("The verdict first").wait_for()
