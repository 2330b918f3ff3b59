"""What a person asks of a run: settings, methods, seeds, options. The command line and Python share these checks."""

import itertools
import json
import math
import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError, brief_repr, nearest
from harness.methods import parse_methods
from harness.schema.settings import SearchSpace
from harness.spaces import load_space, with_overrides
from harness.text.files import checked_path
from harness.text.shown import counted, redacted

if TYPE_CHECKING:  # importing them imports Ray
    from harness.methods.base import SearchMethod
    from harness.running.runner import RunOptions

Settings = Mapping[str, Any] | Iterable[str]  # {"training.lr": 0.05}, or ["training.lr=0.05"]
Methods = str | Path | Iterable[str | Path]
Seeds = int | str | Iterable[int]

_COUNTS = {  # at least
    "workers": 1,
    "concurrency": 1,
    "parallel_units": 1,
    "max_failures": 0,
    "trials": 1,
    "epochs": 1,
    "search_seeds": 1,
}
_AMOUNTS = {
    "cpus_per_trial": "above 0",
    "gpus_per_trial": "of at least 0",
    "max_cost": "above 0",
    "wait": "of at least 0",
    "usd_per_hour": "of at least 0",
}
_MOST = 10**9  # of any of them: more than there is
_MOST_SEEDS = 10_000
LARGEST_SEED = 2**32 - 1  # that NumPy's generator takes, which Ray and Optuna use
DEFAULT_LOOKS = (5, 10, 20, 40)
STORAGES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")  # that pyarrow writes to


def space_of(
    given: SearchSpace | str | Path, settings: Settings = (), trials: int | None = None, epochs: int | None = None
) -> SearchSpace:
    """A space, a name or a .yaml file, with settings replaced; `trials` is the budget and `epochs` the cap."""
    check_numbers({"trials": trials, "epochs": epochs})
    overrides = _overrides(settings)
    if trials is not None:
        overrides += [f"budget.trials={trials}", f"budget.early_stopping_trials={trials}"]
    if epochs is not None:
        overrides.append(f"training.max_epochs={epochs}")
    if isinstance(given, SearchSpace):
        return with_overrides(given, overrides)
    return load_space(str(given), overrides)


def _overrides(settings: Settings) -> list[str]:
    if isinstance(settings, Mapping):
        try:
            return [f"{key}={json.dumps(value, default=_plain)}" for key, value in settings.items()]  # JSON is YAML
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"settings must be numbers, words, lists and mappings: {error}") from None
    listed = [settings] if isinstance(settings, str) else list(settings) if isinstance(settings, Iterable) else [None]
    if not all(isinstance(item, str) for item in listed):
        raise UserError(f'settings are given as {{"training.lr": 0.05}} or ["training.lr=0.05"]; got {settings!r}')
    return [str(item) for item in listed]


def _plain(value: Any) -> Any:
    """NumPy's numbers as numbers, paths as text."""
    return value.item() if hasattr(value, "item") else str(value)


def methods_of(given: Methods) -> dict[str, "SearchMethod"]:
    """Names and paths, in a list or separated by commas; or `all`."""
    items = [given] if isinstance(given, str | Path) else list(given) if isinstance(given, Iterable) else []
    if not items or not all(isinstance(item, str | Path) for item in items):
        raise UserError(f'methods are names or paths, as "all" or a list of them, and at least one; got {given!r}')
    return parse_methods(",".join(map(str, items)))


def seeds_of(given: Seeds) -> list[int]:
    """`0,1,2`, `0-19`, one number, or numbers."""
    try:
        seeds = _parse_seeds(given) if isinstance(given, str) else _whole_numbers(given)
    except (ValueError, TypeError):
        seeds = []
    if not seeds:
        raise UserError(f"seeds are whole numbers, as 0,1,2 or 0-19, and at least one; got {brief_repr(given)}")
    if min(seeds) < 0:
        raise UserError(f"seeds must not be negative; got {brief_repr(min(seeds))}")
    if max(seeds) > LARGEST_SEED:
        raise UserError(f"seeds must be at most {LARGEST_SEED:,}; got {brief_repr(max(seeds))}")
    for seed, count in Counter(seeds).items():
        if count > 1:
            raise UserError(f"seed {seed} is given twice")
    return seeds


def looks_of(given: Seeds | None, until_verdict: bool, seeds: Sequence[int]) -> tuple[int, ...]:
    """At how many seeds verdicts are looked at: `5,10,20,40`, none beyond the seeds. Empty: only at the end."""
    if until_verdict and len(seeds) < 2:
        raise UserError(f"--until-verdict needs at least 2 seeds to choose from, as --seeds 0-39; got {len(seeds)}")
    if given is None:
        default = tuple(look for look in DEFAULT_LOOKS if look < len(seeds))
        return (*default, len(seeds)) if until_verdict else ()
    if not until_verdict:
        raise UserError("looks are taken by --until-verdict, which was not given")
    try:
        looks = _parse_seeds(given) if isinstance(given, str) else _whole_numbers(given)
    except (ValueError, TypeError):
        looks = []
    if not looks or looks != sorted(set(looks)) or looks[0] < 2:
        raise UserError(f"looks are numbers of seeds, at least 2 and increasing, as 5,10,20; got {brief_repr(given)}")
    if looks[-1] > len(seeds):
        raise UserError(
            f"a look cannot be at more seeds than there are; got {looks[-1]} with {counted(len(seeds), 'seed')}"
        )
    return tuple(looks)


def _parse_seeds(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)-(\d+)\s*", part)
        if ends and int(ends[1]) > int(ends[2]):
            raise UserError(f"a range of seeds runs upwards, as 0-19; got {brief_repr(part.strip())}")
        seeds += _few(range(int(ends[1]), int(ends[2]) + 1) if ends else [int(part)])
    return _few(seeds)


def devices_of(given: int | str | Iterable[int]) -> list[int]:
    """`1,2,8`, one number, or numbers: how many devices a search is replayed on."""
    try:
        devices = [int(part) for part in given.split(",")] if isinstance(given, str) else _whole_numbers(given)
    except (ValueError, TypeError):
        devices = []
    if not devices or min(devices) < 1 or len(set(devices)) < len(devices):
        raise UserError(f"devices are different whole numbers of at least 1, as 1,2,8; got {given!r}")
    return devices


def _whole_numbers(given: int | Iterable[int]) -> list[int]:
    numbers = itertools.islice(given, _MOST_SEEDS + 1) if isinstance(given, Iterable) else [given]
    return _few([operator.index(number) for number in numbers])  # NumPy's integers too


def _few(seeds: Sequence[int]) -> list[int]:
    if seeds and len(seeds[: _MOST_SEEDS + 1]) > _MOST_SEEDS:  # the length of a range may be beyond any machine's
        raise UserError(f"at most {_MOST_SEEDS:,} seeds are run at a time; there are more")
    return list(seeds)


def options_of(**given: Any) -> "RunOptions":
    """The options of a run by the names of the command line, with _ for -."""
    from harness.running.runner import RunOptions

    names = [field.name for field in fields(RunOptions)]
    for name in given:
        if name not in names:
            raise UserError(f"unknown option {name!r} ({nearest(name, names)})")
    check_numbers(given)
    if given.get("storage") is not None:
        check_storage(given["storage"])
    if "out" in given and not isinstance(given["out"], str | Path):
        raise UserError(f"out must be a folder; got {given['out']!r}")
    folders = {name: checked_path(given[name], name) for name in ("out", "data_dir") if given.get(name) is not None}
    return RunOptions(**{**given, **folders})


def check_storage(storage: Any) -> None:
    """Raises UserError unless it is a folder, or an address of a kind that checkpoints can be written to."""
    scheme, separator, rest = str(storage).partition("://")
    if not isinstance(storage, str | Path) or not str(storage) or (separator and (scheme not in STORAGES or not rest)):
        raise UserError(
            f"storage must be a folder or an address ({', '.join(f'{each}://…' for each in STORAGES)}); "
            f"got {redacted(str(storage))!r}"
        )
    checked_path(rest if separator else str(storage), "storage")


def check_numbers(given: Mapping[str, Any]) -> None:
    """Raises UserError for the first number that is out of its range; None means that it was not given."""
    for name, value in given.items():
        if value is None:
            continue
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        number = whole or (isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value))
        if name in _COUNTS and not (whole and value >= _COUNTS[name]):
            rule = f"a whole number, at least {_COUNTS[name]}"
        elif name in _AMOUNTS and not (number and (value > 0 or (value == 0 and _AMOUNTS[name] == "of at least 0"))):
            rule = f"a number {_AMOUNTS[name]}"
        elif name == "gpus_per_trial" and value > 1:
            rule = "at most 1, since a trial trains on one GPU"
        elif name in {*_COUNTS, *_AMOUNTS} and value > _MOST:
            rule = f"at most {_MOST:,}"
        else:
            continue
        raise UserError(f"{name} must be {rule}; got {brief_repr(value)}")
