"""What a notebook user meets: frames, verdicts, models, one sentence per mistake, and silence."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
import torch

import harness
from harness import api
from harness.cli import main
from harness.measures import ACCURACY, DEPTH, DEVICE_SECONDS
from harness.options import RunOptions, seeds_of
from harness.replaying.rehearsal import rehearse, unimodal
from harness.running.inputs import space_of
from harness.running.store import UnitFolder
from harness.spaces import load_space
from harness.training.model_file import save_model
from harness.training.predict import Predictor
from tests import rehearsed
from tests.comparing.test_from_disk import write
from tests.synthetic import make_space, make_units
from tests.tiny import config, spirals, used_network

QUICK = {"depth.max": 3, "training.eval_every": 10, "training.report_every": 10, "data.n_test": 100}


@pytest.fixture
def results(tmp_path: Path) -> harness.api.Results:
    write(tmp_path, make_units(("grid", "ldn", "asha"), range(3), unfinished=[("asha", 2)]))
    return harness.load_results("synthetic", out=tmp_path)


# --- results ------------------------------------------------------------------------------------------------------


def test_everything_promised_is_there() -> None:
    assert {*harness.__all__} <= {*dir(harness)}
    assert all(callable(getattr(harness, name)) for name in harness.__all__)
    with pytest.raises(AttributeError, match="no attribute 'replay_everything'"):
        harness.replay_everything  # noqa: B018 - asking is the test


def test_a_row_for_every_finished_unit(results: api.Results) -> None:
    frame = results.frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == 8 and set(zip(frame.method, frame.seed, strict=True)) == {
        (unit.plan.method, unit.plan.seed) for unit in results.finished
    }
    row = frame[(frame.method == "grid") & (frame.seed == 1)].iloc[0]
    [unit] = [unit for unit in results.units if (unit.plan.method, unit.plan.seed) == ("grid", 1)]
    assert unit.result is not None
    assert row[DEVICE_SECONDS.key] == unit.result.cost.device_seconds
    assert row[ACCURACY.key] == unit.result.final.chosen.accuracy
    assert row[DEPTH.key] == unit.result.d_opt and frame[DEPTH.key].dtype == int
    assert not [column for column in frame if str(column).startswith("refit_")]


def test_a_refit_has_columns_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, make_units(("ldn",), [0], refit=True))
    frame = harness.load_results("synthetic", tmp_path).frame()
    assert (frame["refit_device_seconds"] > 0).all() and "refit_test_accuracy" in frame


def test_a_row_for_every_trial(results: api.Results) -> None:
    trials = results.trials()
    assert len(trials) == sum(len(unit.trials) for unit in results.units)
    assert (trials[trials.chosen].groupby(["method", "seed"]).size() == 1).all()
    assert set(trials[trials.method == "asha"].stop_reason) >= {"scheduler"}
    failed = make_units(("grid",), [0], failed_depths={"grid": [2]})
    from harness.reporting.frames import trial_frame

    assert trial_frame(failed).set_index("depth").val_accuracy.isna().sum() == 1


def test_a_row_for_every_pair_and_measure(results: api.Results) -> None:
    assert set(results.verdicts().method) == {"ldn", "asha"} and set(results.verdicts().baseline) == {"grid"}
    results = results.against("ldn")
    verdicts = results.verdicts()
    first_columns = ["method", "baseline", "measure", "outcome", "difference", "low", "high", "margin"]
    about_seeds = ["median", "median_low", "median_high", "failed_seeds", "failed_at_most", "seeds_needed"]
    assert list(verdicts.columns) == first_columns + about_seeds
    assert set(verdicts.baseline) == {"grid", "asha"} and len(verdicts) == 6
    first = verdicts[(verdicts.baseline == "grid") & (verdicts.measure == ACCURACY.key)].iloc[0]
    [pair] = [pair for pair in results.comparison.search.pairs if pair.baseline == "grid"]
    assert first.outcome == pair.verdicts[ACCURACY.key].outcome
    assert first.difference == pair.differences[ACCURACY.key].mean and first.low < first.difference < first.high


def test_one_seed_gives_no_verdict_in_the_frame_either(tmp_path: Path) -> None:
    write(tmp_path, make_units(("grid", "ldn"), [0]))
    assert set(harness.load_results("synthetic", tmp_path).verdicts().outcome) == {"too few seeds"}


def test_records_are_read_once_and_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, make_units(("grid", "ldn"), range(2)))
    calls: list[str] = []
    monkeypatch.setattr("harness.reporting.html.build_report", lambda units, comparison: "<p>")
    for module, name in (("harness.running.store", "read_units"), ("harness.comparing", "compare")):
        _count(monkeypatch, module, name, calls)
    results = harness.load_results("synthetic", tmp_path)
    results.verdicts(), results.report(), results._repr_html_(), harness.compare(results), results.html
    assert sorted(calls) == ["compare", "read_units"]


def _count(monkeypatch: pytest.MonkeyPatch, module: str, name: str, calls: list[str]) -> None:
    original = getattr(__import__(module, fromlist=[name]), name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return original(*args, **kwargs)

    monkeypatch.setattr(f"{module}.{name}", counted)


def test_the_reference_learns_its_depth_unless_another_is_asked_for(results: api.Results) -> None:
    assert results.comparison.reference == "ldn"
    assert harness.compare(results, "grid").reference == "grid"
    assert harness.compare("synthetic", "asha", out=results.out).reference == "asha"
    assert results.comparison.reference == "ldn", "asking for another comparison changes nothing"


def test_the_report_goes_where_it_is_told(
    results: api.Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.reporting.html.build_report", lambda units, comparison: "<p>the verdict first")
    assert results.report() == tmp_path / "synthetic" / "report.html"
    elsewhere = harness.report(results, path=tmp_path / "pages" / "mine.html")
    assert elsewhere.read_text() == (tmp_path / "synthetic" / "report.html").read_text() == results.html
    (tmp_path / "file").write_text("")
    with pytest.raises(harness.UserError, match="cannot be written"):
        results.report(tmp_path / "file" / "report.html")


def test_it_shows_itself(results: api.Results, tmp_path: Path) -> None:
    assert repr(results) == f"<Results of synthetic in {tmp_path}: asha on 2 seeds, grid on 3 seeds, ldn on 3 seeds>"
    html = results._repr_html_()
    assert html.count("<tr") == 9 and results.recommendation().sentence.replace("'", "&#x27;") in html
    write(tmp_path / "b", make_units(("ldn",), [0], unfinished=[("ldn", 0)]))
    nothing = harness.load_results("synthetic", tmp_path / "b")
    assert "none yet" in repr(nothing) and "at least one finished unit" in nothing._repr_html_()


def test_the_model_predicts_from_rows_as_they_are(results: api.Results) -> None:
    of = config("ddn", depth=2)
    data = spirals(of)
    network = used_network(of, data)
    save_model(UnitFolder(results.out, "synthetic", "grid", 1).model_path, network, 2, of, data)
    model = results.model("grid", seed=1)
    probabilities = model.predict_proba(data.x)  # float64 in, as NumPy has it
    assert probabilities.shape == (len(data.x), data.n_classes)
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert (model.predict(data.x) == probabilities.argmax(axis=1)).all()
    with torch.inference_mode():
        normalised = torch.from_numpy((data.x - data.mean) / data.std).float()
        assert np.allclose(probabilities, network(normalised).exp(), atol=1e-5)
    assert "2 blocks" in repr(model)
    with pytest.raises(harness.UserError, match=r"shape \(N, 2\); got \(4, 3\)"):
        model.predict(np.zeros((4, 3)))
    with pytest.raises(harness.UserError, match=r"grid seed 7 has no model .* valid: .*grid seed 1"):
        results.model("grid", seed=7)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch exploded",)


def test_a_model_that_is_none_is_told_in_our_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch would tell its reader to load it without its protection."""
    monkeypatch.chdir(tmp_path)
    contents: list[Any] = [Bomb(), {"config": "{}"}, [1, 2], {"d_opt": 10**9}]
    for content in contents:
        torch.save(content, "model.pt")
        with pytest.raises(harness.UserError, match=r"model\.pt holds no network of the harness, and nothing") as said:
            Predictor.load(Path("model.pt"))
        assert "weights_only" not in str(said.value) and said.value.__cause__ is None
    Path("model.pt").write_bytes(b"garbage")
    with pytest.raises(harness.UserError, match="holds no network"):
        Predictor.load(Path("model.pt"))
    assert not Path("exploded").exists()


def test_the_model_of_another_seed_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    of = config("ddn", depth=2)
    data = spirals(of)
    for seed in (0, 1):
        unit = rehearsed.make_unit(tmp_path, "grid", seed=seed)
        network = used_network(of.model_copy(update={"seed": seed}), data)
        unit.folder.model_path.parent.mkdir(parents=True, exist_ok=True)
        save_model(unit.folder.model_path, network, 2, of, data)
        rehearse([unit], unimodal)
    results = harness.load_results("small", tmp_path)
    first, second = (UnitFolder(tmp_path, "small", "grid", seed).model_path for seed in (0, 1))
    assert results.model("grid", 1).class_names
    second.write_bytes(first.read_bytes())
    with pytest.raises(harness.UserError, match=r"seed-1/model\.pt is not the network that the result in its folder"):
        results.model("grid", 1)
    assert results.model("grid", 0).class_names


# --- what is asked for --------------------------------------------------------------------------------------------


def test_settings_come_in_every_form() -> None:
    wanted = load_space("quickstart", ["training.lr=0.05", "network={kind: fc, width: 7}"])
    as_mapping = {"training.lr": 0.05, "network": {"kind": "fc", "width": 7}}
    assert harness.load_space("quickstart", set=as_mapping) == wanted
    assert harness.load_space("quickstart", set=["training.lr=0.05", "network={kind: fc, width: 7}"]) == wanted
    assert harness.load_space(load_space("quickstart"), set=as_mapping) == wanted
    assert space_of("quickstart", trials=2, epochs=7).budget.trials == 2
    assert space_of("quickstart", trials=2, epochs=7).training.max_epochs == 7


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("0,2", [0, 2]),
        ("0-2,7", [0, 1, 2, 7]),
        (3, [3]),
        (range(2), [0, 1]),
        (np.arange(3), [0, 1, 2]),
        ((5, 1), [5, 1]),
    ],
)
def test_seeds_come_in_every_form(given: Any, meant: list[int]) -> None:
    seeds = seeds_of(given)
    assert seeds == meant and all(type(seed) is int for seed in seeds)


@pytest.mark.parametrize("given", ["", "one", "1.5", 1.5, [0.5], [], None, ["a"]])
def test_what_is_no_seed_is_refused(given: Any) -> None:
    with pytest.raises(harness.UserError, match=r"seeds are whole numbers, as 0,1,2 or 0-19, and at least one; got"):
        seeds_of(given)


def test_a_range_that_runs_backwards_is_refused() -> None:
    with pytest.raises(harness.UserError, match="a range of seeds runs upwards, as 0-19; got '3-1'"):
        seeds_of("0,3-1")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"worker": 2}, r"unknown option 'worker' \(did you mean 'workers'\?\)"),
        ({"workers": "two"}, "workers must be a whole number, at least 1; got 'two'"),
        ({"concurrency": 1.5}, "concurrency must be a whole number, at least 1; got 1.5"),
        ({"max_cost": "much"}, "max_cost must be a number above 0; got 'much'"),
        ({"max_cost": float("nan")}, "max_cost must be a number above 0; got nan"),
        ({"gpus_per_trial": np.inf}, "gpus_per_trial must be a number of at least 0"),
        ({"workers": 10**5000}, "workers must be at most 1,000,000,000; got a int too large to show"),
        ({"storage": "foo://x"}, "storage must be a folder or an address"),
        ({"out": "a\0b"}, "out must be a path without control characters"),
    ],
)
def test_options_are_checked_by_name_and_value(option: dict[str, Any], said: str) -> None:
    with pytest.raises(harness.UserError, match=said):
        RunOptions.of(**option)


MISTAKES: dict[str, tuple[list[str], Callable[[Path], Any]]] = {
    "unknown space": (["run", "nope"], lambda out: harness.run("nope", out=out)),
    "unknown method": (
        ["run", "quickstart", "--methods", "ldn,gird"],
        lambda out: harness.run("quickstart", ["ldn", "gird"], out=out),
    ),
    "method twice": (
        ["run", "quickstart", "--methods", "ldn,ldn"],
        lambda out: harness.run("quickstart", "ldn,ldn", out=out),
    ),
    "seed twice": (
        ["run", "quickstart", "--seeds", "0,1,0"],
        lambda out: harness.run("quickstart", seeds=[0, 1, 0], out=out),
    ),
    "negative seed": (["run", "quickstart", "--seeds", "-1"], lambda out: harness.run("quickstart", seeds=-1, out=out)),
    "unknown setting": (
        ["run", "quickstart", "--set", "depth.maximum=4"],
        lambda out: harness.run("quickstart", set={"depth.maximum": 4}, out=out),
    ),
    "setting of the wrong type": (
        ["run", "quickstart", "--set", "training.lr=fast"],
        lambda out: harness.run("quickstart", set={"training.lr": "fast"}, out=out),
    ),
    "no trials": (["run", "quickstart", "--trials", "0"], lambda out: harness.run("quickstart", trials=0, out=out)),
    "no workers": (["run", "quickstart", "--workers", "0"], lambda out: harness.run("quickstart", workers=0, out=out)),
    "no MLflow": (
        ["run", "quickstart", "--tracking-uri", "mlruns"],
        lambda out: harness.run("quickstart", tracking_uri="mlruns", out=out),
    ),
    "a folder that cannot be written": (
        ["run", "quickstart", "--out", "file/results"],
        lambda out: harness.run("quickstart", out="file/results"),
    ),
    "unknown reference": (
        ["compare", "synthetic", "--reference", "gird"],
        lambda out: harness.compare("synthetic", "gird", out=out),
    ),
    "an unknown reference of a run": (
        ["compare", "synthetic", "--reference", "gird"],
        lambda out: harness.run(make_space(), ["grid", "ldn"], reference="gird", out=out),
    ),
    "no results of a file": (
        ["compare", "my space.yaml"],
        lambda out: harness.compare("my space.yaml", out=out),
    ),
    "no results": (["report", "quickstart"], lambda out: harness.report("quickstart", out=out)),
    "results of another name": (["compare", "synthetik"], lambda out: harness.compare("synthetik", out=out)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_python_and_the_command_line_say_the_same(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(ray, "init", start)
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("no folder")
    write(Path("out"), make_units(("grid", "ldn"), range(2)))
    before = sorted(tmp_path.rglob("*"))
    command, call = MISTAKES[name]
    with pytest.raises(SystemExit) as end:
        main([*command, *([] if "--out" in command else ["--out", "out"])])
    printed = capsys.readouterr()
    with pytest.raises(harness.UserError) as raised:
        call(Path("out"))
    assert end.value.code == 2 and printed.err == f"error: {raised.value}\n"
    assert capsys.readouterr() == ("", "") and sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"set": 5}, "settings are given as"),
        ({"methods": None}, "methods are names or paths"),
        ({"methods": []}, "methods are names or paths"),
        ({"out": None}, "out must be a folder"),
        ({"cpus_per_trial": float("inf")}, "cpus_per_trial must be a number above 0"),
        ({"max_cost": float("nan")}, "max_cost must be a number above 0"),
        ({"set": {"depth.max": {1, 2}}}, "depth.max"),
    ],
)
def test_what_only_python_can_get_wrong_is_one_sentence_too(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(harness.UserError, match=said) as raised:
        harness.run("quickstart", **asked)
    assert "\n" not in str(raised.value)


def test_numbers_of_numpy_and_paths_are_taken() -> None:
    space = space_of("quickstart", {"depth.max": np.int64(3), "training.lr": np.float32(0.5)})
    assert (space.depth.max, space.training.lr) == (3, 0.5)
    assert RunOptions.of(workers=np.int64(2)).workers == 2


def test_the_remedy_names_the_space_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(harness.UserError, match=r"`harness run 'my space\.yaml' --out ") as raised:
        harness.load_results("my space.yaml", tmp_path / "no such")
    assert "of 'my space'" in str(raised.value)


def test_what_went_wrong_shows(results: api.Results) -> None:
    bad = replace(results, failures={"grid/seed-0": "its <final> task failed"}, unfinished=("asha/seed-1",))
    assert len(bad.went_wrong) == 2 and "grid/seed-0 failed" in repr(bad)
    assert "its &lt;final&gt; task failed" in bad._repr_html_()
    assert "resumes" in replace(results, interrupted=True).went_wrong[0]


def test_an_empty_frame_has_its_columns() -> None:
    from harness.reporting.frames import unit_frame

    assert {"method", "seed", "test_accuracy"} <= set(unit_frame([]).columns)


@pytest.mark.slow
def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, make_units(("grid", "ldn"), range(2)))
    results = harness.load_results("synthetic", tmp_path)
    harness.compare(results)
    harness.report(results)
    results.frame(), results.trials(), results.verdicts()
    assert capfd.readouterr() == ("", "")


# --- a real run ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_runs_in_one_process(no_ray: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = harness.run("quickstart", ["ldn", "deepest"], set=QUICK, epochs=20, out=tmp_path, workers=1)
    assert sorted(first.frame().method) == ["deepest", "ldn"] and first.tracked
    assert (first.failures, first.unfinished, first.interrupted, first.warnings) == ({}, (), False, ())
    second = harness.run("quickstart", "ldn,deepest", range(2), set=QUICK, epochs=20, out=tmp_path, workers=1)
    assert len(second.frame()) == 4
    same = second.frame().set_index(["method", "seed"]).loc[("ldn", 0)]
    assert same.to_dict() == first.frame().set_index(["method", "seed"]).loc[("ldn", 0)].to_dict(), "trained again"
    x = np.random.default_rng(0).standard_normal((5, 2))
    assert set(second.model("ldn", seed=1).predict(x)) <= {0, 1}
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_mlflow_that_fails_is_a_warning_of_the_results(
    one_ray: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    uri = f"sqlite:///{tmp_path}/there/is/a/file/mlflow.db"
    (tmp_path / "there").write_text("no folder")
    results = harness.run("quickstart", "deepest", set=QUICK, epochs=20, out=tmp_path / "out", tracking_uri=uri)
    [warning] = results.warnings
    assert "could not be written" in warning and not results.tracked
    assert len(results.frame()) == 1 and capfd.readouterr().out == ""


@pytest.mark.slow
def test_a_command_reads_once_and_compares_once(one_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for module, name in (("harness.running.store", "read_units"), ("harness.comparing", "compare")):
        _count(monkeypatch, module, name, calls)
    settings = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")] + ["--workers", "1"]
    with pytest.raises(SystemExit) as end:
        main(["run", "quickstart", "--methods", "ldn,deepest", "--epochs", "20", "--out", str(tmp_path), *settings])
    assert end.value.code == 0 and sorted(calls) == ["compare", "read_units"]
    assert (tmp_path / "quickstart" / "report.html").exists()
