"""The answer in words: one plain sentence per baseline, and a headline over all of them."""

from collections.abc import Mapping, Sequence

from harness.comparing.numbers import gain, listed, loss, ratio, ratio_with_ends, signed
from harness.comparing.values import Contamination, Pair
from harness.measures import DEVICE_SECONDS, EPOCHS, QUALITIES, TFLOP, Measure
from harness.statistics import MOST_SEEDS, Interval, Verdict

COST_WORDS = {DEVICE_SECONDS.key: "device time", TFLOP.key: "compute (TFLOP)", EPOCHS.key: "epochs"}


def leading_cost(doubts: Contamination) -> Measure:
    """What the text speaks of first: seconds, unless they mislead."""
    return TFLOP if doubts.found else DEVICE_SECONDS


def headline(reference: str, pairs: Sequence[Pair], cost: Measure, exhaustive: str | None) -> str:
    """What a person wants to know: "ldn does grid's job at 0.22 of its cost; it is cheaper than 3 of 4 baselines." """
    judged = [pair for pair in pairs if not pair.withheld]
    if not judged:
        return f"No verdict on {reference}: " + (
            "every comparison lacks a second seed or differs in more than the method."
            if pairs
            else "there is no other method on the same seeds."
        )
    first = next((pair for pair in judged if pair.baseline == exhaustive), judged[0])
    parts = [f"{reference} {_against(first, cost)}"]
    costs = [pair.verdicts[cost.key].outcome for pair in judged if cost.key in pair.verdicts]
    if len(judged) > 1 and costs:
        parts.append(f"it is cheaper than {costs.count('cheaper')} of {_baselines(len(judged))}")
        if dearer := costs.count("dearer"):
            parts[-1] += f" and dearer than {dearer}"
    verdicts = [verdict for pair in judged for key, verdict in pair.verdicts.items() if key != cost.key]
    decided = sum(verdict.is_decided for verdict in verdicts)
    if decided < len(verdicts):
        parts.append(f"{decided} of {len(verdicts)} verdicts on quality are decided")
    withheld = len(pairs) - len(judged)
    return "; ".join(parts) + (f"; no verdict against {withheld} more." if withheld else ".")


def _against(pair: Pair, cost: Measure) -> str:
    """As in "does grid's job at 0.22 of its cost"; what is lost, and what is open, by name."""
    said = {quality.title: pair.verdicts[quality.key].outcome for quality in QUALITIES if quality.key in pair.verdicts}
    lost = {word: [title for title, outcome in said.items() if outcome == word] for word in _LOST}
    losses = ", ".join(f"{word} in {listed(titles)}" for word, titles in lost.items() if titles)
    open_ = [title for title, outcome in said.items() if outcome in ("undecided", "no spread measured")]
    verb = "compares with" if losses or open_ else "does"
    job = pair.baseline if losses or open_ else f"{pair.baseline}'s job"
    text = f"{verb} {job} {_at_cost(pair, cost)}"
    details = "; ".join(filter(None, (losses, f"undecided in {listed(open_)}" if open_ else "")))
    return f"{text}: {details}" if details else text


_LOST = ("worse beyond the margin", "worse", "slightly worse")


def _at_cost(pair: Pair, cost: Measure) -> str:
    found, verdict = pair.cost_ratios.get(cost.key), pair.verdicts.get(cost.key)
    if found is None or verdict is None:
        return "at a cost that was not recorded"
    share = ratio(1 / found.mean)
    return f"at {share} of its cost" if verdict.is_decided else f"at about its cost ({share} of it, undecided)"


def sentence(reference: str, pair: Pair, contaminated: bool) -> str:
    """As in "ldn needs 6.1× (4.8–7.9) less device time than grid; its accuracy is not worse by …" """
    if pair.unequal:
        rules = ", ".join(dict.fromkeys(item.rule for item in pair.unequal))
        return f"{reference} against {pair.baseline}: no verdict, because the units are not equal in: {rules}."
    leading = (TFLOP, EPOCHS) if contaminated and TFLOP.key in pair.cost_ratios else (DEVICE_SECONDS,)
    ratios = {COST_WORDS[measure.key]: pair.cost_ratios.get(measure.key) for measure in leading}
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
    """`its accuracy is slightly worse, by 0.004 (0.001 to 0.007), which is within the margin of 0.01`."""
    margin = f"{verdict.margin:g} {unit}".strip()
    by = loss(verdict.advantage)
    match verdict.outcome:
        case "better":
            return f"its {title} is better, by {gain(verdict.advantage)}"
        case "as good":
            return f"its {title} is as good: {signed(verdict.advantage)}, margin {margin}"
        case "slightly worse":
            return f"its {title} is slightly worse, by {by}, which is within the margin of {margin}"
        case "worse":
            return f"its {title} is worse, by {by}; whether by more than the margin of {margin} is open"
        case "worse beyond the margin":
            return f"its {title} is worse by more than the margin of {margin}: by {by}"
        case "identical":
            return f"its {title} is identical on every seed"
        case "undecided":
            return f"its {title} is undecided ({signed(verdict.advantage)}): {seeds_needed(verdict)} would decide"
        case _:
            return f"{title}: all seeds differ by the same amount, so there is no interval and no verdict"


def seeds_needed(verdict: Verdict) -> str:
    """A rough number, so two digits of it."""
    if verdict.seeds_needed is None:
        return f"more than {MOST_SEEDS} seeds in all"
    rough = verdict.seeds_needed if verdict.seeds_needed < 100 else round(verdict.seeds_needed, -1)
    return f"about {rough} seeds in all"


def _baselines(count: int) -> str:
    return "1 baseline" if count == 1 else f"{count} baselines"
