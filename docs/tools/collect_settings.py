"""Writes docs/settings.md from settings classes, methods and options: `python docs/tools/collect_settings.py`.

The sentences stand below the fields in harness/schema/settings.py, harness/methods/ and harness/options.py; a test
compares the page.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel

from harness.methods import first_sentence, known_methods, load_method
from harness.options import KEYWORDS, RunOptions
from harness.schema import settings
from harness.schema.networks import SHIPPED
from harness.terminal.settings import explained, first_paragraph

PAGE = Path(__file__).parent.parent / "settings.md"
INTRO = """# Every setting

A search space is a YAML file. It must give `data`, `network` and `depth`; everything else has a default. `harness show`
prints a space with all of them, and says of each value whether it comes from the file, from `--set` or from here:

```sh
harness show digits
harness show digits --set training.lr=0.05
harness show asha
```

`docs/tools/collect_settings.py` writes this page from the program; do not edit it.
"""
GROUPS: dict[str, Sequence[type[BaseModel]]] = {
    "data": (
        settings.TableData,
        settings.ArraysData,
        settings.ImageFolderData,
        settings.TorchvisionData,
        settings.DigitsData,
        settings.SpiralsData,
    ),
    "network": tuple(SHIPPED.values()),
    "depth": (settings.DepthRange,),
    "posterior": (settings.PosteriorSettings,),
    "posterior.prior": (settings.ExponentialPrior, settings.UniformPrior, settings.ExplicitPrior),
    "training": (settings.TrainingSettings,),
    "budget": (settings.Budget,),
    "margins": (settings.Margins,),
}
FOLLOWS = {
    "name",
    "training",
    "budget",
    "max_epochs",
    "patience",
    "trials",
    "early_stopping_trials",
}  # from other settings


def page() -> str:
    return "\n".join([INTRO, *_space(), *_methods(), *_options()])


def _space() -> Iterator[str]:
    yield "## A space\n"
    yield _table(settings.SearchSpace)
    for key, models in GROUPS.items():
        yield f"## `{key}`\n"
        for model in models:
            if len(models) > 1:
                kinds = next(field.valid for field in explained(model) if field.key == "kind")
                yield f"### `{key}: {{kind: {kinds.replace(', ', ' | ')}}}`\n"
            yield f"{first_paragraph(model)}\n"
            yield _table(model)


def _methods() -> Iterator[str]:
    yield "## Methods\n"
    yield "An option is given after the method's name: `asha:grace_epochs=20`.\n"
    for name in known_methods():
        _, method = load_method(name)
        yield f"### `{name}`\n"
        yield f"{first_sentence(name)}\n"
        if explained(type(method)):
            yield _table(type(method))


def _options() -> Iterator[str]:
    yield "## Options of a run\n"
    yield "`--max-cost 60` of `harness run` is `max_cost=60` of `harness.run`; other commands share some of them.\n"
    yield _table(RunOptions, KEYWORDS)


def _table(model: type[BaseModel], keys: Sequence[str] | None = None) -> str:
    """Of these fields, or of all but the kind."""
    rows = [
        f"| `{field.key}` | {_default(field.key, field.default)} | {_cell(field.valid)} | {_cell(field.sentence)} |"
        for field in explained(model)
        if (field.key != "kind" if keys is None else field.key in keys)
    ]
    return "\n".join(["| key | default | valid | what it is |", "| --- | --- | --- | --- |", *rows, ""]) if rows else ""


def _default(key: str, default: str | None) -> str:
    if default is None or default.startswith("{"):
        return "see there" if key in FOLLOWS or default else "must be given"
    return f"`{_cell(default)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
