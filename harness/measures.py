"""The one table of measures: what a search is measured by, how each number is called, judged and read.

Terminal, JSON, report, MLflow and studies all take their columns from here. A new measure of quality is a field of
`records.Measures` that is None by default, its computation in `training/evaluate.py` and a row of QUALITIES below; it
is judged when the row names a field of `settings.Margins`. Where results of earlier versions lack it, it is not shown.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from harness.schema.records import SHOWN_PHASES, STAGE, Cost, Measures, SearchResult
from harness.schema.settings import Margins

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Outcome:
    """What a finished search cost and what its network is worth, without its refit or with it."""

    result: SearchResult
    costs: tuple[Cost, ...]  # of the search; with a refit, the refit's too
    d_opt: int
    quality: Measures  # of the chosen, or the refitted, network on the test set
    multiply_adds: int | None  # of one sample's forward pass through that network; None in results of earlier versions

    @classmethod
    def of_search(cls, result: SearchResult) -> "Outcome":
        return cls(result, (result.cost,), result.d_opt, result.final.chosen, result.final.multiply_adds)

    @classmethod
    def of_refit(cls, result: SearchResult) -> "Outcome":
        """Search + refit. Only for a unit that was refitted."""
        if result.refit is None:
            raise ValueError(f"{result.method} seed {result.seed} has no refit")
        depth = result.refit.d_opt  # a fixed one, whatever the search handed over
        sizes = {each.depth: each.multiply_adds for each in result.final.per_depth_test}
        size = sizes.get(depth, result.final.multiply_adds)
        return cls(result, (result.cost, result.refit.cost), depth, result.refit.test, size)

    @property
    def device_seconds(self) -> float:
        return sum(cost.device_seconds for cost in self.costs)


@dataclass(frozen=True)
class Measure:
    """A row of the table."""

    key: str  # in JSON and in MLflow
    title: str  # heading of a column
    says: str  # one sentence, shown in MLflow
    read: Callable[[Outcome], float | None]  # None: the search has no such number
    unit: str = ""
    better: Better | None = None  # None: neither
    margin: str | None = None  # the field of `spaces.Margins` that it is judged by; None: it has no verdict

    @property
    def sign(self) -> float:
        """Of an advantage: a difference times this is positive where it is better."""
        return -1.0 if self.better == "lower" else 1.0

    def margin_in(self, margins: Margins) -> float | None:
        return None if self.margin is None else float(getattr(margins, self.margin))


@dataclass(frozen=True, kw_only=True)
class Quality(Measure):
    """A measure of the predictions on the test set."""

    field: str  # of `records.Measures`

    def of(self, measures: Measures) -> float | None:
        """None: measured by an earlier version, which did not have it."""
        value = getattr(measures, self.field)
        return None if value is None else float(value)

    def of_all(self, measured: Iterable[Measures]) -> list[float] | None:
        """Of each of them; None unless all have it."""
        values = [self.of(each) for each in measured]
        known = [value for value in values if value is not None]
        return known if len(known) == len(values) else None


def _quality(
    field: str, title: str, better: Better, says: str, *, unit: str = "", margin: str | None = None
) -> Quality:
    return Quality(
        key=f"test_{field}",
        title=title,
        says=says,
        read=lambda outcome: getattr(outcome.quality, field),
        unit=unit,
        better=better,
        margin=margin,
        field=field,
    )


# --- cost ---------------------------------------------------------------------------------------------------------

DEVICE_SECONDS: Final = Measure(
    "cost_device_seconds",
    "device-s",
    "Seconds that all trials of the search held their devices, times devices held; failed, stopped and repeated work "
    "included.",
    lambda outcome: outcome.device_seconds,
    unit="device-seconds",
    better="lower",
)
WITH_WORKER_START: Final = Measure(
    "cost_with_worker_start",
    "with start",
    "The same plus the device-seconds in which workers started for the search.",
    lambda outcome: outcome.device_seconds + outcome.result.worker_start_device_seconds,
    unit="device-seconds",
    better="lower",
)
TRAIN_SECONDS: Final = Measure(
    "cost_train_seconds",
    "train-s",
    "Seconds spent in training steps, all trials of the search.",
    lambda outcome: sum(cost.train_seconds for cost in outcome.costs),
    unit="seconds",
    better="lower",
)
TFLOP: Final = Measure(
    "cost_tflop",
    "TFLOP",
    "Floating point operations of training and validation, all trials, in 10^12; independent of the hardware.",
    lambda outcome: sum(cost.tflop for cost in outcome.costs),
    unit="TFLOP",
    better="lower",
)
EPOCHS: Final = Measure(
    "epochs",
    "epochs",
    "Epochs of training, all trials of the search.",
    lambda outcome: float(sum(cost.epochs for cost in outcome.costs)),
    better="lower",
)
USD: Final = Measure(
    "cost_usd",
    "USD",
    "Device-seconds at the price of a device-hour that was given; without a price there is no such number.",
    lambda outcome: (
        None if outcome.result.usd_per_hour is None else outcome.device_seconds / 3600 * outcome.result.usd_per_hour
    ),
    unit="USD",
    better="lower",
)
COSTS: Final = (DEVICE_SECONDS, WITH_WORKER_START, TRAIN_SECONDS, TFLOP, EPOCHS, USD)

# --- the size of the network ----------------------------------------------------------------------------------------


def _size(outcome: Outcome) -> float | None:
    deepest = outcome.result.final.deepest_multiply_adds
    return outcome.multiply_adds / deepest if outcome.multiply_adds is not None and deepest else None


def _forward_ms(outcome: Outcome) -> float | None:
    """Of a refitted network it is known where that is as large as the chosen one, which was timed."""
    final = outcome.result.final
    return 1000 * final.forward_seconds_per_sample or None if outcome.multiply_adds == final.multiply_adds else None


def _forward_share(outcome: Outcome) -> float | None:
    took, deepest = _forward_ms(outcome), outcome.result.final.deepest_forward_seconds_per_sample
    return took / (1000 * deepest) if took and deepest else None


SIZE: Final = Measure(
    "size",
    "size",
    "Multiply-adds of one sample's forward pass through the network that is handed over, divided by those of the "
    "space's deepest network: counted, so independent of the hardware.",
    _size,
    better="lower",
)
MULTIPLY_ADDS: Final = Measure(
    "multiply_adds",
    "multiply-adds",
    "Multiply-adds of one sample's forward pass through the network that is handed over.",
    lambda outcome: outcome.multiply_adds,
    better="lower",
)
FORWARD_MS: Final = Measure(
    "forward_ms",
    "ms per sample",
    "Milliseconds that one sample's forward pass takes through the network that the search chose, in a batch of up to "
    "512: the fastest of nine, measured after the choice.",
    _forward_ms,
    unit="ms",
    better="lower",
)
FORWARD_SHARE: Final = Measure(
    "forward_share",
    "ms ÷ deepest",
    "The same, divided by that of the space's deepest network, both measured in turns.",
    _forward_share,
    better="lower",
)
SIZES: Final = (SIZE, MULTIPLY_ADDS, FORWARD_MS, FORWARD_SHARE)

# --- what the cost bought -----------------------------------------------------------------------------------------

DEPTH: Final = Measure(
    "d_opt",
    "d_opt",
    "The depth that the search chose: by the space's rule where the network learns its depth, else by validation "
    "log-likelihood.",
    lambda outcome: outcome.d_opt,
    unit="blocks",
)
ACCURACY: Final = _quality(
    "accuracy",
    "accuracy",
    "higher",
    "Share of test samples whose most probable class is the right one, for the chosen network.",
    margin="accuracy",
)
LOG_LIKELIHOOD: Final = _quality(
    "log_likelihood",
    "log-likelihood",
    "higher",
    "Mean log-probability of the right class on the test set, in nats; higher is better.",
    unit="nats",
    margin="log_likelihood",
)
QUALITIES: Final = (
    ACCURACY,
    LOG_LIKELIHOOD,
    _quality(
        "ece",
        "ECE",
        "lower",
        "Expected calibration error on the test set: top-label confidence, 15 bins; lower is better.",
        margin="ece",
    ),
    _quality(
        "brier",
        "Brier",
        "lower",
        "Mean squared distance of the predicted probabilities from the right class; lower is better.",
    ),
)
BALANCED_ACCURACY: Final = _quality(  # shown where it differs from accuracy
    "balanced_accuracy",
    "balanced accuracy",
    "higher",
    "Mean over the classes of the share of their test samples that are classified correctly: rare classes count as "
    "much as frequent ones.",
)
COMPARED: Final[tuple[Measure, ...]] = (
    *COSTS,
    DEPTH,
    *SIZES,
    *QUALITIES,
    BALANCED_ACCURACY,
)  # what a comparison holds of every method


def judged(margins: Margins, known: Container[str] | None = None) -> dict[Quality, float]:
    """The qualities that a verdict speaks of, with their margins; of those with a key that is `known`."""
    found = {quality: quality.margin_in(margins) for quality in QUALITIES if known is None or quality.key in known}
    return {quality: margin for quality, margin in found.items() if margin is not None}


# --- what else a search leaves behind -----------------------------------------------------------------------------

TRIALS: Final = Measure("trials", "trials", "Trials that the search started.", lambda outcome: outcome.result.trials)
_WALL_SECONDS = Measure(
    "wall_seconds",
    "wall-clock",
    "Seconds from the search's first trial start to its last trial end, on this run's workers.",
    lambda outcome: outcome.result.wall_seconds,
    unit="seconds",
    better="lower",
)
HEADLINE: Final[tuple[Measure, ...]] = (  # columns of MLflow's table of searches, the most wanted first
    DEVICE_SECONDS,
    ACCURACY,
    LOG_LIKELIHOOD,
    DEPTH,
    SIZE,
    FORWARD_MS,
    *(quality for quality in QUALITIES if quality not in (ACCURACY, LOG_LIKELIHOOD)),
    TRIALS,
    TFLOP,
    TRAIN_SECONDS,
    _WALL_SECONDS,
)


def _of_refit(measure: Quality) -> Measure:
    def read(outcome: Outcome) -> float | None:
        refit = outcome.result.refit
        return None if refit is None else measure.of(refit.test)

    says = f"Test {measure.title} of the refitted network."
    return Measure(f"refit_{measure.key}", measure.title, says, read, measure.unit, measure.better)


POSTERIOR_GAP: Final = Measure(
    "posterior_gap_nats",
    "posterior gap",
    "A posterior over depths: how far the ELBO is below its maximum over q for the final weights; 0 is converged.",
    lambda outcome: outcome.result.final.posterior_gap_nats,
    unit="nats",
)
DETAILS: Final[tuple[Measure, ...]] = (  # beside the headline in MLflow, for a closer look
    USD,
    MULTIPLY_ADDS,
    FORWARD_SHARE,
    BALANCED_ACCURACY,
    Measure(
        "worker_start_device_seconds",
        "worker start",
        "Device-seconds in which workers started for the search; not part of its cost.",
        lambda outcome: outcome.result.worker_start_device_seconds,
        unit="device-seconds",
    ),
    Measure(
        "driver_seconds",
        "driver",
        "Seconds of the driver's own work (searcher, scheduler, tracking); not part of the search's cost.",
        lambda outcome: outcome.result.driver_seconds,
        unit="seconds",
    ),
    POSTERIOR_GAP,
    Measure(
        "d_opt_by_validation",
        "d_opt by validation",
        "Learnt depth: the depth that validation likes best, whichever way the method chooses.",
        lambda outcome: outcome.result.final.d_opt_by_validation,
        unit="blocks",
    ),
    Measure(
        "d_opt_exact",
        "exact d_opt",
        "A posterior over depths: the most probable depth of the exact posterior for the final weights.",
        lambda outcome: outcome.result.final.d_opt_exact,
        unit="blocks",
    ),
    Measure(
        "refit_device_seconds",
        "refit",
        "Device-seconds of training the choice again on train + validation; not part of the search's cost.",
        lambda outcome: outcome.result.refit.cost.device_seconds if outcome.result.refit else None,
        unit="device-seconds",
    ),
    *map(_of_refit, QUALITIES),
)


def shown_phases(seconds: Iterable[Mapping[str, float]]) -> tuple[str, ...]:
    """The phases of a table of these costs: compiling, and what followed a one-shot, only where there is any."""
    rare = {"compile", STAGE}
    seen = {phase for each in seconds for phase in rare if each.get(phase, 0.0) > 0}
    return tuple(phase for phase in SHOWN_PHASES if phase not in rare or phase in seen)
