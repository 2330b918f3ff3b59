"""Records and verdicts as pandas DataFrames, for notebooks. Column names are those of keys.py."""

from collections.abc import Sequence

import pandas as pd

from harness import keys
from harness.comparing.finished import Finished, finished_by_method, refit_measures, search_measures
from harness.comparing.stages import margin_of
from harness.comparing.values import Comparison, Pair
from harness.records import TrialRecord, Unit

VERDICT_COLUMNS = ("baseline", "measure", "outcome", "difference", "low", "high", "margin")


def unit_frame(units: Sequence[Unit]) -> pd.DataFrame:
    """A row for every finished method × seed, the measures as columns."""
    groups = finished_by_method(units, units[0].plan.method) if units else {}
    return pd.DataFrame([_unit_row(finished) for group in groups.values() for finished in group])


def _unit_row(finished: Finished) -> dict[str, object]:
    result = finished.result
    refit = refit_measures(finished) if result.refit else {}
    return {
        "method": finished.method,
        "seed": finished.seed,
        "status": result.status,
        **search_measures(finished),
        keys.D_OPT: result.d_opt,  # a whole number
        "val_accuracy": result.val.accuracy,
        "val_log_likelihood": result.val.log_likelihood,
        keys.TRIALS: result.trials,
        keys.WALL_SECONDS: result.wall_seconds,
        **{f"refit_{key}": value for key, value in refit.items()},
    }


def trial_frame(units: Sequence[Unit]) -> pd.DataFrame:
    """A row for every trial of the finished units, failed and stopped ones included."""
    return pd.DataFrame([_trial_row(unit, trial) for unit in units for trial in unit.trials])


def _trial_row(unit: Unit, trial: TrialRecord) -> dict[str, object]:
    val, cost = trial.val, trial.cost
    return {
        "method": unit.plan.method,
        "seed": unit.plan.seed,
        "trial": trial.trial_id,
        "depth": trial.depth,
        "d_opt": trial.posterior.d_opt if trial.posterior else trial.depth,
        "chosen": unit.result is not None and unit.result.chosen_trial == trial.trial_id,
        "status": trial.status,
        "stop_reason": trial.stop_reason,
        "epochs": cost.epochs,
        "best_epoch": trial.best_epoch,
        "val_accuracy": val and val.accuracy,
        "val_log_likelihood": val and val.log_likelihood,
        "val_ece": val and val.ece,
        "val_brier": val and val.brier,
        "device_seconds": cost.device_seconds,
        "train_seconds": cost.train_seconds,
        "tflop": cost.tflop,
    }


def verdict_frame(comparison: Comparison) -> pd.DataFrame:
    """A row for every baseline × measure that has a margin; `difference` is reference − baseline, with its interval."""
    rows = [row for pair in comparison.search.pairs for row in _verdict_rows(comparison, pair)]
    return pd.DataFrame(rows, columns=list(VERDICT_COLUMNS))


def _verdict_rows(comparison: Comparison, pair: Pair) -> list[dict[str, object]]:
    return [
        {
            "baseline": pair.baseline,
            "measure": key,
            "outcome": pair.verdicts[key].outcome if key in pair.verdicts else "withheld",
            "difference": difference.mean,
            "low": difference.low,
            "high": difference.high,
            "margin": margin,
        }
        for key, difference in pair.differences.items()
        if (margin := margin_of(comparison.margins, key)) is not None
    ]
