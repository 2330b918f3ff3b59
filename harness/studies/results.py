"""What a study has on disk: the units of every cell and seed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.records import Unit
from harness.running.store import read_units
from harness.studies.definition import Cell, Study
from harness.studies.readings import READINGS, Units


@dataclass(frozen=True)
class StudyResults:
    """Complete units only. Figures and claims read nothing else, save the checkpoints that function maps need."""

    study: Study
    out: Path  # the folder that holds the cells' folders
    units: Mapping[str, Mapping[int, Units]]  # cell's name → seed → method → unit

    @property
    def cells(self) -> list[Cell]:
        """Those with at least one complete unit, in the study's order."""
        return [cell for cell in self.study.cells if self.units.get(cell.space.name)]

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for by_seed in self.units.values() for seed in by_seed})

    def of(self, cell: Cell) -> Mapping[int, Units]:
        return self.units.get(cell.space.name, {})

    def readings(self, name: str, cell: Cell) -> dict[int, float]:
        """seed → number, of the seeds that have it: a network that failed or was not trained has none."""
        found = {}
        for seed, units in sorted(self.of(cell).items()):
            try:
                found[seed] = READINGS[name](units)
            except KeyError:
                continue
        return found


def read_results(study: Study, out: Path) -> StudyResults:
    """The units on disk that were trained with this study's settings; of a cell run otherwise nothing is taken."""
    units: dict[str, dict[int, dict[str, Unit]]] = {}
    for cell in study.cells:
        for unit in read_units(out, cell.space.name)[0]:
            if unit.result and unit.plan.space == cell.space:
                units.setdefault(cell.space.name, {}).setdefault(unit.plan.seed, {})[unit.plan.method] = unit
    return StudyResults(study, out, units)
