import re

from harness.colours import colour_of

METHODS = ("ldn", "grid", "random_search", "optuna_tpe", "asha", "optuna_asha", "golden_section")


def test_known_methods_have_colours_of_their_own() -> None:
    assert len({colour_of(method) for method in METHODS}) == len(METHODS)
    assert colour_of("ldn") == "#D55E00"


def test_an_unknown_method_keeps_its_colour_and_never_takes_the_ldns() -> None:
    for name in (f"method_{index}" for index in range(200)):
        assert re.fullmatch("#[0-9A-F]{6}", colour_of(name))
        assert colour_of(name) == colour_of(name)
        assert colour_of(name) != colour_of("ldn")
