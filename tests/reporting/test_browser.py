"""The report in a real browser: every figure is drawn, nothing is fetched, nothing complains."""

import shutil
from pathlib import Path

import pytest

from harness.comparing import compare
from harness.reporting import build_report
from tests.synthetic import make_units

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_in_chromium(width: int, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install .[dev])")
    units = make_units(seeds=range(3), refit=True)
    page_file = tmp_path / "report.html"
    page_file.write_text(build_report(units, compare(units)), encoding="utf-8")
    complaints: list[str] = []
    requests: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        try:
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("request", lambda request: requests.append(request.url))
            page.goto(page_file.as_uri())
            page.screenshot(path=tmp_path / f"report-{width}.png", full_page=True)
            boxes = page.eval_on_selector_all(
                "figure svg", "all => all.map(svg => svg.getBoundingClientRect().toJSON())"
            )
            marks = page.eval_on_selector_all(
                "figure svg", "all => all.map(svg => svg.querySelectorAll('path').length)"
            )
            page_width = page.evaluate("document.documentElement.scrollWidth")
            scrolling = page.eval_on_selector_all(
                ".scroll",
                "all => all.filter(box => box.scrollWidth > box.clientWidth).map(box => getComputedStyle(box))"
                ".map(style => style.backgroundImage + style.backgroundAttachment)",
            )
            page.emulate_media(media="print")
            breaks = page.eval_on_selector_all(
                ".card, .table, figure", "all => all.map(part => getComputedStyle(part).breakInside)"
            )
        finally:
            browser.close()
    assert complaints == []
    assert requests == [page_file.as_uri()]
    assert len(boxes) == 10
    assert all(box["width"] >= min(300, width - 100) and box["height"] > 100 for box in boxes)
    assert all(count > 5 for count in marks)
    assert page_width <= width  # nothing sticks out sideways
    assert width > 1000 or scrolling, "on a phone some tables are wider than the page"
    assert all("gradient" in shown and "local" in shown for shown in scrolling), "a shadow says that there is more"
    assert len(breaks) > 15 and set(breaks) == {"avoid"}, "no page break inside a card, a table or a figure"
    assert (tmp_path / f"report-{width}.png").stat().st_size > 10_000
