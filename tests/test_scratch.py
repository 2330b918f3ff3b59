"""Temporary folders: who gets in, and what is removed and ended after a kill. Nothing else is."""

import fcntl
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import scratch
from harness.errors import UserError
from harness.scratch import recording_processes, scratch_folder
from tests.forked import Forked
from tests.running.results import wait_for

NOBODY = 65534
WAITS = [sys.executable, "-c", "input()"]


def owned(temporary: Path) -> Path:
    return temporary / f"harness-{os.getuid()}"


def killed_with_a_folder(temporary: Path, *words: str) -> None:
    """Starts a program that names the folder, which starts another; then it is killed, as by `kill -9`."""
    with scratch_folder(temporary) as folder, recording_processes(folder):
        (folder / "log").touch()
        program = "import subprocess, sys; subprocess.run(sys.argv[2:])"
        subprocess.Popen([sys.executable, "-c", program, str(folder), *words], stdin=subprocess.PIPE)
        wait_for(lambda: folder.joinpath("processes").exists() and len(recorded(folder)) == 2, "both on the list")
        os.kill(os.getpid(), 9)


def recorded(folder: Path) -> list[int]:
    return [int(line.split()[0]) for line in (folder / "processes").read_text().splitlines()]


def left_behind(temporary: Path) -> Path:
    """What a kill leaves, with two processes of its own."""
    driver = Forked(killed_with_a_folder, temporary, "sleep", "1000", env={}, stderr=temporary.parent / "stderr")
    assert driver.wait(timeout=100) == -9, (temporary.parent / "stderr").read_text()
    [folder] = owned(temporary).iterdir()
    return folder


def lives(pid: int) -> bool:
    return scratch._started(pid) is not None


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def left(temporary: Path) -> Iterator[tuple[Path, list[int]]]:
    folder = left_behind(temporary)
    pids = recorded(folder)
    yield folder, pids
    for pid in filter(lives, pids):
        os.kill(pid, 9)


def test_what_a_killed_process_left_goes_and_the_processes_it_started(
    temporary: Path, left: tuple[Path, list[int]]
) -> None:
    _, pids = left
    assert len(pids) == 2 and all(map(lives, pids))
    with scratch_folder(temporary) as ours:
        wait_for(lambda: not any(map(lives, pids)), "their end", 60)
        assert [*owned(temporary).iterdir()] == [ours]
    assert [*owned(temporary).iterdir()] == [] and stat.S_IMODE(owned(temporary).stat().st_mode) == 0o700


def test_who_only_reads_a_file_there_lives_on(temporary: Path, left: tuple[Path, list[int]]) -> None:
    """`tail -f` on a log: it was killed for holding the file open."""
    folder, _ = left
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, stdout=(folder / "log").open("a")) as reader:
        with scratch_folder(temporary):
            assert not folder.exists()
        assert reader.poll() is None
        reader.communicate(b"\n", timeout=60)
        assert reader.returncode == 0


def test_a_number_that_another_process_has_got_is_left_alone(temporary: Path, left: tuple[Path, list[int]]) -> None:
    folder, _ = left
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as stranger:
        with (folder / "processes").open("a") as file:
            file.write(f"{stranger.pid} {(scratch._started(stranger.pid) or 0) - 1}\n{stranger.pid}\n")
        with scratch_folder(temporary):
            assert not folder.exists()
        stranger.communicate(b"\n", timeout=60)
        assert stranger.returncode == 0


def test_folders_of_the_users_are_left_alone(temporary: Path) -> None:
    """Whatever they are called, and wherever they are: only a lock of ours makes one ours."""
    thesis, inside = temporary / "harness-thesis", owned(temporary) / "thesis"
    inside.mkdir(parents=True)
    thesis.mkdir()
    for folder in (thesis, inside):
        (folder / "lock").touch()
        (folder / "chapter.tex").write_text("a year's work")
    with scratch_folder(temporary) as ours:
        copy = owned(temporary) / "copy"
        copy.mkdir()
        (copy / "lock").write_bytes((ours / "lock").read_bytes())
    (owned(temporary) / "link").symlink_to(thesis)
    with scratch_folder(temporary):
        pass
    assert (thesis / "chapter.tex").exists() and (inside / "chapter.tex").exists() and copy.exists()


def change(folder: Path, **values: object) -> None:
    lock = folder / "lock"
    lock.write_text(json.dumps({**json.loads(lock.read_text()), **values}))


@pytest.mark.parametrize(
    ("change_it", "removed", "ended"),
    [
        (lambda folder: change(folder, host="another"), False, False),
        (lambda folder: change(folder, process_ids_of="another boot"), True, False),
        (lambda folder: change(folder, pid=os.getpid(), started=scratch._started(os.getpid())), False, False),
        (lambda folder: change(folder, more=1), False, False),
        (lambda folder: (folder / "lock").write_text("[1]"), False, False),
        (lambda folder: (folder / "lock").write_bytes(b"\xff"), False, False),
        (lambda folder: (folder / "lock").rename(folder / "x") and (folder / "lock").symlink_to("x"), False, False),
        (lambda folder: None, True, True),
    ],
    ids=["host", "boot", "owner lives", "not ours", "no object", "no text", "link", "as it was"],
)
def test_the_lock_names_the_owner(
    change_it: Callable[[Path], object], removed: bool, ended: bool, temporary: Path, left: tuple[Path, list[int]]
) -> None:
    folder, pids = left
    change_it(folder)
    with scratch_folder(temporary):
        assert folder.exists() is not removed
    if ended:
        wait_for(lambda: not any(map(lives, pids)), "their end", 60)
    else:
        assert all(map(lives, pids))


def test_one_that_is_held_stays(temporary: Path, left: tuple[Path, list[int]]) -> None:
    """Also where the processes of the one that holds it are not to be seen."""
    folder, pids = left
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with scratch_folder(temporary):
            assert folder.exists()
    assert all(map(lives, pids))


# --- another user -------------------------------------------------------------------------------------------------


@contextmanager
def shared() -> Iterator[Path]:
    """A temporary folder as /tmp is."""
    with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def as_nobody(action: Callable[..., Any], *arguments: Any) -> int:
    """0, or the number of the error that stops the action."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            action(*arguments)
            code = 0
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def replace_lock(folder: Path) -> None:
    (folder / "lock").unlink()
    (folder / "lock").touch(0o666)


another_user = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@another_user
def test_another_user_reaches_nothing_even_where_ray_opens_the_folder_to_everybody() -> None:
    """Who could replace the lock had the next run kill this one."""
    with shared() as temporary, scratch_folder(temporary) as folder:
        folder.chmod(0o777)  # as Ray does
        assert as_nobody(replace_lock, folder) == 13 and as_nobody(os.listdir, folder) == 13
        with scratch_folder(temporary):
            assert (folder / "lock").exists()


@another_user
def test_a_folder_of_somebody_elses_is_refused_in_one_sentence() -> None:
    with shared() as temporary:
        assert as_nobody(owned(temporary).mkdir, 0o777) == 0
        said = r"yours alone; .*/harness-0 is a folder of user 65534: remove it, or set RAY_TMPDIR and TMPDIR"
        with pytest.raises(UserError, match=said), scratch_folder(temporary):
            pass


@another_user
def test_another_users_link_is_not_followed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with shared() as temporary:
        assert as_nobody(owned(temporary).symlink_to, tmp_path) == 0
        with pytest.raises(UserError, match=r"/harness-0 is a link of user 65534"), scratch_folder(temporary):
            pass
    assert [*tmp_path.iterdir()] == []


def test_a_link_or_a_file_of_our_own_is_refused_too(temporary: Path, tmp_path: Path) -> None:
    owned(temporary).symlink_to(tmp_path)
    with (
        pytest.raises(UserError, match=rf"{owned(temporary)} is a link of user {os.getuid()}"),
        scratch_folder(temporary),
    ):
        pass
    owned(temporary).unlink()
    owned(temporary).touch()
    with pytest.raises(UserError, match=rf"{owned(temporary)} is a file of user"), scratch_folder(temporary):
        pass


def test_permissions_that_were_widened_are_taken_back(temporary: Path) -> None:
    owned(temporary).mkdir()
    owned(temporary).chmod(0o777)
    with scratch_folder(temporary):
        assert stat.S_IMODE(owned(temporary).stat().st_mode) == 0o700
