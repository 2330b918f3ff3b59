"""Arithmetic of attempts: every second a trial held its devices is in exactly one phase, whoever died when."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.replaying.rehearsal import MADE_UP, made_up_progress
from harness.running import ledger
from harness.running.ledger import (
    Died,
    Ended,
    Interrupted,
    Reported,
    Started,
    Status,
    Suspended,
    TrialEvent,
    TrialLog,
    Watch,
    steady_clock,
)
from harness.running.messages import Facts, Report, TrainTask
from harness.schema.records import FIXED_DEPTH, Cost, TrialConfig, TrialRecord
from tests.rehearsed import small_space

CONFIG = TrialConfig.of(small_space(), FIXED_DEPTH, 2, 0)
TASK = TrainTask(unit="u", trial="t000", config=CONFIG)


def told(*events: TrialEvent) -> TrialLog:
    log = TrialLog("t000", TASK, suggested_at=0.0)
    for event in events:
        log.apply(event)
    return log


def start(time: float) -> Started:
    return Started(time=time, trial="t000", coresident=1)


def facts(time: float, resumed: Cost | None = None, worker_start: tuple[float, float] = (0.0, 0.0)) -> Reported:
    said = Facts(
        host="h",
        worker_start=worker_start,
        resumed_from=resumed or Cost(),
        split_hash="s",
        n_train=1,
        n_val=1,
        environment=MADE_UP,
    )
    return Reported(time=time, trial="t000", report=Report(facts=said), coresident=1)


def report(time: float, epoch: int, cost: Cost, **more: Any) -> Reported:
    progress = made_up_progress(False, 2, epoch, -1.0 / epoch, **more).model_copy(update={"cost": cost})
    return Reported(time=time, trial="t000", report=Report(progress=progress), coresident=1)


def worked(held: float, epochs: int, **phases: float) -> Cost:
    return Cost(held_seconds=held, epochs=epochs, phases=phases)


def died(time: float) -> Died:
    return Died(time=time, trial="t000")


def end(time: float, status: Status = "finished", error: str | None = "it crashed") -> Ended:
    said = error if status == "failed" else None
    return Ended(time=time, trial="t000", status=status, error=said, driver_seconds=0.0)


def record(log: TrialLog, devices: float = 1.0) -> TrialRecord:
    made = log.record(devices)
    assert sum(made.cost.phases.values()) == pytest.approx(made.cost.held_seconds)
    assert sum(attempt.held_seconds for attempt in made.attempts) == pytest.approx(made.cost.held_seconds)
    return made


def test_an_undisturbed_trial() -> None:
    cost = worked(held=8.0, epochs=50, startup=1.0, train=6.0, validate=0.5)
    made = record(
        told(start(3), facts(4, worker_start=(2.0, 1.0)), report(12, 50, cost, stop_reason="cap"), end(12.5)), 0.25
    )
    assert made.status == "finished"
    assert made.queue_seconds == 3.0
    assert made.cost.held_seconds == 8.5  # 9.5 since it was handed over, without a second of the worker's imports
    assert made.cost.device_seconds == 8.5 * 0.25
    assert made.attempts[0].worker_start_seconds == 3.0  # two of them before the trial
    assert made.cost.phases["other"] == 1.0 and made.cost.phases["lost"] == 0.0
    assert [attempt.ended for attempt in made.attempts] == ["finished"]


def test_a_dead_worker_loses_what_its_checkpoint_did_not_hold() -> None:
    checkpoint = worked(held=4.0, epochs=20, startup=1.0, train=3.0)
    final = worked(held=10.0, epochs=50, startup=2.0, train=8.0)
    made = record(
        told(
            *(start(0), facts(1), report(4, 20, checkpoint), report(6, 30, worked(6.0, 30, startup=1.0, train=5.0))),
            *(died(7), start(8), facts(9, checkpoint), report(14, 50, final, stop_reason="cap"), end(14)),
        )
    )
    first, second = made.attempts
    assert (first.ended, first.held_seconds, first.lost_seconds) == ("died", 7.0, 3.0)
    assert (second.ended, second.held_seconds, second.resumed_from_epoch) == ("finished", 6.0, 20)
    assert made.cost.phases["lost"] == 3.0 and made.cost.phases["train"] == 8.0
    assert made.cost.epochs == 50


def test_an_attempt_that_dies_before_reporting_is_lost_and_takes_nothing_with_it() -> None:
    checkpoint = worked(held=4.0, epochs=20, train=4.0)
    final = worked(held=9.0, epochs=50, train=9.0)
    made = record(
        told(
            *(start(0), facts(0), report(4, 20, checkpoint), died(5), start(5), died(7)),
            *(start(8), facts(8, checkpoint), report(13, 50, final, stop_reason="cap"), end(13)),
        )
    )
    assert [attempt.lost_seconds for attempt in made.attempts] == [1.0, 2.0, 0.0]
    assert made.cost.phases["lost"] == 3.0 and made.cost.phases["train"] == 9.0


def test_a_second_death_before_a_report_does_not_count_the_first_attempts_work_twice() -> None:
    checkpoint = worked(held=4.0, epochs=20, train=4.0)
    made = record(
        told(
            *(start(0), facts(0), report(4, 20, checkpoint), report(9, 40, worked(9.0, 40, train=9.0)), died(10)),
            *(start(10), facts(10, checkpoint), end(12, "failed")),
        )
    )
    assert made.status == "failed" and made.val is None and made.error == "it crashed"
    assert made.cost.phases["train"] == 4.0  # what the checkpoint held
    assert made.cost.phases["lost"] == 8.0  # the rest of the first attempt, and the second


def test_a_crash_before_the_first_report_is_all_lost() -> None:
    made = record(told(start(2), end(7, "failed")))
    assert made.status == "failed" and made.stop_reason == "failed"
    assert made.cost.phases["lost"] == 5.0
    assert made.environment.machine == "unknown"


def test_a_failed_loss_is_paid_for_but_not_lost() -> None:
    cost = worked(held=5.0, epochs=7, train=5.0)
    failed = made_up_progress(False, 2, 7, -1.0, "failed").model_copy(
        update={"cost": cost, "val": None, "point": None, "error": "the training objective became nan"}
    )
    reported = Reported(time=5.0, trial="t000", report=Report(progress=failed), coresident=1)
    made = record(told(start(0), facts(0), reported, end(5, "failed", error=None)))
    assert (made.status, made.cost.phases["train"], made.cost.phases["lost"]) == ("failed", 5.0, 0.0)
    assert "nan" in (made.error or "")


def test_a_killed_driver_leaves_an_unknown_tail() -> None:
    checkpoint = worked(held=3.0, epochs=10, train=3.0)
    made = record(
        told(
            *(start(0), facts(0), report(3, 10, checkpoint), report(6, 20, worked(6.0, 20, train=6.0))),
            Interrupted(time=1000, trial="t000"),
            *(start(1001), facts(1001, checkpoint), report(1009, 50, worked(11.0, 50, train=11.0), stop_reason="cap")),
            end(1009),
        )
    )
    first, second = made.attempts
    assert first.held_seconds == 6.0 and first.lost_seconds == 3.0  # not the night between
    assert first.tail_unknown and not second.tail_unknown
    assert made.cost.held_seconds == 14.0


def asked_to_stop(time: float) -> Interrupted:
    return Interrupted(time=time, trial="t000", asked=True)


def test_a_run_that_is_told_to_stop_loses_nothing_of_what_was_reported() -> None:
    """Its worker saves what it has reported; what passed until the driver had written that down is overhead."""
    reached = worked(held=6.0, epochs=20, train=6.0)
    made = record(
        told(
            *(start(0), facts(0), report(6, 20, reached), asked_to_stop(6.5)),
            *(start(1001), facts(1001, reached), report(1006, 50, worked(11.0, 50, train=11.0), stop_reason="cap")),
            end(1006),
        )
    )
    first, second = made.attempts
    assert (first.ended, first.held_seconds, first.lost_seconds, first.tail_unknown) == ("interrupted", 6.5, 0.0, False)
    assert (second.held_seconds, second.resumed_from_epoch) == (5.0, 20)
    assert (made.cost.phases["lost"], made.cost.phases["other"]) == (0.0, 0.5)


def test_what_a_stop_could_not_wait_for_is_lost_and_known() -> None:
    checkpoint = worked(held=3.0, epochs=10, train=3.0)
    made = record(
        told(
            *(start(0), facts(0), report(3, 10, checkpoint), report(6, 20, worked(6.0, 20, train=6.0))),
            *(asked_to_stop(20), start(30), facts(30, checkpoint), end(31, "stopped")),
        )
    )
    assert [attempt.lost_seconds for attempt in made.attempts] == [17.0, 0.0]
    assert not any(attempt.tail_unknown for attempt in made.attempts)


def test_a_worker_that_had_not_said_a_word_when_it_was_stopped_costs_nothing() -> None:
    """How long it took to start, which is no cost of a search, nobody knows."""
    made = record(
        told(
            *(start(0), asked_to_stop(9), start(30), facts(31, worker_start=(0.0, 1.0))),
            *(report(34, 50, worked(3.0, 50, train=3.0), stop_reason="cap"), end(34)),
        )
    )
    assert (made.cost.held_seconds, made.cost.phases["lost"]) == (3.0, 0.0)


def test_a_trial_runs_between_its_start_and_whatever_ends_its_stay() -> None:
    states = [TrialLog("t000", TASK, suggested_at=0.0).is_running]
    log = told(start(0))
    for event in (facts(1), asked_to_stop(2), start(3), died(4), start(5), end(6)):
        states.append(log.is_running)
        log.apply(event)
    assert [*states, log.is_running] == [False, True, True, False, True, False, True, False]


def test_a_trial_without_a_stop_reason_was_stopped_by_a_scheduler() -> None:
    made = record(told(start(0), facts(0), report(2, 10, worked(2.0, 10, train=2.0)), end(2, "stopped")))
    assert (made.status, made.stop_reason) == ("stopped", "scheduler")
    assert made.val is not None


def test_work_done_again_stands_in_the_curve_once() -> None:
    cost = worked(held=2.0, epochs=10, train=2.0)
    log = told(
        *(start(0), facts(0), report(1, 10, cost), report(2, 20, cost), died(3)),
        *(start(4), facts(4), report(5, 10, cost), report(6, 20, cost), report(7, 30, cost)),
    )
    assert [point.epoch for point in record(log).curve] == [10, 20, 30]


# --- clocks that step, drivers that do not run ----------------------------------------------------------------------


def gap(time: float, stopped: float, asleep: float = 0.0) -> Suspended:
    return Suspended(time=time, trial="t000", stopped_seconds=stopped, asleep_seconds=asleep)


def test_times_that_go_back_in_a_ledger_of_before_give_no_negative_seconds() -> None:
    cost = worked(held=3.0, epochs=50, train=3.0)
    made = record(told(start(5000), facts(5001), report(1403, 50, cost, stop_reason="cap"), end(1404)))
    assert made.cost.held_seconds == 3.0 and made.ended_at >= made.started_at


def test_a_clock_that_is_set_goes_on_as_if_it_had_not_been(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, passed = 10_000.0, 50.0
    monkeypatch.setattr("harness.running.ledger.time.time", lambda: wall)
    monkeypatch.setattr("harness.running.ledger.time.monotonic", lambda: passed)
    clock = steady_clock()
    wall, passed = 10_000.0 - 3600, 52.0
    assert clock() == 10_002.0
    wall, passed = 10_000.0 + 3600, 53.0
    assert clock() == 10_003.0
    wall = 10_000.0 - 3600
    assert steady_clock(not_before=10_003.0)() == 10_003.0, "a run that continues does not go back either"


def test_a_driver_that_was_stopped_while_its_trial_waited_for_it_costs_nothing() -> None:
    """Stopped for 60 s after the first report, whose answer the worker waits for."""
    first = worked(held=4.0, epochs=20, train=4.0, checkpoint=0.0, other=0.0)
    last = worked(held=69.0, epochs=50, train=9.0, checkpoint=60.0, other=0.0)
    made = record(
        told(start(0), facts(0), report(4, 20, first), gap(64, 60), report(69, 50, last, stop_reason="cap"), end(69))
    )
    assert made.cost.held_seconds == made.cost.device_seconds == 9.0
    assert (made.cost.phases["other"], made.cost.phases["checkpoint"], made.cost.phases["train"]) == (0.0, 0.0, 9.0)
    assert made.attempts[0].suspended_seconds == 60.0


def test_one_that_trained_on_meanwhile_is_charged_for_that() -> None:
    """Its driver was stopped from 4 to 64; it trained on until 24, and its report was heard at 64."""
    first = worked(held=4.0, epochs=20, train=4.0, other=0.0)
    second = worked(held=24.0, epochs=40, train=24.0, other=0.0)
    last = worked(held=67.0, epochs=50, train=27.0, other=40.0)
    events = (start(0), facts(0), report(4, 20, first), gap(64, 60), report(64, 40, second))
    for made in (
        record(told(*events, end(64, "stopped"))),
        record(told(*events, report(67, 50, last, stop_reason="cap"), end(67))),
    ):
        assert made.attempts[0].suspended_seconds == 40.0
        assert made.cost.held_seconds == made.cost.phases["train"]
        assert [point.device_seconds for point in made.curve] == [20.0, 40.0, 10.0][: len(made.curve)]


def test_a_machine_that_slept_costs_nothing_on_it_or_elsewhere() -> None:
    """The driver's clock stands still meanwhile; so does the worker's, unless it is on another machine."""
    first = worked(held=4.0, epochs=20, train=4.0, other=0.0)
    for elsewhere in (0.0, 60.0):
        last = worked(held=9.0 + elsewhere, epochs=50, train=9.0, other=elsewhere)
        made = record(
            told(
                *(start(0), facts(0), report(4, 20, first), gap(4, 0, 60)),
                *(report(9, 50, last, stop_reason="cap"), end(9)),
            )
        )
        assert made.cost.held_seconds == 9.0 and made.cost.phases["other"] == 0.0
        assert made.attempts[0].suspended_seconds == 60.0


def test_a_checkpoint_of_a_trial_that_was_suspended_brings_no_gap_with_it() -> None:
    first = worked(held=64.0, epochs=20, train=4.0, other=60.0)
    last = worked(held=70.0, epochs=50, train=10.0, other=60.0)
    made = record(
        told(
            *(start(0), facts(0), gap(62, 60), report(64, 20, first), died(65)),
            *(start(70), facts(70, first), report(76, 50, last, stop_reason="cap"), end(76)),
        )
    )
    assert [attempt.held_seconds for attempt in made.attempts] == [5.0, 6.0]
    assert (made.cost.phases["lost"], made.cost.phases["train"], made.cost.phases["other"]) == (1.0, 10.0, 0.0)


def test_only_a_driver_that_did_not_run_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0, 0.0]
    monkeypatch.setattr(Watch, "_clocks", staticmethod(lambda: (now[0], now[1])))
    watch = Watch()

    def passes(awake: float, asleep: float = 0.0) -> tuple[float, float]:
        now[0], now[1] = now[0] + awake, now[1] + awake + asleep
        return watch.take_gap()

    assert passes(1.0) == passes(ledger.GAP_SECONDS) == (0.0, 0.0)
    assert passes(60.0) == (60.0, 0.0)
    assert passes(0.5, 3600.0) == (0.5, 3600.0)
    now[0], now[1] = now[0] + 60.0, now[1] + 60.0
    watch.look()  # the thread found it first
    assert passes(0.5) == (60.0, 0.0) and passes(0.5) == (0.0, 0.0)
    assert passes(60.0, -5e-7) == (60.0, 0.0), (
        "one clock is read a moment before the other: no machine sleeps backwards"
    )


# --- whatever was killed ------------------------------------------------------------------------------------------


@st.composite
def stays(draw: st.DrawFn) -> tuple[float, float, float, str, bool, bool]:
    """How long a worker worked, when it last saved, what the driver saw of it, how it ended, what was found then."""
    worked_for = draw(st.floats(0.1, 20.0))
    saved_at = draw(st.one_of(st.none(), st.floats(0.0, worked_for)))
    ended = draw(st.sampled_from(["died", "interrupted", "asked"]))
    seen = draw(st.floats(0.0, worked_for)) if ended == "interrupted" else worked_for
    facts_seen, unreadable = draw(st.booleans()), draw(st.sampled_from([False, False, False, True]))
    return worked_for, -1.0 if saved_at is None else saved_at, seen, ended, facts_seen, unreadable


@given(st.lists(stays(), max_size=6), st.floats(0.1, 20.0), st.booleans())
def test_phases_sum_to_held_whatever_was_killed(
    killed: list[tuple[float, float, float, str, bool, bool]], last: float, finishes: bool
) -> None:
    """`record` asserts the sum. Held is at least what was seen, and no more than what workers spent."""
    events: list[TrialEvent] = []
    now, checkpoint, spent, seen_in_all = 0.0, 0.0, 0.0, 0.0
    for worked_for, saved_at, seen, ended, facts_seen, unreadable in killed:
        events.append(start(now))
        if facts_seen:
            events.append(facts(now, worked(checkpoint, 1, train=checkpoint)))
            events.append(report(now + seen, 2, worked(checkpoint + seen, 2, train=checkpoint + seen)))
        seen_in_all += seen if facts_seen or ended == "died" else 0.0
        spent += worked_for
        checkpoint = 0.0 if unreadable else checkpoint + max(0.0, saved_at)
        now += worked_for
        unseen = Interrupted(time=now + 100, trial="t000")
        events.append(died(now) if ended == "died" else asked_to_stop(now) if ended == "asked" else unseen)
        now += 200
    final = worked(checkpoint + last, 9, train=checkpoint + last)
    events += [start(now), facts(now, worked(checkpoint, 1, train=checkpoint))]
    events += [report(now + last, 9, final, stop_reason="cap")] if finishes else []
    made = record(told(*events, end(now + last, "finished" if finishes else "failed")))
    assert seen_in_all + last - 1e-6 <= made.cost.held_seconds <= spent + last + 1e-6
    assert made.cost.phases["train"] == pytest.approx(checkpoint + (last if finishes else 0.0))
    assert all(value >= 0 for value in made.cost.phases.values())


def test_a_checkpoint_that_no_report_told_of_is_paid_for() -> None:
    """The driver was killed at 2; its worker went on to 5 and saved."""
    checkpoint = worked(held=5.0, epochs=40, startup=1.0, train=4.0)
    final = worked(held=7.0, epochs=50, startup=1.0, train=6.0)
    made = record(
        told(
            *(start(0), facts(1), report(2, 10, worked(2.0, 10, startup=1.0, train=1.0))),
            *(Interrupted(time=90, trial="t000"), start(100), facts(100, checkpoint)),
            *(report(102, 50, final, stop_reason="cap"), end(102)),
        )
    )
    first, second = made.attempts
    assert (first.held_seconds, first.lost_seconds, second.held_seconds) == (5.0, 0.0, 2.0)
    assert made.cost.held_seconds == 7.0 and made.cost.phases["train"] == 6.0
