"""The answer in words: one plain sentence per pair, and a headline over all of them."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from harness.comparing.finished import ByMethod, Finished
from harness.comparing.numbers import gain, inverse, listed, loss, plain, ratio, ratio_with_ends, signed
from harness.comparing.values import Pair, Stage, Winner
from harness.measures import DEVICE_SECONDS, EPOCHS, QUALITIES, TFLOP, Measure, judged
from harness.schema.settings import Margins
from harness.statistics import MOST_SEEDS, Interval, Verdict
from harness.text.shown import counted

COST_WORDS = {DEVICE_SECONDS.key: "device time", TFLOP.key: "compute (TFLOP)", EPOCHS.key: "epochs"}


def headline(reference: str, stage: Stage, cost: Measure, one_shots: Sequence[str]) -> str:
    """What a person wants to know: "exits does grid's job at 0.12 of its cost; ldn at 0.22, slightly worse in ECE." """
    told = [pair for pair in stage.pairs if not pair.withheld]
    if not told:
        return f"No verdict on {reference}: " + (
            "every comparison lacks a second seed or differs in more than the method."
            if stage.pairs
            else "there is no other method on the same seeds."
        )
    if stage.against is None:
        parts = [_against_many(told, cost)]
    else:
        groups = [[pair for pair in told if (pair.method in one_shots) == learns] for learns in (True, False)]
        parts = [_jobs(group, cost) for group in groups if group]
        parts[1:] = [f"Of the searches, {jobs}" for jobs in parts[1:]]
    verdicts = [verdict for pair in told for verdict in pair.verdicts.values()]
    decided, withheld = sum(verdict.is_decided for verdict in verdicts), len(stage.pairs) - len(told)
    of = f"{decided} of {counted(len(verdicts), 'verdict')} {'is' if decided == 1 else 'are'} decided"
    parts.append(of + (f"; {withheld} withheld" if withheld else ""))
    return ". ".join(parts) + "."


def _against_many(pairs: Sequence[Pair], cost: Measure) -> str:
    """One method against several: how often it wins on the cost, and where it loses quality."""
    method, count = pairs[0].method, len(pairs)
    costs = [pair.verdicts[cost.key].outcome for pair in pairs if cost.key in pair.verdicts]
    words = [
        f"{word} than {costs.count(word)} of {counted(count, 'method')}"
        for word in ("cheaper", "dearer")
        if word in costs
    ]
    parts = [f"{method} is {' and '.join(words) or 'neither clearly cheaper nor dearer than any method'}"]
    for word in _LOST:
        for quality in QUALITIES:
            than = [pair.baseline for pair in pairs if quality.title in _titles(pair, word)]
            parts += [f"{word} in {quality.title} against {listed(than)}"] if than else []
    return "; ".join(parts)


_WITHIN = "slightly worse"  # what the margin allows
_LOST = ("worse beyond the margin", "worse", _WITHIN)
_OPEN = ("undecided", "no spread measured")


def _jobs(pairs: Sequence[Pair], cost: Measure) -> str:
    """Each method against the same baseline; it does the baseline's job where it loses only what the margin allows."""
    texts: list[str] = []
    for pair in sorted(pairs, key=lambda pair: (not _does_the_job(pair), -_ratio(pair, cost))):
        if texts:
            who = f"{pair.method} {_at_cost(pair, cost, '')}"
        elif _does_the_job(pair):
            who = f"{pair.method} does {pair.baseline}'s job {_at_cost(pair, cost, ' of its cost')}"
        else:
            whose = f" of {pair.baseline}'s cost"
            who = f"{pair.method} {_at_cost(pair, cost, whose)}"
        said = [f"{word} in {listed(titles)}" for word in (*_LOST, *_OPEN) if (titles := _titles(pair, word))]
        link = ", " if _does_the_job(pair) else " is "
        texts.append(f"{who}{link}{', '.join(said)}" if said else who)
    return "; ".join(texts)


def winner(by_method: ByMethod, stage: Stage, cost: Measure) -> Winner:
    """The network to take home: of the cheapest method that does the baseline's job, the seed best on validation.

    The baseline does its own job. Where no verdict says who does it, the method is the best on validation too.
    """
    told = [pair for pair in stage.pairs if not pair.withheld]
    if stage.against and told:
        able = [pair for pair in told if _does_the_job(pair) and _ratio(pair, cost) > 1]
        method = max(able, key=lambda pair: _ratio(pair, cost)).method if able else stage.against
        why = f"the cheapest that does {stage.against}'s job" if able else "nothing cheaper is shown to do its job"
    else:
        method = max(by_method, key=lambda name: fmean(_on_validation(unit) for unit in by_method[name]))
        why = "the best mean log-likelihood on validation; there is no verdict"
    seed = max(by_method[method], key=_on_validation).seed
    of_seeds = "; of its seeds the best on validation" if len(by_method[method]) > 1 else ""
    return Winner(method=method, seed=seed, why=why + of_seeds)


def _on_validation(unit: Finished) -> float:
    return unit.result.val.log_likelihood


def _titles(pair: Pair, word: str) -> list[str]:
    """The qualities of which the verdict says this word."""
    said = {quality.title: pair.verdicts[quality.key].outcome for quality in QUALITIES if quality.key in pair.verdicts}
    return [title for title, outcome in said.items() if outcome == word]


def _does_the_job(pair: Pair) -> bool:
    return not any(_titles(pair, word) for word in (*_LOST, *_OPEN) if word != _WITHIN)


def _ratio(pair: Pair, cost: Measure) -> float:
    return pair.cost_ratios[cost.key].mean if cost.key in pair.cost_ratios else 0.0


def _at_cost(pair: Pair, cost: Measure, whose: str) -> str:
    found, verdict = pair.cost_ratios.get(cost.key), pair.verdicts.get(cost.key)
    if found is None or verdict is None:
        return "at a cost that was not recorded"
    doubt = "" if verdict.is_decided else " (whether that is less is undecided)"
    return f"at {ratio(1 / found.mean)}{whose}{doubt}"


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
    costs = cost_phrase(pair.method, pair.baseline, {what: found for what, found in ratios.items() if found})
    if len(pair.seeds) == 1:
        return f"{costs}, on one seed only: no interval and no verdict."
    qualities = [
        quality_phrase(measure.title, measure.unit, pair.verdicts[measure.key], pair.differences[measure.key])
        for measure in QUALITIES
        if measure.key in pair.verdicts
    ]
    return "; ".join([costs, *qualities]) + "."


def cost_phrase(method: str, baseline: str, ratios: Mapping[str, Interval]) -> str:
    """`ldn needs 6.1× (4.8–7.9) less device time than grid`; `ratios` are baseline / method, by what is counted."""
    same = [what for what, found in ratios.items() if found.mean == 1 and found.low is None]
    clear = {what: found for what, found in ratios.items() if what not in same and not straddles_one(found)}
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


def quality_phrase(title: str, unit: str, verdict: Verdict, difference: Interval) -> str:
    """`its accuracy is slightly worse, by 0.004 (0.001 to 0.007), which is within the margin of 0.01`.

    `difference` has the measure's own direction, as the tables show it.
    """
    margin = f"{verdict.margin:g} {unit}".strip()
    by = loss(verdict.advantage)
    match verdict.outcome:
        case "better":
            return f"its {title} is better, by {gain(verdict.advantage)}"
        case "as good":
            return f"its {title} is as good: {signed(difference)}, margin {margin}"
        case "slightly worse":
            return f"its {title} is slightly worse, by {by}, which is within the margin of {margin}"
        case "worse":
            return f"its {title} is worse, by {by}; whether by more than the margin of {margin} is open"
        case "worse beyond the margin":
            return f"its {title} is worse by more than the margin of {margin}: by {by}"
        case "identical":
            return f"its {title} is identical on every seed"
        case "undecided":
            return f"its {title} is undecided ({signed(difference)}): {seeds_needed(verdict)} would decide"
        case _:
            return f"{title}: all seeds differ by the same amount, so there is no interval and no verdict"


def seeds_needed(verdict: Verdict) -> str:
    """A rough number, so two digits of it."""
    if verdict.seeds_needed is None:
        return f"more than {MOST_SEEDS} seeds in all"
    rough = verdict.seeds_needed if verdict.seeds_needed < 100 else round(verdict.seeds_needed, -1)
    return f"about {rough} seeds in all"
