"""What a search is worth on a seed: its mean over search seeds, where recordings allow it. One draw decides nothing.

A depth is the same network in every search, so the networks of the method that trains every depth say what each choice
is worth. One depth drawn at random is enumerated: the exact mean over depths.
"""

from collections.abc import Mapping, Sequence

from harness.comparing.finished import ByMethod, Finished
from harness.measures import Outcome
from harness.schema.records import Cost, DepthMeasures, ReplayedSearch


class Searches:
    """The outcomes that a unit of a comparison stands for."""

    def __init__(self, by_method: ByMethod, exhaustive: str | None) -> None:
        self._all_depths = {unit.seed: unit for unit in by_method[exhaustive]} if exhaustive else {}

    def outcomes(self, unit: Finished) -> list[Outcome]:
        """All equally likely; a single one where nothing is random, or the others are not known."""
        known = self._all_depths.get(unit.seed)
        if known is None or known is unit or not known.result.final.per_depth_test:
            return [Outcome.of_search(unit.result)]
        at_depth = {each.depth: each for each in known.result.final.per_depth_test}
        found = _enumerated(unit, known, at_depth) if is_one_random_depth(unit) else _replayed(unit, at_depth)
        return found or [Outcome.of_search(unit.result)]

    def is_averaged(self, unit: Finished) -> bool:
        return len(self.outcomes(unit)) > 1


def is_one_random_depth(unit: Finished) -> bool:
    facts = unit.facts
    return unit.plan.trials == 1 and facts.seeded and not (facts.adaptive or facts.learns_depth or facts.exhaustive)


def _enumerated(unit: Finished, all_depths: Finished, at_depth: Mapping[int, DepthMeasures]) -> list[Outcome]:
    trials = {trial.depth: trial for trial in all_depths.trials if trial.status == "finished"}
    if set(trials) != set(at_depth) or set(at_depth) != set(unit.plan.space.depth.values):
        return []  # of some depth nobody knows what it costs
    return [_outcome(unit, trial.cost, at_depth[depth]) for depth, trial in sorted(trials.items())]


def _replayed(unit: Finished, at_depth: Mapping[int, DepthMeasures]) -> list[Outcome]:
    found: list[Outcome] = []
    stopped = {(each.depth, each.epoch): each for each in unit.result.final.stopped_test}
    for search in unit.result.replayed_choices:
        network = stopped.get((search.depth, search.epoch)) if search.stopped else at_depth.get(search.depth)
        if network is None:
            return []
        found.append(_outcome(unit, search.cost, network))
    return found


def _outcome(unit: Finished, cost: Cost, network: DepthMeasures) -> Outcome:
    return Outcome(unit.result, (cost,), network.depth, network.measures, network.multiply_adds)


def averages_said(by_method: ByMethod, searches: Searches) -> list[str]:
    """Which methods are averages, and which are one draw only."""
    averaged = {m: [u for u in units if searches.is_averaged(u)] for m, units in by_method.items()}
    replays = [m for m, units in averaged.items() if units and not is_one_random_depth(units[0])]
    exact = [m for m, units in averaged.items() if units and is_one_random_depth(units[0])]
    said = [_on_replays(by_method, replays)] if replays else []
    if exact:
        said.append(f"{', '.join(exact)}: the exact mean over all depths, not one draw.")
    single = [m for m, units in by_method.items() if units[0].facts.seeded and len(averaged[m]) < len(units)]
    single = [m for m in single if not by_method[m][0].facts.learns_depth]
    if single:
        said.append(
            f"{', '.join(single)}: one search per training seed. Another search seed might choose another depth; to "
            "average over search seeds, run again with --replay and a method that trains every depth."
        )
    return said


def _on_replays(by_method: ByMethod, methods: Sequence[str]) -> str:
    searches: list[ReplayedSearch] = [
        each for method in methods for unit in by_method[method] for each in unit.result.replayed_choices
    ]
    per_unit = len(by_method[methods[0]][0].result.replayed_choices)
    stopped = sum(each.stopped for each in searches)
    early = f" {stopped} of these {len(searches)} searches chose a network that was stopped early." if stopped else ""
    return (
        f"{', '.join(methods)}: cost and quality of a seed are means over {per_unit} search seeds, each choice "
        f"evaluated as it was trained.{early}"
    )
