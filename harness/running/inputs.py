"""What a person asks to be trained: settings, methods, numbers of devices. The command line and Python share these."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError
from harness.methods import parse_methods
from harness.options import Methods, RunOptions, Settings, whole_numbers
from harness.schema.settings import SearchSpace
from harness.spaces import checked_overrides, load_space, with_overrides

if TYPE_CHECKING:  # importing it imports Ray
    from harness.methods.base import SearchMethod


def space_of(
    given: SearchSpace | str | Path, settings: Settings = (), trials: int | None = None, epochs: int | None = None
) -> SearchSpace:
    """A space, a name or a .yaml file, with settings replaced; `trials` is the budget, `epochs` the cap."""
    RunOptions.of(trials=trials, epochs=epochs)
    overrides = _overrides(settings)
    if trials is not None:
        both = {"budget.trials", "budget.early_stopping_trials"}
        if clash := both & {override.partition("=")[0] for override in overrides}:
            raise UserError(f"--trials and --set {min(clash)} both set the number of trials; give one of them")
        overrides += [f"{name}={trials}" for name in sorted(both)]
    space = _space_with(given, overrides)
    if epochs is None:
        return space
    by_hand = {override.partition("=")[0] for override in overrides}  # what was set just now stays as it was set
    changes = {f"training.{name}": value for name, value in space.training.lasting(epochs).items()}
    scaled = [f"{name}={value}" for name, value in changes.items() if name not in by_hand]
    return _space_with(given, [*overrides, *scaled])


def _space_with(given: SearchSpace | str | Path, overrides: list[str]) -> SearchSpace:
    return with_overrides(given, overrides) if isinstance(given, SearchSpace) else load_space(str(given), overrides)


def _overrides(settings: Settings) -> list[str]:
    if isinstance(settings, Mapping):
        try:
            return [f"{key}={json.dumps(value, default=_plain)}" for key, value in settings.items()]  # JSON is YAML
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"settings must be numbers, words, lists and mappings: {error}") from None
    listed = [settings] if isinstance(settings, str) else list(settings) if isinstance(settings, Iterable) else [None]
    if not all(isinstance(item, str) for item in listed):
        raise UserError(f'settings are given as {{"training.lr": 0.05}} or ["training.lr=0.05"]; got {settings!r}')
    return list(checked_overrides([str(item) for item in listed]))


def _plain(value: Any) -> Any:
    """NumPy's numbers as numbers, paths as text."""
    return value.item() if hasattr(value, "item") else str(value)


def methods_of(given: Methods) -> dict[str, "SearchMethod"]:
    """Names and paths, in a list or separated by commas; or `all`."""
    items = [given] if isinstance(given, str | Path) else list(given) if isinstance(given, Iterable) else []
    if not items or not all(isinstance(item, str | Path) for item in items):
        raise UserError(f'methods are names or paths, as "all" or a list of them, and at least one; got {given!r}')
    return parse_methods(",".join(map(str, items)))


def devices_of(given: int | str | Iterable[int]) -> list[int]:
    """`1,2,8`, one number, or numbers: how many devices a search is replayed on."""
    try:
        devices = [int(part) for part in given.split(",")] if isinstance(given, str) else whole_numbers(given)
    except (ValueError, TypeError):
        devices = []
    if not devices or min(devices) < 1 or len(set(devices)) < len(devices):
        raise UserError(f"devices are different whole numbers of at least 1, as 1,2,8; got {given!r}")
    return devices
