"""Search spaces: strict YAML in, frozen objects out. Whatever holds a `SearchSpace` need not check it again."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.errors import UserError, brief, brief_repr, nearest
from harness.text.files import checked_path, read_text
from harness.text.strict_yaml import DEEPEST, parse_yaml

Rule = Literal["argmax", "threshold", "expected"]
Positive = Annotated[int, Field(gt=0, le=10**9)]  # more samples, epochs or trials than anybody will ever have
Fraction = Annotated[float, Field(gt=0, lt=1)]
Trials = Annotated[int, Field(gt=0, le=100_000)]
Width = Annotated[int, Field(gt=0, le=100_000)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=200)]  # of a folder of results too


class Frozen(BaseModel):
    """A value object: typed strictly, checked once in the constructor, never changed, to and from JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


# --- data sets ----------------------------------------------------------------------------------------------------


class SpiralsData(Frozen):
    """Two-dimensional spirals, drawn anew for every seed."""

    kind: Literal["spirals"]
    arms: Annotated[int, Field(ge=2, le=10_000)] = 2
    rotation_degrees: Annotated[float, Field(ge=0, le=1e6)] = 720.0
    noise: Annotated[float, Field(ge=0, le=1e6)] = 0.15
    n_train: Positive = 200
    n_val: Positive = 200
    n_test: Positive = 1800


class DigitsData(Frozen):
    """The 1,797 real 8×8 digits that scikit-learn carries; `as_images` feeds them to the conv network."""

    kind: Literal["digits"]
    as_images: bool = False
    val_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.2


class TorchvisionData(Frozen):
    """A torchvision data set, read from a local folder or downloaded; checksums are verified."""

    kind: Literal["mnist", "fashion_mnist", "svhn", "cifar10"]
    n_train: Positive | None = None  # a stratified subset of the training set, the same for all seeds; all when null
    n_test: Positive | None = None
    val_fraction: Fraction = 0.1


class ArraysData(Frozen):
    """Your own .npz: x_train, y_train and optionally x_val, y_val, x_test, y_test."""

    kind: Literal["arrays"]
    path: str
    n_train: Positive | None = None
    n_test: Positive | None = None
    val_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.2


class ImageFolderData(Frozen):
    """A folder per class holding image files, resized to `size` × `size` and decoded once."""

    kind: Literal["image_folder"]
    path: str
    size: Annotated[int, Field(gt=0, le=10_000)] = 32
    val_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.2


DataSettings = Annotated[
    SpiralsData | DigitsData | TorchvisionData | ArraysData | ImageFolderData, Field(discriminator="kind")
]


# --- network, depths, posterior -----------------------------------------------------------------------------------


class FullyConnected(Frozen):
    kind: Literal["fc"]
    width: Width = 20


class Convolutional(Frozen):
    kind: Literal["conv"]
    channels: Width = 64
    bottleneck: Width = 32
    head_bn: Literal["per_depth", "shared"] = "per_depth"


NetworkSettings = Annotated[FullyConnected | Convolutional, Field(discriminator="kind")]


class DepthRange(Frozen):
    """Depths that the fixed-depth searches may train. The learnt-depth network always has `max` blocks."""

    min: Annotated[int, Field(ge=0)] = 0
    max: Annotated[int, Field(gt=0, le=10_000)]
    step: Positive = 1

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"depth.min must not exceed depth.max; got min {self.min}, max {self.max}")
        return self

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(range(self.min, self.max + 1, self.step))


class ExponentialPrior(Frozen):
    """β_i ∝ γ^(1+i)."""

    kind: Literal["exponential"]
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.85


class UniformPrior(Frozen):
    kind: Literal["uniform"]


class ExplicitPrior(Frozen):
    kind: Literal["explicit"]
    probabilities: tuple[Annotated[float, Field(gt=0)], ...]

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        total = sum(self.probabilities)
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"the prior's probabilities must sum to 1; they sum to {total:.6g}")
        return self


PriorSettings = Annotated[ExponentialPrior | UniformPrior | ExplicitPrior, Field(discriminator="kind")]


class PosteriorSettings(Frozen):
    prior: PriorSettings = ExponentialPrior(kind="exponential")
    rule: Rule


# --- training, budget, margins ------------------------------------------------------------------------------------


class TrainingSettings(Frozen):
    """The schedule every network of the space gets, learnt or fixed depth alike."""

    max_epochs: Positive
    patience: Positive  # epochs without an improvement of more than min_delta
    monitor: Literal["train_objective", "val_objective", "none"] = "val_objective"  # none: keep the last parameters
    min_delta: Annotated[float, Field(ge=0)] = 1e-4  # nats per sample
    lr: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    batch_size: Annotated[int, Field(ge=2, le=10**9)] = 512
    lr_drop_epoch: Positive | None = None
    lr_drop_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    eval_every: Positive = 1  # epochs between validations
    report_every: Positive = 1  # epochs between reports: a multiple of eval_every, never a clock
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16 autocast is for CUDA
    compile: bool = False

    @model_validator(mode="after")
    def _report_follows_validation(self) -> Self:
        if self.report_every % self.eval_every:
            raise ValueError(
                "training.report_every must be a multiple of training.eval_every, so that every report carries a "
                f"fresh validation; got {self.report_every} and {self.eval_every}"
            )
        return self

    def check_device(self, on_gpu: bool) -> None:
        if self.precision == "bfloat16" and not on_gpu:
            raise UserError(
                "training.precision bfloat16 is for CUDA, and trials would run on the CPU; use float32, or give each "
                "trial a GPU (`harness run --gpus-per-trial 1`, `harness trial --device cuda`)"
            )


class Budget(Frozen):
    """How many trials a search may start: full trainings, and trainings that a scheduler may stop early."""

    trials: Trials
    early_stopping_trials: Trials


class Margins(Frozen):
    """How much worse a method may be and still count as good."""

    accuracy: Annotated[float, Field(gt=0)] = 0.01
    log_likelihood: Annotated[float, Field(gt=0)] = 0.05
    ece: Annotated[float, Field(gt=0)] = 0.02


class SearchSpace(Frozen):
    name: Name
    description: Annotated[str, Field(max_length=10_000)]
    data: DataSettings
    network: NetworkSettings
    depth: DepthRange
    posterior: PosteriorSettings
    training: TrainingSettings
    budget: Budget
    margins: Margins = Margins()

    @model_validator(mode="after")
    def _prior_fits_depth(self) -> Self:
        prior = self.posterior.prior
        if isinstance(prior, ExplicitPrior) and len(prior.probabilities) != self.depth.max + 1:
            raise ValueError(
                f"an explicit prior needs depth.max + 1 = {self.depth.max + 1} probabilities; "
                f"got {len(prior.probabilities)}"
            )
        return self


# --- loading ------------------------------------------------------------------------------------------------------

SHIPPED = Path(__file__).parent / "search_spaces"  # in the wheel
if not SHIPPED.is_dir():
    SHIPPED = Path(__file__).parent.parent / "search_spaces"  # in a clone


def known_spaces() -> dict[str, Path]:
    """Every space that goes by name: those shipped, then those in `./search_spaces`, which win."""
    folders = (SHIPPED, Path("search_spaces"))
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def load_space(name: str, overrides: Sequence[str] = ()) -> SearchSpace:
    """Loads a path, a name in `./search_spaces` or a shipped name, in this order, with `key.path=value` overrides."""
    path = checked_path(name, "a search space")
    if path.suffix not in {".yaml", ".yml"}:
        known = known_spaces()
        if name not in known:
            raise UserError(f"unknown search space {name!r} ({nearest(name, known)}); or give a .yaml file")
        path = known[name]
    values = read_yaml(path)
    for override in overrides:
        _apply_override(values, override)
    return parse_space({"name": path.stem, **values}, source=str(path))


def with_overrides(space: SearchSpace, overrides: Sequence[str]) -> SearchSpace:
    """The space with `key.path=value` settings replaced; all others, the budget too, stay as they are."""
    values = space.model_dump(mode="json")
    for override in overrides:
        _apply_override(values, override)
    return parse_space(values, source=f"space {space.name}")


def parse_space(values: Mapping[str, Any], source: str) -> SearchSpace:
    try:
        # Through JSON: strict about types, yet a YAML list may become a tuple.
        space = SearchSpace.model_validate_json(json.dumps(_with_default_budget(values)))
    except ValidationError as error:
        raise UserError(f"{source}: {explain(error, SearchSpace)}") from None
    except (TypeError, ValueError) as error:  # a key that is no word
        raise UserError(f"{source}: {error}") from None
    drop, last = space.training.lr_drop_epoch, space.training.max_epochs
    # Not a rule of TrainingSettings: a refit ends early, and finished results keep reading.
    if drop is not None and drop >= last:
        raise UserError(
            f"{source}: training.lr_drop_epoch must come before the last epoch, training.max_epochs = {last}; got "
            f"{drop}; valid: {f'1 to {last - 1}, or ' if last > 1 else ''}null for no drop"
        )
    return space


def _with_default_budget(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Half the depths, rounded up, for full trainings; every depth where a scheduler stops trials early."""
    try:
        n_depths = len(DepthRange.model_validate(values["depth"]).values)
        given = dict(values.get("budget") or {})
    except (KeyError, TypeError, ValueError):
        return values  # the fields' own checks say what is wrong
    return {**values, "budget": {"trials": (n_depths + 1) // 2, "early_stopping_trials": n_depths, **given}}


def read_yaml(path: Path) -> dict[str, Any]:
    values = parse_yaml(read_text(path, "the settings"), source=str(path))
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold a mapping of settings; got {type(values).__name__}")
    return values


def _apply_override(values: dict[str, Any], override: str) -> None:
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
    for item in error.errors()[:5]:
        where, siblings = _locate(root, item["loc"])
        match item["type"]:
            case "extra_forbidden":
                key = str(item["loc"][-1])
                parts.append(f"unknown key {where!r} ({nearest(key, siblings, prefix=where.removesuffix(key))})")
            case "value_error":
                parts.append(str(item["ctx"]["error"]))
            case "missing":
                parts.append(f"{where} is required")
            case "union_tag_invalid":
                context = item["ctx"]
                parts.append(f"{where}.kind must be one of {context['expected_tags']}; got {context['tag']!r}")
            case "union_tag_not_found":
                parts.append(f"{where}.kind is required")
            case _:
                parts.append(f"{where} {item['msg'].removeprefix('Input ').lower()}; got {brief_repr(item['input'])}")
    more = error.error_count() - len(parts)
    return "; ".join(parts) + (f"; and {more} more" if more else "")


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
