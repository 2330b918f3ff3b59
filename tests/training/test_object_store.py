"""Checkpoints on an object store: moto's S3, a real server that answers real requests, each of them counted."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest
from moto.server import ThreadedMotoServer

from harness.cluster import nodes
from harness.errors import UserError
from harness.training.checkpoints import CheckpointStore

pytestmark = pytest.mark.slow
BUCKET = "checkpoints-of-a-test"


class Requests(logging.Handler):
    """What the server was asked, as `PUT /path`."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage().split('"')[1].rpartition(" HTTP")[0])

    def take(self) -> list[str]:
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Requests, ThreadedMotoServer]]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    started = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    _, port = started.get_host_and_port()
    boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}").create_bucket(Bucket=BUCKET)
    log, requests = logging.getLogger("werkzeug"), Requests()
    monkeypatch.setattr(log, "handlers", [requests])
    monkeypatch.setattr(log, "propagate", False)
    log.setLevel(logging.INFO)
    uri = f"s3://{BUCKET}/runs?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
    try:
        yield uri, requests, started
    finally:
        started.stop()


def test_few_requests_for_a_save_and_a_fetch(server: tuple[str, Requests, ThreadedMotoServer]) -> None:
    uri, requests, _ = server
    store, content = CheckpointStore(uri), os.urandom(9_500_000)
    store.check_writable()
    requests.take()

    def write(path: Path) -> None:
        path.write_bytes(content)

    store.save("unit/t000.pt", write)
    store.settle()
    saved = requests.take()
    with store.fetched("unit/t000.pt") as path:
        assert path and path.read_bytes() == content
    fetched = requests.take()
    with store.fetched("unit/t001.pt") as path:
        assert path is None
    assert len(saved) <= 3 and len(fetched) <= 3, (saved, fetched)
    assert not [asked for asked in saved if asked.endswith("/")], "markers of folders"


def test_the_doctors_files_are_in_a_folder_of_their_own(
    server: tuple[str, Requests, ThreadedMotoServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes with all that is in it, and the address has more to say after its path: checkpoints must not."""

    def here(function: Callable[..., Any], arguments: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        return {node: function(*given) for node, given in arguments.items()}

    monkeypatch.setattr(nodes, "on_each_node", here)
    store = CheckpointStore(server[0])

    def write(path: Path) -> None:
        path.write_bytes(b"a network")

    store.save("unit/t000.pt", write)
    store.settle()
    assert nodes.share_tokens(["one", "two"], server[0]) == {"one": None, "two": None}
    with store.fetched("unit/t000.pt") as path:
        assert path and path.read_bytes() == b"a network"


def test_a_storage_that_goes_away_is_told_by_the_next_save_and_at_the_end(
    server: tuple[str, Requests, ThreadedMotoServer],
) -> None:
    uri, _, started = server
    store = CheckpointStore(uri)

    def write(path: Path) -> None:
        path.write_bytes(b"content")

    store.save("unit/t000.pt", write)
    store.settle()
    _, port = started.get_host_and_port()
    urlopen(Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST")).close()  # the bucket is gone
    store.save("unit/t000.pt", write)
    with pytest.raises(UserError, match="cannot be written"):
        store.save("unit/t000.pt", write)
    with pytest.raises(UserError, match=f"the storage s3://{BUCKET}/runs.* cannot be written"):
        store.settle()
