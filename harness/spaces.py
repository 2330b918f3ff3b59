"""Search spaces: strict YAML in, frozen objects out. Whatever holds a `SearchSpace` need not check it again."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from harness.errors import UserError, blaming, brief, brief_repr, nearest
from harness.networks import own_network
from harness.schema.identity import NEW
from harness.schema.settings import DEFAULT_EPOCHS, DepthRange, SearchSpace, TrainingSettings
from harness.text.files import checked_path, read_text
from harness.text.strict_yaml import DEEPEST, parse_yaml

SHIPPED = Path(__file__).parent / "search_spaces"  # in the wheel
if not SHIPPED.is_dir():
    SHIPPED = Path(__file__).parent.parent / "search_spaces"  # in a clone


def known_spaces() -> dict[str, Path]:
    """Every space that goes by name: those shipped, then those in `./search_spaces`, which win."""
    folders = (SHIPPED, Path("search_spaces"))
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def load_space(name: str, overrides: Sequence[str] = ()) -> SearchSpace:
    """Loads a path, a name in `./search_spaces` or a shipped name, in this order, with `key.path=value` overrides."""
    return given_settings(name, overrides)[0]


def given_settings(name: str, overrides: Sequence[str] = ()) -> tuple[SearchSpace, dict[str, Any]]:
    """The space, and the settings that its file or an override gives: all others are defaults."""
    path = checked_path(name, "a search space")
    if path.suffix not in {".yaml", ".yml"}:
        known = known_spaces()
        if name not in known:
            beside = Path(f"{name}.yaml")
            hint = f"did you mean the file {str(beside)!r}?" if beside.is_file() else nearest(name, known)
            raise UserError(f"unknown search space {name!r} ({hint}); or give a .yaml file")
        path = known[name]
    values = read_yaml(path)
    apply_overrides(values, overrides)
    return parse_space({"name": path.stem, **values}, source=str(path)), values


def with_overrides(space: SearchSpace, overrides: Sequence[str]) -> SearchSpace:
    """The space with `key.path=value` settings replaced; all others, the budget too, stay as they are."""
    values = space.model_dump(mode="json")
    apply_overrides(values, overrides)
    return parse_space(values, source=f"space {space.name}")


def parse_space(values: Mapping[str, Any], source: str) -> SearchSpace:
    try:
        values = {**values, "network": _network(values.get("network"))} if "network" in values else values
        # Through JSON: strict about types, yet a YAML list may become a tuple.
        space = SearchSpace.model_validate_json(json.dumps(_with_defaults(values)), context=NEW)
    except ValidationError as error:
        raise UserError(f"{source}: {explain(error, SearchSpace)}") from None
    except (TypeError, ValueError) as error:  # a key that is no word
        raise UserError(f"{source}: {error}") from None
    _check_schedule(space.training, source)
    return space


def _check_schedule(training: TrainingSettings, source: str) -> None:
    drop, last = training.lr_drop_epoch, training.max_epochs
    # Not a rule of TrainingSettings: a refit ends early, and finished results keep reading.
    if drop is not None and drop >= last:
        raise UserError(
            f"{source}: training.lr_drop_epoch must come before the last epoch, training.max_epochs = {last}; got "
            f"{drop}; valid: {f'1 to {last - 1}, or ' if last > 1 else ''}null for no drop"
        )
    if training.warmup_epochs >= last:
        raise UserError(
            f"{source}: training.warmup_epochs must be fewer than all epochs, training.max_epochs = {last}; got "
            f"{training.warmup_epochs}"
        )
    if training.schedule == "cosine" and training.patience < last:
        raise UserError(
            f"{source}: training.schedule cosine needs every trial to reach its last epoch, where the rate is 0: "
            f"training.patience must be at least max_epochs = {last}; got {training.patience}"
        )


def _network(given: Any) -> Any:
    """A user's own network by its name and hash, its options checked by its class; any other as it is."""
    own = own_network(given) if isinstance(given, Mapping) else None
    if own is None:
        return given
    network_class, kind, source = own
    options = {name: value for name, value in given.items() if name not in {"kind", "source"}}
    with blaming(f"network {kind} does not take its options", network_class):
        try:
            network = network_class.model_validate_json(json.dumps(options), context=NEW)
        except ValidationError as error:
            raise UserError(f"network {kind}: {explain(error, network_class)}") from None
        return {"kind": kind, "source": source, **network.model_dump(mode="json")}


def _with_defaults(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values with the defaults that depend on others, as the fields' sentences say them."""
    return {**values, "training": _whole_schedule(values.get("training")), **_budget(values)}


def _whole_schedule(given: Any) -> Any:
    """Nothing is added to a schedule that says how long it is, but that it does not end earlier."""
    if given is not None and not isinstance(given, Mapping):
        return given  # the fields' own checks say what is wrong
    whole = {"max_epochs": DEFAULT_EPOCHS, "lr_drop_epoch": 2 * DEFAULT_EPOCHS // 3} | dict(given or {})
    if given and "lr_drop_epoch" not in given and ("max_epochs" in given or given.get("schedule") == "cosine"):
        del whole["lr_drop_epoch"]
    last = whole["max_epochs"]
    return {"patience": last if isinstance(last, int) else DEFAULT_EPOCHS} | whole


def _budget(values: Mapping[str, Any]) -> dict[str, Any]:
    """Half the depths, rounded up, for full trainings; every depth where a scheduler stops trials early."""
    try:
        n_depths = len(DepthRange.model_validate(values["depth"]).values)
        given = dict(values.get("budget") or {})
    except (KeyError, TypeError, ValueError):
        # What is wrong is said of the depths, or of the budget that was given; not of the one that was not.
        return {} if values.get("budget") else {"budget": {"trials": 1, "early_stopping_trials": 1}}
    return {"budget": {"trials": (n_depths + 1) // 2, "early_stopping_trials": n_depths, **given}}


def read_yaml(path: Path) -> dict[str, Any]:
    values = parse_yaml(read_text(path, "the settings"), source=str(path))
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold a mapping of settings; got {type(values).__name__}")
    return values


def checked_overrides(overrides: Sequence[str]) -> Sequence[str]:
    """As a person gave them: each setting once, or nobody knows which value counts."""
    keys = [override.partition("=")[0] for override in overrides]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise UserError(f"--set {brief(twice)} is given {keys.count(twice)} times; give it once")
    return overrides


def apply_overrides(values: dict[str, Any], overrides: Sequence[str]) -> None:
    """All of them; another network comes first, since the options of the one before are none of its own."""
    for override in sorted(overrides, key=lambda override: not override.startswith("network.kind=")):
        kind = _kind(values)
        apply_override(values, override)
        if kind is not None and (now := _kind(values)) != kind and override.startswith("network.kind="):
            values["network"] = {"kind": now}


def _kind(values: Mapping[str, Any]) -> Any:
    network = values.get("network")
    return network.get("kind") if isinstance(network, Mapping) else None


def apply_override(values: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise UserError(f"an override is written KEY.PATH=VALUE, as in training.lr=0.05; got {brief(override)!r}")
    *parents, last = key.split(".")
    if len(parents) > DEEPEST:
        raise UserError(f"--set: a key has at most {DEEPEST} parts; got {len(parents) + 1}")
    for parent in parents:
        if not isinstance(values.setdefault(parent, {}), dict):
            raise UserError(f"--set {brief(override)}: {parent!r} is a value, not a group of settings")
        values = values[parent]
    values[last] = parse_yaml(text, source=f"the value in --set {brief(override)}")


def explain(error: ValidationError, root: type[BaseModel]) -> str:
    """Pydantic's complaints in one sentence, at most five: where, which rule, what was given, what is valid."""
    parts = []
    absent = {"missing": "", "union_tag_not_found": ".kind"}
    errors = error.errors()
    missing = [_locate(root, item["loc"])[0] + absent[item["type"]] for item in errors if item["type"] in absent]
    if missing:
        *before, last = missing
        parts.append(f"{', '.join(before)} and {last} are required" if before else f"{last} is required")
    for item in [item for item in errors if item["type"] not in absent][:5]:
        where, siblings = _locate(root, item["loc"])
        match item["type"]:
            case "extra_forbidden":
                key = str(item["loc"][-1])
                parts.append(f"unknown key {where!r} ({nearest(key, siblings, prefix=where.removesuffix(key))})")
            case "value_error":
                parts.append(str(item["ctx"]["error"]))
            case "union_tag_invalid":
                context = item["ctx"]
                parts.append(f"{where}.kind must be one of {context['expected_tags']}; got {context['tag']!r}")
            case _:
                parts.append(f"{where} {item['msg'].removeprefix('Input ').lower()}; got {brief_repr(item['input'])}")
    more = len(errors) - len(missing) - 5
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")


def _locate(root: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[str, list[str]]:
    """The dotted key a person wrote (pydantic adds the tags of unions) and the keys that are valid there."""
    choices = [root]
    path = []
    for step in loc:
        if len(choices) > 1 and any(step in _tags(model) for model in choices):
            choices = [model for model in choices if step in _tags(model)]
            continue
        path.append(str(step))
        if step is loc[-1]:
            break
        fields = [model.model_fields[str(step)] for model in choices if str(step) in model.model_fields]
        choices = [model for field in fields for model in _models_in(field.annotation)]
    return ".".join(path), [name for model in choices for name in model.model_fields]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    kind = model.model_fields.get("kind")
    return getattr(kind.annotation, "__args__", ()) if kind else ()
