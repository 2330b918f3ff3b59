"""A place where files are kept by key and that every machine reaches: a folder, or a URI such as s3://bucket/path.

What goes wrong with it is one sentence, which says what was done, to which storage, and what to do about it.
"""

import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pyarrow import fs

from harness.errors import UserError
from harness.text.files import write_atomically
from harness.text.shown import one_line, redacted, without_secrets

WITHOUT_FOLDERS = {"s3", "gcs", "abfs"}  # object stores: a folder is an object more, and a request more for each
UNREACHABLE = (OSError, ValueError, NotImplementedError, ImportError)  # pyarrow's errors are of these kinds


def is_uri(root: str) -> bool:
    return "://" in root


class Storage:
    """Pickles as its root; connects to a URI's file system where it is used. Raises UserError for what does not work.

    A reader of an object store sees a file as it was or as it is now. Elsewhere a crash can tear one that is written.
    """

    def __init__(self, root: str, below: str = "") -> None:
        self.root, self.below = root, below  # keys are of a folder below the root

    def __reduce__(self) -> "tuple[type[Storage], tuple[str, str]]":
        return type(self), (self.root, self.below)

    def _connected(self) -> tuple[Any, str]:
        filesystem, base = connected(self.root)
        return filesystem, f"{base}/{self.below}".rstrip("/")

    def read(self, key: str) -> bytes | None:
        """The whole file, None where there is none. As a whole: a stream asks for it in many small parts."""
        with self.explained("read", key), contextlib.suppress(FileNotFoundError):
            filesystem, base = self._connected()
            with filesystem.open_input_file(f"{base}/{key}") as file:
                content: bytes = file.read()
                return content
        return None

    def write(self, key: str, content: bytes) -> None:
        """In place of what is there."""
        with self.explained("written", key):
            self.put(key, content)

    def put(self, key: str, content: bytes) -> None:
        """The same; what goes wrong is told as pyarrow tells it."""
        if not is_uri(self.root):
            write_atomically(Path(self.root, self.below, key), content)
            return
        filesystem, base = self._connected()
        target = f"{base}/{key}"
        if filesystem.type_name not in WITHOUT_FOLDERS:
            filesystem.create_dir(target.rpartition("/")[0], recursive=True)
        with filesystem.open_output_stream(target) as stream:  # an object appears when it is closed
            stream.write(content)

    def create(self, key: str, content: bytes) -> bool:
        """Only where there is nothing yet; whether that was so. Elsewhere than on S3, two at once may both succeed."""
        if self.root.startswith("s3://") and (found := _s3_or_none(self.root, f"{self.below}/{key}".lstrip("/"))):
            from botocore.exceptions import BotoCoreError, ClientError

            try:
                return put_if(*found, content, IfNoneMatch="*") is not None
            except (BotoCoreError, ClientError) as error:
                raise self.failed("written", str(error), key) from None
        if self.read(key) is not None:
            return False
        self.write(key, content)
        return True

    def remove(self, key: str) -> None:
        """A file that is there."""
        with self.explained("written", key):
            filesystem, base = self._connected()
            filesystem.delete_file(f"{base}/{key}")

    def files(self, folder: str = "") -> list[str]:
        """Of all files in a folder and its folders, in order; none where there is no such folder."""
        with self.explained("listed", folder):
            filesystem, base = self._connected()
            where = f"{base}/{folder}".rstrip("/")
            found = filesystem.get_file_info(fs.FileSelector(where, recursive=True, allow_not_found=True))
            files = [each.path for each in found if each.type is fs.FileType.File]
            return sorted(path.removeprefix(f"{base}/") for path in files)

    @contextlib.contextmanager
    def explained(self, done: str, key: str = "") -> Iterator[None]:
        """The same sentence for every key: it is told once for all trials."""
        try:
            yield
        except UNREACHABLE as error:
            raise self.failed(done, str(error), key) from None

    def failed(self, done: str, error: str, key: str = "") -> UserError:
        said = without_secrets(error, self.root)
        reason = one_line(said.replace(key, "…") if key else said, longest=300)
        return UserError(f"the storage {redacted(self.root)} cannot be {done}: {reason}{_remedy(said)}")


@functools.cache
def connected(root: str) -> tuple[Any, str]:
    """The file system of a root and the path in it; one connection for everything that a process keeps there."""
    if not is_uri(root):
        return fs.LocalFileSystem(), str(Path(root).absolute())
    delayed = "allow_delayed_open=true"  # a small object is then put by one request instead of three
    if root.startswith("s3://") and "allow_delayed_open" not in root:
        root += ("&" if "?" in root else "?") + delayed
    filesystem, base = fs.FileSystem.from_uri(root)
    return filesystem, base.rstrip("/")


# --- S3, on conditions --------------------------------------------------------------------------------------------


def s3_client(root: str, key: str) -> tuple[Any, str, str]:
    """boto3's, for an address as pyarrow reads it: pyarrow writes without conditions. The bucket, and the key in it."""
    parts = urlsplit(root)
    return _s3_client(root), parts.hostname or "", f"{unquote(parts.path).strip('/')}/{key}".lstrip("/")


def _s3_or_none(root: str, key: str) -> tuple[Any, str, str] | None:
    try:
        return s3_client(root, key)
    except ImportError:
        return None


@functools.cache
def _s3_client(root: str) -> Any:
    import boto3
    from botocore.config import Config

    parts = urlsplit(root)
    asked = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    endpoint = asked.get("endpoint_override")
    return boto3.client(
        "s3",
        region_name=asked.get("region"),
        endpoint_url=f"{asked.get('scheme', 'https')}://{endpoint}" if endpoint else None,
        aws_access_key_id=unquote(parts.username) if parts.username else None,
        aws_secret_access_key=unquote(parts.password) if parts.password else None,
        config=Config(connect_timeout=5, read_timeout=10, retries={"max_attempts": 2}),
    )


def put_if(client: Any, bucket: str, key: str, content: bytes, **condition: str) -> str | None:
    """The new object's tag; None where the condition (IfNoneMatch, IfMatch) does not hold."""
    from botocore.exceptions import ClientError

    try:
        tag: str = client.put_object(Bucket=bucket, Key=key, Body=content, **condition)["ETag"]
    except ClientError as error:
        said = error.response
        if said["ResponseMetadata"]["HTTPStatusCode"] in (404, 409, 412) and said["Error"]["Code"] != "NoSuchBucket":
            return None
        raise
    return tag


# --- what to do about it ------------------------------------------------------------------------------------------

# What S3 asks to be allowed for a request; every other request is allowed by its own name.
_ALLOWED_AS = {
    **dict.fromkeys(("HeadObject", "GetObject"), "GetObject"),
    **dict.fromkeys(("ListObjects", "ListObjectsV2", "HeadBucket"), "ListBucket"),
    **dict.fromkeys(("CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"), "PutObject"),
    "DeleteObjects": "DeleteObject",
}
_REQUEST = re.compile(r"during (\w+) operation|calling the (\w+) operation")
_DENIED = re.compile(r"ACCESS_DENIED|AccessDenied|Forbidden|HTTP status 403|\(403\)")
_ELSEWHERE = re.compile(
    r"PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocation|HTTP status 301|\(301\)|region"
)
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|[Bb]ucket does not exist|[Bb]ucket '[^']*' not found")


def _remedy(error: str) -> str:
    if _DENIED.search(error):
        asked = _REQUEST.search(error)
        request = (asked[1] or asked[2]) if asked else ""
        action = f"s3:{_ALLOWED_AS.get(request, request)}" if request else "to read, write, list and delete there"
        return f"; allow {action} in the role or the key that this machine uses"
    if _NO_BUCKET.search(error):
        return "; create the bucket, or correct its name"
    if _ELSEWHERE.search(error):
        return "; if the bucket is in another region, name that one at the end of the address, as ?region=eu-west-1"
    return ""
