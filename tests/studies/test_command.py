"""`harness study` for real: killed it continues, more seeds run only the new ones, and MLflow has one experiment."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from harness.cli import main
from tests import forked
from tests.running.results import command, wait_for
from tests.studies.test_definition import written
from tests.studies.test_figures import BASE


@pytest.fixture
def temp() -> Iterator[str]:
    """A short path: Ray puts sockets below it."""
    with tempfile.TemporaryDirectory(prefix="ht-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


def words(folder: Path, seeds: int) -> list[str]:
    scales = {"small": {"vary": {"depth.max": [2, 3]}, "set": {"training.max_epochs": 600}, "seeds": 1}}
    file = written(folder, scales=scales, figures=["scan", "maps"])
    return ["study", str(file), "--seeds", str(seeds), "--workers", "1", "--out", str(folder / "out")]


def ledgers(folder: Path) -> dict[str, str]:
    cells = folder / "out" / "studies" / "mine-small"
    return {str(path.relative_to(cells).parent): path.read_text() for path in cells.glob("*/*/seed-*/ledger.jsonl")}


@pytest.mark.slow
def test_killed_it_continues_and_more_seeds_run_only_the_new_ones(one_ray: None, tmp_path: Path, temp: str) -> None:
    driver = forked.harness(*words(tmp_path, 1), env={"RAY_TMPDIR": temp})
    wait_for(lambda: any('"report"' in text for text in ledgers(tmp_path).values()), "a report")
    driver.kill()
    driver.wait()

    done = command(tmp_path, *words(tmp_path, 1))
    assert done.returncode == 0, done.stderr
    assert "not enough evidence: x" in done.stdout  # one seed
    first = ledgers(tmp_path)
    assert sorted(first) == ["depth.max-2/ldn/seed-0", "depth.max-3/ldn/seed-0"]
    starts = [sum(json.loads(line)["event"] == "start" for line in text.splitlines()) for text in first.values()]
    assert max(starts) > 2, "nothing had to be taken up again"

    done = command(tmp_path, *words(tmp_path, 2))
    assert done.returncode == 0, done.stderr
    both = ledgers(tmp_path)
    assert len(both) == 4 and first.items() <= both.items(), "a complete network was touched"

    folder = tmp_path / "out" / "studies" / "mine-small" / "mine"
    assert {path.suffix for path in folder.iterdir()} == {".html", ".md", ".svg", ".png"}
    assert "depth.max" not in (folder / "page.html").read_text().split("<svg")[0].split("</title>")[0]
    uri = f"sqlite:///{tmp_path / 'out' / 'mlflow.db'}"
    client = MlflowClient(uri, registry_uri=uri)
    experiment = client.get_experiment_by_name("depth-search/study mine-small")
    assert experiment
    names = [run.info.run_name for run in client.search_runs([experiment.experiment_id])]
    assert {"depth.max-2 ldn/s0", "depth.max-3 ldn/s1", "report"} <= set(names) and len(names) == 9


def spaces(folder: Path) -> list[str]:
    """One that works, one whose file is torn, one whose data are not there, one whose losses all fail."""
    made: dict[str, dict[str, object]] = {
        "works": {},
        "torn": {"depth": {"mix": 3}},
        "lacks": {"data": {"kind": "table", "path": "nowhere.csv", "target": "y"}},
        "fails": {"training": {"lr": 1e30}},
    }
    for name, changes in made.items():
        space = {**BASE, "depth": {"min": 0, "max": 1}, **changes}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(space))
    return [str(folder / f"{name}.yaml") for name in made]


@pytest.mark.slow
def test_a_broken_space_does_not_stop_the_others(one_ray: None, tmp_path: Path) -> None:
    """It is named with its reason, and the same command again says what is complete and trains nothing of it."""
    scales = {"small": {"vary": {"base": spaces(tmp_path)}, "seeds": 2}}
    file = written(
        tmp_path, methods="deepest,grid", across=["deepest"], figures=["tradeoff"], claims=[], scales=scales, base=None
    )
    asked = ["study", str(file), "--workers", "1", "--out", str(tmp_path / "out")]
    done = command(tmp_path, *asked)
    assert done.returncode == 1, done.stderr
    reasons = {
        "torn": "unknown key 'depth.mix'",
        "lacks": "there is no file nowhere.csv",
        "fails": "failed",
    }
    out = " ".join(done.stdout.split())
    folder = tmp_path / "out" / "studies" / "mine-small" / "mine"
    view = json.loads((folder / "across.json").read_text())
    page = (folder / "page.html").read_text()
    assert [space["space"] for space in view["spaces"]] == ["works"]
    for name, why in reasons.items():
        assert why in view["not_judged"][name], view["not_judged"]
        assert f"{name} failed: " in done.stderr or f"{name}/grid/seed-0 failed: " in done.stderr
        assert f"not judged: {name}: " in out and f"</strong> {name}: " in page
    assert "complete already" not in done.stdout and " ".join(view["sentence"].split()) in out
    uri = f"sqlite:///{tmp_path / 'out' / 'mlflow.db'}"
    experiment = MlflowClient(uri, registry_uri=uri).get_experiment_by_name("depth-search/study mine-small")
    assert experiment and experiment.tags["mlflow.note.content"].startswith("**Of the declared methods none is shown")

    first = {name: text for name, text in ledgers(tmp_path).items() if name.startswith("works/")}
    again = command(tmp_path, *asked)
    assert again.returncode == 1 and "complete already: 4 of 12 units" in again.stdout
    assert {name: text for name, text in ledgers(tmp_path).items() if name.startswith("works/")} == first
    assert json.loads((folder / "across.json").read_text()) == view


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["max_dept"], "unknown study 'max_dept'"),
        (["max_depth", "--vary", "depth.max=-3,5"], "depth.max should be greater than 0; got -3"),
        (["max_depth", "--vary", "depth.max=5,5"], "must list different values"),
        (["max_depth", "--scale", "huge"], "'huge' is not one of 'small', 'paper'"),
        (["max_depth", "--seeds", "0"], "0 is not in the range x>=1"),
        (["max_depth", "--set", "training.lrr=1"], "unknown key 'training.lrr'"),
        (["max_depth", "--methods", "ldn,ldn_me"], "unknown method 'ldn_me' (did you mean 'ldn_em'?)"),
        (["max_depth", "--methods", ""], "unknown method ''"),
        (["rotation", "--methods", "ldn,ldn_em"], "figure maps shows one one-shot method; got ldn, ldn_em"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["study", *words, "--out", str(tmp_path / "out")])
    error = capsys.readouterr().err
    assert end.value.code == 2 and said in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
