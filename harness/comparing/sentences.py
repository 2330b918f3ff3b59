"""The answer in words: one plain sentence per baseline, and a headline over all of them."""

from collections import Counter
from collections.abc import Mapping, Sequence

from harness.comparing.numbers import ratio_with_ends
from harness.comparing.values import Pair
from harness.measures import DEVICE_SECONDS, EPOCHS, QUALITIES, TFLOP
from harness.statistics import MOST_SEEDS, Interval, Verdict

COST_WORDS = {DEVICE_SECONDS.key: "device time", TFLOP.key: "compute (TFLOP)", EPOCHS.key: "epochs"}


def headline(reference: str, pairs: Sequence[Pair], contaminated: bool) -> str:
    judged = [pair for pair in pairs if not pair.withheld]
    if not judged:
        return f"No verdict on {reference}: " + (
            "every comparison lacks a second seed or differs in more than the method."
            if pairs
            else "there is no other method on the same seeds."
        )
    key = _leading(judged[0], contaminated)[0]
    cheaper = sum(_clearly_above_one(pair.cost_ratios.get(key)) for pair in judged)
    parts = [f"{reference} needs clearly less {COST_WORDS[key]} than {cheaper} of {_baselines(len(judged))}"]
    for measure in QUALITIES:
        verdicts = [pair.verdicts[measure.key] for pair in judged if measure.key in pair.verdicts]
        if verdicts:
            counts = Counter(verdict.outcome for verdict in verdicts)
            parts.append(f"{measure.title}: " + ", ".join(f"{counts[name]} {name}" for name in sorted(counts)))
    withheld = len(pairs) - len(judged)
    return "; ".join(parts) + (f"; no verdict against {withheld} more." if withheld else ".")


def sentence(reference: str, pair: Pair, contaminated: bool) -> str:
    """As in "ldn needs 6.1× (4.8–7.9) less device time than grid; its accuracy is not worse by …" """
    if pair.unequal:
        rules = ", ".join(dict.fromkeys(item.rule for item in pair.unequal))
        return f"{reference} against {pair.baseline}: no verdict, because the units are not equal in: {rules}."
    ratios = {COST_WORDS[key]: pair.cost_ratios.get(key) for key in _leading(pair, contaminated)}
    costs = cost_phrase(reference, pair.baseline, {what: found for what, found in ratios.items() if found})
    if len(pair.seeds) == 1:
        return f"{costs}, on one seed only: no interval and no verdict."
    qualities = [
        quality_phrase(measure.title, measure.unit, pair.verdicts[measure.key])
        for measure in QUALITIES
        if measure.key in pair.verdicts
    ]
    return "; ".join([costs, *qualities]) + "."


def cost_phrase(reference: str, baseline: str, ratios: Mapping[str, Interval]) -> str:
    """`ldn needs 6.1× (4.8–7.9) less device time than grid`; `ratios` are baseline / reference, by what is counted."""
    clear = {what: found for what, found in ratios.items() if not straddles_one(found)}
    phrases = [
        f"{reference} and {baseline} do not differ clearly in {what} "
        f"({baseline} needs {ratio_with_ends(found)} of {reference}'s)"
        for what, found in ratios.items()
        if what not in clear
    ]
    if clear:
        amounts = " and ".join(amount(what, found) for what, found in clear.items())
        phrases.insert(0, f"{reference} needs {amounts} than {baseline}")
    return " and ".join(phrases) or f"no cost was recorded for {reference} or {baseline}"


def as_said(what: str, found: Interval) -> tuple[Interval, str]:
    """A ratio as people say it: always above 1, the direction in words: 6.1, "less device time"."""
    if found.mean >= 1:
        return found, f"{'fewer' if what == 'epochs' else 'less'} {what}"
    low, high = (None if end is None else 1 / end for end in (found.high, found.low))
    return Interval(mean=1 / found.mean, low=low, high=high, n=found.n), f"more {what}"


def amount(what: str, found: Interval) -> str:
    """`6.1× (4.8–7.9) less device time`."""
    factor, words = as_said(what, found)
    return f"{ratio_with_ends(factor)} {words}"


def straddles_one(found: Interval) -> bool:
    """The seeds do not settle which of the two is cheaper."""
    return found.low is not None and found.high is not None and found.low <= 1 <= found.high


def quality_phrase(title: str, unit: str, verdict: Verdict) -> str:
    margin = f"{verdict.margin:g} {unit}".strip()
    match verdict.outcome:
        case "non-inferior":
            return f"its {title} is not worse by more than {margin} (non-inferior)"
        case "inferior":
            return f"its {title} is worse by more than {margin} (inferior)"
        case "inconclusive":
            return f"{title}: inconclusive, {seeds_needed(verdict)} needed"
        case _:
            return f"{title}: {verdict.outcome}, no verdict"


def seeds_needed(verdict: Verdict) -> str:
    """A rough number, so two digits of it."""
    if verdict.seeds_needed is None:
        return f"more than {MOST_SEEDS} seeds"
    rough = verdict.seeds_needed if verdict.seeds_needed < 100 else round(verdict.seeds_needed, -1)
    return f"about {rough} seeds"


def _leading(pair: Pair, contaminated: bool) -> tuple[str, ...]:
    """What the text speaks of first: seconds, unless they mislead."""
    if contaminated and TFLOP.key in pair.cost_ratios:
        return (TFLOP.key, EPOCHS.key)
    return (DEVICE_SECONDS.key,)


def _clearly_above_one(ratio: Interval | None) -> bool:
    if ratio is None:
        return False
    return ratio.mean > 1 if ratio.low is None else ratio.low > 1


def _baselines(count: int) -> str:
    return "1 baseline" if count == 1 else f"{count} baselines"
