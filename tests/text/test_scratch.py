import fcntl
import subprocess
import sys
from pathlib import Path

from harness.text.scratch import scratch_folder


def test_only_folders_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    names = ("harness-gone", "harness-alive", "harness-unlocked", "somebody-elses")
    gone, lives, unlocked, foreign = (tmp_path / name for name in names)
    for folder in (gone, lives, unlocked, foreign):
        folder.mkdir()
    for folder in (gone, lives, foreign):
        (folder / "lock").touch()
    # A process that outlives its driver is known by its files.
    (gone / "log").touch()
    orphan = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=(gone / "log").open("w"))
    with (lives / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with scratch_folder(tmp_path) as ours:
            assert {*tmp_path.iterdir()} == {lives, unlocked, foreign, ours}
            assert orphan.wait(timeout=60) == -9
    assert {*tmp_path.iterdir()} == {lives, unlocked, foreign}
