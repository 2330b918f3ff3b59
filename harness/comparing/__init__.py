"""Does one training do the job of a search, and at what cost? Reads records only, never a trainer."""

from collections.abc import Sequence

from harness.comparing.asked import what_is_asked
from harness.comparing.averaged import averages_said
from harness.comparing.checklist import checklist
from harness.comparing.costs import equal_quality, pace, phases_of, wall_clock
from harness.comparing.fairness import differences_between
from harness.comparing.headroom import all_depths_of, headroom
from harness.comparing.notes import notes, on_choice, on_headroom, on_two_errors
from harness.comparing.recommendation import Known, recommend, winner
from harness.comparing.sentences import margins_phrase, sentence
from harness.comparing.stages import judged_stages
from harness.comparing.values import Comparison
from harness.comparing.yardsticks import classes, depth_check, depth_spread, floor, resolution
from harness.schema.records import Looks, Unit

__all__ = ["Comparison", "compare"]

NO_LOOKS = Looks()  # but this one


def compare(
    units: Sequence[Unit], reference: str | None = None, problems: Sequence[str] = (), looks: Looks = NO_LOOKS
) -> Comparison:
    """Takes all units of one space; unfinished ones are named and left out, `problems` of reading become notes.

    Every method is compared with the one that trains every depth; a named reference with every other one. Without a
    name the reference is the first method that learns its depth, else the first; curves and costs at equal quality are
    seen from it. The winner is that of the comparison without a name.

    Raises UserError where nothing can be compared: no finished unit, an unknown reference, mixed settings.
    """
    asked = what_is_asked(units, reference, looks)
    by_method, margins = asked.by_method, asked.margins
    stages = judged_stages(asked)
    doubts, cost = stages.doubts, stages.cost
    fairness = tuple(differences_between(asked.finished))
    spread = depth_spread(asked.all_depths)
    checks = tuple(check for each in by_method.values() if (check := depth_check(each, asked.all_depths)))
    equal = (equal_quality(asked.ours, theirs, margins.log_likelihood) for theirs in asked.others)
    whole = [found for unit in asked.all_depths if (found := all_depths_of(unit))]
    needed = headroom(whole, asked.exhaustive or "", margins, cost, looks.all, asked.choice_within)
    known = Known(
        needed=needed,
        exhaustive=asked.exhaustive,
        stage=stages.usual,
        one_shots=asked.one_shots,
        cost=cost,
        margins=margins,
        depths=asked.space.depth.values,
        spread=spread,
        seconds_per_seed=pace(asked.finished),
    )
    lowest, sharpness = floor(by_method), resolution(by_method, asked.space)
    return Comparison(
        space=asked.space.name,
        reference=asked.reference,
        margins=margins,
        depth_spread=spread,
        methods=tuple(by_method),
        unfinished_methods=asked.unfinished_methods,
        one_shots=asked.one_shots,
        exhaustive=asked.exhaustive,
        unordered=asked.unordered,
        full_names=asked.full_names,
        colours=asked.colours,
        seeds=asked.seeds,
        looks=looks,
        missing=asked.missing,
        recommendation=recommend(known),
        sentences=tuple(sentence(pair, doubts.found) for pair in stages.search.pairs),
        headroom=needed,
        margins_said=margins_phrase(margins, spread, asked.exhaustive),
        winner=winner(by_method, known),
        search=stages.search,
        refit=stages.refit,
        equal_quality=tuple(each for each in equal if each),
        wall_clock=tuple(wall_clock(method, group) for method, group in by_method.items()),
        phases=tuple(phases_of(method, group) for method, group in by_method.items()),
        depth_checks=checks,
        classes=classes(by_method),
        floor=lowest,
        resolution=sharpness,
        contamination=doubts,
        fairness=fairness,
        notes=(
            *problems,
            *on_headroom(asked, [found.seed for found in whole]),
            *on_choice(asked.choice_within, whole),
            *notes(asked, doubts, lowest, sharpness, spread),
            *averages_said(by_method, stages.searches),
            *on_two_errors(stages.search, asked.finished),
        ),
        checklist=checklist(by_method, fairness, doubts, checks, asked.refitted),
    )
