"""What to do, in a sentence or two, and whose network to take home: the first words of every view.

Nothing is computed here. Headroom says whether a search is needed, verdicts say who matches the method that trains
every depth; this file puts both into words that a person can act on, with what they rest on, cost and risk.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from harness.comparing.finished import ByMethod, Finished
from harness.comparing.headroom import DEEPEST, RANDOM
from harness.comparing.numbers import duration, listed, mean_and_spread, plain, ratio, ratio_with_ends, signed
from harness.comparing.sentences import AGAIN, CANNOT_SAY, COST_WORDS, cost_name, in_all, matches, word_of
from harness.comparing.values import Headroom, Pair, Recommendation, Stage, Winner
from harness.judging.two_keys import MOST_SEEDS
from harness.judging.words import ON_MOST_SEEDS, UNANSWERED, shown
from harness.measures import QUALITIES, Measure, judged
from harness.schema.settings import Margins
from harness.statistics import Failures
from harness.text.shown import counted


@dataclass(frozen=True)
class Known:
    """What a recommendation follows from."""

    needed: Headroom | None  # None: it cannot be said whether a search is needed
    exhaustive: str | None  # the method that trains every depth
    stage: Stage  # every method against the one that trains every depth, where there is one
    one_shots: Sequence[str]
    cost: Measure  # that leads
    margins: Margins
    depths: Sequence[int]
    spread: Mapping[str, float]  # between the best and the worst depth, by measure; empty where not all were trained
    seconds_per_seed: float | None  # of a clock, for everything that was trained on a seed

    @property
    def told(self) -> list[Pair]:
        return [pair for pair in self.stage.pairs if not pair.withheld]

    @property
    def able(self) -> list[Pair]:
        """Who matches the baseline and is cheaper for certain, the cheapest first."""
        if not self.stage.against:
            return []
        found = [pair for pair in self.told if matches(pair) and word_of(pair, self.cost.key) == "cheaper"]
        return sorted(found, key=lambda pair: pair.cost_ratios[self.cost.key].mean, reverse=True)

    @property
    def failing(self) -> Pair | None:
        """A method that looks as if it matched, but for a few seeds on which it fails; the cheapest of them."""
        found = [pair for pair in self.told if _fails_on_some_seeds(pair) and self.cost.key in pair.cost_ratios]
        return max(found, key=lambda pair: pair.cost_ratios[self.cost.key].mean, default=None)

    def share(self, pair: Pair) -> float:
        return 1 / pair.cost_ratios[self.cost.key].mean

    def still_open(self, below: float) -> dict[str, float]:
        """What costs less than this share and may do as well, for all that is known: with their shares."""
        found = {}
        if self.needed and self.needed.outcome == "not decided":
            found[self.needed.rule] = self.needed.cost_shares.get(self.needed.rule, 0.0)
        for pair in self.told:
            if self.cost.key in pair.cost_ratios and _may_match(pair) and pair is not self.failing:
                found[pair.method] = self.share(pair)
        return {name: share for name, share in sorted(found.items(), key=lambda each: each[1]) if share < below}


def recommend(known: Known) -> Recommendation:
    """The same for whatever reference a comparison is seen from."""
    needed = known.needed
    if len(known.depths) == 1:
        return _one_depth(known.depths[0])
    if needed and needed.outcome == "no search is needed":
        return _any_depth(known, needed) if _any_depth_will_do(known, needed) else _no_search(known, needed)
    if known.able:
        return _use(known, known.able[0])
    if needed and needed.outcome in ("search pays", "search is better"):
        return _search(known, needed)
    return _not_decided(known)


# --- the answers ----------------------------------------------------------------------------------------------------


def _one_depth(depth: int) -> Recommendation:
    return Recommendation(
        action="any depth",
        use=None,
        sentence=f"Train {_blocks(depth)}: the space has no other depth, so there is nothing to search.",
        rests_on="the depths of the search space",
        costs="one training",
        risks="another depth, outside this space, may be better",
    )


def _any_depth(known: Known, needed: Headroom) -> Recommendation:
    least = _blocks(min(known.depths))
    spread = listed([f"{_amount(known.spread[q.key], q)} in {q.title}" for q in judged(known.margins, known.spread)])
    return Recommendation(
        action="any depth",
        use=None,
        sentence=f"Any depth will do, so do not search: the cheapest is {least}.",
        rests_on=f"{_seeds(needed)}: best and worst depth differ by {spread}, less than the margins "
        f"({_margins(known)}); a random depth stays within them",
        costs=_share(known, needed, RANDOM),
        risks=f"{_outside(_rule(needed, RANDOM))}; smaller margins may ask for a search after all",
    )


def _no_search(known: Known, needed: Headroom) -> Recommendation:
    rule = needed.rule
    what = f"Train {_blocks(max(known.depths))}" if rule == DEEPEST else "Draw one depth at random"
    of = f"of its {cost_name(known.cost)}"
    share = f", at {ratio(needed.cost_shares[rule])} {of}" if rule in needed.cost_shares else ""
    pair = _rule(needed, rule)
    return Recommendation(
        action="no search",
        use=rule,
        sentence=f"{what} and do not search: {rule} stays within the margins of {needed.search}'s choice{share}.",
        rests_on=_measured(known, needed, rule),
        costs=_share(known, needed, rule) + _larger(pair),
        risks=_outside(pair),
    )


def _use(known: Known, pair: Pair) -> Recommendation:
    """A method that matches the baseline and is cheaper."""
    learns, share = pair.method in known.one_shots, known.share(pair)
    what = f"Use {pair.method} instead of a search" if learns else f"Search with {pair.method}"
    others = [said for said in (_failing(known), _open(known, share)) if said]
    others += [f"{said}." for said in [_by_how_much(known.needed)] if said]
    whole = f"its {cost_name(known.cost)}"
    if known.needed is None:
        others.append(f"{CANNOT_SAY}: no method here trained every depth.")
    return Recommendation(
        action="one-shot" if learns else "search",
        use=pair.method,
        sentence=" ".join([f"{what}: it matches {pair.baseline} at {_part(share)} {whole}.", *others[:1]]),
        rests_on=f"{counted(len(pair.seeds), 'seed')}: {_words(pair)} (margins {_margins(known)})",
        costs=_cost_of(known, pair),
        risks=" ".join([f"{_outside(pair)}.", *others[1:]]).rstrip("."),
    )


def _search(known: Known, needed: Headroom) -> Recommendation:
    """Over all depths: it pays, and nothing cheaper is shown to match it."""
    cheaper = "no cheaper method is shown to match it" if known.told else "no other method was compared with it"
    failing = f" {_failing(known)}" if known.failing else ""
    beaten = listed([pair.method for pair in needed.stage.pairs])
    row = next((row for row in known.stage.rows if row.method == needed.search), None)
    return Recommendation(
        action="search",
        use=needed.search,
        sentence=f"Search with {needed.search}: it beats {beaten}, and {cheaper}.{failing}",
        rests_on=_measured(known, needed, needed.rule),
        costs=f"{mean_and_spread(row.values[known.cost.key])} {known.cost.unit} a seed, for all depths"
        if row and known.cost.key in row.values
        else "the training of every depth",
        risks=_begun_small(". ".join(filter(None, (_by_how_much(needed), _open(known).rstrip(".")))))
        or _paying_too_much(known),
    )


def _begun_small(sentences: str) -> str:
    """As what else stands beside `rests on`, `costs` and `risks` begins."""
    return sentences[:1].lower() + sentences[1:]


def _paying_too_much(known: Known) -> str:
    """The risk of training every depth, where it is not open who else would do."""
    cheaper = [pair for pair in known.told if word_of(pair, known.cost.key) == "cheaper"]
    enough = [pair.method for pair in cheaper if not _shown_worse(pair)]
    if not known.told:
        return "a cheaper method may match it: none was compared"
    if enough:
        return f"none in quality, since it trains every depth; on most seeds {listed(enough)} would have been enough"
    shown = "every cheaper method is shown to be worse" if cheaper else "no other method is shown to be cheaper"
    return f"none that these seeds show: {shown}"


def _not_decided(known: Known) -> Recommendation:
    needed = known.needed
    if needed is None:
        why = "no method here trained every depth; add one that does (see `harness list`)"
        if known.exhaustive:
            why = f"on no seed has {known.exhaustive} a network of every depth"
        rows = known.stage.rows
        run = f"{counted(max(len(row.seeds) for row in rows), 'seed')} of {listed([row.method for row in rows])}"
        return _open_question(known, f"Not decided whether to search: {why}.", run)
    n = len(_rule(needed, needed.rule).seeds)
    whole = needed.seeds_needed if n > 1 else needed.stage.fewest_seeds
    share = needed.cost_shares.get(needed.rule)
    at = f", at {ratio(share)} of {needed.search}'s {cost_name(known.cost)}," if share is not None else ""
    question = f"whether {needed.rule}{at} is as good as a search"
    rests_on = _measured(known, needed, needed.rule)
    sooner = _soonest(known) if n > 1 else None
    if sooner and n < sooner[1] < (whole or math.inf):
        pair, whole = sooner
        at = f"{ratio(known.share(pair))} of {pair.baseline}'s {cost_name(known.cost)}"
        question = f"whether {pair.method}, at {at}, matches it"
        question += f"; judging {needed.rule} takes {in_all(needed.seeds_needed)}"
        rests_on = f"{counted(len(pair.seeds), 'seed')} of {pair.method}: {_words(pair)} (margins {_margins(known)})"
    if whole is None or whole <= n:
        said = f"It is not decided {question}, and more seeds will hardly tell (more than {MOST_SEEDS:,})."
        return _open_question(known, said, rests_on)
    more, clock = whole - n, known.seconds_per_seed
    time = f", about {duration(more * clock)}," if clock else ""
    verb = "should tell" if n > 1 else "are the fewest that can tell"
    said = f"Not decided: {counted(more, 'more seed')}{time} {verb} {question}."
    return _open_question(known, said, rests_on, more, tell=n > 1)


def _soonest(known: Known) -> tuple[Pair, int] | None:
    """Of the methods that are cheaper for certain and may match, the one of which fewest seeds in all should tell."""
    found = []
    for pair in known.told:
        open_ = [
            pair.verdicts[q.key] for q in QUALITIES if q.key in pair.verdicts and word_of(pair, q.key) in UNANSWERED
        ]
        needed = [each.seeds_needed for each in open_ if each.seeds_needed is not None]
        cheaper = known.stage.against and word_of(pair, known.cost.key) == "cheaper"
        if cheaper and _may_match(pair) and pair is not known.failing and len(needed) == len(open_):
            found.append((pair, max(needed)))
    return min(found, key=lambda each: each[1], default=None)


def _open_question(known: Known, sentence: str, rests_on: str, more: int = 0, tell: bool = True) -> Recommendation:
    """`tell`: so many more seeds should decide; else they are the fewest that can, with a chance that nobody knows."""
    clock, safe = known.seconds_per_seed, known.exhaustive
    costs = "the training of every depth"
    if safe:
        seeds = counted(more, "more seed")
        many = f"{seeds}, which decide with a chance of 4 in 5" if tell else f"at least {seeds}"
        costs = many if more else "more seeds"
    return Recommendation(
        action="not decided",
        use=None,
        sentence=" ".join(filter(None, (sentence, _failing(known)))),
        rests_on=rests_on,
        costs=costs + (f"; {duration(more * clock)} at the pace of these runs" if more and clock else ""),
        risks=f"until then {safe}'s choice is the safe one; it may cost more than needed"
        if safe
        else "a search may not be needed at all",
    )


# --- pieces ---------------------------------------------------------------------------------------------------------


def _any_depth_will_do(known: Known, needed: Headroom) -> bool:
    """No depth is worse than the best by a margin, and one that was drawn at random is shown not to be."""
    asked = judged(known.margins, known.spread)
    within = all(margin >= known.spread[quality.key] for quality, margin in asked.items())
    return bool(asked) and within and matches(_rule(needed, RANDOM))


def _rule(needed: Headroom, name: str) -> Pair:
    return next(pair for pair in needed.stage.pairs if pair.method == name)


def _open(known: Known, share: float = math.inf) -> str:
    """`Whether the deepest network (0.12 of the cost) or elastic (0.13) would do as well is not decided.`"""
    found = list(known.still_open(below=share).items())[:2]
    whole = f" of the {cost_name(known.cost)}"
    shares = [f"{name} ({ratio(at)}{whole * (place == 0)})" for place, (name, at) in enumerate(found)]
    return f"Whether {' or '.join(shares)} would do as well is not decided." if shares else ""


def _by_how_much(needed: Headroom | None) -> str:
    """Where a search is better than none and nobody knows whether that is worth it."""
    if needed is None or needed.outcome != "search is better":
        return ""
    seeds = f": {in_all(needed.seeds_needed)} should tell" if needed.seeds_needed else ""
    return f"Whether {needed.rule} is worse by more than the margin is open{seeds}"


def _failing(known: Known) -> str:
    pair = known.failing
    if pair is None or (failed := _failures(pair)) is None:
        return ""
    share = f"{ratio(known.share(pair))} of the {cost_name(known.cost)}"
    count = f"{failed.count} of {counted(failed.n, 'seed')}"
    return f"{pair.method}, at {share}, is not safe: it falls outside the margin on {count}."


def _fails_on_some_seeds(pair: Pair) -> bool:
    failed = _failures(pair)
    return bool(failed and failed.count) and any(word.endswith(ON_MOST_SEEDS) for word in _quality_words(pair))


def _may_match(pair: Pair) -> bool:
    """Nothing is shown to be lost, and not everything is shown to be kept."""
    words = _quality_words(pair)
    return any(word in UNANSWERED for word in words) and not _shown_worse(pair)


def _shown_worse(pair: Pair) -> bool:
    return any(word.startswith("worse") for word in _quality_words(pair))


def _quality_words(pair: Pair) -> list[str]:
    return [word_of(pair, quality.key) for quality in QUALITIES if quality.key in pair.verdicts]


def _failures(pair: Pair) -> Failures | None:
    """Of the quality in which it fails most often."""
    return max(pair.failures.values(), key=lambda each: each.count, default=None)


def _outside(pair: Pair) -> str:
    """`worse by the margin or more on 1 of 12 seeds (95 % upper bound for all seeds: 34 %)`."""
    failed = _failures(pair)
    if failed is None:
        return "how often it fails is not known"
    count = f"{failed.count} of {counted(failed.n, 'seed')}" if failed.count else f"none of {counted(failed.n, 'seed')}"
    return f"worse by the margin or more on {count} (95 % upper bound for all seeds: {100 * failed.at_most:.0f} %)"


def _seeds(needed: Headroom) -> str:
    return counted(len(_rule(needed, needed.rule).seeds), "seed")


def _margins(known: Known) -> str:
    """In the order of the qualities: `0.01, 0.02 nats and 0.02`."""
    asked = judged(known.margins, known.spread or None)
    return listed([f"{margin:g} {quality.unit}".strip() for quality, margin in asked.items()])


def _amount(value: float, quality: Measure) -> str:
    return f"{plain(value, 2)} {quality.unit}".strip()


def _measured(known: Known, needed: Headroom, rule: str) -> str:
    """`12 seeds, the deepest network − grid's choice: accuracy −0.002 (−0.006 to +0.001), …`."""
    pair = _rule(needed, rule)
    asked = [quality for quality in QUALITIES if quality.key in pair.verdicts]
    differences = ", ".join(f"{quality.title} {signed(pair.differences[quality.key])}" for quality in asked)
    return f"{_seeds(needed)}, {rule} − {needed.search}'s choice: {differences}; margins {_margins(known)}"


def _part(share: float) -> str:
    return f"{ratio(share)} of" if share < 0.95 else "nearly"


def _words(pair: Pair) -> str:
    """`as good in accuracy and ECE, slightly worse in log-likelihood`."""
    titles: dict[str, list[str]] = {}
    for quality in QUALITIES:
        if quality.key in pair.verdicts:
            titles.setdefault(shown(word_of(pair, quality.key)), []).append(quality.title)
    return ", ".join(f"{word} in {listed(found)}" for word, found in titles.items())


def _share(known: Known, needed: Headroom, rule: str) -> str:
    rows = {row.method: row for row in needed.stage.rows}
    if known.cost.key not in rows[rule].values or rule not in needed.cost_shares:
        return "a single training"
    ours, theirs = (mean_and_spread(rows[name].values[known.cost.key]) for name in (rule, needed.search))
    return f"{ours} {known.cost.unit} a seed instead of {needed.search}'s {theirs}"


def _larger(pair: Pair) -> str:
    if pair.size is None or pair.size_ratio is None or pair.size.outcome != "larger":
        return ""
    return f"; a network {ratio_with_ends(pair.size_ratio)} the size of {pair.baseline}'s"


def _cost_of(known: Known, pair: Pair) -> str:
    rows = {row.method: row for row in known.stage.rows}
    ours, theirs = (mean_and_spread(rows[name].values[known.cost.key]) for name in (pair.method, pair.baseline))
    share = ratio_with_ends(pair.cost_ratios[known.cost.key])
    what = COST_WORDS[known.cost.key]
    return f"{ours} {known.cost.unit} a seed instead of {theirs}: {share} less {what}"


def _blocks(depth: int) -> str:
    return counted(depth, "block")


# --- the winner -----------------------------------------------------------------------------------------------------


def winner(by_method: ByMethod, known: Known) -> Winner:
    """The network to take home: a seed of the cheapest method that matches the baseline and is cheaper for certain.

    The baseline matches itself. Where there is no verdict, the method is the best on validation.
    """
    against, said = known.stage.against, [word for pair in known.told for word in pair.verdicts.values()]
    if against and any(each.outcome != "too few seeds" for each in said):
        method = known.able[0].method if known.able else against
        why = f"the cheapest method that matches {against}" if known.able else "nothing cheaper is shown to match it"
        if known.needed and known.needed.outcome == "no search is needed":
            why = f"one of the networks at hand; {known.needed.rule} is as good"
    else:
        method = max(by_method, key=lambda name: fmean(_on_validation(unit) for unit in by_method[name]))
        why = "the best mean log-likelihood on validation; there is no verdict"
    seed = max(by_method[method], key=_on_validation).seed
    if len(by_method[method]) > 1:
        why += f" (of its seeds the best on validation, which says little about new rows; {AGAIN})"
    return Winner(method=method, seed=seed, why=why)


def _on_validation(unit: Finished) -> float:
    return unit.result.val.log_likelihood
