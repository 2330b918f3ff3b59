"""The report: one HTML file with its style and figures inside. It loads nothing and runs no script."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from harness import keys
from harness.colours import colour_of
from harness.compare.measures import QUALITIES, finished_by_method
from harness.compare.numbers import ratio_with_ends
from harness.compare.sentences import COST_WORDS, as_said, straddles_one
from harness.compare.values import Comparison, Pair
from harness.compare.views import TEXT_COLUMNS, TableView, detail_tables, summary_tables
from harness.records import Unit
from harness.report.drawing import Drawing
from harness.report.figures import all_figures
from harness.report.reproduce import reproduce
from harness.statistics import Interval

_BADGES = {"non-inferior": "good", "inferior": "bad", "inconclusive": "open"}


def build_report(units: Sequence[Unit], comparison: Comparison) -> str:
    """The whole page. The same records give the same bytes: there is no date in it."""
    space = units[0].plan.space
    drawings = all_figures(finished_by_method(units, comparison.reference), comparison)
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    seeds = ", ".join(map(str, comparison.seeds))
    body = [
        "<header><p class=kicker>Depth search harness</p>",
        f"<h1>{escape(comparison.space)}: one {escape(comparison.reference)} run, or a search?</h1>",
        f"<p class=lead>{escape(space.description)} {len(comparison.methods)} methods, seeds {seeds}.</p></header>",
        *_verdict(comparison),
        *_section("figures", "Figures", _figures(drawings)),
        *_section("tables", "Tables", _tables([*summary_tables(comparison), *detail_tables(comparison)])),
        *_section("fairness", "Fairness", _fairness(comparison)),
        *_section("checklist", "NAS best-practice checklist", _checklist(comparison)),
        *_section("reproduce", "How to reproduce", reproduce(units, comparison)),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # An icon inside the page: without one a browser asks its server for /favicon.ico.
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(comparison.space)} · depth search report</title>\n<style>\n{style}</style>\n</head>\n"
        "<body>\n<main>\n" + "\n".join(body) + "\n</main>\n</body>\n</html>\n"
    )


def _section(name: str, title: str, parts: Iterable[str]) -> list[str]:
    return [f'<section id="{name}"><h2>{escape(title)}</h2>', *parts, "</section>"]


# --- the verdict, first -------------------------------------------------------------------------------------------


def _verdict(comparison: Comparison) -> list[str]:
    parts = [f'<section id="verdict"><h2>Verdict</h2><p class=headline>{escape(comparison.headline)}</p>']
    if comparison.fairness:
        rules = ", ".join(item.rule for item in comparison.fairness)
        parts.append(_banner("Not everything was equal", f"{rules}. The verdicts this touches are withheld."))
    if comparison.contamination.found:
        parts.append(_banner("Time may be contaminated", f"{'; '.join(comparison.contamination.signs)}."))
    if comparison.missing:
        parts.append(_banner("Missing", f"no result yet: {', '.join(comparison.missing)}."))
    if comparison.search.pairs:
        cards = [
            _card(comparison, pair, sentence)
            for pair, sentence in zip(comparison.search.pairs, comparison.sentences, strict=True)
        ]
        parts += ["<div class=cards>", *cards, "</div>"]
    parts.append("<h3>Before you believe it</h3><ul class=notes>")
    parts += [f"<li>{escape(note)}</li>" for note in comparison.notes]
    return [*parts, "</ul></section>"]


def _banner(title: str, text: str) -> str:
    return f'<p class=banner role="note"><strong>{escape(title)}:</strong> {escape(text)}</p>'


def _card(comparison: Comparison, pair: Pair, sentence: str) -> str:
    lead = keys.COST_TFLOP if comparison.contamination.found else keys.COST_DEVICE_SECONDS
    badges = "".join(
        f'<span class="badge {_BADGES.get(pair.verdicts[m.key].outcome, "none")}">'
        f"{escape(m.title)}: {escape(pair.verdicts[m.key].outcome)}</span>"
        for m in QUALITIES
        if m.key in pair.verdicts
    )
    if pair.withheld:
        badges = '<span class="badge open">verdict withheld</span>'
    return (
        f'<article class="card{" withheld" if pair.withheld else ""}" style="--method:{colour_of(pair.baseline)}">'
        f"<h3>against {escape(pair.baseline)}</h3>{_big_number(pair.cost_ratios.get(lead), COST_WORDS[lead])}"
        f"<p class=badges>{badges}</p><p class=sentence>{escape(sentence)}</p>"
        f"<p class=sentence>{escape(_at_equal_quality(comparison, pair.baseline))}</p></article>"
    )


def _big_number(found: Interval | None, what: str) -> str:
    if found is None:
        return ""
    if straddles_one(found):
        return f"<p class=big>≈ 1×</p><p class=what>{escape(what)}: no clear difference</p>"
    factor, words = as_said(what, found)
    number, _, ends = ratio_with_ends(factor).partition(" ")
    return f"<p class=big>{number}</p><p class=what>{escape(words)} {ends}</p>"


def _at_equal_quality(comparison: Comparison, baseline: str) -> str:
    """The fair counterweight: what an oracle that stops the search at the right moment would have spent."""
    found = next(item for item in comparison.equal_quality if item.baseline == baseline)
    reached = found.baseline_reaches
    if found.speed_up is not None:
        return (
            f"Stopped by an oracle once it is as good, {baseline} would need {ratio_with_ends(found.speed_up)} of "
            f"{comparison.reference}'s device time."
        )
    return f"{baseline} got as good as {comparison.reference} on {reached.count} of {len(reached.seeds)} seeds."


# --- the rest -----------------------------------------------------------------------------------------------------


def _figures(drawings: Sequence[Drawing]) -> Iterable[str]:
    yield "<div class=figures>"
    for drawing in drawings:
        yield f'<figure id="figure-{drawing.name}"><h3>{escape(drawing.title)}</h3>{drawing.svg}'
        yield f"<figcaption>{escape(drawing.caption)}</figcaption></figure>"
    yield "</div>"


def _tables(views: Sequence[TableView]) -> Iterable[str]:
    for view in views:
        kinds = ["text" if column in TEXT_COLUMNS else "" for column in view.columns]
        names = zip(view.columns, kinds, strict=True)
        head = "".join(f'<th scope="col" class="{kind}">{escape(column)}</th>' for column, kind in names)
        yield f"<h3>{escape(view.title)}</h3>"
        # A table may be wider than a phone: it scrolls by itself, by keyboard too.
        yield f'<div class=scroll tabindex=0 role="region" aria-label="{escape(view.title)}"><table>'
        yield f"<thead><tr>{head}</tr></thead><tbody>"
        for row in view.rows:
            cells = "".join(
                f'<td class="{kind} {_BADGES.get(cell.split(",")[0], "")}">{escape(cell)}</td>'
                for cell, kind in zip(row[1:], kinds[1:], strict=True)
            )
            yield f'<tr><th scope="row">{escape(row[0])}</th>{cells}</tr>'
        yield f"</tbody></table></div><p class=caption>{escape(view.caption)}</p>"


def _fairness(comparison: Comparison) -> Iterable[str]:
    if not comparison.fairness:
        yield (
            "<p>The program compared the records and found no difference between the methods in: split, settings, "
            "schedule, stopping rule, precision, device and share, CPUs and GPUs per trial, co-resident trials, "
            "machine, versions, test set, cost rule of the output block.</p>"
        )
        return
    yield "<p>These ought to be equal and are not. Every verdict between methods that differ is withheld.</p><dl>"
    for item in comparison.fairness:
        yield f"<dt>{escape(item.rule)}</dt><dd>{escape(item.detail)}</dd>"
    yield "</dl>"


def _checklist(comparison: Comparison) -> Iterable[str]:
    marks = {"yes": ("✓", "good"), "partly": ("~", "open"), "no": ("✗", "bad")}
    yield "<p>After Lindauer &amp; Hutter (2020), answered by the program from the records.</p><ul class=checklist>"
    for item in comparison.checklist:
        mark, kind = marks[item.answer]
        yield (
            f'<li><span class="badge {kind}"><span aria-hidden="true">{mark}</span> {item.answer}</span>'
            f"<span><strong>{escape(item.question)}</strong><br>{escape(item.evidence)}</span></li>"
        )
    yield "</ul>"
