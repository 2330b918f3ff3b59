"""What a reader must know before believing the table: one sentence each."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from harness.comparing.asked import Asked
from harness.comparing.costs import unexplained
from harness.comparing.finished import ByMethod, Finished
from harness.comparing.headroom import AllDepths
from harness.comparing.numbers import listed, plain, seeds_named
from harness.comparing.sentences import CANNOT_SAY
from harness.comparing.stages import share_their_test_rows
from harness.comparing.values import Contamination, Floor, Pair, Resolution, Stage
from harness.comparing.yardsticks import classes
from harness.measures import QUALITIES, judged
from harness.schema.records import REPLAYED_SEARCHES, Looks, TrialRecord, Unit
from harness.schema.settings import TIE_NATS, Margins
from harness.text.shown import counted

FEW_ROWS = 20  # of a class
DIVERGED = 10  # times the log-likelihood of guessing
_NOTHING = 1e-6  # seconds: what is left of a sum by rounding


def notes(
    asked: Asked,
    contamination: Contamination,
    floor: Floor | None,
    resolution: Resolution | None,
    spread: Mapping[str, float],
) -> tuple[str, ...]:
    by_method, units = asked.by_method, asked.units
    found = [*_on_the_space(floor, resolution), *_on_classes(by_method), *_on_margins(asked.margins, spread)]
    found += [*_on_looks(asked.looks), *_on_contamination(contamination), *_on_replays(by_method)]
    for method, group in by_method.items():
        found.extend(_on_divergence(method, group))
        found.extend(_on_method(method, group))
        found.extend(unexplained(group))
    found.extend(_on_all_failed(units))
    if len({unit.plan.space.margins for unit in units}) > 1:
        found.append("The margins were changed between runs; the strictest are used.")
    found.extend(_on_refits(by_method))
    return tuple(found)


def on_headroom(asked: Asked, known: Sequence[int]) -> Iterator[str]:
    """Once, where it cannot be said whether to search; `known`: the seeds on which every depth was trained."""
    depths = asked.space.depth.values
    left_out = [unit.seed for unit in asked.all_depths if unit.seed not in known]
    if len(depths) < 2:
        yield f"The space has one depth, {depths[0]}: there is nothing to search."
    elif asked.exhaustive is None:
        yield f"{CANNOT_SAY}: no method here trained every depth."
    elif not known:
        yield f"{CANNOT_SAY}: on no seed is there a network of every depth, evaluated on the test set."
    elif left_out:
        yield f"Whether a search is needed is judged without {seeds_named(left_out)}, where a depth is missing."


def on_choice(within: float, seeds: Sequence[AllDepths]) -> Iterator[str]:
    """Where no network can lose: whatever depths are worth, the smallest one is chosen."""
    spread = max((max(values) - min(values) for values in map(_on_validation, seeds) if values), default=math.inf)
    if within > TIE_NATS and spread <= within:
        yield (
            f"choice_within, {within:g} nats, is more than what lies between the best and the worst depth on "
            f"validation on any seed ({plain(spread, 2)}): the smallest depth is chosen, whatever depths are worth."
        )


def _on_validation(seed: AllDepths) -> list[float]:
    return [each.validation for each in seed.at.values()]


def _on_the_space(floor: Floor | None, resolution: Resolution | None) -> Iterator[str]:
    """Whether the problem is fit to compare anything: it leads the notes."""
    if floor:
        yield from floor.below
        if floor.not_converged:
            yield f"The linear model's solver stopped at its limit of iterations on {seeds_named(floor.not_converged)}."
    if resolution and not resolution.enough:
        yield f"{resolution.sentence[0].upper()}{resolution.sentence[1:]}"


def _on_classes(by_method: ByMethod) -> Iterator[str]:
    for method, units in by_method.items():
        finals = [unit.result.final for unit in units]
        floors = [final.floor for final in finals if final.floor]
        if floors and len(floors) == len(finals):
            own = fmean(final.chosen.accuracy for final in finals)
            guessed = fmean(floor.guess.accuracy for floor in floors)
            if own <= guessed:
                both = f"{own:.3f} against {guessed:.3f}"
                yield f"{method}: the most frequent class alone would reach its accuracy, {both}."
    rare = [row for row in classes(by_method) if row.rows < FEW_ROWS]
    if rare:
        named = ", ".join(f"{row.name} ({row.rows})" for row in rare[:5])
        more = f" and {len(rare) - 5} more" if len(rare) > 5 else ""
        yield (
            f"Classes with fewer than {FEW_ROWS} rows, whose results are noisy: {named}{more}. More rows, or merging "
            "them with other classes, would help."
        )


def _on_margins(margins: Margins, spread: Mapping[str, float]) -> Iterator[str]:
    """Of a margin that any depth would keep to: "as good" would say nothing."""
    for quality, margin in judged(margins).items():
        if quality.key in spread and margin >= spread[quality.key]:
            yield (
                f"The margin of {quality.title}, {margin:g}, is not smaller than the difference between the best and "
                f"the worst depth, {plain(spread[quality.key], 2)}, so any depth passes as good. Set a smaller "
                f"margins.{quality.margin}."
            )


def _on_looks(looks: Looks) -> Iterator[str]:
    if len(looks.all) > 1:
        why = "fixed in advance" if not looks.taken else "some of them added after a verdict had been seen"
        at = ", ".join(map(str, looks.all[:-1]))
        yield (
            f"Interim analyses: methods are compared {len(looks.all)} times, at {at} and {looks.all[-1]} seeds, {why}. "
            "Intervals and verdicts are adjusted for that, so that all of them together are wrong in at most 5 % of "
            "cases."
        )


def _on_replays(by_method: ByMethod) -> Iterator[str]:
    replayed = {method for method, units in by_method.items() if any(unit.plan.replayed for unit in units)}
    if replayed:
        trained = [method for method in by_method if method not in replayed]
        yield (
            f"Trained: {', '.join(trained) or 'none of these'}. Replayed from recorded trials, and charged "
            f"what those trials cost: {', '.join(sorted(replayed))}. Costs that a replay cannot know (worker start, "
            "checkpoints, crashes) are left out for every method."
        )
    if averaged := sorted(
        method for method, units in by_method.items() if any(unit.result.replayed_searches for unit in units)
    ):
        yield (
            f"Anytime curves and cost at equal quality of {', '.join(averaged)} are means over {REPLAYED_SEARCHES} "
            "replays with other search seeds; one that never reaches the target costs its full run."
        )


def _on_contamination(contamination: Contamination) -> Iterator[str]:
    if contamination.found:
        yield (
            f"Time may be contaminated, so the text leads with TFLOP and epochs: {'; '.join(contamination.signs)}. "
            "A shared machine does this, and so do the fixed overheads of very small networks."
        )


def _on_divergence(method: str, units: Sequence[Finished]) -> Iterator[str]:
    """Networks that are far worse than no network: log-likelihood < DIVERGED × that of the class frequencies."""
    guesses = {unit.seed: unit.result.final.floor.guess.log_likelihood for unit in units if unit.result.final.floor}
    known = [unit for unit in units if unit.seed in guesses]
    chosen = {unit.seed: unit.result.final.chosen.log_likelihood for unit in known}
    diverged = [seed for seed, value in chosen.items() if value < DIVERGED * guesses[seed]]
    if diverged:
        worst = min(diverged, key=lambda seed: chosen[seed])
        yield (
            f"{method}: its network diverged on {seeds_named(diverged)}: a test log-likelihood of "
            f"{plain(chosen[worst])} nats, where guessing the class frequencies has {plain(guesses[worst])}."
        )
    others = [(unit, trial) for unit in known for trial in unit.trials if trial.trial_id != unit.result.chosen_trial]
    lost = sum(
        trial.val is not None and trial.val.log_likelihood < DIVERGED * guesses[unit.seed] for unit, trial in others
    )
    if lost:
        yield (
            f"{method}: {counted(lost, 'trial')} diverged (validation log-likelihood below {DIVERGED} times that of "
            "guessing the class frequencies); no network of theirs was chosen."
        )


def _on_method(method: str, units: Sequence[Finished]) -> Iterator[str]:
    trials = [trial for unit in units for trial in unit.trials]
    at_cap = sum(trial.stop_reason == "cap" for trial in trials)
    if at_cap > len(trials) / 2:
        yield f"{method}: the epoch cap sets its cost: {at_cap} of {counted(len(trials), 'trial')} ended there."
    late = [unit.seed for unit in units if unit.chosen and unit.chosen.depth_changed_late]
    if late:
        of_q = any(unit.result.final.posterior_gap_nats is not None for unit in units)
        whose = "its weights over depths had not converged: its" if of_q else "its"
        yield f"{method}: {whose} choice of depth still changed in the last quarter of training on {seeds_named(late)}."
    yield from _on_posterior(method, units)
    if any(unit.result.order_dependent for unit in units):
        yield (
            f"{method}: it decided while several of its trials ran, so its choices depend on timing; run it one trial "
            "at a time to repeat them exactly."
        )
    outside = [unit.seed for unit in units if not unit.result.d_opt_in_range]
    if outside:
        yield f"{method}: d_opt is outside the depths that fixed-depth searches may train on {seeds_named(outside)}."
    failed = sum(trial.status == "failed" for trial in trials)
    if failed:
        yield f"{method}: {failed} of {counted(len(trials), 'trial')} failed; what failed is in the cost."
    eager = sum(bool(trial.ran_eagerly) for trial in trials)
    if eager:
        yield f"{method}: {eager} of {counted(len(trials), 'trial')} ran without torch.compile, which gave up on them."
    yield from _on_lost_time(method, trials)
    if any(trial.environment.code.endswith("+dirty") for trial in trials):
        yield f"{method}: the code had uncommitted changes, so its version does not say what ran."


def _on_lost_time(method: str, trials: Sequence[TrialRecord]) -> Iterator[str]:
    lost = sum(trial.cost.phases.get("lost", 0.0) * trial.cost.devices for trial in trials)
    told_to_stop = sum(
        attempt.lost_seconds * trial.cost.devices
        for trial in trials
        for attempt in trial.attempts
        if attempt.ended == "interrupted" and not attempt.tail_unknown
    )
    if told_to_stop > _NOTHING:
        yield (
            f"{method}: the run was told to stop and could not wait for a report, so {told_to_stop:.3g} device-seconds "
            "were spent again; they are counted."
        )
    if lost - told_to_stop > _NOTHING:
        yield f"{method}: {lost - told_to_stop:.3g} device-seconds were lost to workers that died; they are counted."
    suspended = sum(attempt.suspended_seconds for trial in trials for attempt in trial.attempts)
    if suspended > _NOTHING:
        yield f"{method}: its trials waited {suspended:.3g} s for a driver that was suspended; they are in no cost."
    if any(attempt.tail_unknown for trial in trials for attempt in trial.attempts):
        yield f"{method}: a driver was killed, so the end of an attempt is unknown and its cost is a lower bound."


def _on_posterior(method: str, units: Sequence[Finished]) -> Iterator[str]:
    """Where the depth was chosen from a q that is not the posterior of its own weights."""
    finals = {unit.seed: (unit.result.d_opt, unit.result.final.d_opt_by_exact) for unit in units}
    other = {seed: (chosen, exact) for seed, (chosen, exact) in finals.items() if exact is not None and exact != chosen}
    if other:
        pairs = ", ".join(f"{chosen} / {exact}" for chosen, exact in other.values())
        yield (
            f"{method}: on {seeds_named(list(other))} the learnt q is not the exact posterior of the same weights, and "
            f"the rule would choose another depth from that (d_opt / exact: {pairs}). Longer training or a larger "
            "posterior.lr brings q closer."
        )


def _on_all_failed(units: Sequence[Unit]) -> Iterator[str]:
    for unit in units:
        if unit.result is None and unit.trials and all(trial.status == "failed" for trial in unit.trials):
            name = f"{unit.plan.method} seed {unit.plan.seed}"
            which = "its trial" if len(unit.trials) == 1 else f"all {len(unit.trials)} trials"
            yield f"{name}: {which} failed, so it chose nothing."


def _on_refits(by_method: ByMethod) -> Iterator[str]:
    """Search + refit is shown for all or for none."""
    units = [unit for group in by_method.values() for unit in group]
    without = [unit for unit in units if unit.result.refit is None]
    if 0 < len(without) < len(units):
        names = ", ".join(f"{unit.method} seed {unit.seed}" for unit in without)
        yield f"Search + refit is not shown, because these units were not refitted: {names}."


def on_two_errors(stage: Stage, units: Sequence[Finished]) -> Iterator[str]:
    """Which error rules, or why that is not known: one sentence."""
    if any(unit.result.final.test_hash is None for unit in units):
        yield (
            "Intervals cover seeds only, not the choice of test rows: some results come from a version that kept no "
            "values per test row."
        )
    elif not share_their_test_rows(units):
        if len({unit.seed for unit in units}) > 1:
            yield "Every seed has a test set of its own, so intervals over seeds cover the choice of test rows, too."
    elif any(pair.row_errors for pair in stage.pairs):
        yield _which_rules(stage.pairs, units[0].result.final.n_test)
    elif stage.pairs:
        yield "Intervals cover seeds only: the files with values per test row are missing or damaged."


def _which_rules(pairs: Sequence[Pair], rows: int) -> str:
    known = [(pair, each) for pair in pairs for each in QUALITIES if each.key in pair.row_errors]
    larger = [(pair, each) for pair, each in known if pair.rows_rule(each.key)]
    same = f"All seeds were tested on the same {rows:,} rows, so the error over test rows comes on top"
    if not larger:
        return f"{same}; it is the smaller one everywhere. Both are in the table of differences."
    titles = listed(list(dict.fromkeys(each.title for _, each in larger)))
    return (
        f"{same}. It is the larger one in {len(larger)} of {counted(len(known), 'difference')} ({titles}): there more "
        "seeds do not help, more test rows do. Both are in the table of differences."
    )
