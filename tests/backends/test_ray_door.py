"""What is private of Ray's: every name on the list, in a Ray that has it and in one that lacks it."""

import inspect
import json
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import harness
from harness import backends
from harness.backends import ray_door
from harness.backends.ray_door import NAMES, Private
from harness.backends.sockets import beyond_loopback, sockets_of
from harness.cli import main
from harness.cluster.doctor import doctor
from harness.errors import MachineError, UserError
from harness.running.ray_session import ray_session
from tests.backends import renamed
from tests.running.results import left_in, read

ROOT = Path(harness.__file__).parent.parent
REQUIRED = [each for each in NAMES if each.required]
OPTIONAL = [each for each in NAMES if not each.required]


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes the door believe that names are missing."""

    def lack(*missing: Private) -> None:
        there = ray_door.is_there
        monkeypatch.setattr(ray_door, "is_there", lambda private: private not in missing and there(private))
        ray_door.check.cache_clear()

    yield lack
    ray_door.check.cache_clear()


def test_this_ray_has_all_of_them() -> None:
    assert [str(each) for each in NAMES if not ray_door.is_there(each)] == []
    assert len({str(each) for each in NAMES}) == len(NAMES) >= 40
    assert all(each.purpose and each.without for each in NAMES)
    assert all(not each.required for each in NAMES if each.together), "a group is left out as one"


@pytest.mark.parametrize(
    "private",
    [
        Private("ray._private.gone", "x", True, "", ""),
        Private("ray._private.node:Gone", "x", True, "", ""),
        Private("ray._private.node:Node", "start_gone", True, "", ""),
        Private("ray:init", "_gone", True, "", ""),
    ],
)
def test_what_is_not_there_is_noticed(private: Private) -> None:
    assert not ray_door.is_there(private)


def test_nobody_else_touches_what_is_private() -> None:
    """By ruff's own rule; MLflow's and torch's names have one file each, with a list of its own."""
    words = ["check", "--select", "SLF001", "--output-format", "json", "--no-cache", str(ROOT / "harness")]
    found = subprocess.run([sys.executable, "-m", "ruff", *words], capture_output=True, text=True, timeout=60)
    files = {Path(each["filename"]).relative_to(ROOT / "harness").as_posix() for each in json.loads(found.stdout)}
    assert files == {"backends/ray_door.py", "tracking/one_process.py", "training/compiling.py"}
    others = [path for path in (ROOT / "harness").rglob("*.py") if path.name != "ray_door.py"]
    private = re.compile(r"\bray\.[\w.]*\b_(private|raylet|internal)|\bray\.tune\.execution\b")
    assert [path for path in others if private.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("private", REQUIRED, ids=str)
def test_without_a_required_name_nothing_starts(private: Private, lacking: Any) -> None:
    lacking(private)
    with pytest.raises(UserError) as caught, ray_session(None):
        pass
    said = str(caught.value)
    assert said.startswith(f"a run needs what Ray {ray.__version__} does not have: {private}, which {private.purpose}")
    assert said.endswith(f"install a tried one, {backends.RAY}") and "\n" not in said


@pytest.mark.parametrize("private", OPTIONAL, ids=str)
def test_without_an_optional_name_it_is_left_out_with_its_group(
    private: Private, lacking: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lacking(private)
    with caplog.at_level(logging.DEBUG, logger=ray_door.__name__):
        ray_door.check()
        if not private.concerns_a_run:
            assert caplog.messages == []
            ray_door.validate_cluster_file({"no": "cluster"})
    [line] = caplog.messages
    assert line == (f"Ray {ray.__version__} has no {private}, which {private.purpose}; without it: {private.without}")
    group = [each for each in NAMES if each is private or (private.together and each.together == private.together)]
    before = [(each, vars(each.look_up()).get(each.name)) for each in group]
    with ray_door._replaced(dict.fromkeys(group, "another")), ray_door._needed_processes_only(debug=False):
        assert all(vars(each.look_up()).get(each.name) is value for each, value in before)


def test_what_leans_on_optional_names_does_without(lacking: Any) -> None:
    from ray.tune.schedulers import ASHAScheduler

    scheduler = ASHAScheduler(stop_last_trials=False)
    assert ray_door.rungs_of(scheduler)
    lacking(*OPTIONAL)
    assert ray_door.rungs_of(scheduler) is None
    assert ray_door.has_worker(None, None) is False
    ray_door.start_workers_for(None, 2)
    ray_door.validate_cluster_file({"no": "cluster"})


@pytest.mark.slow
def test_a_check_imports_nothing_that_a_run_does_not() -> None:
    """What Ray checks cluster files with writes to the terminal when the process ends."""
    program = "import sys; from harness.backends import ray_door; ray_door.check(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert "ray.tune" in done.stdout.split() and "ray.autoscaler._private.util" not in done.stdout.split()


# --- versions -----------------------------------------------------------------------------------------------------


def test_the_range_is_that_of_the_package() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert backends.RAY.replace("ray", "ray[default,tune]") in dependencies
    backends.check_ray_version()


@pytest.mark.parametrize("version", ["2.59.1", "2.61.0", "3.0.0rc1", "2.61.0.dev0"])
def test_another_ray_is_one_sentence(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backends, "installed_ray", lambda: version)
    sentence = (
        f"this harness works with ray>=2.60,<2.61, and Ray {version} is installed; pip install "
        "'ray[default,tune]>=2.60,<2.61'"
    )
    with pytest.raises(SystemExit, match="2"):
        main(["run", "quickstart", "--out", str(tmp_path / "out")])
    assert capsys.readouterr().err == f"error: {sentence}\n"
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match=re.escape(sentence)):
        doctor("127.0.0.1:1", None, None, 0, 1)


# --- sockets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "address", "reachable"),
    [
        (socket.AF_INET, "127.0.0.1", False),
        (socket.AF_INET, "127.8.9.10", False),
        (socket.AF_INET, "0.0.0.0", True),
        (socket.AF_INET6, "::1", False),
        (socket.AF_INET6, "::ffff:127.0.0.1", False),
        (socket.AF_INET6, "::", True),
    ],
)
def test_who_can_reach_a_socket(family: int, address: str, reachable: bool) -> None:
    before = sockets_of(os.getpid())
    with socket.socket(family) as listener:
        try:
            listener.bind((address, 0))
        except OSError as error:
            pytest.skip(f"no {address} here: {error}")
        listener.listen()
        port, opened = listener.getsockname()[1], sockets_of(os.getpid()) - before
        assert beyond_loopback({os.getpid(): opened}) == ([f"this process at {address}:{port}"] if reachable else [])


@pytest.mark.slow
def test_a_ray_that_others_can_reach_ends_the_run_before_a_trial(
    no_ray: None, lacking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it would if a user imports Ray first, and what keeps it on 127.0.0.1 is called otherwise."""
    monkeypatch.setattr(ray_door.CLUSTERS.look_up(), ray_door.CLUSTERS.name, True)
    if ray.util.get_node_ip_address() == "127.0.0.1":
        pytest.skip("this machine has no other address")
    lacking(ray_door.CLUSTERS)
    with (
        pytest.raises(
            MachineError, match=r"^Ray must listen on 127\.0\.0\.1 only, and other machines can reach .*(raylet|gcs)"
        ) as caught,
        ray_session(None),
    ):
        pytest.fail("it was let through")
    assert "\n" not in str(caught.value) and not ray.is_initialized()


# --- other Rays ---------------------------------------------------------------------------------------------------


def renames(private: Private) -> tuple[renamed.Renames, list[str]]:
    """What is called otherwise so that a Ray has all but this: [file or all files, name], and compiled classes."""
    owner: Any = private.look_up()
    if private.owner.startswith("ray._raylet:"):
        return [], [private.owner.partition(":")[2]]
    file = inspect.getsourcefile(inspect.unwrap(owner))
    assert file
    if private.name == "get":  # no name to be replaced everywhere
        return [("", owner.__name__)], []
    return [(file if private.name.startswith("_") else "", private.name)], []


def commands(folder: Path, cases: dict[str, Any], timeout: float) -> dict[str, tuple[int, str, list[str]]]:
    """Exit code, output and missing names by case."""
    (folder / "cases.json").write_text(json.dumps(cases))
    with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp", ignore_cleanup_errors=True) as temp:  # a short path
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_TMPDIR": temp}
        environment.pop("HARNESS_WARM_WORKERS", None)
        words = [sys.executable, "-m", "tests.backends.renamed", str(folder)]
        subprocess.run(words, cwd=ROOT, env=environment, timeout=timeout, check=True)
        assert left_in(Path(temp)) == []
    return {case: tuple(json.loads((folder / f"{case}.json").read_text())) for case in cases}


SMALL = ["--set", "depth.max=2", "--set", "data.n_test=100", "--epochs", "40", "--concurrency", "1", "--full"]


@pytest.mark.slow
def test_each_required_name_renamed_in_ray_is_one_sentence_and_nothing_starts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["run", "quickstart", "--methods", "deepest", *SMALL, "--out", str(out)]
    cases = {str(number): (*renames(private), words) for number, private in enumerate(REQUIRED)}
    said = commands(tmp_path, cases, timeout=600)
    for number, private in enumerate(REQUIRED):
        code, text, missed = said[str(number)]
        assert code == 2 and text.startswith(f"error: a run needs what Ray {ray.__version__} does not have: "), text
        assert str(private) in missed and all(name in text for name in missed) and text.count("\n") == 1
    assert not out.exists()


@pytest.mark.slow
def test_a_run_does_without_all_optional_names(tmp_path: Path) -> None:
    """Asha's checkpoints lie at its rungs, which are unknown then; the results are the same."""
    both = [renames(private) for private in OPTIONAL]
    cases: dict[str, Any] = {
        out: (names, [], ["run", "quickstart", "--methods", "asha,ldn", *SMALL, "--out", str(tmp_path / out)])
        for out, names in (("lacking", [each for files, _ in both for each in files]), ("whole", []))
    }
    said = commands(tmp_path, cases, timeout=600)
    assert {case: code for case, (code, *_) in said.items()} == {"lacking": 0, "whole": 0}, said
    assert (said["lacking"][2], said["whole"][2]) == ([str(private) for private in OPTIONAL], [])
    for method in ("asha", "ldn"):
        assert read(tmp_path / "lacking", method) == read(tmp_path / "whole", method)
