"""Files by key in a folder, behind a URI, and on S3 (moto's server); what to do when one cannot be read or written."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.backends.storage import Storage
from harness.errors import UserError
from tests import s3


@pytest.fixture(params=["folder", "uri", pytest.param("s3", marks=pytest.mark.slow)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "s3":
        with s3.bucket() as bucket:
            yield Storage(bucket.uri)
    else:
        yield Storage(f"{'file://' if request.param == 'uri' else ''}{tmp_path}/storage")


def test_what_is_written_is_read_and_listed(storage: Storage) -> None:
    assert storage.files() == storage.files("nothing") == [] and storage.read("a/b") is None
    storage.write("a/b", b"first")
    storage.write("a/b", b"second")
    storage.write("a/c/d", b"third")
    storage.write("other", b"fourth")
    assert storage.read("a/b") == b"second" and storage.files() == ["a/b", "a/c/d", "other"]
    assert storage.files("a") == ["a/b", "a/c/d"]
    below: Storage = pickle.loads(pickle.dumps(Storage(storage.root, "a")))
    assert below.files() == ["b", "c/d"] and below.read("c/d") == b"third"
    storage.remove("a/b")
    assert storage.read("a/b") is None


def test_a_file_is_created_once(storage: Storage) -> None:
    assert storage.create("a/b", b"first") and not storage.create("a/b", b"second")
    assert storage.read("a/b") == b"first"
    assert Storage(storage.root, "a").create("c", b"third") and storage.read("a/c") == b"third"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "status", "code", "action", "remedy"),
    [
        ("PUT", "403 Forbidden", "AccessDenied", "written", "allow s3:PutObject in the role or the key"),
        ("HEAD", "403 Forbidden", "AccessDenied", "read", "allow s3:GetObject in the role or the key"),
        ("GET", "403 Forbidden", "AccessDenied", "listed", "allow s3:ListBucket in the role or the key"),
        ("PUT", "301 Moved Permanently", "PermanentRedirect", "written", "another region, name that one at the end"),
        ("PUT", "400 Bad Request", "AuthorizationHeaderMalformed", "written", "another region, name that one"),
        ("PUT", "404 Not Found", "NoSuchBucket", "written", "create the bucket, or correct its name"),
    ],
)
def test_what_s3_refuses_is_one_sentence_with_a_remedy(
    method: str, status: str, code: str, action: str, remedy: str
) -> None:
    with s3.bucket() as bucket:
        storage = Storage(bucket.uri)
        storage.write("unit/file", b"content")
        bucket.answer_with(s3.refusing(method, status, code))
        with pytest.raises(UserError, match=rf"the storage s3://{s3.BUCKET}/runs.* cannot be {action}: ") as refused:
            {"written": lambda: storage.write("unit/file", b""), "read": lambda: storage.read("unit/file")}.get(
                action, storage.files
            )()
        assert remedy in str(refused.value) and "secret" not in str(refused.value)
        assert "\n" not in str(refused.value)
