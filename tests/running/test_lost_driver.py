"""The machine of a driver is gone with its disk, and another continues from the storage alone. Real processes.

moto's server stands in for S3; Ray, training and kills are real.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import api
from harness.backends.one_writer import RENEW_SECONDS
from tests import forked, s3, warm
from tests.running.results import ledger, read, searches, set_words, small, wait_for

pytestmark = pytest.mark.slow
METHODS = "asha,ldn"
LONGER = ("depth.max=8", "training.max_epochs=3000", "training.patience=3000", "training.report_every=30")


@pytest.fixture
def temp() -> Iterator[Path]:
    """A short path: Ray puts sockets below it."""
    with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def bucket() -> Iterator[s3.Bucket]:
    with s3.bucket() as made:
        yield made


def start(out: Path, temp: Path, *words: str) -> forked.Forked:
    settings = set_words(small(*LONGER))
    command = ["run", "quickstart", "--methods", METHODS, "--concurrency", "1", "--workers", "1", *settings, *words]
    env = {"RAY_TMPDIR": str(temp), "TMPDIR": str(temp), warm.CHECKPOINT_SECONDS: "0.1"}
    return forked.harness(*command, "--out", str(out), env=env, cwd=out.parent, stderr=said_by(out))


def said_by(out: Path) -> Path:
    return out.with_suffix(".log")


def reports(out: Path) -> int:
    return sum(bool(event.get("report", {}).get("progress")) for event in ledger(out, "asha"))


@pytest.mark.usefixtures("one_ray")
def test_the_storage_alone_is_enough(tmp_path: Path, temp: Path, bucket: s3.Bucket) -> None:
    """Twice: killed while a search trains. Every second that the ledger knows of is in one phase; nothing is missed."""
    whole, laptop = tmp_path / "whole", tmp_path / "laptop"
    known: list[int] = []
    for number in range(2):
        out = tmp_path / f"head-{number}"
        driver = start(out, temp, "--storage", bucket.uri, "--take-over")
        beyond = 40 + 40 * number
        wait_for(lambda: reports(out) > beyond or driver.poll() is not None, "reports")  # noqa: B023
        assert driver.poll() is None, said_by(out).read_text()[-2000:]
        driver.kill()
        driver.wait()
        known.append(len(ledger(out, "asha")))
        shutil.rmtree(out)
    outcome = searches(
        tmp_path / "head-2", METHODS, *LONGER, storage=bucket.uri, take_over=True, concurrency=1, workers=1
    )
    assert outcome.failures == {}
    assert searches(whole, METHODS, *LONGER, concurrency=1, workers=1).failures == {}
    for each in api.pull(bucket.uri, out=laptop):
        assert (each.space, each.searches, each.complete) == ("quickstart", 2, 2)
    for method in METHODS.split(","):
        assert read(tmp_path / "head-2", method) == read(whole, method) == read(laptop, method)
    interrupted = [event for event in ledger(laptop, "asha") if event["event"] == "interrupted"]
    assert len(interrupted) >= 1
    for unit in outcome.units:
        for trial in unit.trials:
            assert sum(trial.cost.phases.values()) == pytest.approx(trial.cost.held_seconds)
    one, other = (api.compare("quickstart", out=out) for out in (laptop, tmp_path / "head-2"))
    assert one == other
    assert (
        api.report("quickstart", out=laptop).read_text()
        == api.report("quickstart", out=tmp_path / "head-2").read_text()
    )


@pytest.mark.usefixtures("one_ray")
def test_a_second_run_is_refused_and_with_take_over_the_first_one_stops(
    tmp_path: Path, temp: Path, bucket: s3.Bucket
) -> None:
    assert RENEW_SECONDS <= 10
    first, second = tmp_path / "first", tmp_path / "second"
    driver = start(first, temp, "--storage", bucket.uri)
    try:
        wait_for(lambda: reports(first) > 2 or driver.poll() is not None, "reports")
        refused = start(second, temp, "--storage", bucket.uri)
        assert refused.wait(240) == 2
        said = said_by(second).read_text()
        assert f"another is at work in s3://{s3.BUCKET}/runs" in said and f"process {driver.pid} of" in said
        assert "secret" not in said and "Traceback" not in said
        assert driver.poll() is None, said_by(first).read_text()[-2000:]
        said_by(second).unlink()
        other = start(second, temp, "--storage", bucket.uri, "--take-over")
        try:
            assert driver.wait(240) == 1
            said = said_by(first).read_text()
            assert f"another run (process {other.pid} of" in said and "so this one has stopped" in said
            assert "Traceback" not in said and len(said.splitlines()) == 1, said
            assert other.wait(400) == 0, said_by(second).read_text()[-2000:]
        finally:
            other.kill()
    finally:
        driver.kill()
    assert searches(tmp_path / "whole", METHODS, *LONGER, concurrency=1, workers=1).failures == {}
    for method in METHODS.split(","):
        assert read(second, method) == read(tmp_path / "whole", method)
    assert json.loads((second / "quickstart/asha/seed-0/result.json").read_text())["status"] == "complete"
