"""Results of version 0.1.0, as it wrote them (tests/running/version_1), are still compared, with the same numbers."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from harness.cli import main
from harness.comparing import compare
from harness.errors import UserError
from harness.methods import facts_of, full_name, load_method
from harness.options import RunOptions
from harness.reporting.html import build_report
from harness.running.runner import make_unit
from harness.running.store import UnitFolder, read_units
from harness.schema.upgrade import upgraded_plan
from harness.spaces import load_space
from harness.tracking.writer import sync
from harness.training.model_file import load_model

VERSION_1 = Path(__file__).parent / "version_1"
SETTINGS = ("training.max_epochs=40", "depth.max=3", "training.eval_every=20")  # that it was run with


def test_finished_results_are_compared_with_the_numbers_that_version_1_gave() -> None:
    """compared.json is what its `harness compare --format json` said; the words of the verdicts have changed since."""
    units, problems = read_units(VERSION_1, "quickstart")
    comparison = compare(units, "ldn")
    expected = json.loads((VERSION_1 / "compared.json").read_text())
    assert problems == []
    rows = {
        row.method: {key: row.values[key].mean for key in expected["rows"]["ldn"]} for row in comparison.search.rows
    }
    assert rows == expected["rows"]
    for pair in comparison.search.pairs:
        known = expected["pairs"][pair.baseline]
        assert {key: pair.cost_ratios[key].mean for key in known["cost_ratios"]} == known["cost_ratios"]
        assert {key: pair.differences[key].mean for key in known["differences"]} == known["differences"]
        assert known["verdicts"].keys() <= pair.verdicts.keys()
        assert {said.outcome for said in pair.verdicts.values()} == {"too few seeds"}, (
            "version 1 had words for any number"
        )
    for item in comparison.equal_quality:
        both = [list(item.baseline_reaches.device_seconds), list(item.reference_reaches.device_seconds)]
        assert both == expected["equal_quality"][item.baseline]
    clock = {item.method: {str(w): value for w, value in item.seconds.items()} for item in comparison.wall_clock}
    assert clock == expected["wall_clock"]


def test_settings_that_came_later_leave_its_hashes_alone() -> None:
    """Else every old trial would differ from its plan, and every old checkpoint from its trial."""
    for unit in read_units(VERSION_1, "quickstart")[0]:
        assert unit.trials and unit.result
        assert all(trial.config_hash == unit.plan.trial_config(trial.depth).hash for trial in unit.trials)
        assert unit.result.final.floor is None


def test_a_plan_of_version_1_gets_the_facts_that_its_method_declares() -> None:
    facts = {unit.plan.method: unit.plan.facts for unit in read_units(VERSION_1, "quickstart")[0]}
    assert facts == {name: load_method(name)[1].facts() for name in ("ldn", "grid", "random_search")}


def test_a_plan_that_does_not_say_what_a_name_is_short_for_is_told() -> None:
    plan = {"version": 3, "method": "asha:grace_epochs=20", "facts": {"colour": None}}
    for method, known in {"asha:grace_epochs=20": "asynchronous successive halving", "mine": None}.items():
        facts = upgraded_plan(plan | {"method": method}, full_name, facts_of)["facts"]
        assert facts == {"colour": None, "full_name": known}
    told = plan | {"facts": {"full_name": None}}
    assert upgraded_plan(told, full_name, facts_of) == told


def test_of_a_users_own_method_nothing_is_assumed(tmp_path: Path) -> None:
    mine = tmp_path / "quickstart" / "mine" / "seed-0"
    shutil.copytree(VERSION_1 / "quickstart" / "grid" / "seed-0", mine)
    plan = json.loads((mine / "plan.json").read_text())
    (mine / "plan.json").write_text(json.dumps(plan | {"method": "mine"}))
    renamed = UnitFolder(tmp_path, "quickstart", "mine", 0).read_plan()
    result = json.loads((mine / "result.json").read_text())
    assert renamed is not None
    (mine / "result.json").write_text(json.dumps(result | {"method": "mine", "plan_hash": renamed.hash}))
    [unit], _ = read_units(tmp_path, "quickstart")
    assert unit.plan.facts.adaptive and unit.plan.facts.ordered and not unit.plan.facts.exhaustive


def test_a_finished_search_of_version_1_counts_as_done_and_an_unfinished_one_is_refused(tmp_path: Path) -> None:
    shutil.copytree(VERSION_1 / "quickstart", tmp_path / "quickstart")
    space = load_space("quickstart", SETTINGS)
    unit = make_unit(space, *load_method("grid"), seed=0, options=RunOptions(out=tmp_path))
    unit.folder.check(unit.plan)
    assert unit.folder.is_complete
    (unit.folder.path / "result.json").unlink()
    with pytest.raises(UserError, match="begun by an earlier version of the harness, and only complete searches"):
        unit.folder.check(unit.plan)


@pytest.mark.parametrize(
    "path", sorted(VERSION_1.parent.glob("version_*/*/*/seed-*/model.pt")), ids=lambda path: str(path.parent)
)
def test_models_of_earlier_versions_still_predict(path: Path) -> None:
    model = load_model(path)
    assert model.row_shape == (2,)
    assert model(torch.zeros(3, 2)).exp().sum(dim=-1).tolist() == pytest.approx([1.0] * 3)


@pytest.mark.slow
def test_finished_results_are_reported_and_synced_once(tmp_path: Path) -> None:
    units, _ = read_units(VERSION_1, "quickstart")
    html = build_report(units, compare(units, "ldn"))
    assert all(method in html for method in ("ldn", "grid", "random_search")) and "</html>" in html
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    first, second = sync(units, uri), sync(units, uri)
    assert (first.written, first.warning) == (6, None) and (second.written, second.unchanged) == (0, 6)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 99}, "written by a newer version of the harness (records of version 99, this one reads up to 3)"),
        (
            {"shared_depths": True},
            "this version of the harness knows no shared_depths; read it with the one that wrote",
        ),
        ({"options": {"unheard_of": 1}}, "it is the result of other settings than plan.json has"),
    ],
    ids=["newer schema", "unknown option", "hash that does not fit"],
)
def test_what_this_version_cannot_read_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object], sentence: str
) -> None:
    shutil.copytree(Path(__file__).parent / "version_3" / "quickstart" / "grid", tmp_path / "quickstart" / "grid")
    for path in tmp_path.glob("quickstart/grid/*/plan.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SystemExit) as end:
        main(["compare", "quickstart", "--out", str(tmp_path)])
    said = capsys.readouterr().err
    assert end.value.code == 2 and sentence in said and said.count("\n") == 1
