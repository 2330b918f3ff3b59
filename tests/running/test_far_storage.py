"""A storage that is far away: killed while a checkpoint is on its way to it, and when it stops answering.

Real processes; moto's server stands in for S3, with a gate in front of it that holds or refuses what is to be uploaded.
"""

import contextlib
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest
import torch
from moto.server import ThreadedMotoServer

from harness.running.ledger import Reported
from harness.running.messages import checkpoint_key
from harness.running.store import UnitFolder
from harness.running.worker import AT_RISK
from harness.schema.records import Cost
from tests import forked, warm
from tests.running.results import kill_nine, ledger, processes_of, read, searches, set_words, small, wait_for

pytestmark = pytest.mark.slow
BUCKET = "checkpoints-of-a-test"
LONGER = ("depth.max=10", "training.max_epochs=1000", "training.patience=1000", "training.report_every=40")


class Gate:
    """In front of a server: while it is closed, uploads of trials' checkpoints wait, and then come to nothing.

    One that refuses lets none of them wait.
    """

    def __init__(self, server: Callable[..., Iterable[bytes]]) -> None:
        self._server = server
        self.refuses = False
        self._open = threading.Event()
        self._open.set()
        self.arrived, self.held = 0, 0

    def __call__(self, request: dict[str, Any], answer: Callable[..., Any]) -> Iterable[bytes]:
        if request["REQUEST_METHOD"] != "PUT" or not re.search(r"/t\d+\.pt$", request["PATH_INFO"]):
            return self._server(request, answer)
        if self._open.is_set() and not self.refuses:
            answered = self._server(request, answer)
            self.arrived += 1
            return answered
        self.held += 1
        self._open.wait()
        answer("403 Forbidden" if self.refuses else "503 Service Unavailable", [])  # the second would be tried again
        return []

    def close(self) -> None:
        self.held = 0
        self._open.clear()

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def storage() -> Iterator[tuple[str, Gate, Any]]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    login = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **login)
    urlopen(Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST")).close()  # of the test before
    client.create_bucket(Bucket=BUCKET)
    inside: Any = server._server
    gate = inside.app = Gate(inside.app)
    try:
        yield (
            f"s3://key:secret@{BUCKET}/runs?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1",
            gate,
            client,
        )
    finally:
        gate.open()
        server.stop()


@pytest.fixture
def temp() -> Iterator[Path]:
    """A short path: Ray puts sockets below it."""
    with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def start(out: Path, temp: Path, *words: str) -> forked.Forked:
    settings = set_words(small(*LONGER))
    command = ["run", "quickstart", "--methods", "ldn", "--workers", "1", "--out", str(out), *settings, *words]
    env = {"RAY_TMPDIR": str(temp), "TMPDIR": str(temp), warm.CHECKPOINT_SECONDS: "0.1"}
    return forked.harness(*command, env=env, cwd=out.parent, stderr=out.with_suffix(".log"))


@pytest.mark.usefixtures("one_ray")
def test_what_is_lost_is_what_the_ledger_says_and_the_end_is_the_same_to_the_bit(
    tmp_path: Path, storage: tuple[str, Gate, Any], temp: Path
) -> None:
    uri, gate, client = storage
    out, whole = tmp_path / "killed", tmp_path / "whole"
    folder = UnitFolder(out, "quickstart", "ldn", 0)

    def in_storage() -> Cost:
        """What the checkpoint there has cost."""
        key = f"runs/{checkpoint_key(str(folder.storage_key), 't000')}"
        client.download_file(BUCKET, key, str(tmp_path / "checkpoint.pt"))
        return Cost.model_validate_json(torch.load(tmp_path / "checkpoint.pt", weights_only=True)["cost"])

    def last_reported() -> Cost:
        events = [event for event in folder.events() if isinstance(event, Reported)]
        return [event.report.progress.cost for event in events if event.report.progress][-1]

    def kept_and_reported() -> tuple[Cost, Cost]:
        """While an upload is under way: what is in the storage, and what the ledger has heard of."""
        arrived = gate.arrived
        wait_for(lambda: gate.arrived > arrived or driver.poll() is not None, "a checkpoint that arrives")
        gate.close()
        wait_for(lambda: gate.held or driver.poll() is not None, "an upload under way")
        assert driver.poll() is None, (tmp_path / "killed.log").read_text()[-2000:]
        return in_storage(), last_reported()

    driver = start(out, temp, "--storage", uri)
    try:
        first, beyond_first = kept_and_reported()
        for pid in processes_of(driver.pid, "ray::ImplicitFunc"):
            kill_nine(pid)
        gate.open()
        second, beyond_second = kept_and_reported()
        workers = processes_of(driver.pid, "ray::ImplicitFunc")
        driver.kill()
        driver.wait()
        for pid in workers:  # they would live on for a moment, and try again to upload
            with contextlib.suppress(ProcessLookupError):
                kill_nine(pid)
        gate.open()
        assert in_storage() == second, "what was under way has not arrived"
        assert list(temp.glob("harness-*/*/t000.pt")) == [], "a copy of the checkpoint it went on from is left behind"
    finally:
        driver.kill()
    for results, storing in ((out, uri), (whole, None)):
        assert searches(results, "ldn", *LONGER, workers=1, storage=storing).failures == {}
    assert read(out, "ldn") == read(whole, "ldn")
    [trial] = folder.read().trials
    assert [attempt.ended for attempt in trial.attempts] == ["died", "interrupted", "finished"]
    assert [attempt.resumed_from_epoch for attempt in trial.attempts] == [0, first.epochs, second.epochs]
    for attempt, kept, reported in zip(trial.attempts, (first, second), (beyond_first, beyond_second), strict=False):
        in_vain = reported.held_seconds - kept.held_seconds
        assert attempt.lost_seconds > 0.9 * in_vain > 0, "by the driver's clock, and by the worker's"
    assert trial.cost.phases["lost"] == pytest.approx(sum(attempt.lost_seconds for attempt in trial.attempts))
    assert sum(trial.cost.phases.values()) == pytest.approx(trial.cost.held_seconds)


@pytest.mark.usefixtures("one_ray")
def test_a_storage_that_stops_answering_ends_no_trial(tmp_path: Path, storage: tuple[str, Gate, Any]) -> None:
    """All trials say the same sentence, which is shown once, and the chosen network is trained again."""
    uri, gate, _ = storage
    gate.refuses = True
    out = tmp_path / "away"
    outcome = searches(out, "grid", storage=uri, workers=1)
    assert outcome.failures == {} and outcome.results[0].trials_by_status == {"finished": 5}
    searches(tmp_path / "there", "grid", workers=1)
    away, there = read(out, "grid"), read(tmp_path / "there", "grid")
    assert away["trials"] == there["trials"]
    assert away["result"]["d_opt"] == there["result"]["d_opt"]
    assert away["result"]["final"]["chosen"] == there["result"]["final"]["chosen"]
    events = ledger(out, "grid")
    assert [event["task"]["do"] for event in events if event["event"] == "suggest"][5:] == ["retrain", "final"]
    [sentence] = {said for event in events if (said := event.get("report", {}).get("warning"))}
    assert "cannot be written" in sentence and sentence.endswith(AT_RISK) and "secret" not in sentence
