"""`harness show` and docs/settings.md: every field of every settings class has its sentence, value and source."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from harness.cli import main
from harness.methods import known_methods, load_method
from harness.schema.networks import SHIPPED
from harness.schema.settings import Settings
from harness.spaces import known_spaces, load_space
from harness.terminal.settings import explained

collect_settings: Any = importlib.import_module("docs.tools.collect_settings")  # not a package


def settings_classes() -> list[type[BaseModel]]:
    def below(each: type[BaseModel]) -> Iterator[type[BaseModel]]:
        for child in each.__subclasses__():
            yield child
            yield from below(child)

    found = [*SHIPPED.values(), *(each for each in below(Settings) if each.__module__.startswith("harness."))]
    return [*dict.fromkeys(found), *(type(load_method(name)[1]) for name in known_methods())]


def test_every_field_has_a_sentence() -> None:
    """A sentence begins with a capital letter and ends with a full stop; a kind has that of its class."""
    classes = settings_classes()
    assert len(classes) > 30
    without = [
        f"{model.__name__}.{field.key}"
        for model in classes
        for field in explained(model)
        if not field.sentence.endswith((".", ".)")) or field.sentence[0].islower()
    ]
    assert without == []
    assert all(model.__doc__ for model in classes)


def test_the_page_is_what_the_classes_say() -> None:
    assert collect_settings.PAGE.read_text(encoding="utf-8") == collect_settings.page(), (
        "run python docs/tools/collect_settings.py"
    )


def test_the_page_has_every_class() -> None:
    shown = {model for models in collect_settings.GROUPS.values() for model in models}
    spaces = {model for model in settings_classes() if model.__module__.startswith("harness.schema.")}
    assert {model.__name__ for model in spaces} == {model.__name__ for model in shown} | {"SearchSpace"}


def shown(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, str]:
    """What `harness show` prints, by the first word of a line."""
    with pytest.raises(SystemExit) as end:
        main(["show", *args])
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    return {line.split()[0]: line for line in lines if line and not line.startswith(" ")}


@pytest.mark.parametrize("name", sorted(known_spaces()))
def test_every_setting_of_a_shipped_space_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    def keys(group: BaseModel, prefix: str = "") -> Iterator[str]:
        for key in type(group).model_fields:
            yield f"{prefix}{key}"
            if isinstance(value := getattr(group, key), BaseModel):
                yield from keys(value, f"{prefix}{key}.")

    assert set(shown(capsys, name)) == {"setting", *keys(load_space(name))}


def test_a_value_says_where_it_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    minimal = {"data": {"kind": "digits", "val_fraction": 0.3}, "network": {"kind": "fc"}, "depth": {"max": 4}}
    path.write_text(yaml.safe_dump(minimal))
    lines = shown(capsys, str(path), "--set", "training.lr=0.05", "--set", "network={kind: fc, width: 8}")

    def said(key: str) -> list[str]:
        return lines[key].split()[1:3]

    assert said("data.val_fraction") == ["0.3", "file"] and said("data.test_fraction") == ["0.2", "default"]
    assert said("training.lr") == ["0.05", "--set"] and said("training.max_epochs") == ["60", "default"]
    assert said("network.width") == ["8", "--set"] and said("network.kind") == ['"fc"', "--set"]
    assert said("budget.trials") == ["3", "default"] and said("name") == ['"mine"', "default"]


def test_options_of_methods(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "asha:grace_epochs=20")
    assert lines["asha:"].startswith("asha: Random depths") and lines["grace_epochs"].split()[1:3] == ["20", "null"]
    assert "no options" in "".join(shown(capsys, "grid").values())


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("digit",), "there is no space and no method 'digit' (did you mean 'digits'?); or give a .yaml or .py file"),
        (("none.yaml",), "cannot read none.yaml: No such file or directory"),
        (("asha:grace=20",), "method 'asha:grace=20': unknown key 'grace'"),
        (("asha", "--set", "training.lr=1"), "--set changes settings of a space; an option of a method is given as"),
        (("digits", "--set", "training.lr=-1"), "training.lr should be greater than 0; got -1"),
    ],
)
def test_mistakes(args: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["show", *args])
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "") and sentence in err and err.count("\n") == 1
