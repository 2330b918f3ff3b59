"""Records and verdicts as pandas DataFrames, for notebooks. Columns come from the table of measures."""

from collections.abc import Sequence

import pandas as pd

from harness.comparing.tables import outcome_of
from harness.comparing.values import Comparison, Pair
from harness.measures import COMPARED, DETAILS, HEADLINE, QUALITIES, Measure, Outcome
from harness.schema.records import Measures, SearchResult, TrialRecord, Unit

MEASURES: dict[str, Measure] = {measure.key: measure for measure in (*COMPARED, *HEADLINE, *DETAILS)}
VERDICT_COLUMNS = (
    *("method", "baseline", "measure", "outcome", "difference", "low", "high", "margin"),
    *("median", "median_low", "median_high", "failed_seeds", "failed_at_most", "seeds_needed"),
)


def unit_frame(units: Sequence[Unit]) -> pd.DataFrame:
    """A row for every finished method × seed, the measures as columns."""
    methods = list(dict.fromkeys(unit.plan.method for unit in units))
    in_order = sorted(units, key=lambda unit: (methods.index(unit.plan.method), unit.plan.seed))
    rows = [_unit_row(unit.result) for unit in in_order if unit.result]
    columns = ["method", "seed", "status", *MEASURES, *_validation(None)]
    filled = [name for name in columns if not rows or any(row[name] is not None for row in rows)]
    return pd.DataFrame(rows, columns=filled)  # no refit, no column of it


def _unit_row(result: SearchResult) -> dict[str, object]:
    outcome = Outcome.of_search(result)
    measures = {key: measure.read(outcome) for key, measure in MEASURES.items()}
    return {
        "method": result.method,
        "seed": result.seed,
        "status": result.status,
        **measures,
        **_validation(result.val),
    }


def _validation(val: Measures | None) -> dict[str, float | None]:
    return {f"val_{quality.field}": quality.of(val) if val else None for quality in QUALITIES}


def trial_frame(units: Sequence[Unit]) -> pd.DataFrame:
    """A row for every trial of the finished units, failed and stopped ones included."""
    return pd.DataFrame([_trial_row(unit, trial) for unit in units for trial in unit.trials])


def _trial_row(unit: Unit, trial: TrialRecord) -> dict[str, object]:
    cost = trial.cost
    return {
        "method": unit.plan.method,
        "seed": unit.plan.seed,
        "trial": trial.trial_id,
        "depth": trial.depth,
        "d_opt": trial.d_opt,
        "chosen": unit.result is not None and unit.result.chosen_trial == trial.trial_id,
        "status": trial.status,
        "stop_reason": trial.stop_reason,
        "epochs": cost.epochs,
        "best_epoch": trial.best_epoch,
        **_validation(trial.val),
        "device_seconds": cost.device_seconds,
        "train_seconds": cost.train_seconds,
        "tflop": cost.tflop,
    }


def verdict_frame(comparison: Comparison) -> pd.DataFrame:
    """A row for every pair × measure that has a margin; `difference` is the mean of method − baseline.

    `failed_seeds` is on how many seeds the method was worse by the margin or more, `failed_at_most` bounds their share.
    """
    rows = [row for pair in comparison.search.pairs for row in _verdict_rows(comparison, pair)]
    return pd.DataFrame(rows, columns=list(VERDICT_COLUMNS))


def _verdict_rows(comparison: Comparison, pair: Pair) -> list[dict[str, object]]:
    def of(found: object, name: str) -> object:
        return getattr(found, name, None)  # None where the verdict is withheld

    return [
        {
            "method": pair.method,
            "baseline": pair.baseline,
            "measure": quality.key,
            "outcome": outcome_of(pair, quality),
            "difference": pair.differences[quality.key].mean,
            "low": pair.differences[quality.key].low,
            "high": pair.differences[quality.key].high,
            "margin": margin,
            "median": of(pair.medians.get(quality.key), "median"),
            "median_low": of(pair.medians.get(quality.key), "low"),
            "median_high": of(pair.medians.get(quality.key), "high"),
            "failed_seeds": of(pair.failures.get(quality.key), "count"),
            "failed_at_most": of(pair.failures.get(quality.key), "at_most"),
            "seeds_needed": of(pair.verdicts.get(quality.key), "seeds_needed"),
        }
        for quality, margin in comparison.judged.items()
    ]
