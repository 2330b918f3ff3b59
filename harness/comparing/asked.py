"""What is asked of the units of a space: which of them are finished, who is compared with whom, by which margins."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.colours import colour_of
from harness.comparing.finished import ByMethod, Finished, exhaustive_method, finished_by_method
from harness.errors import UserError, nearest
from harness.schema.comparable import difference
from harness.schema.records import Looks, Unit
from harness.schema.settings import Margins, SearchSpace

Pairs = Sequence[tuple[str, str]]  # (method, baseline)


@dataclass(frozen=True)
class Asked:
    """The units of a comparison, known to come from the same settings, with at least one of them finished."""

    units: Sequence[Unit]  # unfinished ones too
    by_method: ByMethod  # the finished ones, the reference first
    reference: str
    pairs: Pairs
    usual_pairs: Pairs  # those without a named reference
    looks: Looks

    @property
    def space(self) -> SearchSpace:
        return self.units[0].plan.space

    @property
    def finished(self) -> list[Finished]:
        return [unit for group in self.by_method.values() for unit in group]

    @property
    def exhaustive(self) -> str | None:
        return exhaustive_method(self.by_method)

    @property
    def all_depths(self) -> Sequence[Finished]:
        """The units of the method that trains every depth."""
        return self.by_method[self.exhaustive] if self.exhaustive else []

    @property
    def ours(self) -> Sequence[Finished]:
        return self.by_method.get(self.reference, [])

    @property
    def others(self) -> list[Sequence[Finished]]:
        return [units for method, units in self.by_method.items() if method != self.reference]

    @property
    def margins(self) -> Margins:
        """The smallest of each: margins that were widened between two runs must not help a verdict."""
        given = [unit.plan.space.margins for unit in self.units]
        return Margins(**{name: min(getattr(each, name) for each in given) for name in Margins.model_fields})

    @property
    def choice_within(self) -> float:
        """That of the method that trains every depth; where others choose otherwise, their verdicts are withheld."""
        return (self.all_depths or self.finished)[0].plan.space.choice_within

    @property
    def refitted(self) -> bool:
        return all(unit.result.refit is not None for unit in self.finished)

    @property
    def one_shots(self) -> tuple[str, ...]:
        return tuple(method for method, group in self.by_method.items() if group[0].facts.learns_depth)

    @property
    def unordered(self) -> tuple[str, ...]:
        return tuple(
            method
            for method, group in self.by_method.items()
            if not group[0].facts.ordered and not group[0].result.replayed_searches
        )

    @property
    def full_names(self) -> dict[str, str]:
        return {unit.plan.method_file: unit.facts.full_name for unit in self.finished if unit.facts.full_name}

    @property
    def colours(self) -> dict[str, str]:
        return {method: colour_of(method, group[0].facts.colour) for method, group in self.by_method.items()}

    @property
    def methods(self) -> list[str]:
        """With results or without."""
        return list(dict.fromkeys(unit.plan.method for unit in self.units))

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({unit.plan.seed for unit in self.units}))

    @property
    def unfinished_methods(self) -> tuple[str, ...]:
        return tuple(method for method in self.methods if method not in self.by_method)

    @property
    def missing(self) -> tuple[str, ...]:
        cells = {(unit.method, unit.seed) for unit in self.finished}
        return tuple(
            f"{method} seed {seed}" for method in self.methods for seed in self.seeds if (method, seed) not in cells
        )


def what_is_asked(units: Sequence[Unit], named: str | None, looks: Looks) -> Asked:
    """`named`: the reference that was asked for by its name.

    Raises UserError where nothing can be compared: no finished unit, an unknown reference, mixed settings.
    """
    if not units:
        raise UserError("a comparison needs at least one finished unit; there are none")
    usual = _default_reference(units)
    reference = named or usual
    _check(units, reference)
    by_method = finished_by_method(units, reference)
    if not by_method:
        name = units[0].plan.space.name
        raise UserError(f"a comparison needs at least one finished unit; {_count(units)} of {name} are unfinished")
    exhaustive = exhaustive_method(by_method)
    return Asked(
        units=units,
        by_method=by_method,
        reference=reference,
        pairs=_pairs(by_method, named if exhaustive else reference, exhaustive),
        usual_pairs=_pairs(by_method, None if exhaustive else usual, exhaustive),
        looks=looks,
    )


def _pairs(by_method: ByMethod, reference: str | None, exhaustive: str | None) -> list[tuple[str, str]]:
    """Who is compared with whom, as (method, baseline); one-shots come first.

    Every method with the one that trains every depth: whether it matches that one, and at what share of the cost, is
    what searches and one-shots alike are asked. Where a reference is named, or no method trains every depth, the
    reference with every other method.
    """
    methods = sorted(by_method, key=lambda method: not by_method[method][0].facts.learns_depth)
    if reference is not None:
        return [(reference, other) for other in methods if reference in by_method and other != reference]
    return [(method, exhaustive) for method in methods if exhaustive and method != exhaustive]


def _default_reference(units: Sequence[Unit]) -> str:
    """The first that learns a posterior over depths, else the first that learns its depth, else the first."""
    plans = [unit.plan for unit in units]
    ranked = sorted(plans, key=lambda plan: (not plan.facts.is_posterior, not plan.facts.learns_depth))
    return ranked[0].method


def _check(units: Sequence[Unit], reference: str) -> None:
    methods = {unit.plan.method for unit in units}
    if reference not in methods:
        raise UserError(
            f"the reference must be a method with results; got {reference!r}, {nearest(reference, methods)}"
        )
    if found := difference([unit.plan for unit in units]):
        raise UserError(f"all units of a comparison must come from the same settings, data and files; {found}")
    cells = [(unit.plan.method, unit.plan.seed) for unit in units]
    for cell in cells:
        if cells.count(cell) > 1:
            raise UserError(f"a method may have one unit per seed; {cell[0]} seed {cell[1]} is there twice")


def _count(units: Sequence[Unit]) -> str:
    return "1 unit" if len(units) == 1 else f"all {len(units)} units"
