"""Everything that was trained on one space, as replays can use it: read from a results folder."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from harness.comparing.fairness import LOAD, differences_between
from harness.comparing.finished import Finished
from harness.comparing.headroom import AllDepths, OneDepth
from harness.errors import UserError
from harness.methods import RECORDER
from harness.running.replay import Recording, Recordings, recordings_in
from harness.running.store import UnitFolder, read_units
from harness.schema.identity import Frozen
from harness.schema.records import FIXED_DEPTH, NOT_CARRIED_OVER, Count, Measures, TrialConfig, Unit
from harness.schema.settings import SearchSpace
from harness.spaces import with_overrides


class NoRecordings(UserError):
    """Nothing was trained that could be replayed."""


class OneShotRun(Frozen):
    """A one-shot method on a seed, as it ran: its network is in no recording, so it stands beside the replays."""

    method: str
    seed: Count
    colour: str | None
    d_opt: Count
    device_seconds: float
    tflop: float
    epochs: Count
    wall_seconds: float
    test: Measures | None = None  # of its own network; None in a table of version 0.2.0 and before
    differs: str = ""  # from the recordings of its seed in something that costs or numbers depend on


class Recorded(Frozen):
    """The recordings of a space: for each seed, one of every depth."""

    space: SearchSpace
    cpus_per_trial: float
    gpus_per_trial: float
    recordings: tuple[Recording, ...]
    tests: dict[str, Measures]  # "seed/depth" → of that depth's network on the test set; analysis only
    multiply_adds: dict[str, Count] = Field(
        default_factory=dict
    )  # "depth" → of one sample's forward pass; analysis only
    one_shots: tuple[OneShotRun, ...]

    @property
    def seeds(self) -> list[int]:
        return sorted({recording.seed for recording in self.recordings})

    def of_seed(self, seed: int) -> dict[int, Recording]:
        return {each.depth: each for each in self.recordings if each.seed == seed}

    def with_seeds(self, seeds: Sequence[int]) -> "Recorded":
        """Only these; each of them must be there."""
        for seed in seeds:
            if seed not in self.seeds:
                known = ", ".join(map(str, self.seeds))
                raise UserError(f"seed {seed} has no recordings of {self.space.name}; recorded are seeds {known}")
        return self.model_copy(
            update={
                "recordings": tuple(each for each in self.recordings if each.seed in seeds),
                "one_shots": tuple(each for each in self.one_shots if each.seed in seeds),
            }
        )

    def choosing_within(self, nats: float) -> "Recorded":
        """The same recordings, as searches choose from them in a space with this `choice_within`."""
        space = with_overrides(self.space, [f"choice_within={nats!r}"])
        if space == self.space:
            return self
        why = f"they chose with choice_within {self.space.choice_within:g}, when they ran"
        one_shots = tuple(each.model_copy(update={"differs": each.differs or why}) for each in self.one_shots)
        return self.model_copy(update={"space": space, "one_shots": one_shots})

    def worth(self, seed: int) -> tuple[dict[int, float], str]:
        """The log-likelihood of every depth, on the test set where all depths were evaluated there, else validation."""
        depths = self.of_seed(seed)
        tests = {depth: self.tests.get(f"{seed}/{depth}") for depth in depths}
        if all(tests.values()):
            return {depth: each.log_likelihood for depth, each in tests.items() if each}, "test"
        last = {depth: each.progress[-1].val for depth, each in depths.items()}
        return {depth: val.log_likelihood if val else float("-inf") for depth, val in last.items()}, "validation"

    def all_depths(self) -> list[AllDepths]:
        """Of the seeds on which every depth was evaluated on the test set: what tells whether a search is needed."""
        found = []
        for seed in self.seeds:
            last = {depth: each.progress[-1] for depth, each in self.of_seed(seed).items()}
            at = {
                depth: OneDepth(progress.cost, progress.val.log_likelihood, test, self.multiply_adds.get(str(depth)))
                for depth, progress in sorted(last.items())
                if progress.val and (test := self.tests.get(f"{seed}/{depth}"))
            }
            if set(at) == set(self.space.depth.values):
                found.append(AllDepths.of(seed, at, self.space.choice_within))
        return found

    def by_seed(self) -> dict[int, Recordings]:
        """The recordings of each seed: of every depth, made with the space's settings, or nothing is replayed."""
        if not self.recordings:
            raise UserError(f"there are no recordings of {self.space.name}: no search over fixed depths has finished")
        for seed in self.seeds:
            known = self.of_seed(seed)
            missing = [str(depth) for depth in self.space.depth.values if depth not in known]
            if missing:
                raise UserError(
                    f"seed {seed} of {self.space.name} has no recording of depth {', '.join(missing)}, and what was "
                    "not trained is not made up; train every depth of it, or leave the seed out with --seeds"
                )
        return {seed: Recordings(self.space, seed, self.of_seed(seed).values()) for seed in self.seeds}


def recorded_in(out: Path, space: str) -> Recorded:
    """What the finished, trained units of a results folder hold; those that train every depth are preferred."""
    units, _ = read_units(out, space)
    trained = [unit for unit in units if unit.result and not unit.plan.replayed]
    searches = [unit for unit in trained if not unit.plan.facts.learns_depth]
    if not searches:
        raise NoRecordings(
            f"there are no recordings of {space!r} in {out}: a replay needs a finished search over fixed depths that "
            f"was trained; `harness run {space} --methods {RECORDER}` makes recordings of every depth"
        )
    searches.sort(key=lambda unit: (not unit.plan.facts.exhaustive, unit.plan.method, unit.plan.seed))
    like = searches[0].plan
    data = {unit.plan.data_hash: unit.plan for unit in searches if unit.plan.data_hash}
    if len(data) > 1:
        first, second, *_ = (f"{plan.method} seed {plan.seed}" for plan in data.values())
        raise UserError(
            f"recordings must be of the same data, and in {out / space} the data files of {first} and {second} have "
            "other bytes; train one of them again with --fresh, or give another --out"
        )
    recordings: dict[tuple[int, int], Recording] = {}
    tests: dict[str, Measures] = {}
    sizes: dict[str, int] = {}
    for unit in searches:
        if (unit.plan.cpus_per_trial, unit.plan.gpus_per_trial) != (like.cpus_per_trial, like.gpus_per_trial):
            continue  # its seconds are another machine share's
        for each in recordings_in(UnitFolder(out, space, unit.plan.method, unit.plan.seed)):
            recordings.setdefault((each.seed, each.depth), each)
        tests |= _tests(unit)
        sizes |= _sizes(unit)
    return Recorded(
        space=like.space,
        cpus_per_trial=like.cpus_per_trial,
        gpus_per_trial=like.gpus_per_trial,
        recordings=tuple(recordings[key] for key in sorted(recordings)),
        tests=tests,
        multiply_adds=sizes,
        one_shots=tuple(_one_shots(trained, {unit.plan.seed: unit for unit in reversed(searches)})),
    )


def _tests(unit: Unit) -> Mapping[str, Measures]:
    assert unit.result is not None
    return {f"{unit.plan.seed}/{each.depth}": each.measures for each in unit.result.final.per_depth_test}


def _sizes(unit: Unit) -> Mapping[str, int]:
    assert unit.result is not None
    known = {str(each.depth): each.multiply_adds for each in unit.result.final.per_depth_test}
    return {depth: size for depth, size in known.items() if size is not None}


def _one_shots(units: Iterable[Unit], searches: Mapping[int, Unit]) -> Iterable[OneShotRun]:
    for unit in units:
        if unit.plan.facts.learns_depth and unit.result and unit.plan.seed in searches:
            cost = unit.result.cost.without(NOT_CARRIED_OVER)
            yield OneShotRun(
                method=unit.plan.method,
                seed=unit.plan.seed,
                colour=unit.plan.facts.colour,
                d_opt=unit.result.d_opt,
                device_seconds=cost.device_seconds,
                tflop=cost.tflop,
                epochs=cost.epochs,
                wall_seconds=cost.held_seconds,
                test=unit.result.final.chosen,
                differs=_difference(unit, searches[unit.plan.seed]),
            )


def _difference(unit: Unit, search: Unit) -> str:
    """As fairness sees it: another machine, another version, other settings. How full the machine was is no reason."""
    one, other = (TrialConfig.of(each.plan.space, FIXED_DEPTH, 0, 0) for each in (unit, search))
    if one != other:
        return "settings of the space"
    if None not in (hashes := {each.plan.data_hash for each in (unit, search)}) and len(hashes) > 1:
        return "bytes of the data files"
    pair = [Finished(each.plan, each.trials, each.result) for each in (unit, search) if each.result]
    found = [each for each in differences_between(pair) if each.rule != LOAD]
    return "; ".join(f"{each.rule}: {each.detail}" for each in found)
