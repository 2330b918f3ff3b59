"""Studies on a real Ray with logical GPUs: reproducibility, killed workers, GPU shares, a user's own method."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.tune.execution import class_cache
from ray.tune.execution.tune_controller import TuneController

from harness.backends.one_writer import only_writer
from harness.cli import main
from harness.errors import MachineError, UserError
from harness.running.ray_session import ray_session
from harness.running.store import UnitFolder
from tests.methods.test_one_shot import EXITS
from tests.methods.test_parse import MINE
from tests.replay_equals_live import differences, every_search
from tests.running.results import kill_nine, ledger, read, searches, unit_folder, wait_for, workers_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_ray")]


def test_a_second_run_on_the_same_results_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    refused = (
        rf"another is at work in .*quickstart \(process {os.getpid()} of .*\); wait until it has ended, give another"
    )
    with only_writer() as writer:
        writer.hold(str(tmp_path), "quickstart")
        with pytest.raises(UserError, match=refused):
            searches(tmp_path, "ldn")
        assert [path.name for path in tmp_path.rglob("*")] == ["quickstart", ".writer"]
    with only_writer() as writer:
        writer.hold(str(tmp_path), "quickstart")  # the first has ended
    assert list(tmp_path.rglob("*")) == [tmp_path / "quickstart"]


def test_tune_takes_workers_that_are_there() -> None:
    """It asks for an environment of their own, for which Ray would start others."""

    class Trainable:
        pass

    def asked_for() -> object:
        return class_cache._ActorClassCache().get(Trainable)._default_options.get("runtime_env")

    assert asked_for(), "Tune has changed: what ray_session does about it can go"
    with ray_session(None):
        assert not asked_for()
    assert asked_for()


def test_the_same_seed_gives_the_same_results_at_any_worker_count(tmp_path: Path) -> None:
    methods = "ldn,grid,random_search"
    one = searches(tmp_path / "one", methods, workers=1, refit=True)
    two = searches(tmp_path / "two", methods, refit=True)
    assert one.failures == two.failures == {}
    for method in methods.split(","):
        assert read(tmp_path / "one", method) == read(tmp_path / "two", method)
        assert not read(tmp_path / "two", method)["result"]["order_dependent"]
    assert all(result.most_coresident_trials == 1 for result in one.results)
    assert all((unit_folder(tmp_path / "two", method) / "model.pt").exists() for method in methods.split(","))


STOPS_ALL = """
from ray import tune
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import BasicVariantGenerator

from harness.methods.base import TIME, SearchMethod, SearchPlan


class AtThirty(FIFOScheduler):
    def on_trial_result(self, tune_controller, trial, result):
        return self.STOP if result[TIME] >= 30 else self.CONTINUE


class StopsAll(SearchMethod):
    def plan(self, space, budget, seed):
        depths = tune.grid_search([4, 1, 3])
        return SearchPlan({"depth": depths}, BasicVariantGenerator(random_state=seed), AtThirty())
"""


def test_a_replayed_search_equals_the_live_one_to_the_bit(tmp_path: Path) -> None:
    """One trial at a time, every search repeats itself, live and replayed: trials, stops, choice, test measures.

    One of them stops every trial: no network of its choice was kept, and it is trained again up to that epoch.
    """
    (tmp_path / "stops_all.py").write_text(STOPS_ALL)
    searched, own = every_search(tmp_path), str(tmp_path / "stops_all.py")
    live, replayed = tmp_path / "live", tmp_path / "replayed"
    methods, patience = ",".join([*searched.values(), own]), "training.patience=30"
    assert searches(live, ",".join([*searched, own]), patience, concurrency=1).failures == {}
    outcome = searches(replayed, methods, patience, replay=True)
    assert outcome.failures == {} and outcome.unfinished == ()
    for method, given in {**searched, "stops_all": own}.items():
        name = Path(given).stem
        assert differences(live, replayed, method, name, 0, "quickstart") == [], method
        result = read(live, method)["result"]
        assert result["concurrency"] == 1 and not result["order_dependent"]
        assert (unit_folder(replayed, name) / "model.pt").exists()
    assert differences(live, replayed, "asha", "stops_all", 0, "quickstart") == ["result", "trials", "events"]
    stopped = ledger(tmp_path / "replayed", "stops_all")
    assert [event["task"]["do"] for event in stopped if event["event"] == "suggest"][-2:] == ["retrain", "final"]
    charged = {result.method: result for result in outcome.results}
    recorded = UnitFolder(tmp_path / "replayed", "quickstart", "grid", 0).read()  # it was trained, though not asked for
    [deepest] = UnitFolder(tmp_path / "replayed", "quickstart", "deepest", 0).read().trials
    assert deepest.cost.held_seconds == pytest.approx(
        recorded.trials[4].cost.held_seconds - recorded.trials[4].cost.phases["checkpoint"], abs=1e-5
    )
    assert charged["stops_all"].cost.epochs == 3 * 30  # what was trained again is not charged
    again = searches(tmp_path / "replayed", methods, patience, replay=True)  # all complete: nothing runs
    assert again.results == outcome.results


def test_the_best_of_several_restarts_leaves_the_first_one_as_it_was(tmp_path: Path) -> None:
    """Where another restart is chosen, the deepest network of the analysis is still the one that grid trains."""
    seeds, later = (0, 1, 2), []
    assert searches(tmp_path, "deepest:restarts=3,grid", seeds=seeds).failures == {}
    for seed in seeds:
        best, grid = (read(tmp_path, method, seed)["result"] for method in ("deepest:restarts=3", "grid"))
        assert best["final"]["per_depth_test"] == grid["final"]["per_depth_test"][-1:]
        [said] = [event["report"] for event in ledger(tmp_path, "deepest:restarts=3", seed) if _is_final(event)]
        assert not said["warning"]
        later += [seed] if best["chosen_trial"] != "t000" else []
    assert later, "on no seed a later restart was the best: it shows nothing"


def _is_final(event: dict[str, Any]) -> bool:
    return event["event"] == "report" and bool(event["report"].get("final"))


def test_a_killed_worker_costs_time_and_changes_nothing(tmp_path: Path) -> None:
    long = ("depth.max=10", "training.max_epochs=4000", "training.patience=4000")
    killed: list[int] = []

    def kill_once() -> None:
        checkpoints = tmp_path / "killed" / "checkpoints" / "quickstart"
        wait_for(lambda: list(checkpoints.rglob("t000.pt")), "a checkpoint")
        seen = len(ledger(tmp_path / "killed", "ldn"))
        wait_for(lambda: len(ledger(tmp_path / "killed", "ldn")) > seen + 1, "reports after the checkpoint")
        killed.extend(workers_of(os.getpid()))
        for pid in killed:
            kill_nine(pid)

    killer = threading.Thread(target=kill_once)
    killer.start()
    [result] = searches(tmp_path / "killed", "ldn", *long).results
    killer.join()
    assert killed
    searches(tmp_path / "whole", "ldn", *long)
    assert read(tmp_path / "killed", "ldn") == read(tmp_path / "whole", "ldn")
    [trial] = UnitFolder(tmp_path / "killed", "quickstart", "ldn", 0).read().trials
    assert [attempt.ended for attempt in trial.attempts] == ["died", "finished"]
    assert trial.attempts[1].resumed_from_epoch > 0
    assert result.cost.phases["lost"] > 0
    assert sum(result.cost.phases.values()) == pytest.approx(result.cost.held_seconds)


def test_a_worker_that_dies_as_it_is_handed_on_hangs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the trial to the final evaluation, after which Tune would wait for it for ever."""
    hand_on: Any = TuneController._schedule_trial_reset
    killed: list[int] = []

    def to_a_dead_worker(controller: Any, trial: Any, *arguments: Any) -> None:
        if not killed:
            killed.extend(workers_of(os.getpid()))
            for pid in killed:
                kill_nine(pid)
        hand_on(controller, trial, *arguments)

    monkeypatch.setattr(TuneController, "_schedule_trial_reset", to_a_dead_worker)
    [result] = searches(tmp_path, "ldn").results
    assert killed
    assert [(each["event"], each["trial"]) for each in ledger(tmp_path, "ldn") if each["event"] == "died"] == [
        ("died", "final")
    ]
    assert sum(result.cost.phases.values()) == pytest.approx(result.cost.held_seconds)


def test_a_trial_that_always_dies_is_given_up_and_the_search_goes_on(tmp_path: Path) -> None:
    """Depth 2 is long, and its worker is killed at every start of it."""
    killed: list[list[int]] = []

    def starts() -> list[dict[str, Any]]:
        return [each for each in ledger(tmp_path, "grid") if each["event"] == "start" and each["trial"] == "t002"]

    def kill_twice() -> None:
        while len(killed) < 2:
            wait_for(lambda: len(starts()) > len(killed), "a start of depth 2")
            killed.append(workers_of(os.getpid()))
            for pid in killed[-1]:
                kill_nine(pid)

    killer = threading.Thread(target=kill_twice)
    killer.start()
    long = ("training.max_epochs=1000", "training.patience=1000")
    [result] = searches(tmp_path, "grid", *long, concurrency=1, max_failures=1).results
    killer.join()
    assert result.trials_by_status == {"failed": 1, "finished": 4}
    assert len(starts()) == 2
    assert result.d_opt != 2


def test_checkpoints_whose_places_are_taken_change_no_choice(tmp_path: Path) -> None:
    """By folders: no network of depths 1 to 4 can be kept. The chosen one is trained again, the others have no test."""
    out = tmp_path / "out"

    def obstruct() -> None:
        def suggested() -> list[str]:
            return [each["task"]["unit"] for each in ledger(out, "grid") if each["event"] == "suggest"]

        [unit, *_] = wait_for(suggested, "the first suggestion")
        for depth in range(1, 5):
            (out / "checkpoints" / unit / f"t00{depth}.pt").mkdir(parents=True)

    obstructor = threading.Thread(target=obstruct)
    obstructor.start()
    [result] = searches(out, "grid", concurrency=1).results
    obstructor.join()
    assert result.trials_by_status == {"finished": 5} and result.d_opt > 0
    searches(tmp_path / "whole", "grid", concurrency=1)
    taken, whole = read(out, "grid"), read(tmp_path / "whole", "grid")
    tested = [each["result"]["final"].pop("per_depth_test") for each in (taken, whole)]
    assert tested[0] == tested[1][:1] and len(tested[1]) == 5
    assert taken == whole
    done = [event["task"]["do"] for event in ledger(out, "grid") if event["event"] == "suggest"]
    assert done == ["train"] * 5 + ["retrain", "final"]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A folder on a disk of 150 kB, and what makes it large."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=150k", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk needs root: {mounted.stderr}")

    def make_room() -> None:
        subprocess.run(["mount", "-o", "remount,size=50m", str(folder)], check=True)

    yield folder, make_room
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_one_sentence_and_the_same_command_continues(
    tmp_path: Path, tiny_disk: tuple[Path, Callable[[], None]]
) -> None:
    folder, make_room = tiny_disk
    with pytest.raises(
        MachineError, match=f"the disk that holds {folder}.* is full .*the same command again: it conti"
    ):
        searches(folder, "grid", concurrency=1)
    make_room()
    [result] = searches(folder, "grid", concurrency=1).results
    assert result.trials_by_status == {"finished": 5}
    searches(tmp_path / "whole", "grid", concurrency=1)
    assert read(folder, "grid") == read(tmp_path / "whole", "grid")


def test_a_relative_path_of_ones_own_data_is_found_by_the_final_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers stand elsewhere than the user does, and open the test set themselves."""
    monkeypatch.chdir(tmp_path)
    np.savez("own.npz", x_train=np.random.default_rng(0).normal(size=(90, 2)), y_train=np.arange(90) % 3)
    outcome = searches(tmp_path / "out", "ldn", "data={kind: arrays, path: own.npz}")
    assert outcome.failures == {} and outcome.results[0].final.n_test == 18


MEETING = """
import pathlib, time
from harness.methods.ldn import LearntDepth

class Meeting(LearntDepth):
    '''Its trials wait for one another.'''

    colour = "#999999"

    def after_epoch(self, net, epoch, validation):
        here, deadline = pathlib.Path(FOLDER), time.monotonic() + 240
        (here / str(net.random.initial_seed())).touch()
        while len(list(here.iterdir())) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
"""


@pytest.mark.parametrize("gpus", [1.0, 0.25])
def test_shares_of_a_gpu_are_scheduled_and_counted(tmp_path: Path, gpus: float) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "meeting.py").write_text(MEETING.replace("FOLDER", repr(str(here))))
    results = searches(tmp_path, str(tmp_path / "meeting.py"), seeds=(0, 1, 2), gpus_per_trial=gpus).results
    assert len(results) == 3
    for result in results:
        assert result.cost.devices == gpus
        assert result.cost.device_seconds == pytest.approx(result.cost.held_seconds * gpus)
        assert result.gpus_per_trial == gpus
    assert max(result.most_coresident_trials for result in results) == 2, "there are CPUs for two"


def test_a_users_methods_stand_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A search, and a one-shot network whose file the workers do not have."""
    (tmp_path / "ends.py").write_text(MINE)
    (tmp_path / "equal_exits.py").write_text(EXITS)
    out = tmp_path / "out"
    methods = f"ldn,{tmp_path / 'ends.py'}:skip=1,{tmp_path / 'equal_exits.py'}:scale=2.0"
    outcome = searches(out, methods, seeds=(0, 1), workers=1)
    assert outcome.failures == {}
    assert [trial["depth"] for trial in read(out, "ends:skip=1")["trials"]] == [1, 4]
    [trial] = read(out, "equal_exits:scale=2.0")["trials"]
    assert trial["kind"] == "equal_exits" and len(trial["posterior"]["q"]) == 5
    with pytest.raises(SystemExit) as exit_:
        main(["compare", "quickstart", "--out", str(out), "--format", "md"])
    assert exit_.value.code == 0
    table = capsys.readouterr().out
    assert "| ends:skip=1 |" in table and "| equal\\_exits:scale=2.0 |" in table
