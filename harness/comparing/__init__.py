"""Does one training do the job of a search, and at what cost? Reads records only, never a trainer."""

from collections.abc import Sequence
from typing import Any

from harness.colours import colour_of
from harness.comparing.averaged import Searches, averages_said
from harness.comparing.checklist import checklist
from harness.comparing.contamination import contamination
from harness.comparing.equal_quality import equal_quality
from harness.comparing.fairness import differences_between
from harness.comparing.finished import exhaustive_method, finished_by_method
from harness.comparing.notes import notes
from harness.comparing.phases import phases_of
from harness.comparing.row_errors import on_two_errors
from harness.comparing.sentences import headline, leading_cost, margins_phrase, sentence, winner
from harness.comparing.stages import asked, build_stage, with_verdicts
from harness.comparing.values import Comparison
from harness.comparing.wall_clock import wall_clock
from harness.comparing.yardsticks import classes, depth_check, depth_spread, floor, resolution
from harness.errors import UserError, nearest
from harness.schema.records import Looks, Unit
from harness.schema.settings import Margins

__all__ = ["Comparison", "compare"]

NO_LOOKS = Looks()  # but this one
NOT_DETERMINING = frozenset({"description", "margins"})  # a plan's hash leaves them out too


def compare(
    units: Sequence[Unit], reference: str | None = None, problems: Sequence[str] = (), looks: Looks = NO_LOOKS
) -> Comparison:
    """Takes all units of one space; unfinished ones are named and left out, `problems` of reading become notes.

    Every method is compared with the one that trains every depth; a named reference with every other one. Without a
    name the reference is the first method that learns its depth, else the first; curves and costs at equal quality are
    seen from it. The winner is that of the comparison without a name.

    Raises UserError where nothing can be compared: no finished unit, an unknown reference, mixed settings.
    """
    if not units:
        raise UserError("a comparison needs at least one finished unit; there are none")
    named, reference = reference, reference or _default_reference(units)
    _check(units, reference)
    space = units[0].plan.space
    by_method = finished_by_method(units, reference)
    if not by_method:
        raise UserError(
            f"a comparison needs at least one finished unit; {_count(units)} of {space.name} are unfinished"
        )
    known = list(dict.fromkeys(unit.plan.method for unit in units))
    finished = [unit for group in by_method.values() for unit in group]
    seeds = sorted({unit.plan.seed for unit in units})
    margins = _strictest([unit.plan.space.margins for unit in units])
    refitted = all(unit.result.refit is not None for unit in finished)

    exhaustive = exhaustive_method(by_method)
    pairs = asked(by_method, named if exhaustive else reference, exhaustive)
    searches = Searches(by_method, exhaustive)
    search = build_stage("search", by_method, pairs, searches)
    doubts = contamination(by_method, search.pairs)
    cost = leading_cost(doubts)
    search = with_verdicts(search, cost, margins, looks.all)
    usual = asked(by_method, None if exhaustive else _default_reference(units), exhaustive)
    unasked = None if usual == pairs else build_stage("search", by_method, usual, searches)
    refit = build_stage("search + refit", by_method, pairs) if refitted else None
    fairness = tuple(differences_between(finished))
    ours = by_method.get(reference, [])
    baselines = [units for method, units in by_method.items() if method != reference]
    equal = [equal_quality(ours, theirs, margins.log_likelihood) for theirs in baselines]
    all_depths = by_method[exhaustive] if exhaustive else []
    checks = [depth_check(group, all_depths) for group in by_method.values()]
    depth_checks = tuple(item for item in checks if item is not None)
    lowest, sharpness, spread = floor(by_method), resolution(by_method, space), depth_spread(all_depths)
    one_shots = tuple(method for method, group in by_method.items() if group[0].facts.learns_depth)
    cells = {(unit.method, unit.seed) for unit in finished}
    return Comparison(
        space=space.name,
        reference=reference,
        margins=margins,
        depth_spread=spread,
        methods=tuple(by_method),
        unfinished_methods=tuple(method for method in known if method not in by_method),
        one_shots=one_shots,
        exhaustive=exhaustive,
        unordered=tuple(
            method
            for method, group in by_method.items()
            if not group[0].facts.ordered and not group[0].result.replayed_searches
        ),
        full_names={unit.plan.method_file: unit.facts.full_name for unit in finished if unit.facts.full_name},
        colours={method: colour_of(method, group[0].facts.colour) for method, group in by_method.items()},
        seeds=tuple(seeds),
        looks=looks,
        missing=tuple(f"{method} seed {seed}" for method in known for seed in seeds if (method, seed) not in cells),
        headline=headline(reference, search, cost, one_shots),
        sentences=tuple(sentence(pair, doubts.found) for pair in search.pairs),
        margins_said=margins_phrase(margins, spread, exhaustive),
        winner=winner(by_method, with_verdicts(unasked, cost, margins, looks.all) if unasked else search, cost),
        search=search,
        refit=with_verdicts(refit, cost, margins, looks.all) if refit else None,
        equal_quality=tuple(item for item in equal if item is not None),
        wall_clock=tuple(wall_clock(method, group) for method, group in by_method.items()),
        phases=tuple(phases_of(method, group) for method, group in by_method.items()),
        depth_checks=depth_checks,
        classes=classes(by_method),
        floor=lowest,
        resolution=sharpness,
        contamination=doubts,
        fairness=fairness,
        notes=(
            *problems,
            *notes(by_method, units, doubts, lowest, sharpness, looks, margins, spread),
            *averages_said(by_method, searches),
            *on_two_errors(search, finished),
        ),
        checklist=checklist(by_method, fairness, doubts, depth_checks, refitted),
    )


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
    seen: dict[str, Unit] = {}
    for unit in units:
        first = seen.setdefault("space", unit)
        _refuse_difference(first, unit, first.plan.space.model_dump(), unit.plan.space.model_dump())
        first = seen.setdefault(f"method {unit.plan.method}", unit)
        _refuse_difference(first, unit, _of_method(first), _of_method(unit))
    cells = [(unit.plan.method, unit.plan.seed) for unit in units]
    for cell in cells:
        if cells.count(cell) > 1:
            raise UserError(f"a method may have one unit per seed; {cell[0]} seed {cell[1]} is there twice")


def _of_method(unit: Unit) -> dict[str, Any]:
    """What must be the same for all seeds of a method. No comparison reads `seeded`, and older plans do not say it."""
    facts = unit.plan.facts.model_dump(exclude={"colour", "full_name", "seeded"})
    return {"options": unit.plan.options, "facts": facts}


def _refuse_difference(first: Unit, second: Unit, one: dict[str, Any], other: dict[str, Any]) -> None:
    differences = _differences(one, other)
    if differences:
        names = [f"{unit.plan.method} seed {unit.plan.seed}" for unit in (first, second)]
        raise UserError(
            f"all units of a comparison must come from the same settings; {names[0]} and {names[1]} differ in "
            + "; ".join(differences)
        )


def _differences(one: Any, other: Any, path: str = "") -> list[str]:
    """`training.lr: 0.1 / 0.05` for every setting that differs; those in NOT_DETERMINING may."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted(one.keys() | other.keys())
        return [
            line
            for name in names
            if name not in NOT_DETERMINING
            for line in _differences(one.get(name), other.get(name), f"{path}.{name}".lstrip("."))
        ]
    return [] if one == other else [f"{path}: {one!r} / {other!r}"]


def _strictest(margins: Sequence[Margins]) -> Margins:
    """The smallest of each: margins that were widened between two runs must not help a verdict."""
    return Margins(**{name: min(getattr(item, name) for item in margins) for name in Margins.model_fields})


def _count(units: Sequence[Unit]) -> str:
    return "1 unit" if len(units) == 1 else f"all {len(units)} units"
