"""A page that loads nothing and runs no script: its shell and the parts that the report and the studies share."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.comparing.tables import TEXT_COLUMNS, TableView
from harness.judging.words import kind_of, plain_part
from harness.reporting.drawing import WIDTH_INCHES, Drawing
from harness.text.shown import html_text, printable

_ANSWERS = {"held": "good", "not held": "bad", "not enough evidence": "open"}  # of claims; on most seeds: open


def badge(word: str) -> str:
    """The colour of a verdict, or of a claim's answer."""
    if plain_part(word) != word and plain_part(word) in _ANSWERS:
        return "open"
    return _ANSWERS.get(word) or kind_of(word)


def page(title: str, body: Iterable[str]) -> str:
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    return printable(  # text in figures too
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # An icon inside the page: without one a browser asks its server for /favicon.ico.
        '<link rel="icon" href="data:,">\n'
        f"<title>{html_text(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        "<body>\n<main>\n" + "\n".join(body) + "\n</main>\n</body>\n</html>\n"
    )


def section(name: str, title: str, parts: Iterable[str]) -> list[str]:
    return [f'<section id="{name}"><h2>{html_text(title)}</h2>', *parts, "</section>"]


def banner(title: str, text: str) -> str:
    return f'<p class=banner role="note"><strong>{html_text(title)}:</strong> {html_text(text)}</p>'


def figures(drawings: Sequence[Drawing]) -> Iterable[str]:
    yield "<div class=figures>"
    for drawing in drawings:
        wide = " class=wide" if drawing.width > WIDTH_INCHES else ""
        yield f'<figure id="figure-{drawing.name}"{wide}><h3>{html_text(drawing.title)}</h3>{drawing.svg}'
        yield f"<figcaption>{html_text(drawing.caption)}</figcaption></figure>"
    yield "</div>"


def _cell(cell: str, kind: str) -> str:
    """The number of a verdict stands below its word: a row of verdicts then fits on the page."""
    word, _, number = cell.partition(", ")
    colour = badge(word)
    shown = (
        f"{html_text(word)}<br><small>{html_text(number)}</small>" if colour != "none" and number else html_text(cell)
    )
    return f'<td class="{kind} {colour}">{shown}</td>'


def tables(views: Sequence[TableView]) -> Iterable[str]:
    for view in views:
        kinds = ["text" if column in TEXT_COLUMNS else "" for column in view.columns]
        names = zip(view.columns, kinds, strict=True)
        head = "".join(f'<th scope="col" class="{kind}">{html_text(column)}</th>' for column, kind in names)
        yield f"<div class=table><h3>{html_text(view.title)}</h3>"
        # A table may be wider than a phone: it scrolls by itself, by keyboard too, and a shadow says so.
        yield f'<div class=scroll tabindex=0 role="region" aria-label="{html_text(view.title)}"><table>'
        yield f"<thead><tr>{head}</tr></thead><tbody>"
        for row in view.rows:
            cells = "".join(_cell(cell, kind) for cell, kind in zip(row[1:], kinds[1:], strict=True))
            yield f'<tr><th scope="row">{html_text(row[0])}</th>{cells}</tr>'
        yield f"</tbody></table></div><p class=caption>{html_text(view.caption)}</p></div>"
