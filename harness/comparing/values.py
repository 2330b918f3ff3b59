"""What a comparison holds: frozen values, to and from JSON. Everything printed or drawn comes from here."""

import math
from typing import Literal

from pydantic import Field
from scipy import special

from harness.judging.two_keys import Verdict
from harness.measures import QUALITIES, Quality, judged
from harness.schema.identity import Frozen
from harness.schema.records import Looks
from harness.schema.settings import Margins
from harness.statistics import LEVEL, Failures, Interval, MedianInterval

LOSS_PARTS = ("wrong depth", "shared weights", "averaging")
ALL_PARTS = "in all"


class MethodRow(Frozen):
    """One line of the table: means over the method's finished seeds, with 95 % t intervals."""

    method: str
    seeds: tuple[int, ...]
    values: dict[str, Interval]  # by measure key; see measures.py
    per_seed: dict[str, tuple[float, ...]]  # the same, as measured, in the order of `seeds`


class Pair(Frozen):
    """A method against a baseline, on the seeds both have finished."""

    method: str  # that is judged
    baseline: str
    seeds: tuple[int, ...]
    confidence: float  # of these intervals: that at which the stage's verdicts follow from them
    cost_ratios: dict[str, Interval]  # baseline / method: above 1 the method is cheaper
    differences: dict[str, Interval]  # method − baseline, in the measure's own direction
    medians: dict[str, MedianInterval] = Field(default_factory=dict)  # of the same differences, where judged
    failures: dict[str, Failures] = Field(default_factory=dict)  # of the measures with a margin
    row_errors: dict[str, float] = Field(default_factory=dict)  # standard errors of the differences over test rows
    verdicts: dict[str, Verdict]  # of the cost that leads and of the measures with a margin; empty when withheld
    size: Verdict | None = None  # is its network the smaller one? None: not known to an earlier version, or withheld
    unequal: tuple["Difference", ...]  # fairness differences between these units
    withheld: tuple[str, ...]  # why there is no verdict; empty when there is one

    @property
    def size_ratio(self) -> Interval | None:
        """method / baseline, with the interval that the verdict follows from: below 1 the method's is smaller."""
        if self.size is None:
            return None
        mean, low, high = (
            None if each is None else math.exp(-each)
            for each in (self.size.advantage.mean, self.size.advantage.high, self.size.advantage.low)
        )
        assert mean is not None
        return Interval(mean=mean, low=low, high=high, n=self.size.advantage.n)

    def row_half_width(self, key: str) -> float | None:
        """Over test rows, at the confidence of the intervals over seeds; None: not known, or part of these."""
        found = self.row_errors.get(key)
        return None if found is None else found * float(special.ndtri(0.5 + self.confidence / 2))

    def rows_rule(self, key: str) -> bool:
        """Whether the error over test rows is the larger one: more seeds do not help then."""
        over_rows = self.row_half_width(key)
        return over_rows is not None and over_rows > (self.differences[key].half_width or 0.0)

    def both_errors(self, key: str) -> float | None:
        """Half-width of an interval for fresh seeds and fresh test rows: both in quadrature."""
        over_rows, over_seeds = self.row_half_width(key), self.differences[key].half_width
        return None if over_rows is None or over_seeds is None else math.hypot(over_rows, over_seeds)


class Stage(Frozen):
    """The table of one cost mode, search only or search + refit; or of the rules that do not search."""

    name: Literal["search", "search + refit", "no search"]
    rows: tuple[MethodRow, ...]
    pairs: tuple[Pair, ...]  # whatever is claimed of them is one family
    median_confidence: float = 1 - LEVEL  # of the intervals of medians
    fewest_seeds: int = 0  # from which on any verdict of it can be given

    @property
    def against(self) -> str | None:
        """The one baseline of all pairs; None where one method is judged against several, or there is no pair."""
        baselines = {pair.baseline for pair in self.pairs}
        return baselines.pop() if len(baselines) == 1 else None

    def name_of(self, pair: Pair) -> str:
        """The side of the pair that tells it from the others."""
        return pair.baseline if self.against is None else pair.method

    def label_of(self, pair: Pair) -> str:
        """The same as a row's name: what is said there is of the other side where that is the one of all pairs."""
        return f"against {pair.baseline}" if self.against is None else pair.method


class Reached(Frozen):
    """Device-seconds until a target was reached, per seed; None: never."""

    seeds: tuple[int, ...]
    device_seconds: tuple[float | None, ...]

    @property
    def count(self) -> int:
        return sum(value is not None for value in self.device_seconds)

    @property
    def median(self) -> float | None:
        """Over all seeds, a "never" counting as infinite; None when the median itself is "never"."""
        ordered = sorted(float("inf") if value is None else value for value in self.device_seconds)
        middle = len(ordered) // 2
        value = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
        return None if value == float("inf") else value


class EqualQuality(Frozen):
    """Cost at equal validation log-likelihood, both ways. A lower bound: the baseline does not know when to stop."""

    baseline: str
    baseline_reaches: Reached  # the reference's final value − margin
    reference_reaches: Reached  # the baseline's final value − margin, on the reference's own curve
    speed_up: Interval | None  # baseline_reaches / the reference's whole cost; None unless every seed reached it


class WallClock(Frozen):
    """Modelled seconds on w devices: mean over seeds; None where a trial does not fit on w devices."""

    method: str
    seconds: dict[int, float | None]  # by number of devices


class Phases(Frozen):
    """Where a method's device time went: means over seeds, in device-seconds."""

    method: str
    device_seconds: dict[str, float]  # by phase
    total: float  # the search cost
    worker_start: float  # outside search cost, as is everything below
    final_eval: float
    refit: float | None
    driver_seconds: float
    queue_seconds: float


class DepthCheck(Frozen):
    """A method's choice of depth against the measured curve of stand-alone networks. Analysis only."""

    method: str
    seeds: tuple[int, ...]
    log_likelihood_regret: Interval  # best fixed depth − the fixed depth that was chosen, test set
    accuracy_regret: Interval
    network_log_likelihood_regret: Interval  # best fixed depth − the method's own chosen network
    nearest_used: tuple[int, ...]  # seeds whose d_opt was not trained: the nearest depth stood in
    rank_correlation: tuple[float | None, ...] | None  # per seed; only for methods with per-depth values (learnt depth)


# Better by more than the margin, better and maybe by less, as good without one, none of these for certain.
HeadroomOutcome = Literal["search pays", "search is better", "no search is needed", "not decided"]


class Loss(Frozen):
    """What a one-shot loses against the choice of the search that trained every depth, in three parts that add up.

    Each is a mean over seeds of the test set's values, and positive where something is lost. Analysis only.
    """

    method: str
    seeds: tuple[int, ...]
    parts: dict[str, dict[str, Interval]]  # measure → part: those of `LOSS_PARTS`, and `ALL_PARTS` for their sum
    per_seed: dict[str, dict[str, tuple[float, ...]]]  # the same, in the order of `seeds`
    nearest_used: tuple[int, ...]  # seeds whose d_opt was not trained alone: the nearest depth stood in


class Headroom(Frozen):
    """Whether a search over depths is needed: what its choice is worth against networks that nobody searched for."""

    outcome: HeadroomOutcome
    search: str  # the method that trained every depth
    best_rule: str  # of those that do not search, the best one on validation
    gains: dict[str, Interval]  # of judged qualities: the search's choice − that rule's, in the measure's own direction
    rule: str  # that the outcome speaks of: the one that is enough, or is open; else the best one
    cost_shares: dict[str, float]  # rule → its cost ÷ the search's, where that is known
    seeds_needed: int | None  # in all, until it is decided; None: it is, or more than anybody would run
    stage: Stage  # the rules' rows, and their verdicts, a family of their own
    sentence: str


class Recommendation(Frozen):
    """What to do. `sentence` says it; the others are what that rests on, costs and risks."""

    action: Literal["no search", "any depth", "one-shot", "search", "not decided"]
    use: str | None  # a method, or a rule that does not search; None: any depth, or not decided
    sentence: str
    rests_on: str
    costs: str
    risks: str

    def __str__(self) -> str:
        return self.sentence

    @property
    def reasons(self) -> dict[str, str]:
        """By the words that every view shows them under."""
        return {"rests on": self.rests_on, "costs": self.costs, "risks": self.risks}


class ClassRow(Frozen):
    """A class of the data set."""

    name: str
    rows: int  # in training, validation and test set
    recall: dict[str, float | None]  # by method, mean over seeds; None where the test set has no such row


class Floor(Frozen):
    """What needs no network, on the same rows and outside all costs; `values` hold qualities only."""

    linear: MethodRow
    guess: MethodRow
    not_converged: tuple[int, ...]  # seeds whose linear model stopped at its limit of iterations
    below: tuple[str, ...]  # a sentence for every method that the linear model beats


class Resolution(Frozen):
    """Whether the space can tell depths apart; in nats of validation log-likelihood."""

    jitter: float | None  # between reports, at the end of training
    between_depths: float  # standard deviation of the depths' means over seeds
    scatter: float  # of single networks: what is left without the means of seeds and of depths
    between_seeds: float
    ratio: float | None  # between_depths ÷ scatter, the resolution; None when nothing scatters
    by_chance: float | None  # what the resolution is in 5 % of cases when depths are exchanged at random within seeds
    best_depths: tuple[int, ...]  # by seed
    enough: bool
    sentence: str


class Difference(Frozen):
    """Something that was not equal between methods and ought to be."""

    rule: str
    detail: str


class Contamination(Frozen):
    """Signs that seconds were not the same seconds for all methods (a shared machine)."""

    signs: tuple[str, ...]

    @property
    def found(self) -> bool:
        return bool(self.signs)


class ChecklistItem(Frozen):
    question: str
    answer: Literal["yes", "partly", "no"]
    evidence: str


class Winner(Frozen):
    """The network to take home."""

    method: str
    seed: int
    why: str


class Comparison(Frozen):
    """The answer: does one training do the job of a search, and at what cost?"""

    space: str
    reference: str
    margins: Margins
    depth_spread: dict[str, float]  # by measure: how far the best and the worst depth lie apart; empty if not all ran
    methods: tuple[str, ...]  # with at least one finished unit; the reference first
    unfinished_methods: tuple[str, ...]  # with none
    one_shots: tuple[str, ...]  # those of them that learn their depth
    exhaustive: str | None  # the first method that trains every depth in full
    unordered: tuple[str, ...]  # methods whose order of trials means nothing: their curves are means over orders
    full_names: dict[str, str]  # of methods whose names are short for something
    colours: dict[str, str]  # method → #rrggbb
    seeds: tuple[int, ...]
    looks: Looks  # at how many seeds the verdicts are looked at; each interval of a pair is one of that many
    missing: tuple[str, ...]  # cells without a result, named "method seed k"
    recommendation: Recommendation
    sentences: tuple[str, ...]  # one per pair
    headroom: Headroom | None  # None where not every depth was trained, or there is only one
    margins_said: str  # the margins beside the spread between depths, in words
    winner: Winner
    search: Stage
    refit: Stage | None
    equal_quality: tuple[EqualQuality, ...]
    wall_clock: tuple[WallClock, ...]  # modelled
    phases: tuple[Phases, ...]
    depth_checks: tuple[DepthCheck, ...]
    losses: tuple[Loss, ...] = ()  # of one-shots; none where not every depth was trained
    classes: tuple[ClassRow, ...]  # none in results of an earlier version
    floor: Floor | None  # None in results of an earlier version
    resolution: Resolution | None  # None where no two depths were trained to their end
    contamination: Contamination
    fairness: tuple[Difference, ...]
    notes: tuple[str, ...]
    checklist: tuple[ChecklistItem, ...]

    @property
    def qualities(self) -> tuple[Quality, ...]:
        """That all units were measured by: those of an earlier version know fewer."""
        return tuple(each for each in QUALITIES if all(each.key in row.values for row in self.search.rows))

    @property
    def judged(self) -> dict[Quality, float]:
        """Those of them that verdicts speak of, with their margins."""
        return judged(self.margins, [quality.key for quality in self.qualities])

    @property
    def is_decided(self) -> bool:
        """Whether more seeds would change no verdict: those that are withheld need something else.

        Sizes are told, not waited for: methods that choose about the same depths never differ in them.
        """
        verdicts = [pair.verdicts.values() for pair in self.search.pairs if not pair.unequal]
        return bool(verdicts) and all(said and all(each.is_decided for each in said) for said in verdicts)
