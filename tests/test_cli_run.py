"""`harness run` and `harness check` given bad input: one sentence, exit code 2, nothing started, nothing written."""

import socket
from pathlib import Path
from typing import Any

import pytest
import ray

from harness.cli import main
from harness.cluster.slots import ClusterSlots
from harness.options import RunOptions
from harness.running import runner
from tests.methods.test_parse import MINE


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(ray, "init", start)


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(["run", "quickstart", *args])
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--methods", "gird"], "unknown method 'gird' (did you mean 'grid'?)"),
        (["--methods", "asha:grace_epoch=1"], "unknown key 'grace_epoch'"),
        (["--methods", "asha:grace_epochs=9999"], "grace_epochs must not exceed training.max_epochs = 1000"),
        (["--methods", "ldn,ldn"], "method 'ldn' is given twice"),
        (["--seeds", "0,1,0"], "seed 0 is given twice"),
        (["--seeds", "0,one"], "seeds are whole numbers, as 0,1,2 or 0-19, and at least one; got '0,one'"),
        (["--seeds", ""], "seeds are whole numbers, as 0,1,2 or 0-19, and at least one; got ''"),
        (["--seeds", "-1"], "seeds must not be negative; got -1"),
        (["--seeds", "5-3"], "a range of seeds runs upwards, as 0-19; got '5-3'"),
        (["--seeds", "0,9-2"], "a range of seeds runs upwards, as 0-19; got '9-2'"),
        (
            ["--seeds", "0-9", "--until-verdict", "--looks", "8,4"],
            "--looks takes numbers of seeds, at least 2 and increasing",
        ),
        (["--seeds", "0-9", "--until-verdict", "--looks", "5,20"], "more seeds than there are; got 20 with 10 seeds"),
        (["--seeds", "0-9", "--looks", "5,10"], "--looks is for --until-verdict, which was not given"),
        (["--seeds", "0", "--until-verdict"], "--until-verdict needs at least 2 seeds to choose from"),
        (["--usd-per-hour", "-0.5"], "usd_per_hour must be a number of at least 0; got -0.5"),
        (["--wait", "-1"], "wait must be a number of at least 0; got -1.0"),
        (["--usd-per-hour", "nan"], "usd_per_hour must be a number of at least 0; got nan"),
        (["--trials", "0"], "trials must be a whole number, at least 1; got 0"),
        (["--epochs", "0"], "epochs must be a whole number, at least 1; got 0"),
        (["--gpus-per-trial", "-1"], "gpus_per_trial must be a number of at least 0; got -1.0"),
        (["--cpus-per-trial", "0"], "cpus_per_trial must be a number above 0; got 0.0"),
        (["--max-cost", "0"], "max_cost must be a number above 0; got 0.0"),
        (["--set", "depth.maximum=4"], "unknown key 'depth.maximum'"),
        (["--set", "training.precision=bfloat16"], "bfloat16 is for CUDA, and trials would run on the CPU"),
        (["--max-cost", "nan"], "max_cost must be a number above 0; got nan"),
        (["--cpus-per-trial", "inf"], "cpus_per_trial must be a number above 0; got inf"),
        (["--gpus-per-trial", "nan"], "gpus_per_trial must be a number of at least 0; got nan"),
        (["--gpus-per-trial", "2"], "gpus_per_trial must be at most 1, since a trial trains on one GPU; got 2.0"),
        (["--workers", "1" * 400], "workers must be at most 1,000,000,000; got 111"),
        (["--seeds", "0-999999999999"], "at most 10,000 seeds"),
        (["--seeds", "99999999999"], "seeds must be at most 4,294,967,295; got 99999999999"),
        (["--storage", "foo://key:s3cret@x"], "storage must be a folder or an address (file://…, s3://…"),
        (["--storage", "/dev/null/x"], "the storage /dev/null/x cannot be written: Not a directory"),
        (["--storage", "file:///dev/null/x"], "the storage file:///dev/null/x cannot be written"),
        (["--out", "a\0b"], "--out must be a path without control characters"),
        (["--out", "/proc/x"], "--out must be on a disk"),
        (["--tracking-uri", "foo://me:s3cr/et@host"], "a tracking URI must be"),
        (["--set", "depth.max=1000000000"], "depth.max should be less than or equal to 10000; got 1000000000"),
        (["--set", "network.width=10000000"], "network.width should be less than or equal to 100000"),
        (["--set", "data.n_train=1000000000000"], "data.n_train should be less than or equal to 1000000000"),
        (["--set", "data.n_train=900000000"], "points of spirals would need about 83.8 GiB of memory"),
        (["--set", "network.width=100000"], "lower depth.max or the network's width"),
        (["--set", f"{'a.' * 5000}b=1"], "--set: a key has at most 50 parts; got 5001"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_bad_input(args: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = () if "--out" in args else ("--out", str(tmp_path / "out"))
    sentence = refused(capsys, *out, *args)
    assert said in sentence and "s3c" not in sentence and sentence.rstrip().isprintable()
    assert not (tmp_path / "out").exists()


def test_gpus_that_torch_cannot_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Ray would offer; it is not even started."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # a test before this one may have left it running
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.delenv("HARNESS_LOGICAL_GPUS", raising=False)
    said = refused(capsys, "--out", str(tmp_path / "out"), "--gpus-per-trial", "1")
    assert said.startswith(f"error: no GPU can be used on {socket.gethostname()}: ")
    assert not (tmp_path / "out").exists()


def test_an_unknown_space(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["run", "quickest"])
    assert exit_.value.code == 2
    assert "unknown search space 'quickest'" in capsys.readouterr().err


def test_a_method_file_that_does_not_import_shows_its_own_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("import nowhere_to_be_found")
    said = refused(capsys, "--out", str(tmp_path / "out"), "--methods", f"ldn,{tmp_path}/mine.py")
    assert "mine.py does not import: ModuleNotFoundError: No module named 'nowhere_to_be_found'" in said


def test_an_output_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("no folder")
    assert "cannot be written" in refused(capsys, "--out", str(tmp_path / "file" / "results"))


def claim(out: Path, *methods: str, **options: Any) -> None:
    """Plans on disk, as an earlier run would have left them."""
    from harness.methods import parse_methods
    from harness.spaces import load_space

    made = runner.make_units(
        [load_space("quickstart")], parse_methods(",".join(methods)), [0], RunOptions(out=out, **options)
    )
    for unit in made:
        unit.folder.claim(unit.plan, fresh=False)


def test_a_results_folder_of_other_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim(tmp_path, "grid")
    before = sorted(tmp_path.rglob("*"))
    said = refused(capsys, "--out", str(tmp_path), "--methods", "ldn,grid", "--epochs", "70")
    assert "space.training.max_epochs: 1000 → 70" in said and "--fresh" in said
    assert sorted(tmp_path.rglob("*")) == before  # nor a plan of ldn's


@pytest.fixture
def two_small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0}}, {"Alive": True, "Resources": {"CPU": 2.0}}]
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "nodes", lambda: [*nodes, {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}])
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 4.0, "GPU": 1.0})


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["--gpus-per-trial", "1", "--cpus-per-trial", "3"],
            "a trial asks for 1 GPU and 3 CPU, no machine ever has that (largest now: 1 GPU, 2 CPU)",
        ),
        (["--cpus-per-trial", "3"], "a trial asks for 3 CPU, no machine ever has that"),
    ],
)
def test_more_than_any_node_has(
    args: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], two_small_nodes: None
) -> None:
    claim(tmp_path, "grid", gpus_per_trial=1.0 if "1" in args else 0.0, cpus_per_trial=3.0)
    before = sorted(tmp_path.rglob("*"))
    assert said in refused(capsys, "--out", str(tmp_path), "--methods", "ldn,grid", "--fresh", *args)
    assert sorted(tmp_path.rglob("*")) == before  # nothing moved aside, no plan that would refuse the corrected command


def test_fractions_of_a_gpu_fit_as_often_as_they_should(two_small_nodes: None) -> None:
    assert ClusterSlots(gpus=0.25, cpus=0.1, may_grow=False).capacity == 4
    assert ClusterSlots(gpus=0.25, cpus=1.0, may_grow=False).capacity == 2  # two CPUs stand beside that GPU
    assert ClusterSlots(gpus=0.0, cpus=1.0, may_grow=False).capacity == 4


def test_a_ray_that_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    said = refused(capsys, "--out", str(tmp_path / "out"), "--address", "127.0.0.1:9")
    assert "none answers at 127.0.0.1:9" in said
    assert not (tmp_path / "out").exists()


# --- check --------------------------------------------------------------------------------------------------------


def test_check_passes_a_good_method_and_fails_a_bad_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ends.py").write_text(MINE)
    with pytest.raises(SystemExit) as exit_:
        main(["check", str(tmp_path / "ends.py")])
    assert exit_.value.code == 0
    assert "same seed, same configurations" in capsys.readouterr().out
    (tmp_path / "beyond.py").write_text(MINE.replace("space.depth.values[-1]", "99"))
    with pytest.raises(SystemExit) as exit_:
        main(["check", str(tmp_path / "beyond.py")])
    assert exit_.value.code == 1
    assert "depth 99" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("def plan(self, space, budget, seed): return None", "plan must return a SearchPlan; got NoneType"),
        (
            "def plan(self, space, budget, seed): return self.plan(space, budget, seed)",
            "fails: RecursionError: maximum",
        ),
        ("async def plan(self, space, budget, seed): return None", "plan must be an ordinary function, not async"),
        ("def plan(self): return None", "plan(space, budget, seed) fails: TypeError:"),
        ("def plan(self, space, budget, seed): raise SystemExit(0)", "plan(space, budget, seed) fails: SystemExit: 0"),
        (
            "def plan(self, space, budget, seed): return SearchPlan({}, None)",
            "search_alg of its plan must be a Searcher",
        ),
        ("skip: int = 'many'\n    def plan(self, space, budget, seed): return None", "skip should be a valid integer"),
        ("raise SystemExit(0)", "does not import: SystemExit: 0"),
    ],
)
def test_a_method_of_ones_own_that_cannot_plan(
    plan: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(f"{MINE[: MINE.index('    def plan')]}    {plan}\n")
    assert said in refused(capsys, "--out", str(tmp_path / "out"), "--methods", f"{tmp_path}/mine.py")
    with pytest.raises(SystemExit) as checked:
        main(["check", f"{tmp_path}/mine.py"])
    assert checked.value.code in (1, 2), "a rule that is not kept, or no method at all"
    assert "Traceback" not in "".join(capsys.readouterr())


def test_a_bug_in_a_method_of_ours_stays_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, space: Any, budget: Any, seed: int) -> None:
        raise KeyError("our own")

    monkeypatch.setattr("harness.methods.grid.Grid.plan", broken)
    with pytest.raises(KeyError, match="our own"):
        main(["run", "quickstart", "--methods", "grid", "--dry-run"])
