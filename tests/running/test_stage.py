"""What follows a one-shot's training, on made-up trials: who trains what, what it costs, what a kill leaves."""

from pathlib import Path

import pytest
import torch

from harness.comparing import compare
from harness.data import load_training_data
from harness.errors import UserError
from harness.methods import known_methods, parse_methods
from harness.options import RunOptions
from harness.replaying.rehearsal import rehearse, unimodal
from harness.running.ledger import Event, Suggested
from harness.running.messages import StageTask, TrainTask, checkpoint_key
from harness.running.result import contradictions
from harness.running.runner import _spent, make_units
from harness.running.store import UnitFolder
from harness.running.unit import RunningUnit
from harness.schema.records import FINE_TUNED, FIXED_DEPTH, Unit
from harness.schema.stage import Stage
from harness.training.checkpoints import CheckpointStore
from harness.training.model_file import load_model
from harness.training.train import best_network
from tests.rehearsed import small_space
from tests.running.results import SMALL, searches

SPACE = (*SMALL, "depth.max=5", "training.max_epochs=40", "training.lr_drop_epoch=30", "data.n_test=60")
ONE_SHOTS = [name for name, method in parse_methods("all").items() if method.learns_depth]
STAGES = ("then=retrain", "then=finetune:share=0.5", "then=top:k=3")


def units_of(out: Path, methods: str, **options: object) -> list[RunningUnit]:
    """As a run makes them: in their folders, new or to be continued."""
    units = make_units([small_space()], parse_methods(methods), [0], RunOptions(out=out, **options))  # type: ignore[arg-type]
    for unit in units:
        unit.plan = unit.folder.claim(unit.plan, fresh=False)
    return units


def run(out: Path, methods: str, slots: int = 1) -> dict[str, Unit]:
    rehearse(units := units_of(out, methods), slots=slots)
    assert all(unit.failure is None for unit in units), [unit.failure for unit in units]
    return {unit.plan.method: unit.folder.read() for unit in units}


def test_each_stage_trains_what_it_says_and_hands_over_the_best_of_it(tmp_path: Path) -> None:
    units = run(tmp_path, ",".join(f"elastic:{stage}" for stage in STAGES))
    kinds = {row: [(trial.kind, trial.depth) for trial in unit.trials[1:]] for row, unit in units.items()}
    # Made-up weights over depths are equal, so the next best ones are the smallest.
    assert list(kinds.values()) == [
        [(FIXED_DEPTH, 0)],
        [(FINE_TUNED, 0)],
        [(FIXED_DEPTH, 0), (FIXED_DEPTH, 1), (FIXED_DEPTH, 2)],
    ]
    chosen = [unit.result and (unit.result.chosen_trial, unit.result.d_opt) for unit in units.values()]
    assert chosen == [("t001", 0), ("t001", 0), ("t003", 2)]  # made-up curves are best at depth 6
    assert [unit.trials[1].cost.epochs for unit in units.values()] == [50, 25, 50]


def test_the_one_shot_is_trained_once_and_charged_to_each_row(tmp_path: Path) -> None:
    rows = ["elastic", *(f"elastic:{stage}" for stage in STAGES)]
    rehearse(units := units_of(tmp_path, ",".join([*rows, "exits:then=retrain"])), slots=2)
    results = {unit.plan.method: unit.result for unit in units}
    alone = results["elastic"]
    assert alone is not None
    for unit in units[1:]:
        assert unit.result is not None
        _, *after = unit.records()
        lent = unit.logs["t000"].task.unit == units[0].storage_key
        assert lent == (unit.plan.method_file == "elastic")
        assert unit.result.cost.held_seconds == alone.cost.held_seconds + sum(each.cost.held_seconds for each in after)
        assert sum(unit.result.cost.phases.values()) == pytest.approx(unit.result.cost.held_seconds)
    tasks = [event.task for event in units[1].folder.events() if isinstance(event, Suggested)]
    assert tasks[0].unit == units[0].storage_key  # its checkpoint
    trained_once = sum(unit.spent_device_seconds for unit in units)
    assert trained_once == _spent(unit.folder.read() for unit in units) == 50 + (50 + 25 + 3 * 50) + (50 + 50)
    assert sum(unit.device_seconds for unit in units) == trained_once + 3 * 50


@pytest.mark.parametrize(("stage", "slots"), [(STAGES[0], 1), (STAGES[1], 1), (STAGES[2], 2)])
def test_a_kill_anywhere_leaves_what_continues_to_the_same_result(tmp_path: Path, stage: str, slots: int) -> None:
    methods = f"exits,exits:{stage}"
    whole = run(tmp_path / "whole", methods, slots=slots)
    steps = rehearse(units_of(tmp_path / "count", methods), slots=slots)
    for stop in range(1, steps, 2):
        out = tmp_path / str(stop)
        rehearse(units_of(out, methods), slots=slots, max_steps=stop)
        again = run(out, methods, slots=slots)
        for row, unit in again.items():
            expected = whole[row]
            assert unit.result and expected.result
            assert (unit.result.chosen_trial, unit.result.d_opt) == (
                expected.result.chosen_trial,
                expected.result.d_opt,
            )
            assert [t.config_hash for t in unit.trials] == [t.config_hash for t in expected.trials]


def test_a_ledger_with_trials_of_another_unit_says_what_its_records_say(tmp_path: Path) -> None:
    rehearse(units := units_of(tmp_path, "exits,exits:then=top:k=2"))
    for unit in units:
        assert list(contradictions(unit.folder.read(), unit.folder.events())) == []


def test_a_row_that_is_complete_lends_to_one_that_comes_later(tmp_path: Path) -> None:
    run(tmp_path, "tempered")
    before, later = units_of(tmp_path, "tempered,tempered:then=retrain")
    rehearse([later])
    assert later.spent_device_seconds == 50
    assert later.device_seconds == 100
    assert before.folder.is_complete


def test_past_the_cost_limit_no_stage_begins_and_the_one_shot_is_handed_over(tmp_path: Path) -> None:
    [unit] = units_of(tmp_path, "exits:then=retrain")
    rehearse([unit], max_steps=4)
    [unit] = units_of(tmp_path, "exits:then=retrain")
    unit.capped = True
    rehearse([unit])
    assert unit.result
    assert (unit.result.status, unit.result.chosen_trial, len(unit.records())) == ("capped", "t000", 1)


def test_what_a_stage_adds_to_the_identity_of_a_unit_and_what_not() -> None:
    plain, retrain, tuned, other = [
        make_units([small_space()], parse_methods(row), [0], RunOptions())[0].plan
        for row in ("ldn", "ldn:then=retrain", "ldn:then=finetune", "ldn:then=finetune:share=0.3")
    ]
    assert len({plan.trial_config(6).hash for plan in (plain, retrain, tuned, other)}) == 1
    assert len({plan.hash for plan in (plain, retrain, tuned, other)}) == 4
    assert plain.options == {}
    grid = make_units([small_space()], parse_methods("grid"), [0], RunOptions())[0].plan
    assert retrain.stage_config(4).hash == grid.trial_config(4).hash
    assert len({tuned.stage_config(4).hash, other.stage_config(4).hash, grid.trial_config(4).hash}) == 3
    assert tuned.stage_config(4).one_shot == plain.trial_config(6)


@pytest.mark.parametrize(
    ("d_opt", "ranking", "k", "expected"),
    [
        (2, [0.1, 0.2, 0.3, 0.4], 1, (2,)),
        (2, [0.1, 0.2, 0.3, 0.4], 3, (2, 3, 1)),
        (0, [0.2, 0.2, 0.2], 2, (0, 1)),  # the smaller of equals
        (1, [-0.5, -0.3, -0.4], 9, (1, 2, 0)),
    ],
)
def test_the_next_best_depths(d_opt: int, ranking: list[float], k: int, expected: tuple[int, ...]) -> None:
    assert Stage(then="top", k=k).depths(d_opt, ranking) == expected


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("asha:then=retrain", "then= says what follows the one training of a one-shot method; this one is a search"),
        ("ldn:then=again", r"then should be 'retrain', 'finetune' or 'top'; got 'again'"),
        ("ldn:then=finetune:share=0", r"share should be greater than 0; got 0"),
        ("ldn:then=finetune:share=1.5", r"share should be less than or equal to 1; got 1.5"),
        ("ldn:then=top:k=0", r"k should be greater than 0; got 0"),
        ("ldn:share=0.3", "share belongs to then=finetune; got then=null"),
        ("ldn:then=retrain:k=3", "k belongs to then=top; got then=retrain"),
        ("autogrow:then=top", "then=top retrains the next best depths too, and AutoGrow has none"),
    ],
)
def test_bad_stages_are_refused_in_a_sentence(method: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_methods(method)


def test_more_depths_than_there_are_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"k must be at most the number of depths, 7 on small; got 8"):
        units_of(tmp_path, "ldn:then=top:k=8")
    assert not list(tmp_path.iterdir())


def test_an_option_of_a_stage_is_not_another_methods_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from harness.methods.base import OneShotMethod\n\n\n"
        "class Mine(OneShotMethod):\n    k: int = 3\n\n"
        "    def objective(self, net, x, y, n_train):\n        return net.log_likelihood_per_depth(x, y).mean()\n"
    )
    with pytest.raises(UserError, match=r"mine.py: k is an option of every one-shot method .* give yours another name"):
        parse_methods(str(file))


def test_every_one_shot_takes_a_stage_without_a_line_of_its_own(tmp_path: Path) -> None:
    assert set(ONE_SHOTS) <= set(known_methods())
    units = run(tmp_path, ",".join(f"{name}:then=retrain" for name in ONE_SHOTS))
    assert all(len(unit.trials) == 2 for unit in units.values())
    assert unimodal(0, 50) == units[f"{ONE_SHOTS[0]}:then=retrain"].result.val.log_likelihood  # type: ignore[union-attr]


# --- really trained ---------------------------------------------------------------------------------------------------


def trained_depths(out: Path, units: dict[str, Unit], row: str) -> dict[int, dict[str, torch.Tensor]]:
    """Depth → weights of the fixed-depth networks that a unit trained, or was told of, from their checkpoints."""
    plan = units[row].plan
    data, found = load_training_data(plan.space.data, plan.seed), {}
    for event in UnitFolder(out, plan.space.name, row, plan.seed).events():
        if isinstance(event, Suggested) and isinstance(event.task, TrainTask | StageTask):
            config = event.task.config
            with CheckpointStore(str(out / "checkpoints")).fetched(
                checkpoint_key(event.task.unit, event.task.trial)
            ) as path:
                assert path is not None
                if config.kind == FIXED_DEPTH:
                    found[config.depth] = best_network(path, config, data, torch.device("cpu")).state_dict()
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("one_ray")
@pytest.mark.parametrize("replay", [False, True])
def test_what_is_retrained_is_grids_network_of_that_depth_to_the_bit(tmp_path: Path, replay: bool) -> None:
    """For every one-shot; in a replay from grid's recordings, of which every second depth is missing here."""
    rows = [f"{name}:then=retrain" for name in ONE_SHOTS] + ["exits:then=top", "exits:then=finetune", "exits"]
    methods = ",".join([*rows, "grid"])
    settings = (*SPACE, "depth.step=2") if replay else SPACE
    outcome = searches(tmp_path, methods, *settings, replay=replay, workers=1)
    assert outcome.failures == {}
    units = {unit.plan.method: unit for unit in outcome.units}
    of_grid = trained_depths(tmp_path, units, "grid")
    every_depth = searches(tmp_path / "all", "grid", *SPACE, workers=1)
    known = trained_depths(tmp_path / "all", {"grid": every_depth.units[0]}, "grid")
    assert set(of_grid) == ({0, 2, 4} if replay else set(range(6)))
    for row in rows[:-2]:
        unit, retrained = units[row], trained_depths(tmp_path, units, row)
        assert unit.result
        assert unit.result.d_opt in retrained
        for depth, weights in retrained.items():
            assert weights.keys() == known[depth].keys()
            assert all(torch.equal(weights[name], known[depth][name]) for name in weights)
        model = load_model(UnitFolder(tmp_path, "quickstart", row, 0).model_path).network.state_dict()
        chosen = known[unit.result.d_opt]
        assert all(torch.equal(model[name], chosen[name]) for name in chosen)
        tasks = [e.task for e in UnitFolder(tmp_path, "quickstart", row, 0).events() if isinstance(e, Suggested)]
        lent = {task.config.depth for task in tasks if isinstance(task, StageTask) and "/grid/" in task.unit}
        assert lent == ({depth for depth in retrained if depth in of_grid} if replay else set())
        spent = sum(trial.cost.held_seconds for trial in unit.trials)
        assert unit.result.cost.held_seconds == pytest.approx(spent)
        assert sum(unit.result.cost.phases.values()) == pytest.approx(spent)
        assert unit.result.cost.phases["stage"] > 0
        assert unit.result.cost.tflop == pytest.approx(sum(trial.cost.tflop for trial in unit.trials))
    plain, tuned = units["exits"], units["exits:then=finetune"]
    assert plain.trials[0].val == tuned.trials[0].val
    assert tuned.trials[1].cost.epochs == 8
    assert [check for unit in outcome.units for check in contradictions(unit, _events(tmp_path, unit))] == []
    assert compare(outcome.units).fairness == ()


def _events(out: Path, unit: Unit) -> list[Event]:
    return list(UnitFolder(out, unit.plan.space.name, unit.plan.method, unit.plan.seed).events())
