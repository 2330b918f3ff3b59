"""Many searches on recorded trials: numbers worked out by hand, the same as single replays, and what is refused."""

import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import harness
from harness.cli import main
from harness.comparing.replays import Replay, Spread, as_json, as_markdown, tables
from harness.errors import UserError
from harness.methods import parse_methods
from harness.methods.base import SearchMethod, SearchPlan
from harness.options import RunOptions
from harness.replaying import rehearsal
from harness.replaying.recorded import Recorded, recorded_in
from harness.replaying.rehearsal import rehearse
from harness.replaying.searches import replay_searches
from harness.replaying.tables import read_table, shipped_tables
from harness.reporting.replays import pareto_front
from harness.running.runner import make_units
from harness.schema.records import Measures
from harness.schema.settings import Budget, SearchSpace
from tests.rehearsed import run, small_space

SPACE = small_space(depth={"max": 4}, budget={"trials": 3, "early_stopping_trials": 5})
SEEDS = (0, 1)


def record(out: Path, space: SearchSpace = SPACE, methods: str = "ldn,grid", **rehearsal: Any) -> Recorded:
    """A results folder of made-up trials, and what it holds."""
    units = make_units([space], parse_methods(methods), SEEDS, RunOptions(out=out))
    for unit in units:
        unit.folder.claim(unit.plan, fresh=False)
    rehearse(units, **rehearsal)
    return recorded_in(out, space.name)


def numbers(replay: Replay, method: str, devices: int = 1) -> Any:
    [found] = [each for each in replay.methods if each.method == method]
    return next(on for on in found.on if on.devices == devices)


def test_a_replay_of_grid_is_grid(tmp_path: Path) -> None:
    """Five trials of fifty epochs, a second each; depth 4 is the best of made-up trials."""
    replay = replay_searches(record(tmp_path), parse_methods("grid"), 3, [1, 2, 8])
    grid = numbers(replay, "grid")
    assert grid.device_seconds.mean.mean == grid.wall_seconds.mean.mean == 250
    assert (grid.trials.mean.mean, grid.epochs.mean.mean, grid.depths) == (5, 250, {4: 6})
    assert grid.regret.mean.mean == grid.device_seconds.between_search_seeds == 0
    assert [numbers(replay, "grid", devices).wall_seconds.mean.mean for devices in (2, 8)] == [150, 50]
    assert (replay.seeds, replay.search_seeds, replay.regret_on) == ((0, 1), 3, "validation")


def test_a_replay_says_whether_a_search_is_needed_where_every_depth_was_tested(tmp_path: Path) -> None:
    """From the recordings themselves, whatever is replayed; a seed of which a depth is missing is left out."""
    recorded = record(tmp_path)
    assert replay_searches(recorded, parse_methods("golden_section"), 1, [1]).headroom is None, "no test measures"
    worth = {depth: Measures(accuracy=0.9, log_likelihood=-0.5 + depth / 10, ece=0.1, brier=0.2) for depth in range(5)}
    tests = {f"{seed}/{depth}": measures for seed in SEEDS for depth, measures in worth.items()}
    found = replay_searches(recorded.model_copy(update={"tests": tests}), parse_methods("golden_section"), 1, [1])
    assert found.headroom
    rows = {row.method: row for row in found.headroom.stage.rows}
    assert rows["grid"].per_seed["test_log_likelihood"] == pytest.approx((-0.1, -0.1))
    assert rows["a random depth"].per_seed["test_log_likelihood"] == pytest.approx((-0.3, -0.3))
    assert rows["grid"].per_seed["cost_device_seconds"] == (250, 250)
    assert rows["the deepest network"].per_seed["cost_device_seconds"] == (50, 50)
    assert as_markdown(found).splitlines()[2].startswith("**Whether a search is needed is not decided")
    del tests["1/3"]
    [seed] = recorded.model_copy(update={"tests": tests}).all_depths()
    assert seed.seed == 0 and seed.chosen == 4


def test_many_searches_are_the_single_ones(tmp_path: Path) -> None:
    """With the search seed of a run, a replay costs and chooses what the run did."""
    recorded = record(tmp_path / "recorded")
    for method in ("asha", "optuna_tpe", "random_search"):
        replay = replay_searches(recorded.with_seeds([0]), parse_methods(method), 1, [1])
        live = run(tmp_path / "live", method, SPACE, concurrency=1).result
        assert live is not None
        once = numbers(replay, method)
        assert once.depths == {live.d_opt: 1} and once.trials.mean.mean == live.trials
        assert once.epochs.mean.mean == live.cost.epochs
        assert once.device_seconds.mean.mean == pytest.approx(live.cost.device_seconds)


def test_rows_users_files_and_repeats(tmp_path: Path) -> None:
    recorded = record(tmp_path)
    methods = parse_methods("asha:grace_epochs=10,asha:grace_epochs=40")
    first, second = (replay_searches(recorded, methods, 4, [1, 4]) for _ in range(2))
    assert first == second
    early, late = (numbers(first, row) for row in methods)
    assert early.device_seconds.mean.mean < late.device_seconds.mean.mean
    assert sum(early.depths.values()) == len(SEEDS) * 4


def test_one_shots_stand_beside_the_replays_as_they_ran(tmp_path: Path) -> None:
    recorded = record(tmp_path)
    assert [each.method for each in recorded.one_shots] == ["ldn", "ldn"]
    replay = replay_searches(recorded, parse_methods("grid"), 1, [1, 8])
    ldn = replay.methods[0]
    assert (ldn.method, ldn.trained, ldn.on[0].depths) == ("ldn", True, {0: 2})  # made-up posteriors are flat
    assert [on.wall_seconds.mean.mean for on in ldn.on] == [50, 50]
    worth = recorded.worth(0)[0]
    assert ldn.on[0].regret.mean.mean == pytest.approx(worth[4] - worth[0])
    with pytest.raises(UserError, match="method ldn trains a network of its own, which is in no recording"):
        replay_searches(recorded, parse_methods("ldn"), 1, [1])


def test_a_one_shot_of_another_machine_or_schedule_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its costs cannot be compared with those of the recordings."""
    record(tmp_path, methods="grid")
    elsewhere = rehearsal._FACTS.model_copy(
        update={"environment": rehearsal.MADE_UP.model_copy(update={"machine": "M2"})}
    )
    monkeypatch.setattr(rehearsal, "_FACTS", elsewhere)
    recorded = record(tmp_path, methods="ldn")
    replay = replay_searches(recorded, parse_methods("grid"), 1, [1])
    assert [each.method for each in replay.methods] == ["grid"]
    assert replay.left_out == {"ldn": "machine: M2 (ldn) / made up (grid)"}
    assert "since it differs from them: ldn (machine: M2 (ldn) / made up (grid))." in as_markdown(replay)
    record(tmp_path / "schedule", methods="grid")
    other = SPACE.model_copy(update={"training": SPACE.training.model_copy(update={"lr": 0.5})})
    recorded = record(tmp_path / "schedule", other, methods="ldn")
    assert {each.differs for each in recorded.one_shots} == {"settings of the space"}


def test_a_depth_that_no_search_may_train_has_no_regret(tmp_path: Path) -> None:
    recorded = record(tmp_path, small_space(depth={"min": 2, "max": 4}))
    assert recorded.one_shots[0].d_opt == 0
    assert [each.method for each in replay_searches(recorded, parse_methods("grid"), 1, [1]).methods] == ["grid"]


def test_regret_is_read_off_the_test_set_where_every_depth_was_evaluated_there(tmp_path: Path) -> None:
    recorded = record(tmp_path)
    values = {0: -3.0, 1: -0.5, 2: -1.0, 3: -1.5, 4: -2.0}
    tests = {
        f"{seed}/{depth}": Measures(accuracy=0.5, log_likelihood=value, ece=0.1, brier=0.1)
        for seed in SEEDS
        for depth, value in values.items()
    }
    on_test = replay_searches(recorded.model_copy(update={"tests": tests}), parse_methods("grid"), 1, [1])
    assert on_test.regret_on == "test"
    assert numbers(on_test, "grid").regret.mean.mean == pytest.approx(1.5)  # it chose 4 by validation; 1 is best


@pytest.mark.parametrize("method", ["grid", "golden_section", "deepest"])
def test_a_search_without_a_seed_is_replayed_once_and_stands_for_all(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, loaded = record(tmp_path), parse_methods(method)
    kind, planned = type(loaded[method]), list[int]()
    plan = kind.plan

    def noted(self: SearchMethod, space: SearchSpace, budget: Budget, seed: int) -> SearchPlan:
        planned.append(seed)
        return plan(self, space, budget, seed)

    monkeypatch.setattr(kind, "plan", noted)
    once, told = [], list[None]()
    for seeded in (False, True):
        monkeypatch.setattr(kind, "seeded", seeded)
        once.append(replay_searches(recorded, loaded, 3, [1, 2], lambda: told.append(None)))
    assert planned == [0] * 4 + [0, 1, 2] * 4  # two training seeds on two numbers of devices
    assert once[0] == once[1] and len(told) == 2 * 12


def test_both_parts_of_the_variance_by_hand() -> None:
    spread = Spread.of(np.array([[1.0, 3.0], [5.0, 7.0]]))
    assert spread.mean.mean == 4 and spread.mean.n == 2  # two training seeds, whatever the number of searches
    assert spread.between_training_seeds == pytest.approx(np.std([2.0, 6.0], ddof=1))
    assert spread.between_search_seeds == pytest.approx(np.sqrt(2.0))
    assert (spread.median, spread.low, spread.high) == pytest.approx((4.0, 1.6, 6.4))


# --- what is refused ------------------------------------------------------------------------------------------------


def test_a_missing_curve_is_refused_by_its_name(tmp_path: Path) -> None:
    recorded = record(tmp_path)
    without = [each for each in recorded.recordings if (each.seed, each.depth) != (1, 3)]
    broken = recorded.model_copy(update={"recordings": tuple(without)})
    with pytest.raises(UserError, match="seed 1 of small has no recording of depth 3, and what was not trained is not"):
        replay_searches(broken, parse_methods("grid"), 1, [1])
    assert replay_searches(broken.with_seeds([0]), parse_methods("grid"), 1, [1]).seeds == (0,)
    with pytest.raises(UserError, match="seed 7 has no recordings of small; recorded are seeds 0, 1"):
        recorded.with_seeds([7])


def test_recordings_of_another_schedule_are_refused(tmp_path: Path) -> None:
    recorded = record(tmp_path)
    other = SPACE.model_copy(update={"training": SPACE.training.model_copy(update={"lr": 0.5})})
    with pytest.raises(UserError, match="depth 0, seed 0, was made with other settings than small has"):
        replay_searches(recorded.model_copy(update={"space": other}), parse_methods("grid"), 1, [1])


def test_replayed_units_are_no_recordings(tmp_path: Path) -> None:
    """Only what was trained is: a replay of a replay would be a copy of a copy."""
    units = make_units([SPACE], parse_methods("random_search"), [0], RunOptions(out=tmp_path, replay=True))
    for unit in units:
        unit.folder.claim(unit.plan, fresh=False)
    rehearse(units)
    assert {each.unit for each in recorded_in(tmp_path, "small").recordings} == {units[0].storage_key}


PAUSES = """
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import BasicVariantGenerator
from ray import tune
from harness.methods.base import SearchMethod, SearchPlan

class Pausing(FIFOScheduler):
    def on_trial_result(self, tune_controller, trial, result):
        return self.PAUSE

class Pauses(SearchMethod):
    def plan(self, space, budget, seed):
        return SearchPlan({"depth": tune.grid_search([1, 2])}, BasicVariantGenerator(random_state=seed), Pausing())
"""


OTHER_METRIC = """
from ray.tune.schedulers import AsyncHyperBandScheduler
from ray.tune.search import BasicVariantGenerator
from harness.methods.base import SearchMethod, SearchPlan

class OtherMetric(SearchMethod):
    def plan(self, space, budget, seed):
        scheduler = AsyncHyperBandScheduler(metric="loss", mode="min")
        return SearchPlan({"depth": 1}, BasicVariantGenerator(random_state=seed), scheduler)
"""

TOO_DEEP = """
from ray.tune.search import BasicVariantGenerator
from harness.methods.base import SearchMethod, SearchPlan

class TooDeep(SearchMethod):
    def plan(self, space, budget, seed):
        return SearchPlan({"depth": 99}, BasicVariantGenerator(random_state=seed))
"""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--devices", "0"], "devices are different whole numbers of at least 1, as 1,2,8; got '0'"),
        (["--devices", "2,2"], "devices are different whole numbers"),
        (["--devices", "many"], "devices are different whole numbers"),
        (["--search-seeds", "0"], "search_seeds must be a whole number, at least 1; got 0"),
        (["--seeds", "9"], "seed 9 has no recordings of small; recorded are seeds 0, 1"),
        (["--figure", "replay.pdf"], "the figure must be an .svg file in a folder that exists; got 'replay.pdf'"),
        (["--figure", "nowhere/replay.svg"], "the figure must be an .svg file in a folder that exists"),
        (["--methods", "gird"], "unknown method 'gird' (did you mean 'grid'?)"),
        (["--methods", "ldn"], "method ldn trains a network of its own"),
        (
            ["--methods", "pauses.py"],
            "method pauses: its scheduler answers PAUSE to a report, and a trial can",
        ),
        (["--methods", "other_metric.py"], "the scheduler of its plan asks for 'loss', which no report carries"),
        (["--methods", "too_deep.py"], "method too_deep proposed depth 99; the space small has 0, 1, 2, 3, 4"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    tmp_path: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "results")
    for name, source in {"pauses": PAUSES, "other_metric": OTHER_METRIC, "too_deep": TOO_DEEP}.items():
        (tmp_path / f"{name}.py").write_text(source)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as exit_:
        main(["replay", "small", *options])
    printed = capsys.readouterr()
    assert exit_.value.code == 2 and printed.out == ""
    assert printed.err.startswith("error: ") and said in printed.err and printed.err.count("\n") == 1
    assert [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in str(path)] == before


def test_without_results_it_says_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are no results of 'small'"):
        harness.replay("small", out=tmp_path)
    run(tmp_path, "ldn", SPACE)
    with pytest.raises(UserError, match=r"there are no results of 'smal' in \S+ \(did you mean 'small'\?\)$"):
        harness.compare("smal", out=tmp_path)
    with pytest.raises(UserError, match="a replay needs a finished search over fixed depths that was trained"):
        harness.replay("small", out=tmp_path)


# --- what is shown --------------------------------------------------------------------------------------------------


def test_command_line_and_python_show_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path)
    replay = harness.replay("small", "asha,random_search", search_seeds=2, devices=(1, 2), out=tmp_path)
    asked = ["--methods", "asha,random_search", "--search-seeds", "2", "--devices", "1,2", "--out", str(tmp_path)]
    for form, expected in (("json", as_json(replay)), ("md", as_markdown(replay))):
        with pytest.raises(SystemExit) as exit_:
            main(["replay", "small", *asked, "--format", form])
        assert exit_.value.code == 0 and capsys.readouterr().out == expected
    assert Replay.model_validate_json(as_json(replay)) == replay
    assert "| random\\_search | replayed |" in as_markdown(replay) and "| ldn | as it ran |" in as_markdown(replay)
    assert [row["method"] for row in json.loads(as_json(replay))["methods"]] == ["ldn", "asha", "random_search"]


def test_the_figure_shows_cost_regret_and_devices(tmp_path: Path) -> None:
    record(tmp_path)
    for devices, labels in {(1, 4): {"device-seconds", "devices"}, (2,): {"device-seconds"}}.items():
        path = tmp_path / "replay.svg"
        harness.replay("small", "asha,grid", search_seeds=2, devices=devices, out=tmp_path, figure=path)
        svg = path.read_text()
        shown = {text for text in ("device-seconds", "devices") if f">{text}<" in svg}
        assert shown == labels
        assert all(f">{method}<" in svg for method in ("ldn", "asha", "grid")) and "On the Pareto front: " in svg


def test_the_pareto_front_by_hand() -> None:
    points = {"cheap": (1.0, 0.5), "good": (9.0, 0.0), "both": (3.0, 0.1), "beaten": (4.0, 0.1), "twin": (3.0, 0.1)}
    assert pareto_front(points) == ["cheap", "both", "twin", "good"]


def test_all_are_the_searches_over_fixed_depths(tmp_path: Path) -> None:
    record(tmp_path)
    replay = harness.replay("small", search_seeds=1, out=tmp_path)
    expected = [row for row, method in parse_methods("all").items() if not method.learns_depth]
    assert [each.method for each in replay.methods if not each.trained] == expected


def test_memory_does_not_grow_with_the_number_of_searches(tmp_path: Path) -> None:
    recorded, methods = record(tmp_path).with_seeds([0]), parse_methods("asha")
    kept: list[int] = []

    def held(searches: int) -> int:
        gc.collect()
        tracemalloc.start()
        replay_searches(recorded, methods, searches, [1])
        gc.collect()
        kept.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        return kept[-1]

    held(5)  # what is loaded once
    assert held(25) - held(5) < 20 * 2000  # one unit with its logs and its search would be a hundred times that


def test_the_regret_of_a_one_shot_is_that_of_its_own_network(tmp_path: Path) -> None:
    """As it ran. In a table without its measures the regret is a fixed depth's, and the caption says so."""
    recorded = read_table(shipped_tables()["quickstart"])
    method = recorded.one_shots[0].method
    older = next(each for each in replay_searches(recorded, {}, 1, [1]).methods if each.method == method)
    assert not older.own_network
    caption = tables(replay_searches(recorded, {}, 1, [1]))[0].caption
    assert "its regret is that of a stand-alone network of the depth it chose" in caption
    measured = {
        (each.method, each.seed): Measures(accuracy=0.9, log_likelihood=-0.5 - 0.01 * each.seed, ece=0.1, brier=0.1)
        for each in recorded.one_shots
    }
    runs = tuple(each.model_copy(update={"test": measured[each.method, each.seed]}) for each in recorded.one_shots)
    replay = replay_searches(recorded.model_copy(update={"one_shots": runs}), {}, 1, [1])
    found = next(each for each in replay.methods if each.method == method)
    expected = [
        max(each.log_likelihood for key, each in recorded.tests.items() if key.startswith(f"{seed}/"))
        - measured[method, seed].log_likelihood
        for seed in recorded.seeds
    ]
    assert found.own_network and found.on[0].regret.mean.mean == pytest.approx(sum(expected) / len(expected))
    assert "its regret is that of its own network" in tables(replay)[0].caption
