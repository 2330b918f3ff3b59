"""The first job that somebody submits: it uses the cluster, its results stay, and what cannot work is said at once."""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.api.planned import plan_run
from harness.cli import main
from harness.errors import UserError
from harness.options import RunOptions
from harness.running import ahead, runner
from tests.forked import Forked

NAMES = ("RAY_ADDRESS", "HARNESS_STORAGE")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


# --- what the surroundings say --------------------------------------------------------------------------------------


def test_ray_jobs_use_their_cluster_and_keep_results_in_its_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")  # as Ray sets it for a job
    monkeypatch.setenv("HARNESS_STORAGE", "/nfs/depth")
    placed = RunOptions.of().placed()
    assert (placed.address, placed.storage, placed.out) == ("10.0.0.1:6379", "/nfs/depth", Path("/nfs/depth"))


def test_what_is_given_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv("HARNESS_STORAGE", "/nfs/depth")
    given = RunOptions.of(address="10.9.9.9:6379", storage="s3://bucket/depth", out="results").placed()
    assert (given.address, given.storage) == ("10.9.9.9:6379", "s3://bucket/depth")
    assert given.out == Path("results").absolute()
    assert RunOptions.of(address="auto").placed().address == "10.0.0.1:6379", "Ray would say so, too"
    here = RunOptions.of(address="local", out="results").placed()
    assert (here.address, here.out) == (None, Path("results"))


def test_without_a_cluster_nothing_moves() -> None:
    assert RunOptions.of().placed() == RunOptions.of()


def test_results_beside_an_object_store_have_an_absolute_place() -> None:
    placed = RunOptions.of(address="auto", storage="s3://bucket/depth").placed()
    assert placed.out == Path("results").absolute()


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("http://127.0.0.1:8265", "ray job submit --address http://127.0.0.1:8265 --working-dir . -- harness run"),
        ("https://me:s3cret@ray.example.org", "--address https://ray.example.org --working-dir ."),
        ("ray://10.0.0.1:10001", "ray job submit --address http://10.0.0.1:8265 --working-dir . -- harness run"),
    ],
)
@pytest.mark.parametrize("how", ["flag", "variable", "doctor"])
def test_an_address_that_takes_jobs_is_refused_with_the_line_that_submits_one(
    address: str,
    line: str,
    how: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["doctor", "--address", address] if how == "doctor" else ["run", "quickstart"]
    if how == "flag":
        command += ["--address", address]
    elif how == "variable":
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(SystemExit, match="2"):
        main(command)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and line in said and "--address local" in said and "s3cret" not in said
    assert ("RAY_ADDRESS must be" in said) == (how == "variable")
    assert list(tmp_path.iterdir()) == [], "something was left behind"


def test_a_local_command_does_not_mind_where_jobs_go(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ray job submit` reads the same variable, so it may be set for good where one submits."""
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    with pytest.raises(SystemExit, match="0"):
        main(["trial", "quickstart", "--depth", "1", "--epochs", "1", "--json"])
    assert capsys.readouterr().err == ""


# --- on a cluster ---------------------------------------------------------------------------------------------------

SPACE = """
name: mine
data: {kind: arrays, path: own.npz}
network: {kind: fc, width: 8}
depth: {min: 0, max: 2}
training: {max_epochs: 4, patience: 4, eval_every: 2, report_every: 2}
"""
METHOD = """
import os, pathlib
from harness.methods.ldn import LearntDepth
IMPORTS

class Where(LearntDepth):
    '''Notes on which node it trained.'''

    colour = "#999999"

    def after_epoch(self, net, epoch, validation):
        NEEDS
        (pathlib.Path(SEEN) / os.environ.get("NODE_OF_THE_TEST", "elsewhere")).touch()
"""


@pytest.mark.slow
def test_a_job_uses_the_cluster_is_found_again_and_is_refused_before_it_costs_anything(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp", ignore_cleanup_errors=True) as temp:  # a short path
        said = tmp_path / "stderr"
        process = Forked(jobs, str(tmp_path), temp, env={"RAY_TMPDIR": temp}, stderr=said)
        assert process.wait(timeout=400) == 0, said.read_text()[-4000:]


def jobs(folder: str, temp: str) -> None:
    from ray.cluster_utils import Cluster

    Path(temp, "ray").mkdir()
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "temp_dir": temp}
    )
    cluster.add_node(num_cpus=2, env_vars={"NODE_OF_THE_TEST": "worker"})
    cluster.wait_for_nodes()
    base, storage, seen = Path(folder), Path(folder, "storage"), Path(folder, "seen")
    seen.mkdir()
    os.environ |= {"RAY_ADDRESS": cluster.address, "HARNESS_STORAGE": str(storage)}

    def package(name: str, method: str = "where", imports: str = "", needs: str = "") -> Path:
        """What `ray job submit --working-dir` unpacks: a folder of its own for each submission."""
        made = base / name
        made.mkdir()
        (made / "mine.yaml").write_text(SPACE)
        rng = np.random.default_rng(0)
        y = np.arange(90) % 3
        np.savez(made / "own.npz", x_train=rng.normal(size=(90, 2)) + 4 * y[:, None], y_train=y)
        text = METHOD.replace("SEEN", repr(str(seen))).replace("IMPORTS", imports).replace("NEEDS", needs)
        (made / f"{method}.py").write_text(text)
        os.chdir(made)
        return made

    def run(methods: str, **given: Any) -> tuple[Any, list[str]]:
        told: list[str] = []

        def tell(sentence: str) -> None:
            told.append(sentence)
            if "is sent" in sentence:
                Path("own.npz").unlink()  # from here on only the driver has read it

        return plan_run("mine.yaml", RunOptions.of(methods=methods, **given)).start(warn=tell), told

    # Data that only the driver sees, a method of the user's own, and no --address.
    package("_ray_pkg_1")
    results, told = run("grid,where.py")
    assert results.failures == {} and len(results.units) == 2
    assert [path.name for path in seen.iterdir()] == ["worker"], "it did not train on the cluster"
    assert any(line.startswith("own.npz (0.0 MiB) is sent") for line in told), told
    kept = storage / "mine"
    assert results.out == storage and (kept / "grid" / "seed-0" / "result.json").is_file()
    assert {unit.result.final.n_test for unit in results.units if unit.result} == {18}

    # The folder has changed, and so has its name: nothing is trained again.
    before = {path: path.read_bytes() for path in kept.rglob("ledger.jsonl")}
    assert len(before) == 2
    (package("_ray_pkg_2") / "notes.txt").write_text("one more file")
    assert len(run("grid,where.py")[0].units) == 2
    assert {path: path.read_bytes() for path in kept.rglob("ledger.jsonl")} == before

    # A file that imports what only the driver has.
    os.chdir(base)
    (base / "aside").mkdir()
    (base / "aside" / "only_here.py").write_text("x = 1\n")
    sys.path.insert(0, str(base / "aside"))
    package("_ray_pkg_3", "needy", imports="import only_here", needs="only_here.x")
    refused("cannot train this: method needy cannot be imported on the worker", lambda: run("needy.py"))

    # Data that is too large to be sent, and is not on the machines.
    package("_ray_pkg_4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "MOST_SENT", 10)
        put = runner._put

        def when_the_driver_has_read_it(pools: Any) -> Any:
            Path("own.npz").unlink()
            return put(pools)

        patch.setattr(runner, "_put", when_the_driver_has_read_it)
        refused("does not have own.npz as the driver has it", lambda: run("grid", seeds=1))
    assert not list(kept.glob("*/seed-1")) and not list(kept.glob("needy")), (
        "a run that was refused left something behind"
    )
    shutil.rmtree(storage)
    cluster.shutdown()


def refused(words: str, run: Any) -> None:
    with pytest.raises(UserError) as caught:
        run()
    assert words in str(caught.value) and "\n" not in str(caught.value), str(caught.value)
