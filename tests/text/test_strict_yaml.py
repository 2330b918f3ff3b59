"""Settings are read; whatever else YAML can do is one sentence, at once."""

import time

import pytest

from harness.errors import UserError
from harness.text.strict_yaml import DEEPEST, MOST_VALUES, parse_yaml


def test_settings_are_read() -> None:
    text = "a: 1\nb: [1.5, 1e-4, yes, word, null]\nc: &c {d: -7, e: 0x1f}\nf: {<<: *c, d: 8}\n"
    assert parse_yaml(text, "it") == {
        "a": 1,
        "b": [1.5, 0.0001, True, "word", None],
        "c": {"d": -7, "e": 31},
        "f": {"d": 8, "e": 31},
    }


def test_a_date_is_a_word() -> None:
    assert parse_yaml("{a: 2026-02-30, b: 2026-01-01 25:61:61}", "it") == {
        "a": "2026-02-30",
        "b": "2026-01-01 25:61:61",
    }


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 200))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: !!int x", "tags such as 'tag:yaml.org,2002:int' are not used"),
        ("a: !!timestamp soon", "tags"),
        ("a: !!bool maybe", "tags"),
        ('a: !!float ""', "tags"),
        ("a: !!python/object:os.system {}", "tags"),
        ("a: ! x", "tags"),
        ("a: " + "7" * 31, "a whole number has digits, at most 30"),
        ("a: " + "7" * 5000, "a whole number has digits, at most 30"),
        ("a: 0b_", "a whole number has digits"),
        ("[" * 5000, "at most 50 mappings and lists may stand inside each other"),
        ("[" * 5000 + "]" * 5000, "at most 50"),
        ("{a: " * 5000, "at most 50"),
        ("- " * 5000 + "x", "at most 50"),
        (CHAIN, "at most 50"),
        (BOMB, f"at most {MOST_VALUES:,} values"),
        ("a: &a {b: *a}", "alias 'a' stands inside what it is an alias of"),
        ("a: &a [&b [*a]]", "alias 'a' stands inside"),
        ("a: 1\na: 2", "key 'a' is given twice"),
        ("{[a]: 1}", "not valid YAML"),
        ("a: *nobody", "not valid YAML"),
        ("a: \x07", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
        ("x" * 1_000_001, "at most 1,000,000 characters"),
    ],
    ids=lambda value: value[:20],
)
def test_everything_else_is_one_sentence(text: str, said: str) -> None:
    began = time.process_time()
    with pytest.raises(UserError) as refused:
        parse_yaml(text, "mine.yaml")
    assert said in str(refused.value) and str(refused.value).startswith("mine.yaml")
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 500
    assert time.process_time() - began < 5, "the work is bounded, whatever the text multiplies to"


def test_the_bounds_are_where_they_are_said_to_be() -> None:
    parse_yaml("[" * DEEPEST + "]" * DEEPEST, "it")
    with pytest.raises(UserError):
        parse_yaml("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "it")
    parse_yaml("a: &a [1, 2, 3]\nb: [*a, *a, *a]", "it")
