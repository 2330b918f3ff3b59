"""The report: complete, self-contained, the same bytes for the same records, and safe with users' text.

A whole page takes about two seconds to draw, so tests of whole pages are marked slow.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness.comparing import compare
from harness.reporting import build_report
from harness.reporting.costs import PHASE_COLOURS, cost_bars, phases_stacked
from harness.reporting.curves import pooled_bins
from harness.reporting.html import _answer, big_number, question
from harness.reporting.quality import pareto_front
from harness.reporting.reproduce import commands_of, method_argument
from harness.schema.records import SHOWN_PHASES, Unit
from harness.statistics import Interval
from tests.synthetic import ENVIRONMENT, make_space, make_units

FIGURES = {
    *("cost", "phases", "verdict", "quality", "size", "losses", "anytime", "weights_ldn", "reliability", "wallclock"),
}
VOID = {"meta", "link", "br"}


def report(units: list[Unit], reference: str | None = None) -> str:
    return build_report(units, compare(units, reference))


class _Page(HTMLParser):
    """Checks nesting and collects what the tests ask about."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(html: str) -> _Page:
    page = _Page()
    page.feed(html)
    assert page.open == []
    return page


@pytest.fixture(scope="module")
def full() -> str:
    return report(make_units(seeds=range(3), refit=True))


@pytest.mark.slow
def test_it_shows_everything_in_order_with_the_verdict_first(full: str) -> None:
    page = parsed(full)
    sections = [
        name for name in page.ids if name in {"verdict", "figures", "tables", "fairness", "checklist", "reproduce"}
    ]
    assert sections == ["verdict", "figures", "tables", "fairness", "checklist", "reproduce"]
    assert {f"figure-{name}" for name in FIGURES} <= set(page.ids)
    assert page.tags.count("svg") == len(FIGURES)
    for sentence in compare(make_units(seeds=range(3), refit=True)).sentences:
        assert sentence.replace("'", "&#x27;") in full


@pytest.mark.slow
def test_it_is_self_contained(full: str) -> None:
    page = parsed(full)
    assert "script" not in page.tags
    assert not {"img", "iframe", "object", "video"} & set(page.tags)
    links = [value or "" for name, value in page.attributes if name in {"href", "src", "xlink:href"}]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert set(re.findall(r"https?://[^\"' <]+", full)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "@import" not in full


@pytest.mark.slow
def test_ids_are_unique_and_references_resolve(full: str) -> None:
    page = parsed(full)
    assert len(page.ids) == len(set(page.ids))
    used = set(re.findall(r'href="#([^"]+)"', full)) | set(re.findall(r"url\(#([^)]+)\)", full))
    labelled = {name for key, value in page.attributes if key == "aria-labelledby" for name in (value or "").split()}
    assert used | labelled <= set(page.ids)


@pytest.mark.slow
def test_every_figure_has_a_text_alternative_and_keeps_its_text(full: str) -> None:
    for name in FIGURES:
        svg = full.split(f'<figure id="figure-{name}">')[1].split("</figure>")[0]
        assert 'role="img"' in svg
        for kind in ("title", "desc"):
            (text,) = re.findall(rf'<{kind} id="{name}-{kind}">(.+?)</{kind}>', svg)
            assert len(text) > 10
        assert svg.count("<text") > 5


def test_one_figure_by_itself() -> None:
    comparison = compare(make_units(("ldn", "grid"), range(2)))
    drawing = cost_bars(comparison)
    assert "grid 15.9" in drawing.description
    assert ">ldn<" in drawing.svg
    assert cost_bars(comparison) == drawing


@pytest.mark.slow
def test_the_same_records_give_the_same_bytes(full: str) -> None:
    assert report(make_units(seeds=range(3), refit=True)) == full


@pytest.mark.slow
def test_users_text_is_escaped_everywhere() -> None:
    nasty = "<script>alert(\"x\")</script> $a$ & 'b' \x1b[31m \x9b \u202e"
    environment = ENVIRONMENT.model_copy(update={"machine": nasty})
    html = report(make_units(("ldn", nasty), range(2), environments={"ldn": environment}))
    page = parsed(html)
    assert "script" not in page.tags
    assert "<script" not in html
    assert "$a$" in html
    assert not set(html) & set("\x1b\x9b\u202e"), "in tables and in figures alike"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("units", "missing"),
    [
        (make_units(("ldn",), [0]), {"verdict", "losses", "reliability"}),
        (make_units(("ldn", "asha"), [0]), {"losses"}),
        (make_units(("ldn", "grid"), [0, 1], failed_depths={"grid": [3, 4]}), set()),
        ([*make_units(("ldn",), [0, 1]), *make_units(("grid",), [2])], {"verdict", "losses"}),
        (
            make_units(("ldn", "grid"), [0, 1], unfinished=[("ldn", 0), ("ldn", 1)]),
            {"verdict", "losses", "weights_ldn", "reliability"},
        ),
    ],
)
def test_it_draws_what_the_records_can_fill(units: list[Unit], missing: set[str]) -> None:
    found = {name.removeprefix("figure-") for name in parsed(report(units)).ids if name.startswith("figure-")}
    assert found == FIGURES - missing


@pytest.mark.slow
def test_records_without_trials_are_named_not_fatal() -> None:
    units = make_units(("ldn", "grid"), range(2))
    units[1] = units[1].model_copy(update={"trials": ()})
    html = report(units)
    assert "grid seed 0: its trials add up to 0" in html


@pytest.mark.slow
def test_withheld_verdicts_and_warnings_stand_at_the_top() -> None:
    other = ENVIRONMENT.model_copy(update={"torch": "2.12.0"})
    units = make_units(("ldn", "grid"), range(3), environments={"grid": other}, unfinished=[("grid", 2)])
    top = report(units).split('id="figures"')[0]
    for text in (">withheld</span>", "Unfair comparison", "no result yet: grid seed 2"):
        assert text in top
    assert "as good</span>" not in top


def test_commands_are_quoted_for_a_shell() -> None:
    units = make_units(("ldn", "my method"), [0, 2], refit=True)
    own = {"code": {"method my method.py": "1f"}}
    units = [unit.model_copy(update={"plan": unit.plan.model_copy(update=own)}) for unit in units]
    assert method_argument("asha", {"grace_epochs": None, "reduction_factor": 3}) == "asha:reduction_factor=3"
    run, compared, _ = commands_of(units, "ldn")
    assert run == "harness run synthetic.yaml --methods 'ldn,my method.py' --seeds 0,2 --refit"
    assert compared == "harness compare synthetic --reference ldn"
    [run, *_] = commands_of(make_units(("ldn", "grid"), [0], space=make_space(name="quickstart")), None)
    assert run == "harness run quickstart --methods ldn,grid --seeds 0"
    assert method_argument("asha", {"grace_epochs": 20}) == "asha:grace_epochs=20"


def test_the_pareto_front_by_hand() -> None:
    rows = compare(make_units(("ldn", "grid", "asha"), range(2))).search.rows
    front = pareto_front(rows, "test_accuracy")
    assert "ldn" in front  # the cheapest is always on it
    best = max(rows, key=lambda row: row.values["test_accuracy"].mean)
    assert best.method in front
    for row in rows:
        beaten = any(
            other.values["cost_device_seconds"].mean < row.values["cost_device_seconds"].mean
            and other.values["test_accuracy"].mean > row.values["test_accuracy"].mean
            for other in rows
        )
        assert beaten == (row.method not in front)


def test_pooled_bins_weigh_by_count() -> None:
    units = make_units(("ldn",), range(2))
    first, second = (unit.result.final.reliability for unit in units if unit.result)
    pooled = pooled_bins([first, second])
    last = pooled[-1]
    assert last.count == first[-1].count + second[-1].count
    expected = (first[-1].accuracy * first[-1].count + second[-1].accuracy * second[-1].count) / last.count
    assert last.accuracy == pytest.approx(expected)
    assert pooled[0].count == 0
    assert pooled_bins([]) == []


@pytest.mark.slow
def test_comparison_and_report_load_neither_ray_nor_mlflow_nor_torch() -> None:
    code = (
        "import sys, harness.comparing.render, harness.reporting\n"
        "sys.exit(', '.join(m for m in ('ray', 'mlflow', 'torch', 'matplotlib.pyplot') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


# --- what a reader stumbled over ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "number", "words"),
    [
        (None, "?", "cost not recorded"),
        (Interval(mean=1.02, low=0.7, high=1.4, n=3), "0.98×", "grid's device time"),
        (Interval(mean=6.1, low=4.8, high=7.9, n=3), "0.16×", "grid's device time"),
        (Interval(mean=0.25, low=0.2, high=0.5, n=3), "4.0×", "grid's device time"),
    ],
)
def test_a_card_has_no_number_for_what_is_not_known(found: Interval | None, number: str, words: str) -> None:
    assert big_number(found, "grid's device time") == (number, words)


def test_the_oracle_folds_out_under_a_heading_that_says_what_it_is() -> None:
    cards = "".join(_answer(compare(make_units(("ldn", "grid", "asha"), range(3)))))
    cards = cards.partition("</article></div>")[0]
    [(heading, line)] = re.findall(r"<details><summary>(.*?)</summary>(.*?)</details>", cards)
    assert heading == "If grid knew when to stop", "of the reference; the others have no such line, and no empty one"
    assert re.match(r"Stopped by an oracle once it is as good, grid would need|grid got as good as ldn on", line)


@pytest.mark.parametrize(
    ("methods", "asked"),
    [
        (("ldn", "grid"), "one ldn run, or a search?"),
        (("elastic", "grid", "asha"), "one elastic run, or a search?"),
        (("ldn", "exits", "grid"), "one network that learns its depth, or a search?"),
        (("ldn", "exits"), "which network that learns its depth?"),
        (("grid", "asha"), "which search over depths?"),
        (("ldn",), "one ldn run, or a search?"),
    ],
)
def test_the_heading_asks_about_what_stands_in_the_report(methods: tuple[str, ...], asked: str) -> None:
    assert question(compare(make_units(methods, range(2)))) == asked


@pytest.mark.slow
def test_a_report_of_one_of_each_has_the_grammar_of_one() -> None:
    units = make_units(("ldn",), [0])
    comparison = compare(units)
    text = re.sub(r"<svg.*?</svg>|<pre>.*?</pre>", "", build_report(units, comparison), flags=re.DOTALL)
    assert "1 method, seed 0." in text
    wrong = r"(?<![\d.,])1 (methods|seeds|trials|epochs|threads|verdicts|searches|blocks|depths|looks)\b"
    assert re.findall(wrong, text + " ".join(comparison.notes)) == []


@pytest.mark.slow
def test_the_report_says_how_to_take_the_winner_home(full: str) -> None:
    winner = compare(make_units(seeds=range(3), refit=True)).winner
    home = full.split('id="winner"')[1].split("</section>")[0]
    assert f"<strong>A seed of {winner.method} (seed {winner.seed})</strong>" in home
    for line in ("harness.load_results(&quot;synthetic&quot;).winner()", "models:/depth-search-synthetic@winner"):
        assert line in home
    assert "ldn: learnt-depth network" in full.split('id="verdict"')[0], "where a newcomer meets it first"


@pytest.mark.slow
def test_a_home_that_cannot_be_written_is_no_news(tmp_path: Path) -> None:
    """Matplotlib would say so twice, in four lines."""
    shutil.copytree(Path(__file__).parent.parent / "schema" / "version_3" / "quickstart", tmp_path / "quickstart")
    done = subprocess.run(
        [sys.executable, "-m", "harness", "report", "quickstart", "--out", str(tmp_path)],
        env={key: value for key, value in os.environ.items() if key != "MPLCONFIGDIR"} | {"HOME": "/proc"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_phase_has_a_colour_and_what_follows_a_one_shot_is_drawn() -> None:
    assert set(PHASE_COLOURS) == set(SHOWN_PHASES)
    units = make_units(("ldn", "grid"), range(2))
    trials = tuple(
        trial.model_copy(update={"cost": trial.cost.of_a_stage}) if unit.plan.method == "ldn" else trial
        for unit in units[:1]
        for trial in unit.trials
    )
    changed = [units[0].model_copy(update={"trials": trials}), *units[1:]]
    assert "stage" in phases_stacked(compare(changed)).description
