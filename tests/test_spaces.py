import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.errors import UserError
from harness.schema.settings import Margins, SearchSpace
from harness.spaces import SHIPPED, known_spaces, load_space

SPACE: dict[str, Any] = {
    "description": "A space of a test.",
    "data": {"kind": "spirals"},
    "network": {"kind": "fc", "width": 20},
    "depth": {"min": 0, "max": 4},
    "posterior": {"rule": "argmax"},
    "training": {"max_epochs": 10, "patience": 5},
}


def _write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def mine(tmp_path: Path) -> str:
    return _write(tmp_path, yaml.safe_dump(SPACE))


def test_defaults(mine: str) -> None:
    space = load_space(mine)
    assert space.name == "mine"
    assert space.depth.values == (0, 1, 2, 3, 4)
    assert (space.budget.trials, space.budget.early_stopping_trials) == (3, 5)  # half rounded up, and all
    assert (space.training.lr, space.training.momentum, space.training.batch_size) == (0.1, 0.5, 512)
    assert space.posterior.prior.model_dump() == {"kind": "exponential", "gamma": 0.85}
    assert space.margins.model_dump() == {"accuracy": 0.01, "log_likelihood": 0.05, "ece": 0.02}


def test_a_minimal_space_has_data_network_and_depth(tmp_path: Path) -> None:
    """What it does not say are the defaults that the sentences of the settings state."""
    minimal = {key: SPACE[key] for key in ("data", "network", "depth")}
    space = load_space(_write(tmp_path, yaml.safe_dump(minimal)))
    training = space.training
    assert (training.max_epochs, training.patience, training.lr_drop_epoch) == (60, 60, 40)
    assert (space.posterior.rule, space.description) == ("threshold", "")
    longer = load_space(str(tmp_path / "mine.yaml"), ["training.max_epochs=90"]).training
    assert (longer.max_epochs, longer.patience, longer.lr_drop_epoch) == (90, 90, None), "its length was chosen"
    other = load_space(str(tmp_path / "mine.yaml"), ["training.lr_drop_epoch=null"]).training
    assert (other.max_epochs, other.lr_drop_epoch) == (60, None)


def test_a_space_is_frozen_and_survives_json(mine: str) -> None:
    space = load_space(mine, ["posterior.prior={kind: explicit, probabilities: [0.2, 0.2, 0.2, 0.2, 0.2]}"])
    assert SearchSpace.model_validate_json(space.model_dump_json()) == space
    with pytest.raises(ValueError, match="frozen"):
        space.training.lr = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("name", sorted(known_spaces()))
def test_shipped_spaces_load(name: str) -> None:
    space = load_space(name)
    assert space.name == name and space.description.endswith(".")


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.yaml")))
def test_shipped_spaces_state_every_margin_and_why(name: str) -> None:
    lines = (SHIPPED / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    [place] = [place for place, line in enumerate(lines) if line.startswith("margins: ")]
    assert yaml.safe_load(lines[place])["margins"].keys() == Margins.model_fields.keys()
    assert lines[place - 1].startswith("# ")


def test_shipped_spaces_hold_what_the_issue_says() -> None:
    quick, paper, deep = (load_space(name) for name in ("quickstart", "spirals", "spirals_d50"))
    training = quick.training
    assert quick.depth.values == tuple(range(11)) and quick.budget.trials == 6
    assert (training.max_epochs, training.monitor, training.patience, training.eval_every, training.min_delta) == (
        1000,
        "val_objective",
        200,
        20,
        1e-4,
    )
    for space, largest in ((paper, 20), (deep, 50)):
        training = space.training
        assert space.depth.max == largest
        assert (training.max_epochs, training.monitor, training.patience, training.min_delta) == (
            8000,
            "train_objective",
            500,
            0.0,
        )


# --- where a name leads -------------------------------------------------------------------------------------------


def test_a_name_in_the_working_folder_wins_over_a_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_space("quickstart").depth.max == 10
    Path("search_spaces").mkdir()
    Path("search_spaces/quickstart.yaml").write_text(yaml.safe_dump(SPACE))
    assert load_space("quickstart").depth.max == 4
    assert load_space("spirals").depth.max == 20


# --- overrides ----------------------------------------------------------------------------------------------------


def test_overrides(mine: str) -> None:
    space = load_space(mine, ["training.lr=5e-2", "depth.step=2", "data={kind: digits, as_images: true}"])
    assert space.training.lr == 0.05
    assert space.depth.values == (0, 2, 4)
    assert space.data.model_dump() == {
        "kind": "digits",
        "as_images": True,
        "val_fraction": 0.1,
        "test_fraction": 0.2,
    }


def test_the_last_override_wins(mine: str) -> None:
    assert load_space(mine, ["training.lr=0.2", "training.lr=0.3"]).training.lr == 0.3


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("training.lr", "KEY.PATH=VALUE"),
        ("=3", "KEY.PATH=VALUE"),
        ("training.lr=[1", "training.lr=\\[1.*not valid YAML"),
        ("training.lr={a: 1, a: 2}", "given twice"),
        ("training.patience.x=3", "'patience' is a value, not a group of settings"),
        ("training.rl=3", "unknown key 'training.rl' \\(valid: .*, lr, "),
        ("training.lrr=3", "unknown key 'training.lrr' \\(did you mean 'training.lr'\\?\\)"),
        (
            "posterior.prior={kind: exponential, gama: 1}",
            "'posterior.prior.gama' \\(did you mean 'posterior.prior.gamma'\\?\\)",
        ),
        ("trainings.lr=3", "unknown key 'trainings'.*'training'"),
        ("training.training=3", "unknown key 'training.training' \\(valid: batch_size"),
        ("training.lr=", "training.lr should be a valid number; got None"),
    ],
)
def test_bad_overrides(mine: str, override: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as error:
        load_space(mine, [override])
    assert "\n" not in str(error.value)


# --- mistakes in the file -----------------------------------------------------------------------------------------


def _changed(**groups: Any) -> str:
    return json.dumps({**SPACE, **groups})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (_changed(trainign={}), "unknown key 'trainign' \\(did you mean 'training'\\?\\)"),
        (
            _changed(training={**SPACE["training"], "patiense": 3}),
            "'training.patiense' \\(did you mean 'training.patience'",
        ),
        (_changed(data={"kind": "spirals", "n_trian": 3}), "unknown key 'data.n_trian' \\(did you mean 'data.n_train'"),
        (_changed(data={"kind": "spiral"}), "data.kind must be one of .*'spirals'.*; got 'spiral'"),
        (_changed(data={"n_train": 3}), "data.kind is required"),
        (_changed(training={"max_epochs": "ten", "patience": 5}), "training.max_epochs .*integer; got 'ten'"),
        (_changed(training={"max_epochs": 10.5, "patience": 5}), "training.max_epochs .*; got 10.5"),
        (_changed(training={"max_epochs": True, "patience": 5}), "training.max_epochs .*; got True"),
        (_changed(training={"max_epochs": 10, "patience": -5}), "training.patience .*greater than 0; got -5"),
        (_changed(margins={"ece": "MARGIN"}).replace('"MARGIN"', ".nan"), "margins.ece .*; got"),
        (
            _changed(training={"max_epochs": 10, "patience": 5, "eval_every": 2, "report_every": 3}),
            "report_every must be a multiple of training.eval_every.*got 3 and 2",
        ),
        (
            _changed(training={"max_epochs": 10, "patience": 5, "lr_drop_epoch": 10}),
            "lr_drop_epoch must come before the last epoch, training.max_epochs = 10; got 10; valid: 1 to 9, or null",
        ),
        (
            _changed(training={"max_epochs": 1, "patience": 5, "lr_drop_epoch": 3}),
            "training.max_epochs = 1; got 3; valid: null for no drop",
        ),
        (_changed(depth={"min": 5, "max": 4}), "depth.min must not exceed depth.max; got min 5, max 4"),
        (_changed(depth={"min": -1, "max": 4}), "depth.min .*greater than or equal to 0; got -1"),
        (_changed(depth={"max": 0}), "depth.max .*greater than 0; got 0"),
        (_changed(depth=[0, 4]), "depth .*object; got \\[0, 4\\]"),
        (_changed(network={"kind": "fc", "width": -20}), "network.width .*greater than 0; got -20"),
        (
            _changed(posterior={"rule": "argmax", "prior": {"kind": "explicit", "probabilities": [0.5, 0.4]}}),
            "must sum to 1; they sum to 0.9",
        ),
        (
            _changed(posterior={"rule": "argmax", "prior": {"kind": "explicit", "probabilities": [0.5, 0.5]}}),
            "depth.max \\+ 1 = 5 probabilities; got 2",
        ),
        (
            _changed(posterior={"rule": "argmax", "prior": {"kind": "explicit", "probabilities": [1.5, -0.5]}}),
            "posterior.prior.probabilities.1 .*greater than 0; got -0.5",
        ),
        (_changed(posterior={"rule": "percentile"}), "posterior.rule .*'threshold'.*; got 'percentile'"),
        (_changed(budget={"trials": 0}), "budget.trials .*greater than 0; got 0"),
        ("depth: {max: 3\n", "is not valid YAML"),
        ("depth: {max: 3}\ndepth: {max: 4}\n", "'depth' is given twice"),
        ("- 1\n- 2\n", "must hold a mapping of settings; got list"),
        ("", "must hold a mapping of settings; got NoneType"),
        ("description: 2020-01-01\n", "mine.yaml: data, network and depth are required$"),
        (
            "{data: {}, network: {width: 3}, depth: {}}\n",
            "mine.yaml: data.kind, network.kind and depth.max are required$",
        ),
        (_changed(data={"kind": "table"}), "mine.yaml: data.path and data.target are required$"),
        ("depth: &d {max: 3, more: *d}\n", "mine.yaml"),
        ("a: !!python/object:os.system {}\n", "is not valid YAML"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as error:
        load_space(_write(tmp_path, text))
    assert "\n" not in str(error.value)


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    text = _changed(depth={"max": -1}, training={"max_epochs": "x"}, data={"kind": "arrays"}, extra=1)
    with pytest.raises(UserError) as error:
        load_space(_write(tmp_path, text))
    for part in ("depth.max", "training.max_epochs", "data.path is required", "unknown key 'extra'"):
        assert part in str(error.value)


def test_an_unknown_space_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"unknown search space 'nope'.*digits.*quickstart.*spirals"):
        load_space("nope")


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00 not text", "a folder"])
def test_an_unreadable_file(tmp_path: Path, content: bytes | str | None) -> None:
    path = tmp_path / "mine.yaml"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        path.mkdir()
    with pytest.raises(UserError, match=r"cannot read .*mine\.yaml") as error:
        load_space(str(path))
    assert "\n" not in str(error.value)


def test_a_file_beside_that_is_named_without_its_ending_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loans.yaml").touch()
    with pytest.raises(UserError, match=r"unknown search space 'loans' \(did you mean the file 'loans.yaml'\?\)"):
        load_space("loans")
