"""The measures of the table, read off a finished unit: one list, so that no two views disagree."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness import keys
from harness.comparing.values import Better
from harness.records import Cost, Measures, SearchResult, Unit

WITH_WORKER_START = "cost_with_worker_start"
EPOCHS = "epochs"


@dataclass(frozen=True)
class Measure:
    """A column: its key, its heading, and which direction is better."""

    key: str
    title: str
    better: Better
    unit: str = ""


COSTS = (
    Measure(keys.COST_DEVICE_SECONDS, "device-s", "lower"),
    Measure(WITH_WORKER_START, "with start", "lower"),
    Measure(keys.COST_TRAIN_SECONDS, "train-s", "lower"),
    Measure(keys.COST_TFLOP, "TFLOP", "lower"),
    Measure(EPOCHS, "epochs", "lower"),
)
DEPTH = Measure(keys.D_OPT, "d_opt", "lower")
QUALITIES = (
    Measure(keys.TEST_ACCURACY, "accuracy", "higher"),
    Measure(keys.TEST_LOG_LIKELIHOOD, "log-likelihood", "higher", "nats"),
    Measure(keys.TEST_ECE, "ECE", "lower"),
    Measure(keys.TEST_BRIER, "Brier", "lower"),
)
MEASURES = (*COSTS, DEPTH, *QUALITIES)


@dataclass(frozen=True)
class Finished:
    """A unit known to have a result, so that nobody downstream asks again."""

    unit: Unit
    result: SearchResult

    @property
    def method(self) -> str:
        return self.unit.plan.method

    @property
    def seed(self) -> int:
        return self.unit.plan.seed


def finished_by_method(units: Sequence[Unit], reference: str) -> dict[str, list[Finished]]:
    """Finished units by method, the reference first, each group in the order of its seeds."""
    groups: dict[str, list[Finished]] = {}
    for unit in sorted(units, key=lambda unit: (unit.plan.method != reference, unit.plan.seed)):
        if unit.result is not None:
            groups.setdefault(unit.plan.method, []).append(Finished(unit, unit.result))
    return groups


Reader = Callable[[Finished], dict[str, float]]


def search_measures(finished: Finished) -> dict[str, float]:
    """Cost of the search alone, quality of the network it chose."""
    result = finished.result
    return {
        **_cost_measures([result.cost], result.worker_start_device_seconds),
        keys.D_OPT: result.d_opt,
        **_quality_measures(result.final.chosen),
    }


def refit_measures(finished: Finished) -> dict[str, float]:
    """Cost of search + refit, quality of the refitted network."""
    refit = finished.result.refit
    if refit is None:
        raise ValueError(f"{finished.method} seed {finished.seed} has no refit")
    costs = [finished.result.cost, refit.cost]
    start = finished.result.worker_start_device_seconds
    return {**_cost_measures(costs, start), keys.D_OPT: refit.d_opt, **_quality_measures(refit.test)}


def _cost_measures(costs: Sequence[Cost], worker_start: float) -> dict[str, float]:
    device_seconds = sum(cost.device_seconds for cost in costs)
    return {
        keys.COST_DEVICE_SECONDS: device_seconds,
        WITH_WORKER_START: device_seconds + worker_start,
        keys.COST_TRAIN_SECONDS: sum(cost.train_seconds for cost in costs),
        keys.COST_TFLOP: sum(cost.tflop for cost in costs),
        EPOCHS: float(sum(cost.epochs for cost in costs)),
    }


def _quality_measures(measures: Measures) -> dict[str, float]:
    return {
        keys.TEST_ACCURACY: measures.accuracy,
        keys.TEST_LOG_LIKELIHOOD: measures.log_likelihood,
        keys.TEST_ECE: measures.ece,
        keys.TEST_BRIER: measures.brier,
    }
