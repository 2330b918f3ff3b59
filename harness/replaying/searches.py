"""Many searches of many methods on recorded trials, and what they say of each method.

Two kinds of seeds: of training (recorded, few) and of the search (free, many). An interval goes over training seeds:
five hundred replays of three recordings are three repeats.
"""

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ray.tune.experiment import Experiment

from harness.comparing.headroom import headroom
from harness.comparing.replays import MethodReplay, OnDevices, Replay, Spread
from harness.comparing.stages import paired_values, row_of, with_verdicts
from harness.comparing.values import Stage
from harness.errors import UserError
from harness.measures import DEPTH, DEVICE_SECONDS, EPOCHS, QUALITIES, TFLOP
from harness.methods import RECORDER, parse_methods
from harness.methods.base import SearchMethod
from harness.replaying.recorded import OneShotRun, Recorded
from harness.running.replay import Recordings, ReplayedUnit, replayed, unused_experiment
from harness.schema.records import UnitPlan

_COSTS = (DEVICE_SECONDS.key, TFLOP.key, EPOCHS.key)  # the first of the following
_NUMBERS = ("device_seconds", "tflop", "epochs", "wall_seconds", "trials", "regret")


def replay_searches(
    recorded: Recorded,
    methods: Mapping[str, SearchMethod],
    search_seeds: int,
    devices: Sequence[int],
    done: Callable[[], None] = lambda: None,
) -> Replay:
    """Every method on every training seed with search seeds 0 … n − 1; `done` is called after each search."""
    return _replayed(recorded, methods, search_seeds, devices, done)[0]


def judged_searches(
    recorded: Recorded,
    methods: Mapping[str, SearchMethod],
    search_seeds: int,
    devices: Sequence[int],
    done: Callable[[], None] = lambda: None,
) -> tuple[Replay, Stage]:
    """And every method against the search over every depth, on the first number of devices, judged as a comparison is.

    A search stands for the mean over its search seeds; one-shots are judged where their own test measures are known.
    Training seeds on which some depth was not evaluated on the test set are left out; one must be left.
    """
    with_recorder = {**methods, **parse_methods(RECORDER)}
    replay, chosen = _replayed(recorded, with_recorder, search_seeds, devices, done)
    known = recorded.all_depths()
    seeds = tuple(each.seed for each in known)
    trained = {each.method: _own(recorded, each.method, seeds) for each in replay.methods if each.trained}
    values = {
        **{row: runs for row, runs in trained.items() if runs},
        **{row: [each.chose(*found[each.seed]) for each in known] for row, found in chosen.items()},
    }
    stage = Stage(
        name="search",
        rows=tuple(row_of(row, seeds, each) for row, each in values.items()),
        pairs=tuple(paired_values(row, RECORDER, seeds, values) for row in values if row != RECORDER),
    )
    shown = tuple(each for each in replay.methods if each.trained or each.method in methods)
    judged = with_verdicts(stage, DEVICE_SECONDS, recorded.space.margins, ())
    return replay.model_copy(update={"methods": shown}), judged


_Chosen = Mapping[int, tuple[Sequence[int], Mapping[str, float]]]  # training seed → depths of its searches, mean costs


def _own(recorded: Recorded, method: str, seeds: Sequence[int]) -> list[dict[str, float]]:
    """What a one-shot's networks are worth and cost, in the order of the seeds; nothing where one was not measured."""
    runs = {each.seed: each for each in recorded.one_shots if each.method == method}
    found = []
    for run in (runs[seed] for seed in seeds):
        if run.test is None:
            return []
        worth = {quality.key: value for quality in QUALITIES if (value := quality.of(run.test)) is not None}
        costs = {DEVICE_SECONDS.key: run.device_seconds, TFLOP.key: run.tflop, EPOCHS.key: float(run.epochs)}
        found.append({**worth, **costs, DEPTH.key: float(run.d_opt)})
    return found


def _replayed(
    recorded: Recorded,
    methods: Mapping[str, SearchMethod],
    search_seeds: int,
    devices: Sequence[int],
    done: Callable[[], None],
) -> tuple[Replay, dict[str, _Chosen]]:
    recordings = recorded.by_seed()
    for row, method in methods.items():
        if not method.can_be_replayed:
            raise UserError(
                f"method {row} trains a network of its own, which is in no recording: it cannot be replayed; where it "
                "ran, it stands beside the replays anyway"
            )
    worths = {seed: recorded.worth(seed) for seed in recorded.seeds}
    on_test = all(where == "test" for _, where in worths.values())
    regrets = {seed: _regrets(worth) for seed, (worth, _) in worths.items()}
    with tempfile.TemporaryDirectory() as folder:
        searches = _Searches(recorded, recordings, regrets, search_seeds, done, unused_experiment(folder))
        found = {row: [searches.on_devices(row, method, each) for each in devices] for row, method in methods.items()}
    replays = tuple(
        MethodReplay(method=row, colour=method.facts().colour, trained=False, on=tuple(on for on, _ in found[row]))
        for row, method in methods.items()
    )
    replay = Replay(
        space=recorded.space.name,
        seeds=tuple(recorded.seeds),
        search_seeds=search_seeds,
        devices=tuple(devices),
        regret_on="test" if on_test else "validation",
        methods=(*_one_shots(recorded, devices, worths, on_test), *replays),
        headroom=headroom(recorded.all_depths(), RECORDER, recorded.space.margins, within=recorded.space.choice_within),
        left_out={each.method: each.differs for each in recorded.one_shots if each.differs},
    )
    return replay, {row: on[0][1] for row, on in found.items()}


def _regrets(worth: Mapping[int, float]) -> dict[int, float]:
    best = max(worth.values())
    return {depth: best - value for depth, value in worth.items()}


@dataclass(frozen=True)
class _Searches:
    recorded: Recorded
    recordings: Mapping[int, Recordings]  # by training seed, as the next
    regrets: Mapping[int, Mapping[int, float]]  # of each depth
    search_seeds: int
    done: Callable[[], None]
    experiment: Experiment

    def on_devices(self, row: str, method: SearchMethod, devices: int) -> tuple[OnDevices, _Chosen]:
        """Nothing is kept of a search but its numbers and its choice."""
        values = np.zeros((len(_NUMBERS), len(self.recordings), self.search_seeds))
        depths: dict[int, list[int]] = {}
        for at, (seed, recordings) in enumerate(self.recordings.items()):
            plan = self._plan(row, method, seed, devices)
            for search_seed in range(self.search_seeds):
                if method.seeded or search_seed == 0:
                    unit = replayed(plan, method, recordings, self.experiment, search_seed)
                    numbers, d_opt = self._numbers(unit)
                values[:, at, search_seed] = numbers
                depths.setdefault(seed, []).append(d_opt)
                self.done()
        counts = Counter(itertools.chain.from_iterable(depths.values()))
        means = dict(zip(depths, values[: len(_COSTS)].mean(axis=2).T.tolist(), strict=True))
        chosen = {seed: (each, dict(zip(_COSTS, means[seed], strict=True))) for seed, each in depths.items()}
        spreads: dict[str, Any] = {name: Spread.of(each) for name, each in zip(_NUMBERS, values, strict=True)}
        return OnDevices(devices=devices, depths=dict(sorted(counts.items())), **spreads), chosen

    def _plan(self, row: str, method: SearchMethod, seed: int, devices: int) -> UnitPlan:
        return UnitPlan(
            space=self.recorded.space,
            method=row,
            options={},
            seed=seed,
            trials=0,  # as the search's own seed has it
            cpus_per_trial=self.recorded.cpus_per_trial,
            gpus_per_trial=self.recorded.gpus_per_trial,
            concurrency=devices,
            refit=False,
            facts=method.facts(),
            replayed=True,
        )

    def _numbers(self, unit: ReplayedUnit) -> tuple[tuple[float, ...], int]:
        """In the order of _NUMBERS, and the depth that was chosen."""
        assert unit.choice is not None
        costs, d_opt = [log.cost(unit.plan.devices) for log in unit.search_logs()], unit.choice.d_opt
        numbers = (
            sum(cost.device_seconds for cost in costs),
            sum(cost.tflop for cost in costs),
            sum(cost.epochs for cost in costs),
            unit.searched_seconds,
            len(costs),
            self.regrets[unit.plan.seed][d_opt],
        )
        return numbers, d_opt


def _one_shots(
    recorded: Recorded, devices: Sequence[int], worths: Mapping[int, tuple[Mapping[int, float], str]], on_test: bool
) -> Iterator[MethodReplay]:
    """Beside the replays, where they ran on every seed. One network uses one device, however many there are.

    Their regret is that of their own networks, where it is known; else of fixed depths as deep as these.
    """
    for method in dict.fromkeys(each.method for each in recorded.one_shots):
        runs = sorted((each for each in recorded.one_shots if each.method == method), key=lambda each: each.seed)
        if [each.seed for each in runs] != recorded.seeds or any(each.differs for each in runs):
            continue
        own = on_test and all(each.test for each in runs)

        def regret(run: OneShotRun, own: bool = own) -> float:
            worth, _ = worths[run.seed]
            known = run.test.log_likelihood if own and run.test else worth.get(run.d_opt, float("nan"))
            return max(worth.values()) - known

        per_seed = [
            (
                each.device_seconds,
                each.tflop,
                each.epochs,
                each.wall_seconds,
                1,
                regret(each),
            )
            for each in runs
        ]
        if not np.isfinite(per_seed).all():
            continue  # it chose a depth that no search over depths may train
        numbers: dict[str, Any] = {
            name: Spread.of(column[:, None]) for name, column in zip(_NUMBERS, np.array(per_seed).T, strict=True)
        }
        chosen = [each.d_opt for each in runs]
        depths = {depth: chosen.count(depth) for depth in sorted(set(chosen))}
        on = tuple(OnDevices(devices=each, depths=depths, **numbers) for each in devices)
        yield MethodReplay(method=method, colour=runs[0].colour, trained=True, own_network=own, on=on)
