"""One run at a time writes to a folder or to S3 (moto's server): who is refused, who stops, who takes over."""

import dataclasses
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.backends import one_writer
from harness.backends.one_writer import FILE, GONE_SECONDS, LOST_SECONDS, Writer, only_writer
from harness.errors import MachineError, UserError
from tests import s3

ME = f"process {os.getpid()} of .* on {socket.gethostname()}"


@pytest.fixture(autouse=True)
def noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.backends.one_writer.NOTICE_SECONDS", 0.0)


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path)
    else:
        with s3.bucket() as bucket:
            yield bucket.uri


def hold(place: str, **how: Any) -> Any:
    class Held:
        def __enter__(self) -> Writer:
            self._writing = only_writer(**how)
            writer = self._writing.__enter__()
            try:
                writer.hold(place, "space")
            except BaseException:
                self._writing.__exit__(None, None, None)
                raise
            return writer

        def __exit__(self, *error: Any) -> None:
            self._writing.__exit__(None, None, None)

    return Held()


def test_the_second_is_refused_and_told_whose_turn_it_is(place: str) -> None:
    with hold(place) as first:
        sentence = rf"another is at work in .*space.* \({ME}\); .* or --take-over"
        with pytest.raises(UserError, match=sentence) as refused, hold(place):
            pass
        assert "secret" not in str(refused.value)
        first.check()
        with only_writer() as other:
            other.hold(place, "another_space")
    with hold(place) as next_one:  # at once: the first has given it back
        next_one.check()


def test_who_takes_over_writes_and_the_first_one_stops(place: str) -> None:
    with hold(place) as first:
        with hold(place, take_over=True) as second:
            first.renew()
            with pytest.raises(MachineError, match=rf"another run \({ME}\) has taken over .*space"):
                first.check()
            second.renew()
            second.check()
        with pytest.raises(MachineError):
            first.check()  # also when the second has ended
    with hold(place) as third:
        third.check()


def test_a_folder_that_is_taken_over_is_seen_at_the_next_line(tmp_path: Path) -> None:
    with hold(str(tmp_path)) as first, hold(str(tmp_path), take_over=True), pytest.raises(MachineError):
        first.check()


def test_a_folder_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    told: list[str] = []
    with hold(str(tmp_path), tell=told.append) as writer:
        writer.check()
    assert told == [f"the file system of {tmp_path}/space has no locks; make sure that only one run writes there"]


def test_a_storage_without_locks_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    with hold(f"file://{tmp_path}", tell=told.append) as writer:
        writer.check()
    assert len(told) == 1 and "has no locks that the harness knows" in told[0]


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "space").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "space" / FILE).symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match=FILE), hold(str(tmp_path)):
        pass
    assert (tmp_path / "mine").read_text() == "mine"


# --- S3 alone: time, and what does not answer -----------------------------------------------------------------------


@pytest.fixture
def bucket() -> Iterator[s3.Bucket]:
    with s3.bucket() as made:
        yield made


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Time passes here, as the writer sees it."""
    passed, ahead = one_writer._passed, [0.0]
    monkeypatch.setattr(one_writer, "_passed", lambda: passed() + ahead[0])

    def wait(seconds: float) -> None:
        ahead[0] += seconds

    return wait


@pytest.mark.slow
def test_one_that_was_killed_is_gone_after_a_while_by_the_storages_clock(
    bucket: s3.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = one_writer._ObjectLock(bucket.uri, "space")
    killed.acquire(take_over=False)
    with pytest.raises(UserError, match=r"or \d+ s if it was killed"), hold(bucket.uri):
        pass
    monkeypatch.setattr(one_writer, "GONE_SECONDS", -1.0)
    with hold(bucket.uri) as next_one:
        next_one.check()
        assert "has taken over" in killed.renew()
        killed.release()  # not its own any more
        next_one.renew()
        next_one.check()
    assert bucket.keys() == []


@pytest.mark.slow
def test_one_that_was_killed_on_this_machine_is_gone_at_once(bucket: s3.Bucket) -> None:
    killed = one_writer._ObjectLock(bucket.uri, "space")
    killed._owner = dataclasses.replace(killed._owner, started=killed._owner.started - 1)  # the number is another's now
    killed.acquire(take_over=False)
    with hold(bucket.uri) as next_one:
        next_one.check()
    elsewhere = one_writer._ObjectLock(bucket.uri, "space")
    elsewhere._owner = dataclasses.replace(killed._owner, process_ids_of="another machine")
    elsewhere.acquire(take_over=False)
    with pytest.raises(UserError, match="another is at work"), hold(bucket.uri):
        pass


@pytest.mark.slow
def test_one_that_is_cut_off_stops_by_itself_before_another_may_begin(
    bucket: s3.Bucket, wait: Callable[[float], None]
) -> None:
    assert LOST_SECONDS + one_writer.RENEW_SECONDS <= GONE_SECONDS
    with hold(bucket.uri) as writer:
        answering = bucket.server._server.app  # type: ignore[union-attr]
        bucket.answer_with(s3.refusing("PUT", "403 Forbidden", "AccessDenied", FILE))
        writer.renew()
        writer.check()  # it may answer again
        wait(LOST_SECONDS)
        with pytest.raises(MachineError, match=r"has not answered for 4\d s, .* so this one has stopped"):
            writer.check()
        bucket.server._server.app = answering  # type: ignore[union-attr]
        with pytest.raises(MachineError):
            writer.check()  # it stays stopped


@pytest.mark.slow
def test_one_that_slept_goes_on_where_nobody_came(bucket: s3.Bucket, wait: Callable[[float], None]) -> None:
    with hold(bucket.uri) as writer:
        wait(10 * GONE_SECONDS)
        writer.check()


@pytest.mark.slow
def test_an_answer_that_was_lost_is_no_other_writer(bucket: s3.Bucket) -> None:
    lock = one_writer._ObjectLock(bucket.uri, "space")
    lock.acquire(take_over=False)
    lock._put(IfMatch=lock._tag)
    lock._tag = '"that of before"'
    assert lock.renew() == "" and lock.renew() == ""
    again = one_writer._ObjectLock(bucket.uri, "space")
    again._owner = lock._owner
    again.acquire(take_over=False)


@pytest.mark.slow
def test_what_it_may_not_do_is_named(bucket: s3.Bucket) -> None:
    bucket.answer_with(s3.refusing("PUT", "403 Forbidden", "AccessDenied", FILE))
    with pytest.raises(UserError, match=r"cannot be written: .*; allow s3:PutObject in the role"), hold(bucket.uri):
        pass


@pytest.mark.slow
def test_what_is_there_names_no_secret(bucket: s3.Bucket) -> None:
    with hold(bucket.uri):
        [key] = bucket.keys()
        owner = json.loads(bucket.read(key))
    assert key == f"runs/space/{FILE}" and set(owner) == {"host", "process", "process_ids_of", "started", "user", "id"}
