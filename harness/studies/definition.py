"""Studies as data: a base space, what varies, which networks, which figures, which claims."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from harness.errors import UserError, nearest
from harness.measures import QUALITIES, Quality
from harness.methods import parse_methods
from harness.schema.identity import Frozen
from harness.schema.settings import Name, Positive, SearchSpace
from harness.spaces import SHIPPED, checked_overrides, explain, known_spaces, load_space, parse_space, read_yaml
from harness.studies.readings import READINGS
from harness.text.files import checked_path

Value = int | float | str
FigureKind = Literal[
    "posterior", "scan", "convergence", "maps", "readout", "rules", "calibration", "speedup", "tradeoff", "losses"
]
ScaleName = Literal["small", "paper"]
LARGEST, EACH = "largest", "each"
SHOW_EACH = {
    "posterior",
    "scan",
    "convergence",
    "tradeoff",
    "losses",
}  # figures with a line or a panel for every one-shot
NEED_AXIS = {"scan", "convergence", "rules", "speedup"}  # figures against a setting that is a number
BASE = "base"  # what `vary` calls the search space itself, where data sets vary
MOST_DECLARED = 6  # methods: the more are tested over spaces, the more spaces it takes


class Claim(Frozen):
    """One statement of the paper as a number per seed and the bounds its mean must lie in.

    The number: reading `of`, less the reading `minus` of the same networks, less what method `than` has instead (with
    `ratio` divided by it), less `of` where `versus` holds; averaged over the cells where `at` holds, or with `over` the
    change of a fitted line from the first to the last value of that setting (in its logarithm with `log`). In `at` and
    `versus` a base goes by how its name begins (svhn stands for svhn_small), and `largest` for the largest value of a
    setting.

    It speaks of the one-shot method of the study; of several, each is judged by itself, or those of them in `methods`.
    With `each` in `at` it is judged for each value of that setting.
    """

    says: str
    paper: str  # the paper's own number or words
    of: str
    minus: str | None = None
    methods: tuple[str, ...] = ()
    than: str | None = None
    ratio: bool = False
    at: dict[str, Value] = Field(default_factory=dict)
    versus: dict[str, Value] = Field(default_factory=dict)
    over: str | None = None
    start: float | None = None  # of `over`: cells with smaller values are left out
    log: bool = False
    at_least: float | None = None
    at_most: float | None = None
    within_margin: bool = False  # the bound is the space's margin of the quality that it reads

    @property
    def method(self) -> str | None:
        """The one it speaks of, once it is judged."""
        return self.methods[0] if self.methods else None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for reading in (self.of, self.minus):
            if reading is not None and reading not in READINGS:
                raise ValueError(f"a claim has no reading {reading!r} ({nearest(reading, READINGS)})")
        if (self.at_least is None and self.at_most is None) != self.within_margin:
            raise ValueError("a claim needs at_least, at_most or both, or else within_margin")
        if self.within_margin and _quality(self.of) is None:
            raise ValueError(f"within_margin is for a quality that has a margin; {self.of!r} is none")
        if self.ratio and not self.than:
            raise ValueError("a claim with `ratio` says `than` which method")
        if self.over and self.versus:
            raise ValueError("a claim has `over` or `versus`, not both")
        return self


def _quality(reading: str) -> Quality | None:
    """The quality with a margin that a reading is of."""
    return next((each for each in QUALITIES if each.margin and each.field in reading), None)


class Scale(Frozen):
    """The values and seeds of one size of a study."""

    vary: dict[str, tuple[Value, ...]] = Field(default_factory=dict)
    settings: dict[str, Value] = Field(default_factory=dict, alias="set")
    seeds: Positive
    reduced: str | None = None  # what is smaller than in the paper

    @model_validator(mode="after")
    def _has_values(self) -> Self:
        for key, values in self.vary.items():
            if not values or len(set(values)) < len(values):
                raise ValueError(f"vary.{key} must list different values, at least one; got {list(values)}")
        return self


class StudyFile(Frozen):
    """A study as written. With `like` it draws and judges the networks of another study anew; nothing is retrained."""

    name: Name
    title: str
    paper: str  # where the paper shows it
    like: str | None = None
    base: str | None = None
    methods: str | None = None  # what trains the networks; a study with `like` takes the other one's
    replay: bool = False  # searches, and what retrains a depth, are told what the search over every depth has trained
    across: tuple[str, ...] = ()  # methods that are tested over spaces, declared before the run
    figures: Annotated[tuple[FigureKind, ...], Field(min_length=1)]
    claims: tuple[Claim, ...] = ()
    scales: dict[ScaleName, Scale] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_networks(self) -> Self:
        if (self.methods is None) == (self.like is None):
            raise ValueError("a study needs exactly one of `methods` and `like`")
        return self

    @model_validator(mode="after")
    def _declares_few(self) -> Self:
        if len(self.across) > MOST_DECLARED or len(set(self.across)) < len(self.across):
            raise ValueError(
                f"across must list different methods, at most {MOST_DECLARED}, which are tested over spaces; got "
                f"{', '.join(self.across)}"
            )
        return self


@dataclass(frozen=True)
class Cell:
    """One value of what varies: the space to train in."""

    values: Mapping[str, Value]
    space: SearchSpace  # its name is the cell's name, made of the values

    def holds(self, where: Mapping[str, Value]) -> bool:
        return all(_matches(key, self.values.get(key), value) for key, value in where.items())


def _matches(key: str, value: Value | None, wanted: Value) -> bool:
    return Path(str(value)).name.startswith(str(wanted)) if key == BASE else value == wanted


@dataclass(frozen=True)
class Study:
    """A study at a scale, ready to run; every cell is a valid space."""

    file: StudyFile
    claims: tuple[Claim, ...]
    scale: ScaleName
    settings: Scale
    methods: str
    trained_as: str  # the study whose results these are; another one's with `like`
    cells: tuple[Cell, ...]
    broken: Mapping[str, str] = field(default_factory=dict)  # a space that varies and cannot be loaded → why

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def folder(self) -> str:
        """Where its networks are, below the results folder."""
        return f"{self.trained_as}-{self.scale}"

    @property
    def axis(self) -> str | None:
        """The setting that is a number, along which figures are drawn."""
        numbers = [key for key, values in self.settings.vary.items() if not any(isinstance(v, str) for v in values)]
        return numbers[0] if numbers else None


def experiment_name(study: str, scale: str) -> str:
    """Of a study in MLflow."""
    return f"study {study}-{scale}"


FOLDERS = (SHIPPED / "studies", Path("search_spaces") / "studies")


def known_studies() -> dict[str, Path]:
    return {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("*.yaml"))}


def load_study(
    name: str,
    scale: ScaleName,
    vary: Sequence[str] = (),
    overrides: Sequence[str] = (),
    methods: str | None = None,
) -> Study:
    """A study by name or path.

    `vary` (`depth.max=5,10`) replaces its values, `overrides` change every cell, `methods` are instead of its own.
    """
    file = read_study(name)
    trained = read_study(file.like) if file.like else file
    if trained.methods is None:
        raise UserError(f"study {file.name} is like {trained.name}, which trains no networks of its own")
    settings = _scale(trained, scale, vary)
    checked_overrides(overrides)
    keys = list(settings.vary)
    broken = _broken(settings.vary.get(BASE, ()))
    cells = [
        _cell(trained, dict(zip(keys, values, strict=True)), settings, overrides)
        for values in itertools.product(*settings.vary.values())
        if not broken.keys() & set(values)
    ]
    asked = trained.methods if methods is None else methods
    one_shots = [row for row, method in parse_methods(asked).items() if method.learns_depth]
    if len(one_shots) > 1 and (single := set(file.figures) - SHOW_EACH):
        raise UserError(
            f"study {file.name}: figure {min(single)} shows one one-shot method; got {', '.join(one_shots)}"
        )
    _check_claims(file, trained.methods, settings)
    _check_across(file, trained.methods, settings)
    claims = tuple(
        one for claim in file.claims for one in _judged(claim, list(parse_methods(asked)), one_shots, settings, cells)
    )
    study = Study(file, claims, scale, settings, asked, trained.name, tuple(cells), broken)
    if study.axis is None and (kinds := NEED_AXIS.intersection(file.figures)):
        raise UserError(
            f"study {file.name}: figure {min(kinds)} needs a setting that varies over numbers; "
            f"{', '.join(keys) or 'nothing'} varies"
        )
    return study


def read_study(name: str) -> StudyFile:
    """A study file by name or path."""
    path = checked_path(name, "a study")
    if path.suffix not in {".yaml", ".yml"}:
        known = known_studies()
        if name not in known:
            raise UserError(f"unknown study {name!r} ({nearest(name, known)}); or give a .yaml file")
        path = known[name]
    try:
        return StudyFile.model_validate_json(json.dumps({"name": path.stem, **read_yaml(path)}))
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, StudyFile)}") from None
    except (TypeError, ValueError) as error:  # a key that is no word
        raise UserError(f"{path}: {error}") from None


def _scale(file: StudyFile, name: ScaleName, vary: Sequence[str]) -> Scale:
    if name not in file.scales:
        raise UserError(f"study {file.name} has no scale {name!r}; it has {', '.join(file.scales) or 'none'}")
    scale = file.scales[name]
    given = dict(scale.vary)
    for item in vary:
        key, separator, text = item.partition("=")
        if not separator or key not in scale.vary:
            raise UserError(
                f"--vary is written SETTING=VALUE,VALUE with a setting that {file.name} varies "
                f"({', '.join(scale.vary) or 'it varies none'}); got {item!r}"
            )
        if sum(other.partition("=")[0] == key for other in vary) > 1:
            raise UserError(f"--vary {key} is given more than once; give it once, as {key}=VALUE,VALUE")
        given[key] = tuple(_number(part) for part in text.split(","))
    try:
        return Scale.model_validate({**scale.model_dump(by_alias=True), "vary": given})
    except ValidationError as error:
        raise UserError(f"--vary: {explain(error, Scale)}") from None


def _number(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()


def _cell(file: StudyFile, values: dict[str, Value], scale: Scale, overrides: Sequence[str]) -> Cell:
    base = values.get(BASE, file.base)
    if base is None:
        raise UserError(f"study {file.name} names no base space, nor does it vary one")
    changed = {**scale.settings, **{key: value for key, value in values.items() if key != BASE}}
    space = load_space(str(base), [*(f"{key}={value}" for key, value in changed.items()), *overrides])
    name = "_".join(f"{key}-{Path(str(value)).stem if key == BASE else value}" for key, value in values.items())
    # A cell that is its base and nothing else is called like it: then its folder is one of that space.
    named = {**space.model_dump(mode="json"), "name": name if name and changed else space.name}
    return Cell(values, parse_space(named, source=f"study {file.name}"))


def _broken(bases: Sequence[Value]) -> dict[str, str]:
    """Spaces whose own files are wrong, and why: the others are run without them.

    An unknown name, a file that is not there and a setting of the study that does not fit are mistakes in the study.
    """
    broken, known = {}, known_spaces()
    for base in map(str, bases):
        if base in known or Path(base).is_file():
            try:
                load_space(base)
            except UserError as error:
                broken[base] = str(error)
    if broken and len(broken) == len(bases):
        raise UserError(next(iter(broken.values())))
    return broken


def _check_across(file: StudyFile, methods: str, scale: Scale) -> None:
    """Methods that are tested over spaces are the study's, and it has spaces and a search to hold them against."""
    known = parse_methods(methods)
    for method in file.across:
        if method not in known:
            raise UserError(
                f"study {file.name}: across lists {method!r}, which is not among its methods ({nearest(method, known)})"
            )
        if known[method].exhaustive:
            raise UserError(f"study {file.name}: across lists {method}, which the others are held against")
    if file.across and (set(scale.vary) != {BASE} or not any(method.exhaustive for method in known.values())):
        raise UserError(
            f"study {file.name}: across needs {BASE} to vary and nothing else, and a method that trains every depth"
        )


def _check_claims(file: StudyFile, methods: str, scale: Scale) -> None:
    """Every setting that a claim speaks of varies, and every method is one of the study's."""
    known = parse_methods(methods)
    for claim in file.claims:
        for key in {*claim.at, *claim.versus, *([claim.over] if claim.over else [])}:
            if key not in scale.vary:
                raise UserError(
                    f"study {file.name}: a claim speaks of {key!r}, which does not vary ({nearest(key, scale.vary)})"
                )
        for method in filter(None, (*claim.methods, claim.than)):
            if method not in known:
                raise UserError(
                    f"study {file.name}: a claim speaks of {method!r}, which is not among its methods "
                    f"({nearest(method, known)})"
                )


def _judged(
    claim: Claim, methods: Sequence[str], one_shots: Sequence[str], scale: Scale, cells: Sequence[Cell]
) -> Iterator[Claim]:
    """One claim per method and place that it speaks of, with `largest` and the margin as numbers."""
    if claim.than and claim.than not in methods:
        return
    named = [method for method in claim.methods if method in methods]
    if not claim.methods and len(one_shots) > 1:
        named = list(one_shots)
    at = {key: max(scale.vary[key]) if value == LARGEST else value for key, value in claim.at.items()}
    places = [scale.vary[key] if value == EACH else (value,) for key, value in at.items()]
    for place in itertools.product(*places):
        here = {key: Path(str(value)).stem if key == BASE else value for key, value in zip(at, place, strict=True)}
        bounds = _margin(claim, [cell for cell in cells if cell.holds(here)]) if claim.within_margin else {}
        one = claim.model_copy(update={"at": here, **bounds})
        yield from (one.model_copy(update={"methods": (method,)}) for method in named)
        if not claim.methods and not named:
            yield one


def _margin(claim: Claim, cells: Sequence[Cell]) -> dict[str, float]:
    """No worse than the margin allows; the strictest of the spaces' margins where it speaks of several."""
    quality = _quality(claim.of)
    assert quality is not None, "checked when the claim was read"
    allowed = min((quality.margin_in(cell.space.margins) or 0.0 for cell in cells), default=0.0)
    return {"at_most": allowed} if quality.better == "lower" else {"at_least": -allowed}
