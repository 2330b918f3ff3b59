"""Nothing that comes from outside is obeyed by what shows it, and no password leaves."""

import pytest
from markdown_it import MarkdownIt

from harness.text.shown import (
    code_block,
    counted,
    html_text,
    markdown_text,
    one_line,
    printable,
    redacted,
    shown_argument,
    without_secrets,
)

HARMFUL = "a\x1b[31mb\x07c\x9bd\u202ee\x00f\rg\udc80h\u2028i"


def test_counts_have_their_grammar() -> None:
    assert [counted(count, "seed") for count in (0, 1, 2, 1200)] == ["0 seeds", "1 seed", "2 seeds", "1,200 seeds"]
    assert [counted(count, "search", "searches") for count in (1, 2)] == ["1 search", "2 searches"]


def test_control_characters_are_shown_as_such() -> None:
    assert printable(HARMFUL) == "a�[31mb�c�d�e�f�g�h�i"
    assert printable("a\n\tβ → 漢 😀") == "a\n\tβ → 漢 😀"
    assert html_text("<b>\x1b") == "&lt;b&gt;�"
    assert "\x1b" not in code_block("\x1b") + markdown_text("\x1b") + one_line("\x1b")


@pytest.mark.parametrize(
    "text", ["<img src=x onerror=1>", "[a](javascript:x)", "![a](http://x/y.png)", "**b** _c_ `d`"]
)
def test_markdown_shows_what_was_written(text: str) -> None:
    tokens = MarkdownIt("commonmark").parseInline(markdown_text(text))[0].children or []
    assert {token.type for token in tokens} <= {"text", "text_special"}
    assert "".join(token.content for token in tokens) == text


def test_a_block_of_code_is_not_ended_by_what_is_in_it() -> None:
    text = "before\n```\n# heading\n`````\nafter"
    [block] = MarkdownIt("commonmark").parse(code_block(text))
    assert block.type == "fence" and block.content == text + "\n"


SECRET = "s3cr/t@p?w#d"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://me:secret@db:5432/x", "postgresql://db:5432/x"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        (f"mysql+pymysql://me:{SECRET}@db/x", "mysql+pymysql://db/x"),
        ("https://me:p@ss@host/path", "https://host/path"),
        ("https://me:p/a/s@host/path", "https://host/path"),
        ("https://token@host", "https://host"),
        ("https://host/path?token=abc&x=1", "https://host/path?***"),
        ("https://host/#token=abc", "https://host/#***"),
        ("s3://key:secret@bucket/folder?region=x", "s3://bucket/folder?***"),
        ("mssql+pyodbc:///?odbc_connect=PWD%3Dsecret", "mssql+pyodbc:///?***"),
        ("me:secret@host/x", "***@host/x"),
        ("http:/me:secret@host", "***@host"),
        ("foo://me:secret@host", "foo://host"),
        ("sqlite:////home/me@work/mlflow.db", "sqlite:////home/me@work/mlflow.db"),
        ("results/mlflow.db", "results/mlflow.db"),
    ],
)
def test_an_address_is_shown_without_its_secrets(uri: str, shown: str) -> None:
    assert redacted(uri) == shown


@pytest.mark.parametrize("uri", [f"http://me:{SECRET}@host/x?token=t0ken", "http://me:p%40ssw%2Frd@host/"])
def test_a_message_loses_the_secrets_of_an_address(uri: str) -> None:
    told = f"cannot open {uri}: (1045, 'denied for {SECRET}, p@ssw/rd, t0ken') with url: /api?x=1&api_key=zzz9"
    said = without_secrets(told, uri)
    own = [SECRET, "t0ken"] if "t0ken" in uri else ["p@ssw/rd", "p%40ssw%2Frd"]
    assert not [secret for secret in [*own, "zzz9"] if secret in said]
    assert "cannot open http://host/" in said and "denied for" in said


def test_an_address_of_which_nobody_told_loses_its_login_too() -> None:
    said = without_secrets("see (postgresql://me:a@b/c@db:1/x) and https://host/?token=abc&viewStateShareKey=view")
    assert said == "see (postgresql://db:1/x) and https://host/?token=***&viewStateShareKey=view"
    assert shown_argument("--tracking-uri=http://a:b c@h/?token=d") == "--tracking-uri=http://h/?***"
    assert shown_argument("--set=training.lr=0.1") == "--set=training.lr=0.1"
