"""Finished units, grouped by method: what every part of a comparison works on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.schema.records import FIXED_DEPTH, NOT_CARRIED_OVER, MethodFacts, SearchResult, TrialRecord, Unit, UnitPlan
from harness.schema.rows import RowValues, read_rows


@dataclass(frozen=True)
class Finished:
    """A unit known to have a result, so that nobody downstream asks again."""

    plan: UnitPlan
    trials: tuple[TrialRecord, ...]
    result: SearchResult
    rows_file: Path | None = None  # values per test row

    @property
    def rows(self) -> RowValues | None:
        """Of the chosen network; None in results of version 0.2.0 and before."""
        return read_rows(self.rows_file, self.result.final.n_test, self.result.final.rows_hash)

    @property
    def method(self) -> str:
        return self.plan.method

    @property
    def seed(self) -> int:
        return self.plan.seed

    @property
    def facts(self) -> MethodFacts:
        return self.plan.facts

    @property
    def after(self) -> tuple[TrialRecord, ...]:
        """Trials that follow a one-shot's own; one of them is handed over."""
        return tuple(trial for trial in self.trials if self.plan.is_of_stage(trial))

    @property
    def searched(self) -> tuple[TrialRecord, ...]:
        """The others."""
        return tuple(trial for trial in self.trials if not self.plan.is_of_stage(trial))

    def kind_of(self, trial: TrialRecord) -> str:
        """What is the same network in every method: a fixed depth. Options are part of a one-shot, and what it cuts."""
        if trial.kind == FIXED_DEPTH:
            return trial.kind
        return self.method if trial.learns_depth else f"{self.method}, {trial.kind}"

    @property
    def chosen(self) -> TrialRecord | None:
        """The trial whose network was chosen; None where the records have lost it."""
        return next((trial for trial in self.trials if trial.trial_id == self.result.chosen_trial), None)


ByMethod = Mapping[str, Sequence[Finished]]


def finished_by_method(units: Sequence[Unit], reference: str) -> dict[str, list[Finished]]:
    """Finished units by method, the reference first, each group in the order of its seeds.

    Beside replayed units, those that were trained are taken without what does not carry over to a replay.
    """
    groups: dict[str, list[Finished]] = {}
    any_replayed = any(unit.plan.replayed for unit in units if unit.result)
    for unit in sorted(units, key=lambda unit: (unit.plan.method != reference, unit.plan.seed)):
        if unit.result is not None:
            finished = Finished(unit.plan, unit.trials, unit.result, unit.rows_file)
            groups.setdefault(unit.plan.method, []).append(_as_replayed(finished) if any_replayed else finished)
    return groups


def _as_replayed(unit: Finished) -> Finished:
    """Its costs without worker starts, checkpoints and lost work: no replayed unit has any."""
    result = unit.result.model_copy(
        update={"cost": unit.result.cost.without(NOT_CARRIED_OVER), "worker_start_device_seconds": 0.0}
    )
    return replace(unit, trials=tuple(map(_trial_as_replayed, unit.trials)), result=result)


def _trial_as_replayed(trial: TrialRecord) -> TrialRecord:
    """Records do not say at which report its checkpoints were written: they are taken off evenly."""
    cost = trial.cost.without(NOT_CARRIED_OVER)
    share = cost.held_seconds / trial.cost.held_seconds if trial.cost.held_seconds else 1.0
    curve = (point.model_copy(update={"device_seconds": share * point.device_seconds}) for point in trial.curve)
    return trial.model_copy(update={"cost": cost, "curve": tuple(curve)})


def exhaustive_method(by_method: ByMethod) -> str | None:
    """The first method that trains every depth in full: what choices of depth are measured against."""
    return next((method for method, units in by_method.items() if units[0].facts.exhaustive), None)


def paired(method: Sequence[Finished], baseline: Sequence[Finished]) -> list[tuple[Finished, Finished]]:
    """Units of both methods on the same seed, in the order of the seeds."""
    others = {unit.seed: unit for unit in baseline}
    return [(unit, others[unit.seed]) for unit in method if unit.seed in others]
