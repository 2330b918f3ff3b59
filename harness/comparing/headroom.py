"""Is a search over depths needed at all? What is handed over without one, against the choice among all depths.

Wherever the networks of every depth are there, a rule that does not search costs nothing to look at: its network is one
of them. No method's name is known here; the rules are read off the depths themselves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from harness.comparing.finished import Finished
from harness.comparing.sentences import WITHIN_THE_MARGIN, headroom_phrase, matches
from harness.comparing.stages import on_seeds, paired_values, row_of, with_verdicts
from harness.comparing.values import Headroom, HeadroomOutcome, Pair, Stage
from harness.judging.two_keys import Looks, fewest_seeds, seeds_needed
from harness.judging.words import UNANSWERED
from harness.measures import (
    BALANCED_ACCURACY,
    DEPTH,
    DEVICE_SECONDS,
    EPOCHS,
    MULTIPLY_ADDS,
    QUALITIES,
    SIZE,
    TFLOP,
    TRAIN_SECONDS,
    Measure,
    judged,
)
from harness.schema.records import Cost, Measures
from harness.schema.settings import TIE_NATS, Margins
from harness.statistics import Interval

DEEPEST, RANDOM, CONSTANT = "the deepest network", "a random depth", "the best constant depth"
Values = dict[str, float]  # by measure key


@dataclass(frozen=True)
class OneDepth:
    """The network of a depth on a seed, trained to its end."""

    cost: Cost
    validation: float  # log-likelihood
    test: Measures
    multiply_adds: int | None = None  # of one sample's forward pass; None: not known to an earlier version

    def values(self, depth: int, deepest: "OneDepth") -> Values:
        known = {each.key: each.of(self.test) for each in (*QUALITIES, BALANCED_ACCURACY)}
        if self.multiply_adds is not None and deepest.multiply_adds:
            known |= {SIZE.key: self.multiply_adds / deepest.multiply_adds, MULTIPLY_ADDS.key: self.multiply_adds}
        return {
            DEVICE_SECONDS.key: self.cost.device_seconds,
            TRAIN_SECONDS.key: self.cost.train_seconds,
            TFLOP.key: self.cost.tflop,
            EPOCHS.key: float(self.cost.epochs),
            DEPTH.key: float(depth),
            **{key: value for key, value in known.items() if value is not None},
        }


@dataclass(frozen=True)
class AllDepths:
    """The networks of every depth on a seed, and which of them the search that trained them chose."""

    seed: int
    at: Mapping[int, OneDepth]
    chosen: int

    @classmethod
    def of(cls, seed: int, at: Mapping[int, OneDepth], within: float = TIE_NATS) -> "AllDepths":
        """Chosen by validation, as a search that trains every depth does."""
        return cls(seed, at, _smallest_of_the_best({depth: each.validation for depth, each in at.items()}, within))

    def values(self, depth: int) -> Values:
        return self.at[depth].values(depth, self.at[max(self.at)])

    def searched(self) -> Values:
        """The network that was chosen, at the cost of all of them."""
        each = [self.values(depth) for depth in self.at]
        costs = {key: sum(values[key] for values in each) for key in _COST_KEYS}
        return {**self.values(self.chosen), **costs}

    def chose(self, depths: Sequence[int], costs: Mapping[str, float]) -> Values:
        """What searches that chose these depths hand over, each as likely as the others, at these mean costs."""
        found = _mean([self.values(depth) for depth in depths])
        return {**{key: value for key, value in found.items() if key not in _COST_KEYS}, **costs}

    def at_random(self) -> Values:
        """One depth, each as likely as the others: the exact mean over depths, at the mean cost of one."""
        return _mean([self.values(depth) for depth in self.at])


_COST_KEYS = (DEVICE_SECONDS.key, TRAIN_SECONDS.key, TFLOP.key, EPOCHS.key)


def all_depths_of(unit: Finished) -> AllDepths | None:
    """None: a depth failed, was never trained, or was not evaluated on the test set."""
    trials = {trial.depth: trial for trial in unit.trials if trial.status == "finished"}
    tests = {each.depth: each for each in unit.result.final.per_depth_test}
    at: dict[int, OneDepth] = {}
    for depth in unit.plan.space.depth.values:
        trial, test = trials.get(depth), tests.get(depth)
        if trial is None or test is None or trial.val is None or not math.isfinite(trial.val.log_likelihood):
            return None
        at[depth] = OneDepth(trial.cost, trial.val.log_likelihood, test.measures, test.multiply_adds)
    return AllDepths(unit.seed, at, unit.result.d_opt) if unit.result.d_opt in at else None


def best_constant_depths(seeds: Sequence[AllDepths], within: float = TIE_NATS) -> list[int]:
    """For each seed the smallest depth within so many nats of the best, on validation, averaged over the *other* seeds.

    Two seeds share most of what they were chosen by, so these values depend on each other and are never judged.
    """
    return [_best_depth([other for other in seeds if other is not seed], within) for seed in seeds]


def _best_depth(seeds: Sequence[AllDepths], within: float) -> int:
    means = {depth: fmean(seed.at[depth].validation for seed in seeds) for depth in seeds[0].at}
    return _smallest_of_the_best(means, within)


def _smallest_of_the_best(validation: Mapping[int, float], within: float) -> int:
    best = max(validation.values())
    return min(depth for depth, value in validation.items() if value >= best - within)


def headroom(
    seeds: Sequence[AllDepths],
    search: str,
    margins: Margins,
    cost: Measure = DEVICE_SECONDS,
    looks: Looks = (),
    within: float = TIE_NATS,
) -> Headroom | None:
    """`search`: the name of the method that trained every depth. None where there is nothing to choose from.

    `within`: nats of validation log-likelihood, as the space's `choice_within` says.

    The rules are a family of their own: each quality of each rule against the search's choice. Their cost is no
    question, since what a rule trains is part of what the search trains.
    """
    if not seeds or len(seeds[0].at) < 2:
        return None
    deepest = max(seeds[0].at)
    found = {
        search: [seed.searched() for seed in seeds],
        DEEPEST: [seed.values(deepest) for seed in seeds],
        RANDOM: [seed.at_random() for seed in seeds],
    }
    if len(seeds) > 1:
        constant = best_constant_depths(seeds, within)
        found[CONSTANT] = [seed.values(depth) for seed, depth in zip(seeds, constant, strict=True)]
    numbers = tuple(seed.seed for seed in seeds)
    stage = Stage(
        name="no search",
        rows=tuple(row_of(name, numbers, values) for name, values in found.items()),
        pairs=tuple(paired_values(rule, search, numbers, found) for rule in (DEEPEST, RANDOM)),
    )
    on_validation = {
        DEEPEST: fmean(seed.at[deepest].validation for seed in seeds),
        RANDOM: fmean(fmean(each.validation for each in seed.at.values()) for seed in seeds),
    }
    stage = with_verdicts(stage, None, margins, looks)
    pairs = sorted(stage.pairs, key=lambda pair: -on_validation[pair.method])
    return _read(stage, pairs, margins, cost, looks)


def _read(stage: Stage, pairs: Sequence[Pair], margins: Margins, cost: Measure, looks: Looks) -> Headroom:
    """`pairs`: the rule that is best on validation first."""
    enough = [pair for pair in pairs if matches(pair)]
    open_ = [pair for pair in pairs if not matches(pair) and not _loses(pair)]
    unsure = [pair for pair in open_ if not _is_worse(pair)]  # not even whether the search's choice is better
    outcome: HeadroomOutcome
    match enough, unsure, open_:
        case [told, *_], _, _:
            outcome = "no search is needed"
        case _, [told, *_], _:
            outcome = "not decided"
        case _, _, [told, *_]:
            outcome = "search is better"
        case _:
            outcome, told = "search pays", pairs[0]
    best = pairs[0]
    said = Headroom(
        outcome=outcome,
        search=best.baseline,
        best_rule=best.method,
        gains={key: _seen_from_the_search(best.differences[key]) for key in best.verdicts},
        rule=told.method,
        cost_shares={
            pair.method: 1 / pair.cost_ratios[cost.key].mean for pair in pairs if cost.key in pair.cost_ratios
        },
        seeds_needed=_seeds_needed(stage, open_, margins, looks) if open_ and not enough else None,
        stage=stage,
        sentence="",
    )
    return said.model_copy(update={"sentence": headroom_phrase(said, cost)})


def _loses(pair: Pair) -> bool:
    return any(verdict.outcome == "worse beyond the margin" for verdict in pair.verdicts.values())


def _is_worse(pair: Pair) -> bool:
    """Of the typical seed and of the mean, in some quality; whether by more than the margin may be open."""
    return any(verdict.outcome == "worse" for verdict in pair.verdicts.values()) or _loses(pair)


def _seen_from_the_search(difference: Interval) -> Interval:
    low, high = (None if end is None else -end for end in (difference.high, difference.low))
    return Interval(mean=-difference.mean, low=low, high=high, n=difference.n)


def _seeds_needed(stage: Stage, pairs: Sequence[Pair], margins: Margins, looks: Looks) -> int | None:
    """Until these rules, if they are what they look like, are known to be enough or to lose; None: hopelessly many."""
    enough: list[int | None] = []
    lost: list[int | None] = []
    for pair in pairs:
        loses, needed = _of_rule(stage, pair, margins)
        (lost if loses else enough).append(needed)
    known = [needed for needed in enough if needed is not None]
    if enough:
        found = min(known, default=None)
    else:
        found = None if None in lost else max(needed for needed in lost if needed is not None)
    fewest = fewest_seeds(sum(len(pair.verdicts) for pair in stage.pairs), looks)
    return found if found is None or not any(map(_unanswered, pairs)) else max(found, fewest)


def _of_rule(stage: Stage, pair: Pair, margins: Margins) -> tuple[bool, int | None]:
    """Whether it looks as if the rule loses, for which one quality is enough, and how many seeds would tell."""
    rows = {row.method: row for row in stage.rows}
    ours, theirs = (on_seeds(rows[name], pair.seeds) for name in (pair.method, pair.baseline))
    at_mean, at_sign = 1 - pair.confidence, 1 - stage.median_confidence
    beyond: list[int | None] = []
    within: list[int | None] = []
    for measure, margin in judged(margins, pair.verdicts).items():
        verdict = pair.verdicts[measure.key]
        if verdict.outcome in WITHIN_THE_MARGIN:
            continue
        both = zip(ours[measure.key], theirs[measure.key], strict=True)
        gains = [measure.sign * (a - b) for a, b in both]
        needed = seeds_needed(gains, (-margin,), at_mean, at_sign) if len(gains) > 1 else None
        (beyond if verdict.advantage.mean < -margin else within).append(needed)
    if beyond:
        return True, min((needed for needed in beyond if needed is not None), default=None)
    return False, None if None in within else max((needed for needed in within if needed is not None), default=None)


def _unanswered(pair: Pair) -> bool:
    return any(verdict.outcome in UNANSWERED for verdict in pair.verdicts.values())


def _mean(values: Sequence[Values]) -> Values:
    return {key: fmean(each[key] for each in values) for key in values[0] if all(key in each for each in values)}
