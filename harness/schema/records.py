"""What a trial and a search leave behind: frozen, self-validating, to and from JSON.

These records are the truth on disk; MLflow, the comparison and the report are views of them.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.schema.identity import Frozen, Identified, Later, digest
from harness.schema.networks import AnyNetwork
from harness.schema.settings import (
    AnyRule,
    DataSettings,
    PosteriorSettings,
    SearchSpace,
    TrainingSettings,
)

NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]

FIXED_DEPTH = "ddn"  # the kind of a network with exactly `depth` blocks; every other kind names a one-shot method
StopReason = Literal["patience", "cap", "scheduler", "failed"]
Validation = Literal["unused", "chooses", "fits"]  # what a method does with validation labels, early stopping apart
PHASES = ("startup", "data", "compile", "train", "validate", "checkpoint", "lost", "other")
NOT_CARRIED_OVER = (
    "checkpoint",
    "lost",
)  # from a trained trial to its replays: they depend on the run, not the network
WALL_CLOCK_DEVICES = (1, 2, 4, 8)  # numbers of devices that comparisons show wall-clock for
REPLAYED_SEARCHES = 10  # search seeds that comparisons average a replayed search over


class TrialConfig(Identified):
    """Everything that determines a trial's numbers: which network, which seed, and the space's settings."""

    kind: str  # FIXED_DEPTH, or the one-shot method that makes the network
    depth: Count  # blocks of the network; where it learns its depth, the largest depth D
    seed: Count
    data: DataSettings
    network: AnyNetwork
    posterior: PosteriorSettings
    training: TrainingSettings
    options: Annotated[dict[str, Any], Later(before={})] = Field(default_factory=dict)  # of the one-shot method
    restart: Annotated[Count, Later(before=0)] = 0
    """Which draw of its first weights; 0 is the one that a fixed depth has in every search."""

    @classmethod
    def of(
        cls,
        space: SearchSpace,
        kind: str,
        depth: int,
        seed: int,
        options: Mapping[str, Any] | None = None,
        restart: int = 0,
    ) -> "TrialConfig":
        return cls(
            kind=kind,
            depth=depth,
            seed=seed,
            data=space.data,
            network=space.network,
            posterior=space.posterior,
            training=space.training,
            options=dict(options or {}),
            restart=restart,
        )

    @property
    def learns_depth(self) -> bool:
        return self.kind != FIXED_DEPTH

    def __hash__(self) -> int:  # options are a dict, which has none
        return hash(self.hash)

    @property
    def hash(self) -> str:
        return digest(self)


class Measures(Frozen):
    """Quality of a predictive distribution on one labelled set."""

    accuracy: float
    log_likelihood: float  # mean, nats
    ece: float
    brier: float
    balanced_accuracy: float | None = None  # mean over the classes of the share that is right; None in older records


class ReliabilityBin(Frozen):
    """One bar of a reliability diagram: samples whose top confidence lies in (lower, upper]."""

    lower: float
    upper: float
    count: Count
    confidence: float  # mean; 0 when empty
    accuracy: float


class Posterior(Frozen):
    """Weights over depths 0…D of a one-shot network, and the depth by each rule."""

    q: tuple[float, ...]
    rule: AnyRule
    d_opt: Count  # by `rule`, or as the method itself chooses
    d_opt_by_rule: dict[str, int]  # `validation` is among them where the method chooses by it
    val_log_likelihoods: tuple[float, ...] = ()  # of depths 0…D, where the method chooses by them


class Cost(Frozen):
    """Where a trial's time went. `held_seconds` is measured on its own; the phases sum to it."""

    held_seconds: NonNegative = 0.0
    devices: NonNegative = 1.0  # GPUs held, a quarter counts 0.25; CPU-only trials count cores
    phases: dict[str, float] = Field(default_factory=dict)
    tflop: NonNegative = 0.0
    epochs: Count = 0
    samples: Count = 0  # training samples that went through the network
    block_passes: Count = 0  # samples × residual blocks, training
    head_passes: Count = 0  # samples × depths the output block was applied to, training
    peak_memory_bytes: Count = 0  # of the process (CPU) or of the device (CUDA)

    @property
    def device_seconds(self) -> float:
        return self.held_seconds * self.devices

    def without(self, phases: Sequence[str]) -> "Cost":
        """The same, as if these phases had taken no time."""
        seconds = sum(self.phases.get(phase, 0.0) for phase in phases)
        kept = {phase: 0.0 if phase in phases else value for phase, value in self.phases.items()}
        return self.model_copy(update={"held_seconds": max(0.0, self.held_seconds - seconds), "phases": kept})

    @property
    def train_seconds(self) -> float:
        return self.phases.get("train", 0.0)


class CurvePoint(Frozen):
    """One report of a trial."""

    epoch: Count
    device_seconds: NonNegative  # of this trial, up to this report
    train_objective: float
    val_log_likelihood: float
    val_accuracy: float
    d_opt: Count | None = None  # learnt depth: by the space's rule, at this epoch


class Progress(Frozen):
    """What a trial reports: enough to make its record, should this report turn out to be the last one."""

    epoch: Count
    stop_reason: StopReason | None  # None while it trains
    best_epoch: Count
    train_objective: float | None  # at the best epoch
    val: Measures | None  # of the best parameters so far; None when the trial failed
    posterior: Posterior | None
    depth_changed_late: bool | None
    cost: Cost
    point: CurvePoint | None  # None when the trial failed
    error: str | None = None
    ran_eagerly: str = ""  # why a network that was to be compiled ran without; empty: it did not


class Attempt(Frozen):
    """One stay of a trial on a worker. A retried trial has several; all of their time is paid for."""

    host: str = ""  # where; empty when its worker died before reporting
    resumed_from_epoch: Count
    held_seconds: NonNegative
    lost_seconds: NonNegative = 0.0  # work after the checkpoint that the next attempt resumed from
    ended: Literal["finished", "stopped", "failed", "died", "interrupted"]
    worker_start_seconds: NonNegative = 0.0  # process, imports and rows, when the worker had none; not in held_seconds
    suspended_seconds: NonNegative = 0.0  # it waited for a driver that was stopped or asleep; not in held_seconds
    tail_unknown: bool = False  # the driver was killed: time after the last line is not known


class Environment(Frozen):
    """What the numbers were made with; a mix within a comparison is a fairness difference."""

    harness: str
    code: str  # git commit, or the version of an installed wheel; "+dirty" with local changes
    python: str
    torch: str
    ray: str | None
    optuna: str | None = None  # its defaults are part of two searches' algorithms; unknown in older records
    machine: str  # processor model
    device: str  # cpu, or the GPU's name
    threads: int
    tf32: bool = False  # whether float32 products were rounded on CUDA
    deterministic: bool = False  # whether torch was held to repeatable algorithms; on a CPU they are anyway


class TrialRecord(Frozen):
    """One trial, whatever became of it."""

    trial_id: str
    kind: str  # of its network, as in TrialConfig
    depth: Count
    restart: Count = 0  # as in TrialConfig
    seed: Count
    config_hash: str
    split_hash: str
    status: Literal["finished", "stopped", "failed"]  # stopped: early, by a scheduler
    stop_reason: StopReason
    best_epoch: Count
    train_objective: float | None  # at the best epoch
    val: Measures | None  # of the best parameters; None when the trial failed
    posterior: Posterior | None = None  # learnt depth only, at the best epoch
    depth_changed_late: bool | None = None  # learnt depth: the rule's depth changed in the last quarter of training
    cost: Cost
    attempts: tuple[Attempt, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    environment: Environment
    started_at: float = 0.0  # seconds since the epoch
    ended_at: float = 0.0
    queue_seconds: NonNegative = 0.0
    error: str | None = None  # the traceback's tail of a failed trial
    ran_eagerly: str = ""  # why a network that was to be compiled ran without; empty: it did not

    @property
    def learns_depth(self) -> bool:
        return self.kind != FIXED_DEPTH

    @property
    def d_opt(self) -> int:
        """The depth of the network that it would hand over."""
        return self.posterior.d_opt if self.posterior else self.depth

    @property
    def jitter(self) -> float | None:
        """Median absolute change of the validation log-likelihood from report to report, over the last quarter of
        training; None where there are no two reports.
        """
        late = [
            abs(after.val_log_likelihood - before.val_log_likelihood)
            for before, after in pairwise(self.curve)
            if after.epoch > 0.75 * self.curve[-1].epoch
        ]
        return median(late) if late else None

    @classmethod
    def of(
        cls, trial_id: str, config: TrialConfig, split_hash: str, last: Progress, environment: Environment, **more: Any
    ) -> "TrialRecord":
        """The record of a trial whose last report was `last`; without a stop reason there, a scheduler stopped it."""
        stop_reason = last.stop_reason or "scheduler"
        status = {"failed": "failed", "scheduler": "stopped"}.get(stop_reason, "finished")
        values = {
            "status": status,
            "stop_reason": stop_reason,
            "best_epoch": last.best_epoch,
            "train_objective": last.train_objective,
            "val": last.val,
            "posterior": last.posterior,
            "depth_changed_late": last.depth_changed_late,
            "cost": last.cost,
            "error": last.error,
            "ran_eagerly": last.ran_eagerly,
        }
        return cls(
            trial_id=trial_id,
            kind=config.kind,
            depth=config.depth,
            restart=config.restart,
            seed=config.seed,
            config_hash=config.hash,
            split_hash=split_hash,
            environment=environment,
            **{**values, **more},
        )


class DepthMeasures(Frozen):
    """Test measures of one depth: of a stand-alone network, or read out of one that learns its depth."""

    depth: Count
    measures: Measures
    multiply_adds: Count | None = None  # of one sample's forward pass through that network; None in older records


class StoppedMeasures(DepthMeasures):
    """Of a network that a scheduler stopped: as it was at that epoch."""

    epoch: Count


class Floor(Frozen):
    """What is reached without a network, on the same training, validation and test rows; outside all costs."""

    linear: Measures  # scikit-learn's logistic regression, its penalty chosen on the validation rows
    guess: Measures  # the class frequencies of the training rows
    converged: bool  # False: the linear model's solver stopped at its limit of iterations
    seconds: NonNegative = 0.0


class ClassMeasures(Frozen):
    """One class on the test set: of the network that is handed over."""

    name: str  # as the data set calls it
    rows: Count  # in training, validation and test set
    n_test: Count
    n_predicted: Count  # test samples that were taken for it
    recall: float | None  # share of its samples that were taken for it; None without samples
    precision: float | None  # share of the samples taken for it that are of it; None without any
    reliability: tuple[ReliabilityBin, ...] = ()  # its probability against how often it is the right class


class FinalEvaluation(Frozen):
    """What was read off the test set, opened once for the unit, after the choice was on disk."""

    chosen: Measures  # the headline: the network that is handed over
    reliability: tuple[ReliabilityBin, ...]
    class_reliability: tuple[ReliabilityBin, ...] = ()  # of all class probabilities, as the paper draws them
    per_class: tuple[ClassMeasures, ...] = ()  # in the order of the class numbers; empty in older records
    n_test: Count
    split_hash: str
    refit: Measures | None = None  # a network of the chosen depth, fitted to train + validation
    full: Measures | None = None  # learnt depth: all D+1 depths marginalised
    full_reliability: tuple[ReliabilityBin, ...] = ()
    full_class_reliability: tuple[ReliabilityBin, ...] = ()
    by_rule: dict[str, Measures] = Field(default_factory=dict)  # learnt depth, by rule. Analysis only.
    per_depth_test: tuple[DepthMeasures, ...] = ()  # each depth alone, inside or trained. Analysis only.
    per_depth_val: tuple[DepthMeasures, ...] = ()  # learnt depth: each depth alone
    d_opt_by_validation: Count | None = None  # learnt depth: where `per_depth_val` is best; the smallest within a tie
    posterior_gap_nats: float | None = None  # a posterior: log Σ_i β_i Π_n p(y_n|x_n,i) − ELBO on the training set
    d_opt_exact: Count | None = None  # a posterior: argmax of the exact posterior for the final weights
    d_opt_by_exact: Count | None = None  # the same, by the space's rule; None in older records
    parameters: Count = 0  # of the chosen network
    multiply_adds: Count | None = None  # of one sample's forward pass through the chosen network; None in older records
    deepest_multiply_adds: Count | None = None  # through the space's deepest network of a fixed depth
    forward_seconds_per_sample: NonNegative = 0.0  # of the chosen network
    deepest_forward_seconds_per_sample: NonNegative | None = None  # timed in turns with it; None in older records
    full_forward_seconds_per_sample: NonNegative | None = None  # learnt depth: all D blocks
    floor: Floor | None = None  # None in results of an earlier version
    rows_hash: str | None = None  # of the values per row that are kept beside the record; see `schema.rows`
    test_hash: str | None = None  # of the test rows: seeds that share it were tested on the same ones
    stopped_test: tuple[StoppedMeasures, ...] = ()  # of replays: networks as a scheduler left them. For their average.
    seconds: NonNegative = 0.0  # device time of this evaluation without the floor, outside search cost


class Refit(Frozen):
    """A fixed-depth network of the chosen depth, trained on train + validation.

    Up to version 0.2.0 a one-shot's refit trained its whole network again.
    """

    d_opt: Count
    test: Measures
    cost: Cost


class ReplayedSearch(Frozen):
    """What a replay with another search seed came to."""

    depth: Count  # that it chose
    epoch: Count  # at which the chosen trial ended
    stopped: bool  # by a scheduler; else it was trained to its own end
    cost: Cost  # the sum over all its trials


class SearchResult(Frozen):
    """One unit: a method on a seed, finished."""

    space: str
    method: str
    options: dict[str, Any]
    seed: Count
    plan_hash: str  # of space, method options and seed
    status: Literal["complete", "capped"]  # capped: --max-cost ended it
    chosen_trial: str
    d_opt: Count
    d_opt_in_range: bool  # inside the depths that the fixed-depth searches may train
    val: Measures
    final: FinalEvaluation
    refit: Refit | None = None
    cost: Cost  # the sum over ALL trials
    worker_start_device_seconds: NonNegative  # of workers that started for it; beside the cost, not in it
    trials: Count
    trials_by_status: dict[str, int]
    duplicates: Count = 0  # depths proposed again
    wall_seconds: NonNegative
    replayed_wall_seconds: dict[int, float] = Field(default_factory=dict)  # by devices: the search replayed on so many
    replayed_searches: tuple[tuple[tuple[float, float], ...], ...] = ()
    """Of replays with search seeds 0, 1, …: (device-seconds spent, best validation log-likelihood) at each gain and at
    the end."""
    replayed_choices: tuple[ReplayedSearch, ...] = ()  # of the same replays; none in results of version 0.2.0
    driver_seconds: NonNegative  # searcher, scheduler and tracking
    concurrency: int | None  # most trials of the unit at once; None: no limit
    order_dependent: bool  # adaptive and run with more than one trial at once
    cpus_per_trial: float
    gpus_per_trial: float
    most_coresident_trials: int
    labels_fit: Count  # labels used for fitting
    labels_chosen_with: Count  # labels used for stopping and choosing
    usd_per_hour: NonNegative | None = None  # of a device, as said when it ran
    model_hash: str | None = None  # of the bytes of model.pt; None in older records


class MethodFacts(Frozen):
    """What is true of a method, as its class declares it (see `SearchMethod`, which says what each one means).

    Written into every plan and read from there: no view knows a method by its name.
    """

    adaptive: bool = True
    ordered: bool = True
    exhaustive: bool = False
    at_random: bool = False
    seeded: bool = True
    most_at_once: Annotated[int, Field(gt=0)] | None = None
    learns_depth: bool = False
    validation: Validation = "chooses"
    is_posterior: bool = False
    full_name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    colour: Annotated[str, Field(pattern="^#[0-9A-Fa-f]{6}$")] | None = None


VERSION = 3  # of the records on disk
NOT_DETERMINING = frozenset({"facts", "usd_per_hour", "version"})  # of a plan: a search is the same without them


class UnitPlan(Identified):
    """What a unit was asked to do, written before its first trial. Equal hash: the same search, so a run continues."""

    space: SearchSpace
    method: str  # a row of the comparison: `asha`, or `asha:grace_epochs=20` where an option is not the default
    options: dict[str, Any]
    seed: Count
    trials: Count  # as planned
    cpus_per_trial: float
    gpus_per_trial: float
    concurrency: int | None
    refit: bool
    facts: MethodFacts
    replayed: Annotated[bool, Later(before=False)] = (
        False  # its search is not trained: it is told what trials of another unit reported
    )
    data_hash: Annotated[str | None, Later(before=None)] = None  # of the files' bytes; None: generated, or not known
    code: Annotated[dict[str, str], Later(before={})] = Field(default_factory=dict)
    """The user's own files that it was made with, by what they are, "method mine.py", and the hash of what they say."""
    usd_per_hour: NonNegative | None = None  # of a device
    version: int = VERSION

    @property
    def chooses_by_validation(self) -> bool:
        """Whether validation chooses the depth: every search, and the one-shot networks that say so."""
        by_rule = self.facts.learns_depth and self.space.posterior.rule == "validation"
        return by_rule or self.facts.validation == "chooses"

    @property
    def method_file(self) -> str:
        """The name of the method's file: `method` is that, with the options that are not the default ones."""
        return self.method.partition(":")[0]

    @property
    def devices(self) -> float:
        """That a trial holds: GPUs, or cores where it has none."""
        return self.gpus_per_trial or self.cpus_per_trial

    def trial_config(self, depth: int, restart: int = 0) -> TrialConfig:
        """The configuration of this unit's trial of a depth."""
        learns = self.facts.learns_depth
        kind, options = (self.method_file, self.options) if learns else (FIXED_DEPTH, {})
        return TrialConfig.of(self.space, kind, depth, self.seed, options, restart)

    @property
    def hash(self) -> str:
        """Of everything that determines the numbers: not of the description, the margins of the verdict, the price."""
        of_space = {"description", "margins"} | (set() if self.chooses_by_validation else {"choice_within"})
        return digest(self, {"space": of_space, **dict.fromkeys(NOT_DETERMINING, True)})

    def known_to(self, other: "UnitPlan") -> "UnitPlan":
        """This plan as the other one could have been written: of data and files, only what that one has a hash of."""
        code = {file: code for file, code in self.code.items() if file in other.code}
        return self.model_copy(update={"data_hash": self.data_hash if other.data_hash else None, "code": code})


class Looks(Frozen):
    """At how many seeds the verdicts of a space are looked at. Written beside its units, before the first one."""

    declared: tuple[Count, ...] = ()  # by --until-verdict
    taken: tuple[Count, ...] = ()  # by runs that added seeds

    @property
    def all(self) -> tuple[int, ...]:
        """What the error rate of the verdicts is calibrated for."""
        return tuple(sorted({*self.declared, *self.taken}))


class Unit(Frozen):
    """Everything on disk about one method × seed; `result` is None while it is unfinished."""

    plan: UnitPlan
    trials: tuple[TrialRecord, ...]
    result: SearchResult | None
    rows_file: Path | None = None  # where the values per test row are, if they were kept
