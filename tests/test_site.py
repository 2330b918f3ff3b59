"""The documentation site: `make docs` is strict and clean, nothing on it comes from elsewhere, its lists are complete.

The commands on its pages are run in tests/test_readme.py, those of docs/python.md in tests/test_notebook.py.
"""

import contextlib
import http.server
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields
from html import unescape
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.comparing import compare
from harness.comparing.tables import detail_tables, summary_tables
from harness.comparing.values import Recommendation
from harness.methods import load_method
from harness.methods.base import OneShotMethod, SearchMethod, SearchPlan
from harness.models.one_shot import Epoch
from harness.networks.base import Network
from harness.replaying.conformance import check_method
from harness.reporting.frames import VERDICT_COLUMNS, trial_frame
from harness.schema.records import MethodFacts
from harness.spaces import load_space
from tests.reporting.test_browser import CHROMIUM, FLAGS
from tests.synthetic import make_units

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
METHODS = (
    "every_other.py",
    "climb.py",
    "geometric.py",
    "few_depths.py",
)  # networks: tests/networks/test_own_network.py


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    written = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert sorted(listed) == sorted(written), "mkdocs.yml lists the pages of the site"


def test_every_example_is_shown_or_linked_on_a_page() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    assert [path.name for path in (DOCS / "examples").glob("*.*") if f"examples/{path.name}" not in pages] == []


# --- the whole contract ---------------------------------------------------------------------------------------------


def test_the_page_on_searches_has_every_field_and_fact() -> None:
    text = page("own_search.md")
    facts = set(MethodFacts.model_fields) - {"learns_depth", "validation", "is_posterior"}  # of one-shot methods
    assert [name for name in (*sorted(facts), *(f.name for f in fields(SearchPlan))) if f"`{name}`" not in text] == []
    public = {name for name in vars(SearchMethod) if inspect.isfunction(vars(SearchMethod)[name])}
    assert [name for name in public if name[0] != "_" and f"`{name}(" not in text] == []


def test_the_page_on_one_shot_networks_has_every_hook() -> None:
    text = page("own_one_shot.md")
    hooks = {name for name, value in vars(OneShotMethod).items() if inspect.isfunction(value) and name[0] != "_"}
    assert [name for name in hooks - {"plan"} if f"| `{name}(" not in text] == []
    assert [field.name for field in fields(Epoch) if f"`{field.name}`" not in text] == []
    assert all(f"| `{name}`" in text for name in ("is_posterior", "validation", "random"))


def test_the_page_on_networks_has_every_method() -> None:
    text = page("own_network.md")
    names = {name for name in vars(Network) if name[0] != "_" and name not in {"backbone", "model_config"}}
    methods = {name for name in names if inspect.isroutine(inspect.getattr_static(Network, name))}
    assert {"stem", "block", "head", "shrink"} <= methods
    assert [name for name in methods | {"takes", "small"} if not re.search(rf"`{name}[(`]", text)] == []


# --- tables and columns ---------------------------------------------------------------------------------------------


def test_every_column_of_the_frames_is_explained() -> None:
    text = page("answer/columns.md")
    columns = {*trial_frame(make_units(seeds=range(2))).columns, *VERDICT_COLUMNS, "method", "seed", "status"}
    assert [name for name in sorted(columns) if f"`{name}`" not in text] == []


def test_every_recommendation_is_explained() -> None:
    text = page("answer/recommendation.md")
    actions = get_args(Recommendation.model_fields["action"].annotation)
    assert len(actions) == 5 and [action for action in actions if f"| `{action}` |" not in text] == []
    assert all(f"*{name}*" in text for name in ("rests on", "costs", "risks"))


def test_every_table_of_a_comparison_is_explained() -> None:
    text = page("answer/columns.md")
    comparison = compare(make_units(seeds=range(3), refit=True))
    titles = {view.title for view in (*summary_tables(comparison), *detail_tables(comparison))}
    explained = re.findall(r"^\| ([A-Z][^|]+) \|", text, re.MULTILINE)
    assert len(titles) > 8
    assert [title for title in titles if not any(title.startswith(start) for start in explained)] == []


# --- examples -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_an_example_keeps_every_rule(name: str) -> None:
    checks = check_method(*load_method(str(DOCS / "examples" / name)), load_space("quickstart"))
    assert [check for check in checks if not check.ok] == []


@pytest.mark.slow
def test_the_worked_example_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page("answer/worked_example.md"), re.DOTALL)
    names: dict[str, Any] = {}
    assert len(pairs) == 5
    for code, shown in pairs:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        assert printed.getvalue() == shown


# --- the site -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install .[docs])")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        build, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.mark.slow
def test_nothing_on_the_site_is_fetched_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for path in pages:
        html = path.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:link|script|img|iframe)\b[^>]*\b(?:href|src)=\"?(https?:)?//", html)
        assert not fetched, path.name
        assert "--8<--" not in html and not re.search(r"^<!-- [a-z ]+ -->$", html, re.MULTILINE), path.name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page_name", "example"),
    [
        ("own_search", "every_other"),
        ("own_search", "climb"),
        ("own_one_shot", "geometric"),
        ("own_one_shot", "few_depths"),
        ("own_network", "my_rows"),
        ("own_network", "my_vit"),
    ],
)
def test_a_page_shows_its_whole_file(site: Path, page_name: str, example: str) -> None:
    html = (site / f"{page_name}.html").read_text(encoding="utf-8")
    shown = unescape(re.sub(r"<[^>]+>", "", html))
    assert (DOCS / "examples" / f"{example}.py").read_text(encoding="utf-8").strip() in shown


@pytest.mark.slow
def test_generated_parts_are_there(site: Path) -> None:
    def text(name: str) -> str:
        return (site / name).read_text(encoding="utf-8")

    assert "<code>posterior_gap_nats</code>" in text("answer/columns.html")
    assert "<code>--until-verdict</code>" in text("reference/command_line.html")
    assert "harness.run" in text("reference/api.html") and "log_likelihood_at" in text("reference/api.html")
    assert "interim analysis" in text("reference/glossary.html")
    assert "search_spaces/&lt;space&gt;.yaml" in text("reference/how_it_works.html")


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(site))

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [1200, 390])
def test_the_site_in_chromium(width: int, served: str, site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install .[dev])")
    complaints: list[str] = []
    requests: set[str] = set()
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which(str(CHROMIUM)), args=FLAGS.split())
        try:
            tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="light")
            tab.on("console", lambda message: complaints.append(message.text))
            tab.on("pageerror", lambda error: complaints.append(str(error)))
            tab.on("request", lambda request: requests.add(request.url))
            too_wide = []
            for path in sorted(site.rglob("*.html")):
                if path.name != "404.html":  # its addresses are those of the published site
                    tab.goto(f"{served}{path.relative_to(site)}")
                    if tab.evaluate("document.documentElement.scrollWidth") > width:
                        too_wide.append(path.name)
            tab.goto(f"{served}index.html")
            background = "getComputedStyle(document.body).backgroundColor"
            light = tab.evaluate(background)
            tab.locator("label[title='Switch to dark mode']").click()
            tab.wait_for_function(f"{background} != '{light}'")
            opens = "input[name=query]" if width > 1000 else "label.md-header__button[for='__search']"
            tab.locator(opens).click()
            tab.keyboard.type("posterior_gap_nats")
            found = tab.locator(".md-search-result__link").first
            found.wait_for(state="attached")
            first = found.get_attribute("href")
        finally:
            browser.close()
    assert complaints == [] and too_wide == []
    assert {url for url in requests if not url.startswith((served, "data:", "blob:"))} == set()
    assert first and "columns.html" in first
