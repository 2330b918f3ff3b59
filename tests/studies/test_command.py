"""`harness study` for real: killed it continues, more seeds run only the new ones, and MLflow has one experiment."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from tests.running.results import wait_for
from tests.studies.test_definition import written


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    temp = tempfile.mkdtemp(prefix="ht-", dir="/tmp")
    yield {**os.environ, "RAY_TMPDIR": temp}
    shutil.rmtree(temp, ignore_errors=True)


def start(folder: Path, seeds: int, environment: dict[str, str]) -> subprocess.Popen[str]:
    scales = {"small": {"vary": {"depth.max": [2, 3]}, "set": {"training.max_epochs": 600}, "seeds": 1}}
    file = written(folder, scales=scales, figures=["scan", "maps"])
    return subprocess.Popen(
        [sys.executable, "-m", "harness", "study", file, "--seeds", str(seeds), "--out", str(folder / "out")],
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ledgers(folder: Path) -> dict[str, str]:
    cells = folder / "out" / "studies" / "mine-small"
    return {str(path.relative_to(cells).parent): path.read_text() for path in cells.glob("*/*/seed-*/ledger.jsonl")}


@pytest.mark.slow
def test_killed_it_continues_and_more_seeds_run_only_the_new_ones(tmp_path: Path, environment: dict[str, str]) -> None:
    driver = start(tmp_path, 1, environment)
    wait_for(lambda: any('"report"' in text for text in ledgers(tmp_path).values()), "a report")
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()

    stdout, stderr = (driver := start(tmp_path, 1, environment)).communicate(timeout=300)
    assert driver.returncode == 0, stderr
    assert "not enough evidence: x" in stdout  # one seed
    first = ledgers(tmp_path)
    assert sorted(first) == ["depth.max-2/ldn/seed-0", "depth.max-3/ldn/seed-0"]
    starts = [sum(json.loads(line)["event"] == "start" for line in text.splitlines()) for text in first.values()]
    assert max(starts) > 2, "nothing had to be taken up again"

    stdout, stderr = (driver := start(tmp_path, 2, environment)).communicate(timeout=300)
    assert driver.returncode == 0, stderr
    both = ledgers(tmp_path)
    assert len(both) == 4 and first.items() <= both.items(), "a complete network was touched"

    folder = tmp_path / "out" / "studies" / "mine-small" / "mine"
    assert {path.suffix for path in folder.iterdir()} == {".html", ".md", ".svg", ".png"}
    assert "depth.max" not in (folder / "page.html").read_text().split("<svg")[0].split("</title>")[0]
    script = "import sys, json\nfrom mlflow import MlflowClient\nclient = MlflowClient(sys.argv[1])\n"
    script += "e = client.get_experiment_by_name('study mine-small')\n"
    script += "print(json.dumps([r.info.run_name for r in client.search_runs([e.experiment_id])]))"
    uri = f"sqlite:///{tmp_path / 'out' / 'mlflow.db'}"
    listed = subprocess.run([sys.executable, "-c", script, uri], capture_output=True, text=True, check=True)
    names = json.loads(listed.stdout.splitlines()[-1])
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
