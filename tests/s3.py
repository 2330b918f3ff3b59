"""A real server that answers as S3 does, on 127.0.0.1 and a free port: moto's. Nothing of AWS is asked."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "results-of-a-test"
Application = Callable[..., Iterable[bytes]]


@dataclass
class Bucket:
    uri: str
    client: Any
    server: ThreadedMotoServer

    def keys(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]

    def read(self, key: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return content

    def write(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=key)

    def answer_with(self, wrapped: Callable[[Application], Application]) -> None:
        """Puts something in front of the server."""
        inside: Any = self.server._server
        inside.app = wrapped(inside.app)


@contextmanager
def bucket(address: str = "127.0.0.1") -> Iterator[Bucket]:
    server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    login = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://{address}:{port}", **login)
    urlopen(Request(f"http://{address}:{port}/moto-api/reset", method="POST")).close()  # all servers of a process share
    client.create_bucket(Bucket=BUCKET)
    uri = f"s3://key:secret@{BUCKET}/runs?scheme=http&endpoint_override={address}:{port}&region=us-east-1"
    try:
        yield Bucket(uri, client, server)
    finally:
        server.stop()


def refusing(method: str, status: str, code: str, suffix: str = "") -> Callable[[Application], Application]:
    """Answers such a request as S3 does where it is not allowed, or the bucket is elsewhere."""

    def wrapped(server: Application) -> Application:
        def answer(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            if request["REQUEST_METHOD"] != method or not request["PATH_INFO"].endswith(suffix):
                return server(request, start)
            start(status, [("Content-Type", "application/xml")])
            return [f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()]

        return answer

    return wrapped
