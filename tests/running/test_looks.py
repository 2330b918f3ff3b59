"""Verdicts looked at more than once: looks declared before the first seed, kept for good, or counted when not."""

import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from harness import api
from harness.api.planned import PlannedRun, plan_run
from harness.comparing import compare
from harness.comparing.render import verdict
from harness.errors import UserError
from harness.judging.two_keys import nominal_mean_level
from harness.measures import judged
from harness.options import RunOptions
from harness.running.runner import RunOutcome
from harness.running.store import declare_looks, note_looks, read_looks
from harness.schema.records import Looks
from harness.schema.settings import Margins
from tests import forked
from tests.comparing.test_from_disk import write
from tests.comparing.test_render import shown
from tests.running.results import command, ledger, read, set_words, small, unit_folder, wait_for
from tests.synthetic import make_space, make_units


@pytest.mark.parametrize(
    ("given", "until_verdict", "seeds", "looks"),
    [
        (None, False, 12, ()),
        (None, True, 16, (12, 16)),
        (None, True, 40, (12, 20, 40)),
        (None, True, 3, (3,)),
        ("3,6", True, 8, (3, 6)),
        ([2, 4], True, 4, (2, 4)),
    ],
)
def test_looks_as_asked_for(given: Any, until_verdict: bool, seeds: int, looks: tuple[int, ...]) -> None:
    asked = {} if given is None else {"looks": given}
    options = RunOptions.of(until_verdict=until_verdict, seeds=range(seeds), **asked)
    assert options.looks == looks


@pytest.mark.parametrize(
    ("given", "until_verdict", "seeds", "sentence"),
    [
        ("10,5", True, 20, "--looks takes numbers of seeds, at least 2 and increasing"),
        ("5,5", True, 20, "increasing"),
        ("1,5", True, 20, "at least 2"),
        ("five", True, 20, "got 'five'"),
        ("5,30", True, 20, "--looks cannot have more seeds than there are; got 30 with 20 seeds"),
        ("5", False, 20, "--until-verdict, which was not given"),
        (None, True, 1, "needs at least 2 seeds to choose from"),
    ],
)
def test_bad_looks_are_one_sentence(given: Any, until_verdict: bool, seeds: int, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        RunOptions.of(looks=given, until_verdict=until_verdict, seeds=range(seeds))


def test_looks_are_declared_once(tmp_path: Path) -> None:
    declare_looks(tmp_path, "s", (5, 10), write=False)
    assert read_looks(tmp_path, "s") == Looks()
    declare_looks(tmp_path, "s", (5, 10))
    declare_looks(tmp_path, "s", (5, 10))
    with pytest.raises(UserError, match=r"were fixed at 5, 10 seeds, and now 5, 20 are asked for; give the same"):
        declare_looks(tmp_path, "s", (5, 20))
    declare_looks(tmp_path, "s", (5, 20), fresh=True)
    assert read_looks(tmp_path, "s").all == (5, 20)


def test_seeds_added_by_hand_are_looks_too(tmp_path: Path) -> None:
    note_looks(tmp_path, "s", 0, 3)
    assert note_looks(tmp_path, "s", 3, 10).all == (3, 10)
    assert note_looks(tmp_path, "s", 10, 10).all == (3, 10)
    with pytest.raises(UserError, match="they were made at 3, 10 seeds"):
        declare_looks(tmp_path, "s", (5, 20))


def test_intervals_are_those_of_one_look_among_many() -> None:
    units = make_units(("ldn", "grid"), range(12), ldn_accuracy=-0.5, ldn_log_likelihood=-3.0)  # all is decided
    once, often = compare(units), compare(units, looks=Looks(declared=(6, 12)))
    [first], [second] = once.search.pairs, often.search.pairs
    assert 0.95 <= first.confidence < second.confidence < 1
    narrow, wide = first.differences["test_accuracy"], second.differences["test_accuracy"]
    assert (wide.half_width or 0) > (narrow.half_width or 0)
    assert any("compared 2 times, at 6 and 12 seeds, fixed in advance" in note for note in often.notes)


# --- a run that looks -------------------------------------------------------------------------------------------------


def made_up_run(out: Path, monkeypatch: pytest.MonkeyPatch, **synthetic: Any) -> list[list[int]]:
    """Units are not trained but made up; returns the seeds of every look that is taken."""
    looks: list[list[int]] = []

    def run(units: Any, options: Any, *args: Any) -> tuple[RunOutcome, bool]:
        seeds = sorted({unit.plan.seed for unit in units})
        looks.append(seeds)
        made = make_units(("ldn", "grid"), seeds, **synthetic)
        write(out, made)
        for each in {unit.plan.space.name for unit in units}:
            declare_looks(out, each, options.looks)
        return RunOutcome(tuple(made), {}, (), False), True

    monkeypatch.setattr("harness.running.run.run_and_tell", run)
    return looks


def planned(out: Path, seeds: str, **more: Any) -> PlannedRun:
    return plan_run(make_space(), RunOptions.of(methods="ldn,grid", seeds=seeds, out=out, **more))


def test_a_run_whose_first_look_decides_stops_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = made_up_run(tmp_path, monkeypatch, ldn_accuracy=-0.1, ldn_log_likelihood=-0.5, spread=0.001)
    results = planned(tmp_path, "0-19", until_verdict=True, looks="10,15,20").start()
    assert taken == [list(range(10))] and results.comparison.is_decided
    assert results.looks == Looks(declared=(10, 15, 20))


def test_an_open_question_is_looked_at_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = made_up_run(tmp_path, monkeypatch, ldn_log_likelihood=-0.025, spread=0.2)
    results = planned(tmp_path, "0-7", until_verdict=True, looks="3,8").start()
    assert [len(seeds) for seeds in taken] == [3, 8] and not results.comparison.is_decided
    assert any("compared 2 times" in note for note in results.comparison.notes)


def test_a_killed_run_decides_on_the_seeds_of_its_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds of the next look that a killed run had begun with do not count before their turn."""
    taken = made_up_run(tmp_path, monkeypatch, ldn_accuracy=-0.1, ldn_log_likelihood=-0.5, spread=0.001)
    write(tmp_path, make_units(("ldn", "grid"), [10, 11], spread=0.5))
    planned(tmp_path, "0-19", until_verdict=True, looks="10,20").start()
    assert taken == [list(range(10))]


@pytest.mark.slow
@pytest.mark.usefixtures("one_ray")
def test_a_killed_run_of_real_processes_ends_with_the_same_verdicts_at_the_same_looks(tmp_path: Path) -> None:
    """Two seeds decide nothing, so both looks are taken; the driver dies between them, while the third seed trains."""
    words = ["run", "quickstart", "--methods", "ldn,grid", "--concurrency", "1", "--workers", "1"]
    words += ["--seeds", "0-2", "--until-verdict", "--looks", "2,3"]
    words += set_words(small("depth.max=1", "budget.trials=2", "budget.early_stopping_trials=2"))
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    with tempfile.TemporaryDirectory(prefix="hl-", dir="/tmp", ignore_cleanup_errors=True) as temp:  # a short path
        driver = forked.harness(*words, "--out", str(killed), env={"RAY_TMPDIR": temp})
        try:
            wait_for(lambda: len(ledger(killed, "grid", 2)) > 3 or driver.poll() is not None, "the third seed", 900.0)
        finally:
            driver.kill()
        assert driver.wait() == -signal.SIGKILL
    assert read_looks(killed, "quickstart") == Looks(declared=(2, 3))
    assert not (unit_folder(killed, "grid", 2) / "result.json").exists()
    for out in (killed, undisturbed):
        done = command(tmp_path, *words, "--out", str(out))
        assert done.returncode == 0, done.stderr
    one, other = (api.load_results("quickstart", out).comparison for out in (killed, undisturbed))
    assert one.looks == other.looks == Looks(declared=(2, 3)) and one.seeds == other.seeds == (0, 1, 2)
    for method in ("ldn", "grid"):
        assert all(read(killed, method, seed) == read(undisturbed, method, seed) for seed in one.seeds)
    [pair], [same] = one.search.pairs, other.search.pairs
    for quality in judged(one.margins):
        verdict, undisturbed_one = pair.verdicts[quality.key], same.verdicts[quality.key]
        # How wide intervals are, and how many seeds more it needs, hang on what else is decided, the cost's verdict
        # included, which is of the clock.
        assert (verdict.outcome, verdict.advantage.mean) == (undisturbed_one.outcome, undisturbed_one.advantage.mean)


@pytest.mark.slow
@pytest.mark.usefixtures("one_ray")
def test_a_real_run_whose_first_look_decides_stops_there(tmp_path: Path) -> None:
    """Whatever the networks are worth, they are within margins as wide as these; nine of them cost more than one.

    That is of the clock, so there are enough networks and seeds for a machine that is busy with other things.
    """
    seldom = ("training.eval_every=60", "training.report_every=60")
    settings = small(*seldom, "depth.max=8", *(f"margins.{name}=100" for name in Margins.model_fields))
    results = api.run(
        "quickstart", "ldn,grid", "0-9", set=settings, out=tmp_path, until_verdict=True, looks="8,10", workers=1
    )
    assert results.comparison.is_decided and results.comparison.seeds == tuple(range(8))
    assert results.looks == Looks(declared=(8, 10))


def test_seeds_added_to_a_finished_comparison_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up_run(tmp_path, monkeypatch)
    assert planned(tmp_path, "0-2").start().comparison.looks.all == (3,)
    comparison = planned(tmp_path, "0-5").start().comparison
    assert comparison.looks.all == (3, 6)
    assert any("some of them added after a verdict had been seen" in note for note in comparison.notes)
    assert api.load_results("synthetic", tmp_path).comparison.looks == comparison.looks
    [pair] = comparison.search.pairs
    assert pair.confidence >= 1 - nominal_mean_level(0.05, (3, 6)) > 0.95
    panel = " ".join(shown(verdict(comparison), 100).replace("│", " ").split())
    assert f"({100 * pair.confidence:.3g} % interval, adjusted for 2 interim analyses)" in panel
