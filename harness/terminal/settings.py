"""Every setting of a space and every option of a method, as `harness show` and docs/settings.md explain them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from rich.table import Table

from harness.methods import load_method
from harness.networks import network_of, own_network
from harness.schema.networks import SHIPPED, OwnNetwork
from harness.spaces import apply_overrides, checked_overrides, given_settings

_BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}


@dataclass(frozen=True)
class Explained:
    """A field of a settings class."""

    key: str
    valid: str  # in words
    default: str | None  # None: it has none of its own
    sentence: str


def explained(model: type[BaseModel]) -> list[Explained]:
    """The fields of a settings class, or of a method. A kind is explained by the class that it names."""
    schema = model.model_json_schema()
    return [
        Explained(
            key=key,
            valid=_valid(field, schema.get("$defs", {})),
            default=json.dumps(field["default"], ensure_ascii=False) if "default" in field else None,
            sentence=first_paragraph(model).split(". ")[0].rstrip(".") + "."
            if key == "kind"
            else " ".join((model.model_fields[key].description or "").split()),
        )
        for key, field in schema.get("properties", {}).items()
    ]


def first_paragraph(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


def _valid(field: Mapping[str, Any], groups: Mapping[str, Any]) -> str:
    """What a JSON schema allows, in words."""
    if "anyOf" in field or "oneOf" in field:
        parts = field.get("anyOf") or field["oneOf"]
        return " or ".join(dict.fromkeys(_valid(part, groups) for part in parts))
    if "$ref" in field:
        return "settings of their own"
    if "const" in field:
        return str(field["const"])
    if "enum" in field:
        return ", ".join("tab" if value == "\t" else str(value) for value in field["enum"])
    kind = {"integer": "whole number", "number": "number", "boolean": "true or false", "string": "text"}
    if field.get("type") == "array":
        return _list(field, groups)
    limits = [f"{sign} {_plain(field[bound])}" for bound, sign in _BOUNDS.items() if bound in field]
    return " ".join([kind.get(str(field.get("type")), str(field.get("type", "anything"))), ", ".join(limits)]).strip()


def _list(field: Mapping[str, Any], groups: Mapping[str, Any]) -> str:
    """`list of words`; of a fixed length `2 numbers, each ≥ 0, < 1`."""
    fixed = field.get("prefixItems", [])  # whose items are alike
    item = fixed[0] if fixed else field.get("items", {})
    kind = _valid({key: value for key, value in item.items() if key not in _BOUNDS}, groups)
    limits = _valid(item, groups).removeprefix(kind).strip()
    many = f"{kind}s".replace("texts", "words")
    return (f"{len(fixed)} {many}" if fixed else f"list of {many}") + (f", each {limits}" if limits else "")


def _plain(bound: float) -> str:
    """As `1,000`, whether pydantic calls it 1000 or, as versions do in different places, 1000.0."""
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:,}"


# --- a space --------------------------------------------------------------------------------------------------------


def shown_space(name: str, overrides: Sequence[str] = ()) -> Table:
    """A table of every setting with its value and where that comes from."""
    space, given = given_settings(name, checked_overrides(overrides))
    changed: dict[str, Any] = {}
    apply_overrides(changed, overrides)
    table = Table("setting", "value", "from", "what it is", box=None, pad_edge=False)
    shown = list(_settings(space))
    table.columns[0].min_width = max(len(key) for key, _, _ in shown)  # a key is copied from here: never cut
    table.columns[1].max_width = 30
    for key, value, sentence in shown:
        source = "--set" if _holds(changed, key) else "file" if _holds(given, key) else "default"
        table.add_row(key, value, source if value else "", sentence, style="" if value else "bold")
    return table


def _settings(group: BaseModel, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Key, value and sentence of every setting; a group of settings has no value."""
    for field in _fields(group):
        value = getattr(group, field.key)
        if isinstance(value, BaseModel):
            yield f"{prefix}{field.key}", "", field.sentence
            yield from _settings(value, f"{prefix}{field.key}.")
        else:
            yield f"{prefix}{field.key}", json.dumps(value, ensure_ascii=False), field.sentence


def _fields(group: BaseModel) -> list[Explained]:
    """Of a user's own network those of its class too."""
    fields = explained(type(group))
    return fields + explained(type(network_of(group))) if isinstance(group, OwnNetwork) else fields


def _holds(values: Any, key: str) -> bool:
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


# --- a network ------------------------------------------------------------------------------------------------------


def shown_network(name: str) -> Iterator[str | Table]:
    """What the network is, and a table of its options. Of ours nothing is imported; of a user's own the file is."""
    own = own_network({"kind": name})
    model: type[BaseModel] = own[0] if own else SHIPPED[name]
    yield f"{Path(name).stem}: {first_paragraph(model)}"
    table = Table("option", "default", "valid", "what it is", box=None, pad_edge=False)
    for field in explained(model):
        if field.key != "kind":
            table.add_row(field.key, field.default or "–", field.valid, field.sentence or "–")
    yield table


# --- a method -------------------------------------------------------------------------------------------------------


def shown_method(text: str) -> Iterator[str | Table]:
    """What the method is, and a table of its options; `text` may give some of them."""
    name, method = load_method(text)
    yield f"{name}: {first_paragraph(type(method))}"
    fields = explained(type(method))
    if not fields:
        yield "It has no options."
        return
    table = Table("option", "value", "default", "valid", "what it is", box=None, pad_edge=False)
    for field in fields:
        value = json.dumps(method.model_dump(mode="json")[field.key], ensure_ascii=False)
        table.add_row(field.key, value, field.default or "–", field.valid, field.sentence or "–")
    yield table
