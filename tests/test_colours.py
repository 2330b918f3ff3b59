import re

from harness.colours import OTHER_COLOURS, colour_of
from harness.methods import known_methods
from tests.synthetic import facts_of


def test_our_methods_have_colours_of_their_own() -> None:
    declared = [facts_of(method).colour for method in known_methods()]
    assert None not in declared
    assert len(set(declared)) == len(declared)
    assert not set(declared) & set(OTHER_COLOURS)


def test_a_declared_colour_wins_over_the_name() -> None:
    assert colour_of("somebodys_method", "#123456") == "#123456"


def test_a_row_with_other_options_is_a_darker_shade() -> None:
    rows = [colour_of(f"asha:grace_epochs={epochs}", "#E69F00") for epochs in (10, 20, 40)]
    assert len({*rows, "#E69F00"}) == 4
    assert all(int(row[1:3], 16) < 0xE6 and row.endswith("00") for row in rows)


def test_a_method_that_declares_none_keeps_a_shade_of_its_name() -> None:
    shades = {colour_of(f"method_{index}", None) for index in range(200)}
    assert shades == set(OTHER_COLOURS)
    assert all(re.fullmatch("#[0-9A-F]{6}", shade) for shade in shades)
    assert colour_of("somebodys_method", None) == colour_of("somebodys_method", None)
