"""Finished units, grouped by method: what every part of a comparison works on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.records import MethodFacts, SearchResult, TrialRecord, Unit, UnitPlan


@dataclass(frozen=True)
class Finished:
    """A unit known to have a result, so that nobody downstream asks again."""

    plan: UnitPlan
    trials: tuple[TrialRecord, ...]
    result: SearchResult

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
    def chosen(self) -> TrialRecord | None:
        """The trial whose network was chosen; None where the records have lost it."""
        return next((trial for trial in self.trials if trial.trial_id == self.result.chosen_trial), None)


ByMethod = Mapping[str, Sequence[Finished]]


def finished_by_method(units: Sequence[Unit], reference: str) -> dict[str, list[Finished]]:
    """Finished units by method, the reference first, each group in the order of its seeds."""
    groups: dict[str, list[Finished]] = {}
    for unit in sorted(units, key=lambda unit: (unit.plan.method != reference, unit.plan.seed)):
        if unit.result is not None:
            groups.setdefault(unit.plan.method, []).append(Finished(unit.plan, unit.trials, unit.result))
    return groups


def exhaustive_method(by_method: ByMethod) -> str | None:
    """The first method that trains every depth in full: what choices of depth are measured against."""
    return next((method for method, units in by_method.items() if units[0].facts.exhaustive), None)
