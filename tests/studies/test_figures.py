"""Figures of studies, from real tiny networks: what is drawn is what the records and the checkpoints hold."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from harness.comparing.numbers import plain
from harness.data.on_device import DeviceRows
from harness.errors import UserError
from harness.models import OneShotNet
from harness.studies.definition import Study, load_study
from harness.studies.figures import draw_figures
from harness.studies.figures.lines import cells_by_data_set, points_of, setting_of
from harness.studies.figures.planes import depths_shown, maps_of
from harness.studies.networks import TrainedNetwork, load_network
from harness.studies.readings import read
from harness.studies.results import StudyResults
from harness.studies.words import data_set_of, name_of
from harness.training.networks import chosen_network
from harness.training.train import predict
from tests.studies.trained import train_study
from tests.tiny import conv_config, images, used_network

BASE: dict[str, Any] = {
    "description": "For tests.",
    "data": {"kind": "spirals", "n_train": 40, "n_val": 20, "n_test": 60},
    "network": {"kind": "fc", "width": 4},
    "depth": {"min": 0, "max": 3},
    "posterior": {"rule": "argmax"},
    "training": {"max_epochs": 6, "patience": 50, "eval_every": 3, "report_every": 3},
}
ALL = ["posterior", "scan", "convergence", "maps", "readout", "rules", "calibration", "speedup"]


def make_study(folder: Path, vary: dict[str, Any] | None, methods: str = "ldn", figures: list[str] = ALL) -> Study:
    for name in ("mnist_like", "svhn_like"):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(BASE))
    values = {
        "title": "A study",
        "paper": "figure 9",
        "base": str(folder / "mnist_like.yaml"),
        "methods": methods,
        "figures": figures,
        "claims": [{"says": "one & only", "paper": "9 < 10", "of": "d_opt", "at_least": 0, "at_most": 3}],
        "scales": {"small": {"vary": vary or {}, "seeds": 2, "reduced": "all of it"}},
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(values))
    return load_study(str(folder / "mine.yaml"), "small")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyResults, str]:
    """Two data sets, two depths, two seeds, learnt and fixed depth: enough to fill every kind of figure."""
    folder = tmp_path_factory.mktemp("study")
    bases = [str(folder / f"{name}.yaml") for name in ("mnist_like", "svhn_like")]
    study = make_study(folder, {"base": bases, "depth.max": [1, 3]}, "ldn,deepest")
    return train_study(study, folder / "out", folder / "checkpoints", range(2)), str(folder / "checkpoints")


def part(results: StudyResults, *figures: str, cells: slice = slice(-2, None)) -> StudyResults:
    """Those figures of those cells, the second data set by default: a whole study takes long to draw."""
    study = replace(results.study, file=results.study.file.model_copy(update={"figures": figures}))
    names = [cell.space.name for cell in study.cells[cells]]
    return replace(results, study=study, units={name: results.units[name] for name in names})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("posterior", ["depth d (residual blocks)", "weight q(d)", "log-likelihood (nats)"]),
        ("scan", ["largest depth D (blocks)", "learnt depth d_opt", "test accuracy", "LDN, all depths"]),
        ("convergence", ["posterior gap", "peak of the exact posterior"]),
        ("rules", ["test error", "LDN, expected", "fixed depth D"]),
        ("calibration", ["predicted probability", "fixed depth 3", "LDN, all depths", "top label"]),
        ("speedup", ["forward-pass time saved (%)", "SVHN like", "left-out blocks alone"]),
        ("maps", ["d = 0", "d = 3", "probability of class 1", "SVHN like, D = 3"]),
        ("readout", ["SVHN like, D = 3 fixed depth", "SVHN like, D = 3 LDN", "d = 2"]),
    ],
)
def test_every_kind_says_in_words_what_it_shows(
    trained: tuple[StudyResults, str], kind: str, labels: list[str]
) -> None:
    results, storage = trained
    [drawing] = draw_figures(part(results, kind), storage)
    text = re.sub(r"<[^>]+>", " ", drawing.svg.split("</desc>")[1])
    for label in labels:
        assert label in text
    assert drawing.name == kind
    assert drawing.png.startswith(b"\x89PNG")
    assert drawing.standalone_svg.startswith("<svg width=")
    assert "nan" not in re.findall(r"[\w.]+", drawing.description)
    assert len(drawing.caption) > 60 and drawing.title


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes_in_the_studys_order(trained: tuple[StudyResults, str]) -> None:
    results, storage = trained
    asked = part(results, "speedup", "maps", cells=slice(-1, None))
    first = draw_figures(asked, storage)
    assert [drawing.name for drawing in first] == ["speedup", "maps"]
    assert draw_figures(asked, storage) == first


@pytest.mark.slow
def test_points_are_the_readings(trained: tuple[StudyResults, str]) -> None:
    results, _ = trained
    groups = cells_by_data_set(results)
    assert list(groups) == ["MNIST like", "SVHN like"]
    deepest = groups["SVHN like"][1]
    points = points_of(results, groups["SVHN like"], setting_of(results), "log_likelihood")
    assert points[3.0] == [read("log_likelihood", results.of(deepest)[seed]) for seed in range(2)]
    [drawing] = draw_figures(part(results, "scan", cells=slice(None)), "nowhere")
    assert f"{plain(float(np.mean(points[3.0])))} at 3" in drawing.description
    assert "MNIST like, test accuracy (%), LDN, all depths: " in drawing.description


@pytest.mark.slow
def test_the_best_fixed_depth_and_the_chosen_ones_are_told(tmp_path: Path) -> None:
    study = make_study(tmp_path, None, "ldn,grid", ["posterior"])
    results = train_study(study, tmp_path / "out", tmp_path / "checkpoints", [0])
    [drawing] = draw_figures(results, "nowhere")
    grid, ldn = (results.units["mnist_like"][0][method].result for method in ("grid", "ldn"))
    assert grid and ldn
    best = max(grid.final.per_depth_test, key=lambda each: each.measures.log_likelihood)
    assert f"best at depth {best.depth} with" in drawing.description
    assert f"chosen depths per seed {ldn.d_opt}," in drawing.description


@pytest.mark.slow
def test_several_one_shots_have_a_row_each_and_a_place_in_the_trade_off(tmp_path: Path) -> None:
    bases = [str(tmp_path / f"{name}.yaml") for name in ("mnist_like", "svhn_like")]
    study = make_study(tmp_path, {"base": bases}, "ldn,exits,grid", ["posterior", "tradeoff"])
    results = train_study(study, tmp_path / "out", tmp_path / "checkpoints", range(2))
    assert results.one_shots == ["ldn", "exits"]
    posterior, tradeoff = draw_figures(results, "nowhere")
    for words in ("ldn, MNIST like: q(d) peaks", "exits, MNIST like: q(d)", "exits, SVHN like: q(d)"):
        assert words in posterior.description
    cell = results.cells[0]
    own, other = (results.readings("tflop", cell, method) for method in ("exits", "grid"))
    share = plain(float(np.mean([own[seed] / other[seed] for seed in own])), 2)
    assert f"exits at {share} of the cost, " in tradeoff.description
    assert "grid at 1.0 of the cost, 0.0000 nats" in tradeoff.description
    assert {"ldn", "exits", "grid"} <= set(re.sub(r"<[^>]+>", " ", tradeoff.svg).split())
    one_shots = {
        name: {seed: {method: units[method] for method in results.one_shots} for seed, units in by_seed.items()}
        for name, by_seed in results.units.items()
    }
    [alone] = draw_figures(replace(part(results, "tradeoff"), units=one_shots), "nowhere")
    assert "No search over all depths is complete." in alone.description


@pytest.mark.slow
def test_each_one_shot_has_its_lines(tmp_path: Path) -> None:
    study = make_study(tmp_path, {"depth.max": [1, 2]}, "ldn,ldn_em", ["scan", "convergence"])
    results = train_study(study, tmp_path / "out", tmp_path / "checkpoints", [0])
    scan, convergence = draw_figures(results, "nowhere")
    for method in ("ldn", "ldn_em"):
        [d_opt] = results.readings("d_opt", results.cells[1], method).values()
        found = re.search(rf"d_opt \(blocks\), {method} pruned to d_opt: [\d.]+ at 1, ([\d.]+) at 2", scan.description)
        assert found and float(found[1]) == d_opt
        assert f"{method}: peak of the exact posterior" in re.sub(r"<[^>]+>", " ", convergence.svg)
    assert "LDN pruned to d_opt" not in scan.svg


# --- networks -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_network_from_its_checkpoint_computes_what_was_measured(trained: tuple[StudyResults, str]) -> None:
    results, storage = trained
    cell = results.cells[-1]
    units = results.units[cell.space.name][1]
    learnt, fixed = (load_network(units[method], results.out, storage) for method in ("ldn", "deepest"))
    assert learnt and fixed
    x = learnt.data.x[:7].astype(np.float64)
    rows = DeviceRows(learnt.data.x[:7], learnt.data.y[:7], learnt.data.mean, learnt.data.std, torch.device("cpu"))
    which = torch.arange(7)
    own = units["ldn"]
    assert own.result and own.trials[0].posterior
    assert isinstance(learnt.network, OneShotNet)
    assert learnt.network.posterior.log_q().exp().tolist() == pytest.approx(own.trials[0].posterior.q)
    pruned = predict(chosen_network(learnt.network, own.result.d_opt), rows, which).exp()[:, 1]
    assert learnt.marginal(x) == pytest.approx(pruned.numpy(), abs=1e-5)
    # The last depth of a fixed-depth network is the network itself.
    assert fixed.per_depth(x).shape == (4, 7)
    assert fixed.per_depth(x)[-1] == pytest.approx(predict(fixed.network, rows, which).exp()[:, 1].numpy(), abs=1e-5)
    # All depths of the learnt one, weighted, are the full network.
    weighted = np.asarray(own.trials[0].posterior.q) @ learnt.per_depth(x)
    assert weighted == pytest.approx(predict(learnt.network, rows, which).exp()[:, 1].numpy(), abs=1e-5)


@pytest.mark.slow
def test_a_checkpoint_that_is_gone_is_told_not_fatal(trained: tuple[StudyResults, str], tmp_path: Path) -> None:
    results, storage = trained
    some = tmp_path / "some"
    shutil.copytree(storage, some)
    lost = results.cells[0]
    shutil.rmtree(some / lost.space.name / "ldn")
    maps, readout = draw_figures(part(results, "maps", "readout", cells=slice(0, 4, 3)), str(some))
    assert f"No checkpoint is left of: {name_of(lost)}." in maps.caption
    assert f"No checkpoint is left of: {name_of(lost)} LDN." in readout.caption
    assert "SVHN like, D = 3: d_opt" in maps.description
    [empty] = draw_figures(part(results, "maps"), str(tmp_path / "nothing"))
    assert "No network is left to draw" in empty.description
    assert "no checkpoint is left to draw from" in empty.svg


# --- what can go wrong --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_method_that_is_missing_leaves_its_part_out(trained: tuple[StudyResults, str]) -> None:
    results, storage = trained
    whole = part(results, "posterior", "rules", "calibration", "speedup", cells=slice(-1, None))
    learnt = {
        cell: {seed: {"ldn": units["ldn"]} for seed, units in by_seed.items()} for cell, by_seed in whole.units.items()
    }
    posterior, rules, calibration, speedup = draw_figures(replace(whole, units=learnt), storage)
    assert "stand-alone networks are best" not in posterior.description
    assert "fixed depth D: not measured" in rules.description
    assert "not trained" in calibration.svg
    assert re.search(r"SVHN like: [-\d.]+ % at 3", speedup.description), "it is timed against its own D blocks"


def test_a_scan_needs_a_setting_that_varies(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="figure scan needs a setting that varies over numbers; nothing varies"):
        make_study(tmp_path, None, figures=["scan"])


def test_maps_are_of_two_inputs() -> None:
    config = conv_config()
    data = images()
    with pytest.raises(UserError, match=r"two inputs; these samples have shape \(2, 8, 8\)"):
        maps_of(TrainedNetwork(used_network(config, data), data, d_opt=1), [0])


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("fashion_mnist_small", "Fashion-MNIST small"),
        ("mnist", "MNIST"),
        ("docs/spaces/svhn_subset.yaml", "SVHN subset"),
        ("my_own", "my own"),
    ],
)
def test_data_sets_by_name(base: str, words: str) -> None:
    assert data_set_of(base) == words


def test_depths_shown_begin_and_end_with_the_network() -> None:
    assert depths_shown(20, 7) == [0, 1, 3, 7, 10, 15, 20]
    assert depths_shown(3, 7) == [0, 1, 2, 3]
