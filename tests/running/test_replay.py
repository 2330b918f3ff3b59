"""The simulated clock, against cases worked out by hand."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler
from ray.tune.search import Searcher

from harness.methods.base import METRIC, MODE, TIME, SearchMethod, SearchPlan
from harness.running.messages import AnyTask, FinalTask, Report, TrainTask
from harness.running.rehearsal import made_up_progress, made_up_reports, unimodal
from harness.running.replay import Course, simulate, unused_experiment
from harness.running.side_by_side import SideBySide
from harness.running.unit import RunningUnit
from harness.spaces import Budget, SearchSpace
from tests.rehearsed import make_unit

SAID: list[tuple[Any, ...]] = []  # what the method was asked and told, in order


class Listening(Searcher):
    """Proposes depths in a fixed order and writes down when it is asked, and what it hears."""

    def __init__(self, depths: Sequence[int]) -> None:
        super().__init__(metric=METRIC, mode=MODE)
        self.left, self.of = list(depths), dict[str, int]()

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        if not self.left:
            return Searcher.FINISHED  # type: ignore[return-value]  # a marker, as Tune wants it
        self.of[trial_id] = self.left.pop(0)
        SAID.append(("asked", self.of[trial_id]))
        return {"depth": self.of[trial_id]}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        SAID.append(("epoch", self.of[trial_id], result[TIME]))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        SAID.append(("end", self.of[trial_id], (result or {})[TIME]))


class Listed(SearchMethod):
    depths: tuple[int, ...]
    halving: bool = False
    decision: ClassVar[str] = FIFOScheduler.CONTINUE

    def plan(self, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        SAID.clear()
        rungs = AsyncHyperBandScheduler(
            time_attr=TIME, metric=METRIC, mode=MODE, max_t=50, grace_period=10, reduction_factor=2
        )
        scheduler: Any = rungs if self.halving else Answering(self.decision)
        return SearchPlan({}, Listening(self.depths), scheduler, num_samples=len(self.depths))


class Answering(FIFOScheduler):
    def __init__(self, decision: str) -> None:
        super().__init__()
        self.decision = decision

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        return self.decision


Curve = Sequence[tuple[float, int]]  # (seconds since the start, epoch); the last one is the trial's own end


def replayed(
    out: Path,
    method: SearchMethod,
    curves: Mapping[int, Curve],
    devices: int,
    *,
    values: Mapping[int, float] | None = None,
    tail: float = 0.0,
) -> RunningUnit:
    """The unit after its search on so many devices, each depth with its own curve."""

    def reports(task: TrainTask) -> Iterator[tuple[float, Report]]:
        depth, curve = task.config.depth, curves[task.config.depth]
        value = -float(depth) if values is None else values[depth]
        for number, (after, epoch) in enumerate(curve, start=1):
            reason: Any = None if number < len(curve) else "cap" if epoch == 50 else "patience"
            yield after, Report(progress=made_up_progress(False, depth, epoch, value, reason))

    def course(task: AnyTask) -> Course:
        if isinstance(task, TrainTask):
            return Course(with_facts(task, reports(task)), tail)
        assert isinstance(task, FinalTask)
        return Course(made_up_reports(task, unimodal))

    def with_facts(task: AnyTask, told: Iterator[tuple[float, Report]]) -> Iterator[tuple[float, Report]]:
        yield next(made_up_reports(task, unimodal))
        yield from told

    unit = make_unit(out, method)
    together = SideBySide([unit], devices, 0, None, None, lambda ready: None)
    together.prepare(unused_experiment(str(out / "ray")))
    simulate(together, course)
    return unit


def held(unit: RunningUnit) -> dict[int, tuple[float, float]]:
    """Depth → when it started and when it ended."""
    return {record.depth: (record.started_at, record.ended_at) for record in unit.records()}


def whole(seconds: float) -> Curve:
    """Five reports, evenly spread, to the cap."""
    return [(seconds * number / 5, 10 * number) for number in range(1, 6)]


def test_one_device_one_after_the_other(tmp_path: Path) -> None:
    unit = replayed(tmp_path, Listed(depths=(3, 1)), {3: [(2, 25), (4, 50)], 1: [(1, 25), (2, 50)]}, devices=1)
    assert held(unit) == {3: (0, 4), 1: (4, 6)}
    assert [
        *(("asked", 3), ("epoch", 3, 25), ("epoch", 3, 50), ("end", 3, 50)),
        *(("asked", 1), ("epoch", 1, 25), ("epoch", 1, 50), ("end", 1, 50)),
    ] == SAID
    assert unit.choice is not None and unit.choice.d_opt == 1


def test_two_devices_the_one_that_is_free_first_takes_the_next(tmp_path: Path) -> None:
    """Depth 1 is done at 3, so depth 2 runs from 3 to 8 beside depth 6, and depth 4 begins when 6 is done."""
    curves = {6: whole(7), 1: whole(3), 2: whole(5), 4: whole(2)}
    unit = replayed(tmp_path, Listed(depths=(6, 1, 2, 4)), curves, devices=2)
    assert held(unit) == {6: (0, 7), 1: (0, 3), 2: (3, 8), 4: (7, 9)}
    assert [record.cost.held_seconds for record in unit.records()] == [7, 3, 5, 2]


def test_at_the_same_moment_reports_come_first_then_ends_then_starts(tmp_path: Path) -> None:
    """Depths 2 and 5 end at 4, where depth 3 reports too: whoever is asked then has heard all three."""
    curves = {2: [(2, 25), (4, 50)], 3: [(4, 25), (6, 50)], 5: [(4, 50)], 1: [(1, 50)], 0: [(1, 50)]}
    replayed(tmp_path, Listed(depths=(2, 3, 5, 1, 0)), curves, devices=3)
    assert [
        *(("asked", 2), ("asked", 3), ("asked", 5)),
        ("epoch", 2, 25),  # at 2
        *(("epoch", 2, 50), ("epoch", 3, 25), ("epoch", 5, 50), ("end", 2, 50), ("end", 5, 50)),  # at 4
        *(("asked", 1), ("asked", 0)),
        *(("epoch", 1, 50), ("epoch", 0, 50), ("end", 1, 50), ("end", 0, 50)),  # at 5
        *(("epoch", 3, 50), ("end", 3, 50)),  # at 6
    ] == SAID


def test_ties_go_by_the_order_of_suggestion(tmp_path: Path) -> None:
    curves = {depth: [(5.0, 50)] for depth in (4, 0, 6)}
    replayed(tmp_path, Listed(depths=(6, 0, 4)), curves, devices=3)
    assert [said for said in SAID if said[0] == "end"] == [("end", 6, 50), ("end", 0, 50), ("end", 4, 50)]


def test_patience_frees_a_device_early(tmp_path: Path) -> None:
    curves = {1: [(1, 10), (2, 20)], 2: whole(5), 3: whole(1)}
    unit = replayed(tmp_path, Listed(depths=(1, 2, 3)), curves, devices=2)
    assert held(unit) == {1: (0, 2), 2: (0, 5), 3: (2, 3)}
    assert [record.stop_reason for record in unit.records()] == ["patience", "cap", "cap"]


def test_a_stopped_trial_is_charged_up_to_its_last_report_and_frees_its_device(tmp_path: Path) -> None:
    """Half go on at a rung: at 10 epochs depth 2 is worse than depth 1 was, so it stops at 2 of its 10 seconds."""
    curves, values = {1: whole(5), 2: whole(10), 3: whole(20)}, {1: -1.0, 2: -2.0, 3: -0.5}
    unit = replayed(tmp_path, Listed(depths=(1, 2, 3), halving=True), curves, devices=2, values=values)
    assert [record.status for record in unit.records()] == ["finished", "stopped", "finished"]
    assert held(unit) == {1: (0, 5), 2: (0, 2), 3: (2, 22)}
    assert ("epoch", 2, 10) not in SAID and ("end", 2, 10) in SAID  # as Tune: not as a report, only as an end


def test_the_end_takes_its_time(tmp_path: Path) -> None:
    """Of a trial that finishes and of one that is stopped: the device is held until it has ended."""
    curves, values = {1: whole(5), 2: whole(10)}, {1: -1.0, 2: -2.0}
    unit = replayed(tmp_path, Listed(depths=(1, 2), halving=True), curves, devices=1, values=values, tail=0.5)
    assert held(unit) == {1: (0, 5.5), 2: (5.5, 8)}


def test_eight_devices_start_eight_at_once_and_no_more_than_there_are(tmp_path: Path) -> None:
    curves = {depth: [(1.0 + depth, 50)] for depth in range(7)}
    unit = replayed(tmp_path, Listed(depths=(0, 1, 2, 3, 4, 5, 6)), curves, devices=8)
    assert held(unit) == {depth: (0, 1.0 + depth) for depth in range(7)}
    few = replayed(tmp_path / "few", Listed(depths=(0, 1, 2, 3, 4, 5, 6)), curves, devices=4)
    # 0-3 at once; 0 ends at 1 → 4 until 6; 1 ends at 2 → 5 until 8; 2 ends at 3 → 6 until 10
    assert held(few) == {0: (0, 1), 1: (0, 2), 2: (0, 3), 3: (0, 4), 4: (1, 6), 5: (2, 8), 6: (3, 10)}


def test_on_eight_devices_a_rung_knows_only_who_has_reached_it(tmp_path: Path) -> None:
    """The deeper, the better and the slower: each is the best so far when it reports, so nobody is stopped."""
    curves, values = {depth: whole(5.0 + depth) for depth in range(7)}, {depth: -7.0 + depth for depth in range(7)}
    listed = Listed(depths=tuple(range(7)), halving=True)
    unit = replayed(tmp_path, listed, curves, devices=8, values=values)
    assert {record.status for record in unit.records()} == {"finished"}
    backwards = {depth: whole(12.0 - depth) for depth in range(7)}  # now the best comes first
    unit = replayed(tmp_path / "backwards", listed, backwards, devices=8, values=values)
    assert [record.depth for record in unit.records() if record.status == "finished"] == [6]


@pytest.mark.parametrize("decision", ["PAUSE", "NOOP"])
def test_a_scheduler_that_pauses_trials_is_refused_with_a_sentence(
    tmp_path: Path, decision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Listed, "decision", decision)
    unit = replayed(tmp_path, Listed(depths=(1, 2)), {1: whole(1), 2: whole(1)}, devices=1)
    assert unit.failure is not None and unit.choice is None
    assert f"method mine answers {decision} to a report" in unit.failure and "needs a live run" in unit.failure
