"""`harness study` for real: killed it continues, more seeds run only the new ones, and MLflow has one experiment."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from harness.cli import main
from tests import forked
from tests.running.results import command, wait_for
from tests.studies.test_definition import written


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
