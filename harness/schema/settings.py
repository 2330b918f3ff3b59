"""The settings of a search space: every field with its range, its default and its sentence."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from harness.errors import UserError
from harness.schema.identity import Identified, Later
from harness.schema.networks import AnyNetwork

Rule = Literal["argmax", "threshold", "expected"]
AnyRule = Literal["argmax", "threshold", "expected", "validation"]
TIE_NATS = 1e-4  # validation log-likelihoods closer than this are equal, and the smaller depth wins
Precision = Literal["float32", "bfloat16", "float16"]
Positive = Annotated[int, Field(gt=0, le=10**9)]  # more samples, epochs or trials than anybody will ever have
Beta = Annotated[float, Field(ge=0, lt=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Trials = Annotated[int, Field(gt=0, le=100_000)]
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]  # of a folder of results too


# --- data sets ----------------------------------------------------------------------------------------------------


class Settings(Identified):
    """A group of settings. The sentence below a field explains it: `harness show` and docs/settings.md print it.

    Where there is a `kind`, the first sentence of the class says what it means.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)


class SpiralsData(Settings):
    """Two-dimensional spirals, drawn again for every seed."""

    kind: Literal["spirals"]
    arms: Annotated[int, Field(ge=2, le=10_000)] = 2
    """Arms of the spiral; each is a class."""
    rotation_degrees: Annotated[float, Field(ge=0, le=1e6)] = 720.0
    """How far an arm turns: the more, the harder."""
    noise: Annotated[float, Field(ge=0, le=1e6)] = 0.15
    """Standard deviation of what is added to both coordinates."""
    n_train: Positive = 200
    """Points for training."""
    n_val: Positive = 200
    """Points for validation."""
    n_test: Positive = 1800
    """Points for the test."""


class DigitsData(Settings):
    """The 1,797 real 8×8 digits that scikit-learn carries."""

    kind: Literal["digits"]
    as_images: bool = False
    """Whether they are images, for the conv network, or rows of 64 numbers, for the fc network."""
    val_fraction: Fraction = 0.1
    """Share of the rows outside the test set that validates, drawn again for every seed."""
    test_fraction: Fraction = 0.2
    """Share of all rows that is set aside as the test set, the same for all seeds."""


class TorchvisionData(Settings):
    """A torchvision data set, read from a local folder or downloaded; checksums are verified."""

    kind: Literal["mnist", "fashion_mnist", "svhn", "cifar10"]
    n_train: Positive | None = None
    """Size of a stratified subset of the training set, the same for all seeds; null takes all of it."""
    n_test: Positive | None = None
    """Size of a stratified subset of the test set; null takes all of it."""
    val_fraction: Fraction = 0.1
    """Share of the training images that validates, drawn again for every seed."""


class ArraysData(Settings):
    """Your own .npz: x_train, y_train and optionally x_val, y_val, x_test, y_test."""

    kind: Literal["arrays"]
    path: str
    """The .npz file; a relative one is looked for in the working folder, then in the data folder."""
    n_train: Positive | None = None
    """Size of a stratified subset of the training rows, the same for all seeds; null takes all of them."""
    n_test: Positive | None = None
    """Size of a stratified subset of the test rows; null takes all of them."""
    val_fraction: Fraction = 0.1
    """Without x_val: share of the training rows that validates, drawn again for every seed."""
    test_fraction: Fraction = 0.2
    """Without x_test: share of all rows that is set aside as the test set, the same for all seeds."""


class ImageFolderData(Settings):
    """A folder of image files per class, or train/, val/ and test/ with a folder per class in each."""

    kind: Literal["image_folder"]
    path: str
    """The folder; a relative one is looked for in the working folder, then in the data folder."""
    size: Annotated[int, Field(gt=0, le=10_000)] = 32
    """Images are resized to so many pixels in height and width, once."""
    val_fraction: Fraction = 0.1
    """Without val/: share of the training images that validates, drawn again for every seed."""
    test_fraction: Fraction = 0.2
    """Without test/: share of all images that is set aside as the test set, the same for all seeds."""


class TableData(Settings):
    """Your own table: a .csv or .parquet file with a row per sample and a column of classes."""

    kind: Literal["table"]
    path: str
    """The file; a relative one is looked for in the working folder, then in the data folder."""
    target: str
    """The column that holds the classes, words or whole numbers."""
    drop: tuple[str, ...] = ()
    """Columns that are left out: row numbers, names, whatever would give the class away."""
    categorical: tuple[str, ...] = ()
    """Columns of numbers that stand for categories; columns of words always do. Each category that the training rows
    have becomes a feature of 0 and 1, and any other is 0 in all of them."""
    missing: Literal["refuse", "median"] = "refuse"
    """What to do about missing values: refuse them by name, or put the median of the training rows in their place
    (a missing category is 0 in all features of its column)."""
    separator: Literal[",", ";", "|", "\t"] = ","
    """What stands between the values of a line of a .csv."""
    n_train: Positive | None = None
    """Size of a stratified subset of the rows outside the test set, the same for all seeds; null takes all of them."""
    n_test: Positive | None = None
    """Size of a stratified subset of the test rows; null takes all of them."""
    val_fraction: Fraction = 0.25
    """Share of the rows outside the test set that validates, drawn again for every seed."""
    test_fraction: Fraction = 0.2
    """Share of all rows that is set aside as the test set, the same for all seeds."""


DataSettings = Annotated[
    SpiralsData | DigitsData | TorchvisionData | ArraysData | ImageFolderData | TableData, Field(discriminator="kind")
]


# --- depths, posterior --------------------------------------------------------------------------------------------


class DepthRange(Settings):
    """Depths that the fixed-depth searches may train. The learnt-depth network always has `max` blocks."""

    min: Annotated[int, Field(ge=0)] = 0
    """The smallest number of residual blocks that a search may train."""
    max: Annotated[int, Field(gt=0, le=10_000)]
    """The largest number of residual blocks; a network that learns its depth has as many."""
    step: Positive = 1
    """From one depth of the searches to the next."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"depth.min must not exceed depth.max; got min {self.min}, max {self.max}")
        return self

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(range(self.min, self.max + 1, self.step))


class ExponentialPrior(Settings):
    """Every further block is less probable by the same factor: β_i ∝ γ^(1+i)."""

    kind: Literal["exponential"]
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.85
    """The factor γ."""


class UniformPrior(Settings):
    """Every depth is as probable as every other."""

    kind: Literal["uniform"]


class ExplicitPrior(Settings):
    """A probability for each depth from 0 to depth.max."""

    kind: Literal["explicit"]
    probabilities: tuple[Annotated[float, Field(gt=0)], ...]
    """They are above 0 and sum to 1."""

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        total = sum(self.probabilities)
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"the prior's probabilities must sum to 1; they sum to {total:.6g}")
        return self


PriorSettings = Annotated[ExponentialPrior | UniformPrior | ExplicitPrior, Field(discriminator="kind")]


class PosteriorSettings(Settings):
    """How a network that learns its depth weighs depths and chooses one."""

    prior: PriorSettings = ExponentialPrior(kind="exponential")
    """The prior over depths 0 to depth.max."""
    rule: AnyRule = "threshold"
    """How d_opt is read off the posterior q: argmax (the most probable depth), threshold (the smallest with at least
    95 % of the largest q), expected (the mean depth, rounded); or, whatever q is, by validation, as choice_within says.
    """
    lr: Annotated[Annotated[float, Field(gt=0)] | None, Later(before=None)] = None
    """Learning rate of q where it is trained by gradient, always by SGD; null: training.lr, or 0.1 where the network's
    weights are not trained by SGD. It warms up and falls as training's does."""


# --- training, budget, margins ------------------------------------------------------------------------------------

DEFAULT_EPOCHS = 60


class TrainingSettings(Settings):
    """The schedule every network of the space gets, learnt or fixed depth alike."""

    max_epochs: Positive
    """The most epochs of a trial; 60 unless it is given."""
    patience: Positive
    """Epochs without an improvement of more than min_delta after which a trial ends; as many as max_epochs unless it is
    given, so that every trial ends with the last epoch."""
    monitor: Literal["train_objective", "val_objective", "none"] = "val_objective"
    """What has to improve, and which epoch's parameters are kept; none keeps the last ones."""
    min_delta: Annotated[float, Field(ge=0)] = 1e-4
    """The least improvement that counts, in nats per sample."""
    optimiser: Annotated[Literal["sgd", "adamw"], Later(before="sgd")] = "sgd"
    """What trains the network's weights: stochastic gradient descent, or AdamW (Loshchilov, Hutter, 2019). Weights over
    depths are always trained by SGD, at posterior.lr."""
    lr: Annotated[float, Field(gt=0)] = 0.1
    """Learning rate."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Momentum of SGD; that of weights over depths in any case."""
    nesterov: Annotated[bool, Later(before=False)] = False
    """Whether SGD's momentum is Nesterov's."""
    betas: Annotated[tuple[Beta, Beta], Later(before=(0.9, 0.999))] = (0.9, 0.999)
    """AdamW's decay rates of the gradient's mean and square."""
    weight_decay: Annotated[float, Field(ge=0, lt=1), Later(before=0.0)] = 0.0
    """Weight decay of matrices and kernels; biases, normalisation and weights over depths have none."""
    clip_norm: Annotated[Annotated[float, Field(gt=0)] | None, Later(before=None)] = None
    """The largest norm of all gradients of the network's weights together; null: any."""
    batch_size: Annotated[int, Field(ge=2, le=10**9)] = 512
    """Rows of a step; where there are no more rows than that, a step takes all of them."""
    lr_drop_epoch: Positive | None = None
    """After this epoch the rate is multiplied by lr_drop_factor; null: never. Where max_epochs is not given either, it
    is two thirds of it."""
    lr_drop_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    """What the rate is multiplied by."""
    schedule: Annotated[Literal["drop", "cosine"], Later(before="drop")] = "drop"
    """How the rate falls: once, after lr_drop_epoch (drop; where that is null the rate is constant), or along half a
    cosine to 0 at max_epochs, which no trial may end before (cosine)."""
    warmup_epochs: Annotated[int, Field(ge=0, le=10**9), Later(before=0)] = 0
    """Epochs at the start over which the rate rises linearly, step by step."""
    crop: Annotated[int, Field(ge=0, le=1000), Later(before=0)] = 0
    """Maximum random shift of images in pixels, drawn again in every epoch."""
    flip: Annotated[bool, Later(before=False)] = False
    """Mirror half of the images, drawn again in every epoch."""
    eval_every: Positive = 1
    """Epochs between two validations; where only reports would show them, there are none between reports."""
    report_every: Positive = 1
    """Epochs between two reports to the search: a multiple of eval_every, never a clock."""
    precision: Precision = "float32"
    """Of the layers in training; bfloat16 and float16 are for CUDA. Probabilities and objectives stay in float32."""
    compile: bool = False
    """Whether networks go through torch.compile, which needs a C++ compiler; its time is a phase of its own."""
    tf32: Annotated[bool, Later(before=False)] = False
    """On CUDA: whether matrix products of float32 numbers may be rounded to 19 bits; faster."""
    deterministic: Annotated[bool, Later(before=False)] = False
    """On CUDA: the same numbers from the same seed, at the price of speed."""

    @model_validator(mode="after")
    def _report_follows_validation(self) -> Self:
        if self.report_every % self.eval_every:
            raise ValueError(
                "training.report_every must be a multiple of training.eval_every, so that every report carries a "
                f"fresh validation; got {self.report_every} and {self.eval_every}"
            )
        return self

    @model_validator(mode="after")
    def _one_recipe(self) -> Self:
        if self.nesterov and (self.optimiser != "sgd" or self.momentum == 0):
            raise ValueError(
                "training.nesterov is for optimiser sgd with a momentum above 0; got optimiser "
                f"{self.optimiser} and momentum {self.momentum:g}"
            )
        if self.schedule == "cosine" and self.lr_drop_epoch is not None:
            raise ValueError(
                "training.schedule cosine has no drop of the rate, leave it out; got lr_drop_epoch "
                f"{self.lr_drop_epoch}"
            )
        return self

    @property
    def falls(self) -> bool:
        """Whether the rate is small at the end."""
        return self.schedule == "cosine" or self.lr_drop_epoch is not None

    @property
    def recipe(self) -> str:
        """In words: what trains the weights, at which rate, on which pixels."""
        words = [f"{'SGD' if self.optimiser == 'sgd' else 'AdamW'}, rate {self.lr:g}"]
        if self.optimiser == "sgd":
            words.append(f"momentum {self.momentum:g}{' (Nesterov)' if self.nesterov else ''}")
        words += [f"weight decay {self.weight_decay:g}"] * (self.weight_decay > 0)
        words += [] if self.clip_norm is None else [f"gradients clipped at {self.clip_norm:g}"]
        words += [f"warm-up of {self.warmup_epochs} epochs"] * (self.warmup_epochs > 0)
        words += ["cosine schedule"] * (self.schedule == "cosine")
        words += [f"crops by {self.crop} pixels"] * (self.crop > 0) + ["flips"] * self.flip
        return ", ".join([*words, f"batch {self.batch_size}"])

    def lasting(self, epochs: int) -> dict[str, int]:
        """What a schedule has to change so that it lasts so many epochs; the cosine ends with max_epochs anyway."""
        scaled = {"lr_drop_epoch": self.lr_drop_epoch, "warmup_epochs": self.warmup_epochs}
        share = epochs / self.max_epochs
        changes = {name: max(1, round(share * value)) for name, value in scaled.items() if value}
        return {"max_epochs": epochs, **changes} | ({"patience": epochs} if self.schedule == "cosine" else {})

    def check_device(self, on_gpu: bool) -> None:
        if self.precision != "float32" and not on_gpu:
            raise UserError(
                f"training.precision {self.precision} is for CUDA, and trials would run on the CPU; use float32, or "
                "give each trial a GPU (`harness run --gpus-per-trial 1`, `harness trial --device cuda`)"
            )


class Budget(Settings):
    """How many trials a search may start."""

    trials: Trials
    """Trials of a search that trains each to its end; half of the depths, rounded up, unless it is given."""
    early_stopping_trials: Trials
    """Trials of a search that stops some early; as many as there are depths unless it is given."""


class Margins(Settings):
    """How much worse a method may be and still count as good: what its user would give up to save a search.

    Narrow enough that not every depth passes; a comparison shows them beside the spread between depths.
    """

    accuracy: Annotated[float, Field(gt=0)] = 0.01
    """How much lower the test accuracy may be."""
    log_likelihood: Annotated[float, Field(gt=0)] = 0.05
    """How much lower the test log-likelihood may be, in nats."""
    ece: Annotated[float, Field(gt=0)] = 0.02
    """How much higher the expected calibration error on the test set may be."""


class SearchSpace(Settings):
    """Everything that all methods share. `data`, `network` and `depth` must be given."""

    name: Name
    """Under which results are kept; the file's name unless it is given."""
    description: Annotated[str, Field(max_length=10_000)] = ""
    """A sentence for lists and reports."""
    data: DataSettings
    """The data set; `kind` says which one."""
    network: AnyNetwork
    """The network; `kind` says which one, or is a path to your own .py file."""
    depth: DepthRange
    """The depths that are searched."""
    posterior: PosteriorSettings = PosteriorSettings()
    """How a network that learns its depth weighs depths and chooses one."""
    training: TrainingSettings
    """The schedule of every network."""
    budget: Budget
    """How many trials a search may start."""
    choice_within: Annotated[float, Field(ge=0), Later(before=TIE_NATS)] = TIE_NATS
    """Where validation chooses, it chooses the smallest depth whose log-likelihood is within so many nats of the best
    one's. Only the choice differs, of searches and of one-shot networks: what is trained stays the same."""
    margins: Margins = Margins()
    """How much worse a method may be and still count as good."""

    @model_validator(mode="after")
    def _prior_fits_depth(self) -> Self:
        prior = self.posterior.prior
        if isinstance(prior, ExplicitPrior) and len(prior.probabilities) != self.depth.max + 1:
            raise ValueError(
                f"an explicit prior needs depth.max + 1 = {self.depth.max + 1} probabilities; "
                f"got {len(prior.probabilities)}"
            )
        return self
