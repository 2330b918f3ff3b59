"""What a study has on disk: the units of every cell and seed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.colours import colour_of
from harness.methods import parse_methods
from harness.running.store import read_units
from harness.schema.records import MethodFacts, Unit, UnitPlan
from harness.studies.definition import Cell, Study
from harness.studies.readings import Units, read
from harness.studies.words import data_set_of, name_of


@dataclass(frozen=True)
class StudyResults:
    """Complete units only. Figures and claims read nothing else, save the checkpoints that function maps need."""

    study: Study
    out: Path  # the folder that holds the cells' folders
    units: Mapping[str, Mapping[int, Units]]  # cell's name → seed → method → unit
    reasons: Mapping[str, str] = field(default_factory=dict)  # what a space is called → why it, or a unit, is not there

    @property
    def cells(self) -> list[Cell]:
        """Those with at least one complete unit, in the study's order."""
        return [cell for cell in self.study.cells if self.units.get(cell.space.name)]

    @property
    def not_run(self) -> dict[str, str]:
        """Spaces without a complete unit, and why, where that is known."""
        there = {name_of(cell) for cell in self.cells}
        return {name: why for name, why in self.reasons.items() if name not in there}

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for by_seed in self.units.values() for seed in by_seed})

    def of(self, cell: Cell) -> Mapping[int, Units]:
        return self.units.get(cell.space.name, {})

    @property
    def methods(self) -> list[str]:
        """Those with at least one complete unit, in the study's order."""
        found = {method for by_seed in self.units.values() for units in by_seed.values() for method in units}
        return [method for method in parse_methods(self.study.methods) if method in found]

    @property
    def one_shots(self) -> list[str]:
        """Those of them whose network learns its depth, and is handed over as it is."""
        return [each for each in self.methods if self.facts(each).learns_depth and self.plan(each).stage.then is None]

    def plan(self, method: str) -> UnitPlan:
        """Of one of its complete units."""
        every = (units for by_seed in self.units.values() for units in by_seed.values())
        return next(units[method].plan for units in every if method in units)

    def facts(self, method: str) -> MethodFacts:
        """What is true of a method with a complete unit."""
        return self.plan(method).facts

    def colour(self, method: str) -> str:
        return colour_of(method, self.facts(method).colour)

    def readings(self, name: str, cell: Cell, method: str | None = None) -> dict[int, float]:
        """seed → number, of the seeds that have it: a network that failed or was not trained has none.

        Of the first method whose network learns its depth, unless one is named.
        """
        found = {}
        for seed, units in sorted(self.of(cell).items()):
            try:
                found[seed] = read(name, units, method)
            except KeyError:
                continue
        return found


def read_results(study: Study, out: Path, failures: Mapping[str, str] | None = None) -> StudyResults:
    """The units on disk of this study's methods and settings; of a cell run otherwise nothing is taken.

    `failures`: cell, or unit of one → why."""
    order = list(parse_methods(study.methods))
    units: dict[str, dict[int, dict[str, Unit]]] = {}
    for cell in study.cells:
        found = [unit for unit in read_units(out, cell.space.name)[0] if unit.result and _trained_in(cell, unit)]
        for unit in sorted(
            (unit for unit in found if unit.plan.method in order), key=lambda unit: order.index(unit.plan.method)
        ):
            units.setdefault(cell.space.name, {}).setdefault(unit.plan.seed, {})[unit.plan.method] = unit
    reasons = {data_set_of(base): why for base, why in study.broken.items()}
    for key, why in (failures or {}).items():
        for cell in study.cells:
            if key.partition("/")[0] == cell.space.name:
                reasons.setdefault(name_of(cell), why)
    return StudyResults(study, out, units, reasons)


def _trained_in(cell: Cell, unit: Unit) -> bool:
    """Whether the same search in the cell's space would give the same numbers: margins and descriptions may differ."""
    return unit.plan.model_copy(update={"space": cell.space}).hash == unit.plan.hash
