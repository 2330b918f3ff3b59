"""The answer in words: one plain sentence per baseline, and a headline over all of them."""

from collections.abc import Sequence

from harness import keys
from harness.compare.measures import EPOCHS, QUALITIES
from harness.compare.numbers import ratio as number
from harness.compare.values import Pair
from harness.statistics import MOST_SEEDS, Interval, Verdict

COST_WORDS = {keys.COST_DEVICE_SECONDS: "device time", keys.COST_TFLOP: "compute (TFLOP)", EPOCHS: "epochs"}


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
            good = sum(verdict.outcome == "non-inferior" for verdict in verdicts)
            bad = sum(verdict.outcome == "inferior" for verdict in verdicts)
            parts.append(f"{measure.title}: non-inferior to {good}" + (f", inferior to {bad}" if bad else ""))
    withheld = len(pairs) - len(judged)
    return "; ".join(parts) + (f"; no verdict against {withheld} more." if withheld else ".")


def sentence(reference: str, pair: Pair, contaminated: bool) -> str:
    """As in "ldn needs 6.1× (4.8–7.9) less device time than grid; its accuracy is not worse by …" """
    if pair.unequal:
        rules = ", ".join(dict.fromkeys(item.rule for item in pair.unequal))
        return f"{reference} against {pair.baseline}: no verdict, because the units are not equal in: {rules}."
    costs = (
        " and ".join(
            cost_phrase(reference, pair.baseline, COST_WORDS[key], pair.cost_ratios[key])
            for key in _leading(pair, contaminated)
            if key in pair.cost_ratios
        )
        or f"no cost was recorded for {reference} or {pair.baseline}"
    )
    if len(pair.seeds) == 1:
        return f"{costs}, on one seed only: no interval and no verdict."
    qualities = [
        quality_phrase(measure.title, measure.unit, pair.verdicts[measure.key])
        for measure in QUALITIES
        if measure.key in pair.verdicts
    ]
    return "; ".join([costs, *qualities]) + "."


def cost_phrase(reference: str, baseline: str, what: str, ratio: Interval) -> str:
    factor, low, high = ratio.mean, ratio.low, ratio.high
    if low is not None and high is not None and low <= 1 <= high:
        return (
            f"{reference} and {baseline} do not differ clearly in {what} "
            f"({baseline} needs {number(factor)}×, {number(low)}–{number(high)}, of {reference}'s)"
        )
    word = "less"
    if factor < 1:
        word, factor = "more", 1 / factor
        low, high = (None if high is None else 1 / high), (None if low is None else 1 / low)
    ends = "" if low is None or high is None else f" ({number(low)}–{number(high)})"
    plural = "fewer" if what == "epochs" and word == "less" else word
    return f"{reference} needs {number(factor)}×{ends} {plural} {what} than {baseline}"


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
    """What the text speaks of first: seconds, unless they lie."""
    if contaminated and keys.COST_TFLOP in pair.cost_ratios:
        return (keys.COST_TFLOP, EPOCHS)
    return (keys.COST_DEVICE_SECONDS,)


def _clearly_above_one(ratio: Interval | None) -> bool:
    if ratio is None:
        return False
    return ratio.mean > 1 if ratio.low is None else ratio.low > 1


def _baselines(count: int) -> str:
    return "1 baseline" if count == 1 else f"{count} baselines"
