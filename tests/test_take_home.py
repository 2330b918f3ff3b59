"""docs/take_home.md: the winner in three lines, with this package and without it, and what may be deleted."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import harness
from tests.running.results import command, unit_folder
from tests.tracking.test_models import LOAD, in_a_fresh_process

PAGE = (Path(__file__).parent.parent / "docs" / "take_home.md").read_text(encoding="utf-8")
SETTINGS = ("depth.max=2", "training.max_epochs=40", "training.eval_every=20", "training.report_every=20")
RUN = ("run", "quickstart", "--methods", "ldn,grid", "--seeds", "0,1", *(w for s in SETTINGS for w in ("--set", s)))
RUN += ("--workers", "1", "--max-failures", "0")  # what is gone is gone at the second try, too
SEED = unit_folder(Path("results"), "grid", 1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, warm_workers: None, shared_ray: "object") -> Path:
    """A folder in which a small comparison was run, as a reader would run it."""
    shared_ray.start()  # type: ignore[attr-defined]
    folder = tmp_path_factory.mktemp("take_home")
    done = command(folder, *RUN)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^take home: seed [01] of (ldn|grid): .+$", done.stdout, re.MULTILINE)
    assert "MLflow: harness ui quickstart --out results\n" in done.stdout, "no link to a port that nobody serves"
    assert "127.0.0.1" not in done.stdout
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy to delete things from."""
    shutil.copytree(finished / "results", tmp_path / "results")
    yield tmp_path


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.slow
def test_the_lines_of_the_page_give_the_same_with_this_package_and_without(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, without = blocks("python")
    assert all(len([line for line in block.splitlines() if line]) <= 4 for block in (ours, without))
    rows = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    monkeypatch.chdir(finished)
    lines: dict[str, object] = {"rows": rows}
    exec(ours, lines)
    results = harness.load_results("quickstart")
    winner, model = results.comparison.winner, results.winner()
    chosen = results.model(winner.method, winner.seed)
    assert np.array_equal(model.predict_proba(rows), chosen.predict_proba(rows))
    pd.to_pickle(rows, finished / "rows.pkl")
    script = f"""
import json, pandas
rows = pandas.read_pickle("rows.pkl")
{without}
found = model.predict(rows)
print(json.dumps([found.columns.tolist(), found.to_numpy().tolist(), found.idxmax(axis=1).tolist()]))
"""
    classes, probabilities, names = in_a_fresh_process(finished, script)
    assert classes == list(model.class_names)
    np.testing.assert_allclose(probabilities, model.predict_proba(rows), rtol=1e-6, atol=1e-7)
    assert names == model.predict_names(rows).tolist()


@pytest.mark.slow
def test_the_commands_of_the_page_work(finished: Path) -> None:
    [line] = [line for block in blocks("sh") for line in block.splitlines()]
    done = command(finished, *line.split()[1:])
    assert done.returncode == 0 and done.stdout.startswith("costs,method,measure,")
    assert {row.split(",")[1] for row in done.stdout.splitlines()[1:] if row} == {"ldn", "grid"}


# --- what may be deleted ------------------------------------------------------------------------------------------


def delete(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def compared(folder: Path) -> str:
    done = command(folder, "compare", "quickstart", "--format", "json")
    assert done.returncode == 0, done.stderr
    return done.stdout


def reported(folder: Path) -> str:
    assert command(folder, "report", "quickstart").returncode == 0
    return (folder / "results" / "quickstart" / "report.html").read_text(encoding="utf-8")


def test_every_part_of_a_results_folder_is_on_the_page() -> None:
    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", PAGE, re.MULTILINE)
    named = " ".join(what for what, _ in rows) + PAGE.split("is the truth")[0].rpartition("\n\n")[2]
    for part in ("mlflow.db", "mlflow-artifacts", "mlflow.db.lock", "checkpoints", "report.html", "looks.json"):
        assert part in named
    for part in ("model.pt", "ledger.jsonl", ".moved-", "plan.json", "result.json", "trials.jsonl"):
        assert part in named


@pytest.mark.slow
def test_nothing_else_lies_in_a_results_folder(finished: Path) -> None:
    assert {path.name for path in (finished / "results").iterdir()} == {
        *("mlflow.db", "mlflow-artifacts", "mlflow.db.lock", "checkpoints", "quickstart"),
    }
    assert {path.name for path in (finished / "results" / "quickstart").iterdir()} == {
        *("ldn", "grid", "report.html", "looks.json"),
    }
    assert {path.name for path in (finished / SEED).iterdir()} == {
        *("plan.json", "result.json", "trials.jsonl", "ledger.jsonl", "model.pt", "rows.bin"),
    }


@pytest.mark.slow
def test_comparison_report_and_a_complete_run_need_the_truth_alone(folder: Path) -> None:
    before, page = compared(folder), reported(folder)
    for name in ("mlflow.db", "mlflow-artifacts", "mlflow.db.lock", "checkpoints", "quickstart/report.html"):
        delete(folder / "results" / name)
    for file in (folder / "results").glob("quickstart/*/seed-*/*"):
        if file.name in ("model.pt", "ledger.jsonl"):
            file.unlink()
    assert (compared(folder), reported(folder)) == (before, page)
    results = {file: file.stat().st_mtime_ns for file in (folder / "results").glob("quickstart/*/seed-*/result.json")}
    done = command(folder, *RUN)
    assert done.returncode == 0, done.stderr
    assert results == {file: file.stat().st_mtime_ns for file in results}, "nothing is trained again"


@pytest.mark.slow
def test_mlflow_is_written_anew(folder: Path) -> None:
    delete(folder / "results" / "mlflow.db")
    delete(folder / "results" / "mlflow-artifacts")
    refused = command(folder, "ui")
    assert refused.returncode == 2 and "there is nothing to show yet" in refused.stderr
    assert command(folder, "sync").returncode == 0
    rows = np.random.default_rng(0).uniform(-1, 1, (5, 2))
    pd.to_pickle(rows, folder / "rows.pkl")
    where = ("sqlite:///results/mlflow.db", "rows.pkl", "models:/depth-search-quickstart@winner")
    [found, _] = in_a_fresh_process(folder, LOAD, *where)
    expected = harness.load_results("quickstart", folder / "results").winner().predict_proba(rows)
    np.testing.assert_allclose(found[2], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_without_its_model_file_a_network_cannot_be_loaded_nor_written_to_mlflow(folder: Path) -> None:
    before = compared(folder)
    (folder / SEED / "model.pt").unlink()
    results = harness.load_results("quickstart", folder / "results")
    with pytest.raises(harness.UserError, match="grid seed 1 has no model in"):
        results.model("grid", seed=1)
    results.model("grid", seed=0)
    delete(folder / "results" / "mlflow.db")
    delete(folder / "results" / "mlflow-artifacts")
    assert command(folder, "sync").returncode == 0
    logged = list((folder / "results" / "mlflow-artifacts").glob("depth-search/quickstart/models/*/artifacts/MLmodel"))
    assert len(logged) == 3 and compared(folder) == before


@pytest.mark.slow
def test_without_its_ledger_a_seed_is_not_replayed(folder: Path) -> None:
    before = compared(folder)
    replay = ("replay", "quickstart", "--methods", "random_search", "--search-seeds", "2", "--format", "json")
    assert '"seeds":[0,1]' in re.sub(r"\s", "", command(folder, *replay).stdout)
    (folder / SEED / "ledger.jsonl").unlink()
    assert '"seeds":[0]' in re.sub(r"\s", "", command(folder, *replay).stdout)
    assert compared(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("file", ["plan.json", "result.json", "trials.jsonl"])
def test_without_a_part_of_the_truth_its_seed_is_lost_and_the_comparison_says_so(folder: Path, file: str) -> None:
    before = harness.load_results("quickstart", folder / "results")
    assert len(before.finished) == 4
    (folder / SEED / file).unlink()
    after = harness.load_results("quickstart", folder / "results")
    assert len(after.finished) == 3
    told = " ".join((*after.comparison.missing, *after.comparison.notes))
    assert "grid seed 1" in told or "results/quickstart/grid/seed-1" in told


@pytest.mark.slow
def test_result_and_trials_come_back_from_the_ledger(folder: Path) -> None:
    before, truth = (
        compared(folder),
        {name: (folder / SEED / name).read_text() for name in ("result.json", "trials.jsonl")},
    )
    for name in truth:
        (folder / SEED / name).unlink()
    done = command(folder, *RUN)
    assert done.returncode == 0, done.stderr
    assert truth["trials.jsonl"] == (folder / SEED / "trials.jsonl").read_text()
    assert json.loads(compared(folder))["search"]["rows"] == json.loads(before)["search"]["rows"]


@pytest.mark.slow
def test_without_checkpoints_a_seed_that_is_not_complete_must_be_started_over(folder: Path) -> None:
    """As it stands after a kill before the final evaluation: its trials have ended, and their networks are gone."""
    ledger = folder / SEED / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    final = next(place for place, line in enumerate(lines) if '"trial":"final"' in line)
    ledger.write_text("".join(lines[:final]))
    (folder / SEED / "result.json").unlink()
    shutil.rmtree(folder / "results" / "checkpoints")
    done = command(folder, *RUN)
    assert done.returncode == 1 and "is gone from" in done.stderr
    it_alone = ["grid" if word == "ldn,grid" else "1" if word == "0,1" else word for word in RUN]
    assert command(folder, *it_alone, "--fresh").returncode == 0


@pytest.mark.slow
def test_without_its_looks_the_program_forgets_that_verdicts_were_seen(folder: Path) -> None:
    looks = folder / "results" / "quickstart" / "looks.json"
    assert harness.load_results("quickstart", folder / "results").looks.all == (2,)
    looks.unlink()
    assert harness.load_results("quickstart", folder / "results").looks.all == ()
    assert compared(folder)


@pytest.mark.slow
def test_without_checkpoints_replay_cannot_add_a_search(folder: Path) -> None:
    shutil.rmtree(folder / "results" / "checkpoints")
    words = [word if word != "ldn,grid" else "ldn,grid,random_search" for word in RUN]
    done = command(folder, *words, "--replay")
    assert done.returncode == 1 and "is gone from" in done.stderr
    assert not list((folder / "results" / "quickstart" / "random_search").glob("*/result.json"))


@pytest.mark.slow
def test_what_was_moved_aside_may_go(folder: Path) -> None:
    before = compared(folder)
    shutil.copytree(folder / SEED, folder / SEED.with_name("seed-1.moved-20261117-060000"))
    assert compared(folder) == before
