"""The options of a run: one list for the command line, for Python, for the checks and for docs/settings.md.

A new option is a field of `RunOptions` with its range, its default and a sentence.
"""

import inspect
import itertools
import operator
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from harness.errors import UserError, brief_repr, nearest
from harness.methods import DEFAULT
from harness.schema.identity import Frozen
from harness.text.files import checked_path
from harness.text.shown import counted, printable, redacted

DEFAULT_OUT: Final = Path("results")
LOCAL: Final = "local"  # an address, as Ray calls it: a Ray of this run's own, on this machine
ADDRESS, STORAGE = "RAY_ADDRESS", "HARNESS_STORAGE"  # variables that give defaults
DEFAULT_LOOKS: Final = (12, 20, 40)
LARGEST_SEED: Final = 2**32 - 1  # that NumPy's generator takes, which Ray and Optuna use
STORAGES: Final = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")  # that pyarrow writes to
_MOST = 10**9  # of anything: more than there is
_MOST_SEEDS = 10_000

Settings = Mapping[str, Any] | Iterable[str]  # {"training.lr": 0.05}, or ["training.lr=0.05"]
Methods = str | Path | Iterable[str | Path]
Seeds = int | str | Iterable[int]
AT_LEAST_1 = Field(ge=1, le=_MOST)
AT_LEAST_0 = Field(ge=0, le=_MOST)
ABOVE_0 = Field(gt=0, le=_MOST)


@dataclass(frozen=True)
class Flag:
    """How an option differs on the command line from what its name, type and default say."""

    envvar: str | None = None
    metavar: str | None = None
    multiple: bool = False
    hidden: bool = False  # it is no flag, and no keyword of Python's


class RunOptions(Frozen):
    """What is asked of a run, beside its space. The sentence below an option explains it, everywhere."""

    model_config = ConfigDict(use_attribute_docstrings=True, arbitrary_types_allowed=True, validate_default=True)

    methods: Any = DEFAULT
    """Methods to run: names, name:option=value, or paths to your own .py files; `all` for every method."""
    seeds: tuple[int, ...] = (0,)
    """Seeds to run, as 0,1,2 or 0-19; each seed repeats all methods."""
    set: Annotated[Any, Flag(metavar="KEY=VALUE", multiple=True)] = ()
    """Change a setting of the space, for example training.lr=0.05."""
    trials: Annotated[int | None, AT_LEAST_1] = None
    """Override the space's number of trials per search."""
    epochs: Annotated[int | None, AT_LEAST_1] = None
    """Override the space's maximum number of epochs."""
    data_dir: Annotated[Path | None, Flag(envvar="HARNESS_DATA_DIR")] = None
    """Folder that holds the image data sets."""
    cpus_per_trial: Annotated[float, ABOVE_0] = 1.0
    """CPU cores per trial."""
    gpus_per_trial: Annotated[float, AT_LEAST_0] = 0.0
    """GPUs per trial; fractions share one GPU."""
    workers: Annotated[int | None, AT_LEAST_1] = None
    """Maximum number of concurrent trials, over all searches (default: as many as fit)."""
    concurrency: Annotated[int | None, AT_LEAST_1] = None
    """Maximum number of concurrent trials of one search; 1 makes adaptive methods reproducible."""
    parallel_units: Annotated[int | None, AT_LEAST_1] = None
    """Maximum number of concurrent searches."""
    max_failures: Annotated[int, AT_LEAST_0] = 2
    """How often to retry a crashed trial."""
    replay: bool = False
    """Train every depth and the one-shot networks once; replay all searches over depths from those recordings, on
    --workers simulated devices (default: 1)."""
    until_verdict: bool = False
    """Add seeds in steps and stop when every verdict is decided; see --looks."""
    looks: tuple[int, ...] = ()
    """Numbers of seeds at which --until-verdict compares, fixed before the first one (default: 12,20,40)."""
    max_cost: Annotated[float | None, ABOVE_0] = None
    """Budget in device-seconds: running trials finish, no new ones start."""
    usd_per_hour: Annotated[float | None, AT_LEAST_0] = None
    """Price of a device-hour; adds the cost in dollars."""
    refit: bool = False
    """Also train a network of each chosen depth on train + validation; its cost is reported separately."""
    fresh: bool = False
    """Move earlier results aside instead of resuming."""
    reference: str | None = None
    """Compare this method with every other one (default: every method with the one that trains every depth)."""
    address: str | None = None
    """Address of a running Ray cluster: auto, host:port, or local to start Ray on this machine (default: RAY_ADDRESS,
    which Ray sets in its jobs, else local)."""
    wait: Annotated[float, AT_LEAST_0] = 600.0
    """Seconds to wait for a node with enough resources (with --address)."""
    storage: str | None = None
    """Folder or URI that every node can reach, for checkpoints and results: a folder holds them, a URI gets a copy of
    them (default: HARNESS_STORAGE)."""
    take_over: bool = False
    """Stop another run that is writing to the same results, and take its place."""
    out: Path = DEFAULT_OUT
    """Folder for the results; defaults to --storage if that is a folder."""
    tracking_uri: Annotated[str | None, Flag(envvar="MLFLOW_TRACKING_URI")] = None
    """Address of an MLflow server (default: a sqlite file in the results folder)."""
    experiment: str | None = None
    """MLflow experiment to write to (default: depth-search/SPACE); refused if not created by this program."""
    model_name: str | None = None
    """MLflow model to register the winner as (default: depth-search-SPACE); refused if not created by this program."""
    debug: bool = False
    """Show tracebacks and Ray's own output."""
    kept_below: Annotated[str, Flag(hidden=True)] = ""  # the folder in a storage that the results of a study are in
    may_exit: Annotated[bool, Flag(hidden=True)] = False  # the process is ours to end: that of the command line is

    @classmethod
    def of(cls, **given: Any) -> "RunOptions":
        """Options by name, checked: the first mistake is one sentence."""
        for name in given:
            if name not in NAMES:
                raise UserError(f"unknown option {name!r} ({nearest(name, NAMES)})")
        try:
            return cls(**{name: _plain(value) for name, value in given.items()})
        except ValidationError as error:
            raise UserError(_sentence(error.errors()[0])) from None

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, given: Any) -> tuple[int, ...]:
        return tuple(seeds_of(given))

    @field_validator("looks", mode="before")
    @classmethod
    def _looks(cls, given: Any) -> tuple[int, ...]:
        return () if given is None else look_numbers(given)

    @model_validator(mode="after")
    def _looks_fit(self, info: ValidationInfo) -> "RunOptions":
        self.__dict__["looks"] = checked_looks(self.looks, self.until_verdict, self.seeds)  # frozen from here on
        return self

    @field_validator("gpus_per_trial")
    @classmethod
    def _one_gpu(cls, gpus: float) -> float:
        if gpus > 1:
            raise UserError(f"gpus_per_trial must be at most 1, since a trial trains on one GPU; got {gpus}")
        return gpus

    @field_validator("out", "data_dir", mode="before")
    @classmethod
    def _folder(cls, given: Any, info: ValidationInfo) -> Path | None:
        may_be_none = cls.model_fields[str(info.field_name)].default is None
        if not isinstance(given, str | Path) and not (given is None and may_be_none):
            raise UserError(f"{info.field_name} must be a folder; got {brief_repr(given)}")
        return None if given is None else checked_path(given, str(info.field_name))

    @field_validator("storage", mode="before")
    @classmethod
    def _storage(cls, given: Any) -> str | None:
        return None if given is None else checked_storage(given)

    @field_validator("address", mode="before")
    @classmethod
    def _address(cls, given: Any) -> str | None:
        return None if given is None else checked_address(given, "address")

    def placed(self) -> "RunOptions":
        """With what the surroundings say where nothing was given: the cluster, its storage, and where results are kept.

        A job of Ray's starts in a folder whose name changes with any file in it. Results that its next submission
        should find are therefore kept in the storage; on a cluster they have an absolute path in any case.
        """
        address = self.address or LOCAL
        if self.address in (None, "auto"):  # of which Ray itself would say the same
            address = checked_address(os.environ.get(ADDRESS) or address, ADDRESS)
        storage = self.storage or (checked_storage(os.environ[STORAGE]) if os.environ.get(STORAGE) else None)
        in_storage = storage and "://" not in storage and "out" not in self.model_fields_set
        out = Path(str(storage)) if in_storage else self.out
        if address == LOCAL:
            return self.model_copy(update={"address": None, "storage": storage, "out": out})
        return self.model_copy(update={"address": address, "storage": storage, "out": out.absolute()})

    @field_validator("experiment", "model_name", mode="before")
    @classmethod
    def _name_in_mlflow(cls, given: Any, info: ValidationInfo) -> str | None:
        no = "/:" if info.field_name == "model_name" else ""
        if given is None or (
            isinstance(given, str)
            and given.strip() == given
            and 0 < len(given) <= 200
            and printable(given) == given
            and not set(given) & set(no)
        ):
            return given
        rule = "a name of at most 200 characters" + (", without / and :" if no else "")
        raise UserError(f"{info.field_name} must be {rule}; got {brief_repr(given)}")

    @property
    def simulated_devices(self) -> int:
        """Of a replayed search. Not the machine's: the same command gives the same search everywhere."""
        return min((limit for limit in (self.workers, self.concurrency) if limit), default=1)


def flag_of(name: str) -> Flag:
    return next((mark for mark in RunOptions.model_fields[name].metadata if isinstance(mark, Flag)), Flag())


def types_of(name: str) -> tuple[Any, ...]:
    """Those that an option may have, None apart."""
    annotation = RunOptions.model_fields[name].annotation
    is_union = isinstance(annotation, UnionType) or get_origin(annotation) is Union
    return get_args(annotation) if is_union else (annotation,)


NAMES: Final = tuple(RunOptions.model_fields)
KEYWORDS: Final = tuple(name for name in NAMES if not flag_of(name).hidden)


def with_keywords(function: Callable[..., Any]) -> Callable[..., Any]:
    """Shows the options, with a sentence each, as keywords of a function that takes them as **options."""
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    taken = {each.name for each in own}
    fields = {name: RunOptions.model_fields[name] for name in KEYWORDS if name not in taken}
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.annotation)
        for name, field in fields.items()
    ]
    function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    said = [f"    {name}: {' '.join((field.description or '').split())}" for name, field in fields.items()]
    function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Options:", *said])
    return function


# --- checks -------------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    return value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value


def _sentence(error: Any) -> str:
    """The rule comes from the field: what pydantic says of the first one that is broken is only where, and what."""
    name, given = str(error["loc"][0]), error["input"]
    marks = RunOptions.model_fields[name].metadata
    bounds = {key: getattr(mark, key) for mark in marks for key in ("ge", "gt", "le") if hasattr(mark, key)}
    if error["type"] == "less_than_equal":
        rule = f"at most {bounds['le']:,}"
    elif int in types_of(name):
        rule = f"a whole number, at least {bounds['ge']}"
    elif bounds:
        rule = "a number above 0" if "gt" in bounds else "a number of at least 0"
    else:
        rule = "true or false" if error["type"].startswith("bool") else "text"
    return f"{name} must be {rule}; got {brief_repr(given)}"


def checked_address(address: Any, named: str) -> str:
    """Raises UserError for what takes jobs, or a driver from outside: a run is driven from a machine of its cluster."""
    if not isinstance(address, str) or not address:
        raise UserError(f"{named} must be text; got {brief_repr(address)}")
    scheme, separator, rest = address.partition("://")
    if separator:
        host = rest.rpartition("@")[2].split("/")[0]
        jobs = (
            f"{scheme}://{host}" if scheme in ("http", "https") else f"http://{host.partition(':')[0] or 'HOST'}:8265"
        )
        raise UserError(
            f"{named} must be auto, {LOCAL} or host:port, as seen from a machine of the cluster; got "
            f"{redacted(address)!r}. From anywhere else the run is submitted as a job: ray job submit --address {jobs} "
            f"--working-dir . -- harness run SPACE … (or give --address {LOCAL} to run on this machine)"
        )
    return address


def checked_storage(storage: Any) -> str:
    """Raises UserError unless it is a folder, or an address of a kind that checkpoints can be written to."""
    scheme, separator, rest = str(storage).partition("://")
    if not isinstance(storage, str | Path) or not str(storage) or (separator and (scheme not in STORAGES or not rest)):
        raise UserError(
            f"storage must be a folder or an address ({', '.join(f'{each}://…' for each in STORAGES)}); "
            f"got {redacted(str(storage))!r}"
        )
    checked_path(rest if separator else str(storage), "storage")
    return str(storage)


# --- seeds --------------------------------------------------------------------------------------------------------


def seeds_of(given: Seeds) -> list[int]:
    """`0,1,2`, `0-19`, one number, or numbers."""
    try:
        seeds = _parse_seeds(given) if isinstance(given, str) else whole_numbers(given)
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


def look_numbers(given: Seeds) -> tuple[int, ...]:
    """`12,20,40`, or numbers."""
    try:
        looks = _parse_seeds(given) if isinstance(given, str) else whole_numbers(given)
    except (ValueError, TypeError):
        looks = []
    if given != () and (not looks or looks != sorted({*looks}) or looks[0] < 2):
        raise UserError(
            f"--looks takes numbers of seeds, at least 2 and increasing, as 12,20,40; got {brief_repr(given)}"
        )
    return tuple(looks)


def checked_looks(looks: tuple[int, ...], until_verdict: bool, seeds: Sequence[int]) -> tuple[int, ...]:
    """At how many seeds verdicts are looked at, none beyond the seeds. Empty: only at the end."""
    if until_verdict and len(seeds) < 2:
        raise UserError(f"--until-verdict needs at least 2 seeds to choose from, as --seeds 0-39; got {len(seeds)}")
    if not looks:
        default = tuple(look for look in DEFAULT_LOOKS if look < len(seeds))
        return (*default, len(seeds)) if until_verdict else ()
    if not until_verdict:
        raise UserError("--looks is for --until-verdict, which was not given")
    if looks[-1] > len(seeds):
        raise UserError(
            f"--looks cannot have more seeds than there are; got {looks[-1]} with {counted(len(seeds), 'seed')}"
        )
    return looks


def _parse_seeds(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)-(\d+)\s*", part)
        if ends and int(ends[1]) > int(ends[2]):
            raise UserError(f"a range of seeds runs upwards, as 0-19; got {brief_repr(part.strip())}")
        seeds += _few(range(int(ends[1]), int(ends[2]) + 1) if ends else [int(part)])
    return _few(seeds)


def whole_numbers(given: int | Iterable[int]) -> list[int]:
    numbers = itertools.islice(given, _MOST_SEEDS + 1) if isinstance(given, Iterable) else [given]
    return _few([operator.index(number) for number in numbers])  # NumPy's integers too


def _few(seeds: Sequence[int]) -> list[int]:
    if seeds and len(seeds[: _MOST_SEEDS + 1]) > _MOST_SEEDS:  # the length of a range may be beyond any machine's
        raise UserError(f"at most {_MOST_SEEDS:,} seeds are run at a time; there are more")
    return list(seeds)
