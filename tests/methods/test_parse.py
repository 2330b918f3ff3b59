"""`--methods ldn,asha:grace_epochs=20,mine.py`: what is understood and how mistakes are answered."""

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.methods import known_methods, load_method, parse_methods

MINE = """
from typing import ClassVar

from ray import tune
from ray.tune.search import BasicVariantGenerator

from harness.methods.base import SearchMethod, SearchPlan


class Ends(SearchMethod):
    \"\"\"The two ends of the range. Stops no trial early.\"\"\"

    adaptive: ClassVar[bool] = False
    skip: int = 0

    def plan(self, space, budget, seed):
        ends = [space.depth.values[self.skip], space.depth.values[-1]]
        return SearchPlan({"depth": tune.grid_search(ends)}, BasicVariantGenerator(random_state=seed))
"""


def write(folder: Path, name: str, text: str = MINE) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_all_is_every_known_method_with_the_learnt_depth_first() -> None:
    assert list(parse_methods("all")) == known_methods()
    assert known_methods()[0] == "ldn"
    assert set(known_methods()) >= {
        *("ldn", "grid", "random_search", "optuna_tpe", "asha", "optuna_asha", "golden_section"),
    }


def test_options_become_typed_fields() -> None:
    methods = parse_methods("ldn, asha:grace_epochs=20:reduction_factor=4")
    assert list(methods) == ["ldn", "asha:grace_epochs=20:reduction_factor=4"]
    assert list(methods.values())[1].model_dump() == {
        "grace_epochs": 20,
        "reduction_factor": 4,
    }


def test_a_method_with_other_options_is_a_row_of_its_own() -> None:
    """Its name holds the options that are not the default ones, in the order of the class, however they were given."""
    rows = parse_methods("asha,asha:grace_epochs=10,asha:reduction_factor=4:grace_epochs=40")
    assert list(rows) == ["asha", "asha:grace_epochs=10", "asha:grace_epochs=40:reduction_factor=4"]
    assert list(parse_methods("asha:reduction_factor=3")) == ["asha"]
    with pytest.raises(UserError, match="'asha:grace_epochs=10' is given twice; it may stand there again with other"):
        parse_methods("asha:grace_epochs=10,asha:reduction_factor=3:grace_epochs=10")


def test_a_rows_name_is_one_folder_whatever_its_options_are(tmp_path: Path) -> None:
    source = MINE.replace("skip: int = 0", "skip: int = 0\n    note: str = ''")
    assert source != MINE
    path = write(tmp_path, "ends.py", source)
    [odd] = parse_methods(f"{path}:note=../a b")
    assert odd == "ends:note=..%2Fa%20b"
    [long], [other] = parse_methods(f"{path}:note={'x' * 300}"), parse_methods(f"{path}:note={'x' * 301}")
    assert long.startswith("ends:") and len(long) < 30 and long != other


def test_a_file_of_ones_own_goes_by_its_name(tmp_path: Path) -> None:
    [(name, method)] = parse_methods(write(tmp_path, "ends.py") + ":skip=1").items()
    assert name == "ends:skip=1"
    assert method.model_dump() == {"skip": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gird", "unknown method 'gird' (did you mean 'grid'?)"),
        ("", "unknown method ''"),
        ("ldn,", "unknown method ''"),
        ("grid,grid", "method 'grid' is given twice"),
        ("asha:grace_epoch=20", "unknown key 'grace_epoch' (did you mean 'grace_epochs'?)"),
        ("asha:grace_epochs", "written name=value; got 'grace_epochs'"),
        ("asha:grace_epochs=soon", "grace_epochs"),
        ("asha:grace_epochs=0", "greater than 0"),
        ("asha:grace_epochs=[", "the value of option 'grace_epochs', '[', is not valid YAML"),
        ("asha:grace_epochs=2:grace_epochs=3", "option 'grace_epochs' is given twice"),
        ("grid:x=1", "unknown key 'x'"),
        ("nowhere/mine.py", "method file nowhere/mine.py does not exist"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_methods(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "mine.py",
            "import a_module_that_is_nowhere",
            "ModuleNotFoundError: No module named 'a_module_that_is_nowhere'",
        ),
        ("mine.py", "def broken(:", "SyntaxError"),
        ("mine.py", "x = 1", "exactly one subclass of SearchMethod; found none"),
        ("mine.py", MINE + "\n\nclass More(Ends): pass\n", "exactly one subclass of SearchMethod; found Ends, More"),
        ("mine.py", MINE.replace("def plan", "def plam"), "Ends does not define plan"),
        ("grid.py", MINE, "none of"),
        ("My-Method.py", MINE, "lower-case letters"),
    ],
)
def test_a_file_that_is_no_method_shows_its_own_error(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        load_method(write(tmp_path, name, text))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("adaptive: bool = False", "adaptive must be declared without a type, or as ClassVar"),
        ("exhaustive: bool = True", "exhaustive must be declared without a type"),
        ("most_at_once = 0", "most_at_once"),
        ('colour = "red"', "colour"),
    ],
)
def test_a_fact_that_would_not_be_read_is_refused(tmp_path: Path, declared: str, said: str) -> None:
    file = write(tmp_path, "mine.py", MINE.replace("adaptive: ClassVar[bool] = False", declared))
    with pytest.raises(UserError, match=said):
        load_method(file)


def test_a_fact_without_a_type_is_read(tmp_path: Path) -> None:
    file = write(tmp_path, "plain.py", MINE.replace("adaptive: ClassVar[bool] = False", "adaptive = False"))
    _, method = load_method(file)
    assert not method.facts().adaptive and list(method.model_dump()) == ["skip"]
