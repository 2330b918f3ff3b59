"""Study files: what is shipped is valid, what is wrong is refused in one sentence."""

from pathlib import Path

import pytest
import yaml

from harness.errors import UserError
from harness.methods import parse_methods
from harness.spaces import load_space
from harness.studies.definition import ScaleName, known_studies, load_study, read_study

CLAIM = {"says": "x", "paper": "y", "of": "d_opt", "at_least": 1}
SMALL = {
    "title": "a title",
    "paper": "nowhere",
    "base": "quickstart",
    "methods": "ldn",
    "figures": ["scan"],
    "claims": [{"says": "x", "paper": "y", "of": "d_opt", "at": {"depth.max": "largest"}, "at_least": 1}],
    "scales": {"small": {"vary": {"depth.max": [2, 4]}, "set": {"training.max_epochs": 60}, "seeds": 2}},
}


def written(folder: Path, **changes: object) -> str:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}))
    return str(path)


@pytest.mark.parametrize("name", sorted(known_studies()))
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_shipped_study_loads_at_both_scales(name: str, scale: ScaleName) -> None:
    study = load_study(name, scale)
    parse_methods(study.methods)
    names = [cell.space.name for cell in study.cells]
    assert len(set(names)) == len(names) >= 1
    assert study.settings.seeds >= 3
    assert scale == "paper" or study.settings.reduced, "small says what it lacks"
    assert study.claims or study.file.figures == ("readout",)


def test_cells_are_spaces_with_the_values_and_the_scales_settings(tmp_path: Path) -> None:
    study = load_study(written(tmp_path), "small", overrides=["training.lr=0.2"])
    assert [cell.space.depth.max for cell in study.cells] == [2, 4]
    assert [cell.space.name for cell in study.cells] == ["depth.max-2", "depth.max-4"]
    assert {cell.space.training.max_epochs for cell in study.cells} == {60}
    assert {cell.space.training.lr for cell in study.cells} == {0.2}
    assert study.claims[0].at == {"depth.max": 4}


def test_values_may_be_given_on_the_command_line(tmp_path: Path) -> None:
    study = load_study(written(tmp_path), "small", vary=["depth.max=3,6,9"])
    assert [cell.values for cell in study.cells] == [{"depth.max": 3}, {"depth.max": 6}, {"depth.max": 9}]


def test_a_study_like_another_has_its_networks(tmp_path: Path) -> None:
    speed, depths = load_study("speedup", "small"), load_study("image_depths", "small")
    assert speed.folder == depths.folder and speed.cells == depths.cells and speed.methods == depths.methods
    assert speed.file.figures != depths.file.figures


def test_a_base_goes_by_how_its_name_begins(tmp_path: Path) -> None:
    copy = tmp_path / "svhn_subset.yaml"
    copy.write_text((Path(__file__).parents[2] / "search_spaces" / "svhn_small.yaml").read_text())
    study = load_study("image_posterior", "small", vary=[f"base=mnist_small,{copy}"])
    assert [cell.holds({"base": "svhn"}) for cell in study.cells] == [False, True]
    assert [cell.holds({"base": "mnist"}) for cell in study.cells] == [True, False]
    assert study.cells[1].space.name == "base-svhn_subset"


def test_a_cell_that_is_its_base_is_called_like_it(tmp_path: Path) -> None:
    """Then `harness compare quickstart` reads its folder too."""
    scale = {"vary": {"base": ["quickstart", "digits"]}, "seeds": 1}
    values = {"figures": ["posterior"], "claims": []}
    study = load_study(written(tmp_path, **values, scales={"small": scale}), "small")
    assert [cell.space for cell in study.cells] == [load_space("quickstart"), load_space("digits")]
    changed = {"small": {**scale, "set": {"training.lr": 0.2}}}
    study = load_study(written(tmp_path, **values, scales=changed), "small")
    assert [cell.space.name for cell in study.cells] == ["base-quickstart", "base-digits"]


def test_one_claim_for_each_method_and_place(tmp_path: Path) -> None:
    margins = tmp_path / "strict.yaml"
    space = yaml.safe_load((Path(__file__).parents[2] / "search_spaces" / "digits.yaml").read_text())
    margins.write_text(yaml.safe_dump({**space, "margins": {"accuracy": 0.002, "ece": 0.03}}))
    claims = [
        {**CLAIM, "of": "accuracy", "methods": ["ldn", "exits"], "than": "grid", "at": {"base": "each"}},
        {**CLAIM, "of": "ece", "methods": ["ldn"], "than": "grid"},
    ]
    claims = [{**each, "at_least": None, "within_margin": True} for each in claims]
    scales = {"small": {"vary": {"base": ["quickstart", str(margins)]}, "seeds": 1}}
    file = written(tmp_path, methods="ldn,exits,grid", figures=["posterior"], claims=claims, scales=scales)
    study = load_study(file, "small")
    found = [(claim.of, claim.method, claim.at, claim.at_least, claim.at_most) for claim in study.claims]
    assert found == [
        ("accuracy", "ldn", {"base": "quickstart"}, -0.01, None),
        ("accuracy", "exits", {"base": "quickstart"}, -0.01, None),
        ("accuracy", "ldn", {"base": "strict"}, -0.002, None),
        ("accuracy", "exits", {"base": "strict"}, -0.002, None),
        ("ece", "ldn", {}, None, 0.02),  # over both: the strictest
    ]
    assert [sum(cell.holds(claim.at) for cell in study.cells) for claim in study.claims] == [1, 1, 1, 1, 2]


def test_other_methods_are_each_judged() -> None:
    own = load_study("max_depth", "small")
    both = load_study("max_depth", "small", methods="ldn,ldn_em")
    assert both.cells == own.cells and both.folder == own.folder, "what was trained before is not trained again"
    assert [claim.method for claim in own.claims] == [None] * 4
    assert [claim.method for claim in both.claims] == ["ldn", "ldn_em"] * 4
    assert [claim.says for claim in both.claims[::2]] == [claim.says for claim in own.claims]
    alone = load_study("rotation", "small", methods="ldn_em")
    assert alone.methods == "ldn_em" and {claim.method for claim in alone.claims} == {None}
    with pytest.raises(UserError, match="study rotation: figure maps shows one one-shot method; got ldn, ldn_em"):
        load_study("rotation", "small", methods="ldn,ldn_em")


def test_of_claims_that_name_their_methods_those_are_judged_that_are_asked_for() -> None:
    study = load_study("one_shot", "small", methods="ldn,exits,grid")
    assert {claim.method for claim in study.claims} == {"ldn", "exits"}
    assert {claim.than for claim in load_study("one_shot", "small", methods="ldn,exits").claims} == {None, "ldn"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"titel": "x"}, "unknown key 'titel' (did you mean 'title'?)"),
        ({"figures": ["pie"]}, "figures.0"),
        ({"methods": None}, "exactly one of `methods` and `like`"),
        ({"like": "max_depth"}, "exactly one of `methods` and `like`"),
        ({"methods": None, "like": "speedup"}, "is like speedup, which trains no networks of its own"),
        ({"base": None}, "names no base space"),
        ({"base": "quickstrat"}, "unknown search space 'quickstrat'"),
        ({"scales": {"small": {"vary": {"depth.max": [2, 2]}, "seeds": 1}}}, "vary.depth.max must list different"),
        ({"scales": {"small": {"vary": {"depth.max": [-1, 2]}, "seeds": 1}}}, "greater than 0; got -1"),
        ({"scales": {"small": {"vary": {"depth.maxx": [1, 2]}, "seeds": 1}}, "claims": []}, "unknown key 'depth.maxx'"),
        ({"scales": {}}, "has no scale 'small'"),
        ({"claims": [{"says": "x", "paper": "y", "of": "dopt", "at_least": 1}]}, "no reading 'dopt' (did you mean 'd_"),
        ({"claims": [{"says": "x", "paper": "y", "of": "d_opt"}]}, "needs at_least, at_most or both"),
        ({"claims": [{**CLAIM, "within_margin": True}]}, "at_least, at_most or both, or else within_margin"),
        ({"claims": [{**CLAIM, "at_least": None, "within_margin": True}]}, "has a margin; 'd_opt' is none"),
        ({"claims": [{**CLAIM, "ratio": True}]}, "a claim with `ratio` says `than` which method"),
        (
            {"claims": [{**CLAIM, "methods": ["ldm"]}]},
            "speaks of 'ldm', which is not among its methods (did you mean 'l",
        ),
        ({"claims": [{**CLAIM, "than": "grid"}]}, "speaks of 'grid', which is not among its methods"),
        (
            {"claims": [{"says": "x", "paper": "y", "of": "d_opt", "over": "depth.mx", "at_least": 1}]},
            "speaks of 'depth.mx', which does not vary (did you mean 'depth.max'?)",
        ),
    ],
)
def test_mistakes_in_a_study_file_are_named(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(UserError) as error:
        load_study(written(tmp_path, **changes), "small")
    assert said in str(error.value)


def test_an_unknown_study_and_a_setting_that_does_not_vary_are_refused() -> None:
    with pytest.raises(UserError, match=r"unknown study 'max_dept' .did you mean 'max_depth'"):
        read_study("max_dept")
    with pytest.raises(UserError, match=r"a setting that max_depth varies .depth.max.; got 'network.width=3'"):
        load_study("max_depth", "small", vary=["network.width=3"])
    with pytest.raises(UserError, match=r"depth.max should be greater than 0; got 0"):
        load_study("max_depth", "small", vary=["depth.max=0,5"])
