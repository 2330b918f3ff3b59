"""The comparison in words: one plain sentence per pair, and whether a search is needed."""

from collections.abc import Container, Mapping, Sequence

from harness.comparing.numbers import gain, inverse, listed, loss, plain, ratio, ratio_with_ends, signed
from harness.comparing.values import Headroom, Pair, Stage
from harness.judging.two_keys import MOST_SEEDS, Verdict
from harness.judging.words import UNANSWERED, plain_part, shown
from harness.measures import DEVICE_SECONDS, EPOCHS, QUALITIES, TFLOP, Measure, judged
from harness.schema.settings import Margins
from harness.statistics import Failures, Interval
from harness.text.shown import counted

AGAIN = "all of them together, or a refit with --refit, are alternatives"
COST_WORDS = {DEVICE_SECONDS.key: "device time", TFLOP.key: "compute (TFLOP)", EPOCHS.key: "epochs"}


def cost_name(cost: Measure) -> str:
    """What a share is of, as in `at 0.48 of grid's TFLOP`: just "cost" where that is device time, as usual."""
    return TFLOP.unit if cost.key == TFLOP.key else "cost"


def sizes_phrase(stage: Stage) -> str:
    """`Network size, divided by grid's: elastic 0.62× (0.55–0.70), smaller.`; "" where no size differs for certain."""
    clear = [
        f"{stage.label_of(pair)} {ratio_with_ends(pair.size_ratio)}, {shown(pair.size.outcome)}"
        for pair in stage.pairs
        if pair.size and pair.size_ratio and pair.size.outcome not in UNANSWERED
    ]
    whose = f"divided by {stage.against}'s" if stage.against else "divided by that of"
    return f"Network size, {whose}: {'; '.join(clear)}." if clear else ""


def too_few(stage: Stage) -> str:
    """`4 seeds are too few for 24 verdicts together, which need at least 10`."""
    most = max(len(pair.seeds) for pair in stage.pairs)
    count = sum(len(pair.verdicts) for pair in stage.pairs)
    together = f"{count} verdicts together, which need" if count > 1 else "a verdict, which needs"
    return (
        f"{counted(most, 'seed')} {'is' if most == 1 else 'are'} too few for {together} at least {stage.fewest_seeds}"
    )


WITHIN_THE_MARGIN = ("better", "as good", "slightly worse")


def word_of(pair: Pair, key: str) -> str:
    return pair.verdicts[key].outcome if key in pair.verdicts else ""


def matches(pair: Pair) -> bool:
    """Whether no quality is lost but what the margin allows, of the typical seed and of the mean."""
    words = [word_of(pair, quality.key) for quality in QUALITIES if quality.key in pair.verdicts]
    return bool(words) and all(word in WITHIN_THE_MARGIN for word in words)


def margins_phrase(margins: Margins, spread: Mapping[str, float], exhaustive: str | None) -> str:
    """`Margins: accuracy 0.01, log-likelihood 0.02 nats; grid's best and worst depth differ by 0.37 and 0.62.`"""
    asked = judged(margins, spread or None)
    said = "Margins: " + ", ".join(
        f"{quality.title} {margin:g} {quality.unit}".strip() for quality, margin in asked.items()
    )
    if not spread:
        return f"{said}."
    return f"{said}; {exhaustive}'s best and worst depth differ by {listed([plain(spread[q.key], 2) for q in asked])}."


def names_phrase(full_names: Mapping[str, str]) -> str:
    """`ldn: learnt-depth network; asha: asynchronous successive halving.`; "" where no name is short for anything."""
    return "; ".join(f"{name}: {full}" for name, full in full_names.items()) + "." if full_names else ""


def sentence(pair: Pair, contaminated: bool) -> str:
    """As in "ldn needs 6.1× (4.8–7.9) less device time than grid; its accuracy is not worse by …" """
    if pair.unequal:
        rules = ", ".join(dict.fromkeys(item.rule for item in pair.unequal))
        return f"{pair.method} against {pair.baseline}: no verdict, because the units are not equal in: {rules}."
    leading = (TFLOP, EPOCHS) if contaminated and TFLOP.key in pair.cost_ratios else (DEVICE_SECONDS,)
    ratios = {COST_WORDS[measure.key]: pair.cost_ratios.get(measure.key) for measure in leading}
    open_costs = {COST_WORDS[each.key] for each in leading if each.key in pair.verdicts and not _is_clear(pair, each)}
    known = {what: found for what, found in ratios.items() if found}
    costs = cost_phrase(pair.method, pair.baseline, known, open_costs)
    if len(pair.seeds) == 1:
        return f"{costs}, on one seed only: no interval and no verdict."
    qualities = [
        quality_phrase(
            measure.title,
            measure.unit,
            pair.verdicts[measure.key],
            pair.differences[measure.key],
            pair.failures.get(measure.key),
            pair.row_half_width(measure.key) if pair.rows_rule(measure.key) else None,
        )
        for measure in QUALITIES
        if measure.key in pair.verdicts
    ]
    return "; ".join(filter(None, (costs, *qualities, _size_phrase(pair)))) + "."


def _size_phrase(pair: Pair) -> str:
    """`its network is smaller: 0.62× (0.55–0.70) the size`; "" where sizes are not known."""
    if pair.size is None or pair.size_ratio is None:
        return ""
    times = _times(pair.size_ratio)
    if pair.size.outcome in UNANSWERED:
        return f"whether its network is smaller is undecided ({times})"
    return f"its network is {shown(pair.size.outcome)}, {times}"


def _is_clear(pair: Pair, cost: Measure) -> bool:
    return pair.verdicts[cost.key].outcome != "undecided"


def cost_phrase(
    method: str, baseline: str, ratios: Mapping[str, Interval], undecided: Container[str] = frozenset()
) -> str:
    """`ldn needs 6.1× (4.8–7.9) less device time than grid`; `ratios` are baseline / method, by what is counted."""
    same = [what for what, found in ratios.items() if found.mean == 1 and found.low is None]
    clear = {
        what: found for what, found in ratios.items() if not (what in same or what in undecided or straddles_one(found))
    }
    phrases = [
        f"{method} and {baseline} do not differ clearly in {what} "
        f"({baseline} needs {ratio_with_ends(found)} of {method}'s)"
        for what, found in ratios.items()
        if what not in clear and what not in same
    ]
    phrases += [f"{method} needs the same {what} as {baseline}" for what in same]
    if clear:
        amounts = " and ".join(amount(what, found) for what, found in clear.items())
        phrases.insert(0, f"{method} needs {amounts} than {baseline}")
    return " and ".join(phrases) or f"no cost was recorded for {method} or {baseline}"


def as_said(what: str, found: Interval) -> tuple[Interval, str]:
    """A ratio as people say it: always above 1, the direction in words: 6.1, "less device time"."""
    if found.mean >= 1:
        return found, f"{'fewer' if what == 'epochs' else 'less'} {what}"
    return inverse(found), f"more {what}"


def amount(what: str, found: Interval) -> str:
    """`6.1× (4.8–7.9) less device time`."""
    factor, words = as_said(what, found)
    return f"{ratio_with_ends(factor)} {words}"


def straddles_one(found: Interval) -> bool:
    """The seeds do not settle which of the two is cheaper."""
    return found.low is not None and found.high is not None and found.low <= 1 <= found.high


def quality_phrase(
    title: str,
    unit: str,
    verdict: Verdict,
    difference: Interval,
    failed: Failures | None = None,
    over_rows: float | None = None,
) -> str:
    """`its accuracy is slightly worse, by 0.004 (0.001 to 0.007), which is within the margin of 0.01`.

    `difference` has the measure's own direction, as the tables show it. `over_rows` is the error over test rows where
    that is larger than the one over seeds.
    """
    margin = f"{verdict.margin:g} {unit}".strip()
    said = _said(title, margin, verdict, difference)
    if over_rows is not None:
        more = ", so more seeds would not help" if verdict.outcome == "undecided" else ""
        said = f"{said.partition(': about')[0]}; other test rows could move it by ±{plain(over_rows, 2)}{more}"
    return f"{said}; {failures_phrase(failed)}" if failed and failed.count else said


def _said(title: str, margin: str, verdict: Verdict, difference: Interval) -> str:
    by = loss(verdict.advantage)
    match verdict.outcome:
        case "better":
            return f"its {title} is better, by {gain(verdict.advantage)}"
        case "as good":
            return f"its {title} is as good: {signed(difference)}, margin {margin}"
        case "slightly worse":
            return f"its {title} is slightly worse, by {by}, which is within the margin of {margin}"
        case "worse":
            return f"its {title} is worse, by {by}; it is open whether by more than the margin of {margin}"
        case "worse beyond the margin":
            return f"its {title} is worse by more than the margin of {margin}: by {by}"
        case "undecided":
            return f"its {title} is undecided ({signed(difference)}): {seeds_needed(verdict)} would decide"
        case "too few seeds":
            return f"its {title} differs by {signed(difference)}, on too few seeds for a verdict"
        case _:
            return (
                f"its {title} is {plain_part(verdict.outcome)} on most seeds, but a few sway the mean "
                f"({signed(difference)}, margin {margin})"
            )


def failures_phrase(failed: Failures) -> str:
    """`outside the margin on 2 of 20 seeds (95 % upper bound: 28 %), worst on seed 7`."""
    return (
        f"outside the margin on {failed.count} of {counted(failed.n, 'seed')} (95 % upper bound: "
        f"{100 * failed.at_most:.0f} %), worst on seed {failed.worst_seed}"
    )


def seeds_needed(verdict: Verdict) -> str:
    return in_all(verdict.seeds_needed)


def in_all(seeds: int | None) -> str:
    """A rough number, so two digits of it, with the chance that so many decide."""
    if seeds is None:
        return f"more than {MOST_SEEDS:,} seeds in all"
    rough = seeds if seeds < 100 else round(seeds, -1)
    return f"about {rough} seeds in all (4 in 5)"


# --- is a search needed at all? -------------------------------------------------------------------------------------

CANNOT_SAY = "Whether a search is needed at all cannot be said"


def headroom_phrase(found: Headroom, cost: Measure) -> str:
    """The first sentence of every view: do I need to search? Shares are of `cost`, which leads."""
    share = found.cost_shares.get(found.rule)
    whole = f"{found.search}'s {cost_name(cost)}"
    rule = f"{found.rule}, at {ratio(share)} of {whole}," if share is not None else found.rule
    pair = next(pair for pair in found.stage.pairs if pair.method == found.rule)
    asked = [quality for quality in QUALITIES if quality.key in pair.verdicts]
    match found.outcome:
        case "no search is needed":
            whose = f"{found.search}'s choice{_smaller(pair)}"
            return f"No search is needed: {rule} stays within every margin of {whose}."
        case "search pays":
            lost = [quality for quality in asked if word_of(pair, quality.key) == "worse beyond the margin"]
            return (
                f"Search pays: nothing that does without one comes within the margin of {found.search}'s choice; "
                f"{rule} is worse by {_losses(pair, lost)}."
            )
        case "search is better":
            lost = [quality for quality in asked if word_of(pair, quality.key) == "worse"]
            return (
                f"A search is better than none: {rule} is worse than {found.search}'s choice by "
                f"{_losses(pair, lost)}; whether by more than the margin is open, {in_all(found.seeds_needed)} would "
                "decide."
            )
        case _:
            open_ = [quality for quality in asked if word_of(pair, quality.key) not in WITHIN_THE_MARGIN]
            needed = f"{in_all(found.seeds_needed)} would decide" if len(pair.seeds) > 1 else "one seed cannot tell"
            return (
                f"Whether a search is needed is not decided: {rule} differs from {found.search}'s choice by "
                f"{_differences(pair, open_)}; {needed}."
            )


def _smaller(rule: Pair) -> str:
    """What a search may be good for where it is not needed; "" where its choice is not smaller for certain."""
    if rule.size is None or rule.size_ratio is None or rule.size.outcome != "larger":
        return ""
    return f", which is smaller: {_times(inverse(rule.size_ratio))}"


def _times(size: Interval) -> str:
    return f"{ratio_with_ends(size)} the size"


def _losses(pair: Pair, qualities: Sequence[Measure]) -> str:
    """`0.11 (0.05 to 0.17) nats in log-likelihood`: how much worse."""
    return _amounts(qualities, [loss(pair.verdicts[each.key].advantage) for each in qualities])


def _differences(pair: Pair, qualities: Sequence[Measure]) -> str:
    return _amounts(qualities, [signed(pair.differences[each.key]) for each in qualities])


def _amounts(qualities: Sequence[Measure], numbers: Sequence[str]) -> str:
    said = zip(qualities, numbers, strict=True)
    return listed([f"{f'{number} {quality.unit}'.strip()} in {quality.title}" for quality, number in said])
