"""What goes to a worker and comes back arrives as it was sent, and carries what searchers and schedulers ask for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.methods.base import FINISHED, METRIC, TIME
from harness.replaying.rehearsal import MADE_UP, made_up_progress
from harness.running.messages import (
    AnyTask,
    Facts,
    FinalTask,
    RefitTask,
    Report,
    TrainTask,
    received_report,
    received_task,
    to_worker,
)
from harness.schema.records import FIXED_DEPTH, Cost, FinalEvaluation, Measures, TrialConfig
from tests.rehearsed import small_space

CONFIG = TrialConfig.of(small_space(), FIXED_DEPTH, 3, 7)
TASKS = (
    TrainTask(unit="small/grid/seed-7/ab", trial="t003", config=CONFIG),
    RefitTask(unit="small/grid/seed-7/ab", config=CONFIG, epochs=40),
    FinalTask(
        unit="u", config=CONFIG, epochs=40, chosen="t003", d_opt=3, others=(("t000", 0), ("t003", 3)), refit_d_opt=None
    ),
)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.do)
def test_a_task_arrives_as_it_was_sent(task: AnyTask) -> None:
    sent = to_worker(task)
    json.dumps(sent)  # Tune writes configurations down
    assert received_task(sent) == task


@given(st.integers(1, 10_000), st.floats(-1e6, 0), st.sampled_from([None, "cap", "patience"]))
def test_a_report_arrives_to_the_bit(epoch: int, value: float, stop_reason: str | None) -> None:
    report = Report(progress=made_up_progress(True, 3, epoch, value, stop_reason))  # type: ignore[arg-type]
    result = report.to_tune()
    assert received_report(result) == report
    assert (result[TIME], result[METRIC], result[FINISHED]) == (epoch, value, stop_reason is not None)


def test_a_failed_trial_reports_no_metric() -> None:
    failed = made_up_progress(False, 3, 5, -1.0, "failed").model_copy(update={"val": None, "point": None})
    result = Report(progress=failed).to_tune()
    assert METRIC not in result and result[FINISHED]


def test_facts_and_the_final_evaluation_carry_no_metric() -> None:
    resumed = Cost(held_seconds=2.0, epochs=20)
    facts = Facts(
        host="h",
        worker_start=(0.5, 1.5),
        resumed_from=resumed,
        split_hash="s",
        n_train=3,
        n_val=2,
        environment=MADE_UP,
    )
    said = Report(facts=facts).to_tune()
    assert received_report(said).facts == facts
    assert METRIC not in said and said[TIME] == 20 and not said[FINISHED]
    measured = Measures(accuracy=1.0, log_likelihood=-0.1, ece=0.0, brier=0.0)
    last = Report(final=FinalEvaluation(chosen=measured, reliability=(), n_test=1, split_hash="t")).to_tune()
    assert METRIC not in last and last[FINISHED]
