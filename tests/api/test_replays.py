"""Several tables at once: each as by itself, all together over spaces, one in memory at a time, mistakes told early."""

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.cli import main
from harness.errors import UserError
from harness.measures import LOG_LIKELIHOOD
from harness.replaying import tables as tables_module
from harness.replaying.recorded import Recorded
from harness.replaying.tables import read_table, write_table
from harness.schema.records import Measures
from harness.studies.across import Replays
from tests.rehearsed import small_space
from tests.replaying.test_searches import SEEDS, record

ASKED: dict[str, Any] = {"methods": "deepest,grid,random_depth", "search_seeds": 4}
DEPTHS = {"first": 4, "second": 5, "third": 6}  # space → its deepest network
CHOSEN = {"first": 4, "second": 5, "third": 5}  # by grid: made-up trials are best there on validation


def worth(depth: int) -> float:
    return -1 + depth / 10


def measures(log_likelihood: float) -> Measures:
    return Measures(accuracy=0.9, log_likelihood=log_likelihood, ece=0.1, brier=0.2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tables of made-up trials whose test measures are known of every depth, and of the LDN in the first."""
    folder = tmp_path_factory.mktemp("tables")
    for name, deepest in DEPTHS.items():
        recorded = record(folder / "results", small_space(name=name, depth={"max": deepest}))
        tests = {f"{seed}/{depth}": measures(worth(depth)) for seed in SEEDS for depth in range(deepest + 1)}
        own = {"test": measures(-0.8) if name == "first" else None}
        one_shots = tuple(each.model_copy(update=own) for each in recorded.one_shots)
        write_table(folder / f"{name}.json.gz", recorded.model_copy(update={"tests": tests, "one_shots": one_shots}))
    return {name: folder / f"{name}.json.gz" for name in DEPTHS}


def test_each_table_as_by_itself_then_all_of_them(made: dict[str, Path]) -> None:
    found = harness.replay_across(list(made.values()), **ASKED)
    for name, replay in zip(made, found.replays, strict=True):
        assert replay == harness.replay(made[name], **ASKED), "with one table or with several"
    view = found.across
    assert (view.search, view.declared) == ("grid", ("deepest", "random_depth"))
    by_method = {each.method: each for each in view.methods}
    for (name, deepest), space, replay in zip(DEPTHS.items(), view.spaces, found.replays, strict=True):
        assert (space.space, space.depths, space.epochs, space.rows) == (name, deepest + 1, 50, 1)
        pairs = {pair.method: pair for pair in space.stage.pairs}
        gains = {method: pair.differences[LOG_LIKELIHOOD.key].mean for method, pair in pairs.items()}
        assert gains["deepest"] == pytest.approx(worth(deepest) - worth(CHOSEN[name]))
        chosen = next(each for each in replay.methods if each.method == "random_depth").on[0].depths
        mean = sum(number * worth(depth) for depth, number in chosen.items()) / sum(chosen.values())
        assert gains["random_depth"] == pytest.approx(mean - worth(CHOSEN[name]))
        assert ("ldn" in gains) == (name == "first"), "a one-shot is judged where its own network was measured"
    first = next(pair for pair in view.spaces[0].stage.pairs if pair.method == "ldn")
    assert first.differences[LOG_LIKELIHOOD.key].mean == pytest.approx(-0.8 - worth(CHOSEN["first"]))
    # Trials of fifty seconds: one of five, of six, of seven.
    assert by_method["deepest"].cost_ratio == pytest.approx(1 / 6)
    assert by_method["deepest"].regret == pytest.approx(0.0), "of 0, 0 and 0.1 gained"
    assert "deepest" in view.front
    assert not by_method["ldn"].everywhere
    assert [test.spaces for test in view.sign_tests] == [3, 3]
    assert Replays.model_validate_json(found.model_dump_json()) == found


def test_one_table_is_let_go_before_the_next(made: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[weakref.ref[Recorded]] = []

    def alone(path: Path) -> Recorded:
        gc.collect()
        assert [each() for each in read] == [None] * len(read)
        found = read_table(path)
        read.append(weakref.ref(found))
        return found

    monkeypatch.setattr(tables_module, "read_table", alone)
    harness.replay_across(list(made.values()), "deepest", search_seeds=1)
    assert len(read) == 6, "each is looked at before the first search, and read again for its own"


def test_the_command_line_shows_the_tables_and_the_view(
    made: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", *map(str, made.values()), "--methods", "deepest,grid,random_depth", "--search-seeds", "4"]
    shown = {}
    for form in ("table", "md", "json"):
        with pytest.raises(SystemExit) as end:
            main([*words, "--format", form])
        assert end.value.code == 0
        shown[form] = capsys.readouterr().out
    found = harness.replay_across(list(made.values()), **ASKED)
    assert Replays.model_validate_json(shown["json"]) == found
    assert json.loads(shown["json"])["across"]["sentence"] == found.across.sentence
    for form in ("table", "md"):
        places = [shown[form].index(f"recorded trials of {name}, 1 device") for name in made]
        over = [shown[form].index("Over spaces, every method against grid"), shown[form].index("When does it pay?")]
        assert sorted([*places, *over]) == [*places, *over]


def test_of_all_methods_none_is_tested(made: dict[str, Path]) -> None:
    """The sign test is of methods that somebody named."""
    found = harness.replay_across([made["first"], made["second"]], search_seeds=1)
    assert found.across.declared == () and found.across.sign_tests == () and len(found.across.methods) > 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["first", "second", "first"], "over spaces, each space counts once; "),
        (["first", "copy"], "over spaces, each space counts once; first is given 2 times"),
        (["first", "gone"], "there is no table gone.json.gz"),
        (["first", "quickstrat"], "there are no results of 'quickstrat' in results"),
        (["first", "second", "--figure", "all.svg"], "--figure draws one space; got 2"),
        (["first", "second", "--methods", "grid"], "over spaces, methods are held against grid; give others"),
        (["first", "second", "--seeds", "7"], "seed 7 has no recordings of first; recorded are seeds 0, 1"),
        (["first", "untested"], "no seed of untested has every depth evaluated on the test set"),
    ],
)
def test_a_mistake_in_any_of_them_is_one_sentence_before_the_first_search(
    made: dict[str, Path],
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    first = read_table(made["first"])
    write_table(tmp_path / "copy.json.gz", first)
    space = first.space.model_copy(update={"name": "untested"})
    write_table(tmp_path / "untested.json.gz", first.model_copy(update={"space": space, "tests": {}}))
    given = [str(made.get(word, f"{word}.json.gz" if word in ("copy", "gone", "untested") else word)) for word in words]
    monkeypatch.setattr("harness.replaying.searches.judged_searches", lambda *_: pytest.fail("it was searched"))
    with pytest.raises(SystemExit) as end:
        main(["replay", *given])
    error = capsys.readouterr().err
    assert end.value.code == 2 and said in error and error.count("\n") == 1, error


def test_a_method_that_cannot_be_replayed_is_refused(made: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="method ldn trains a network of its own"):
        harness.replay_across(list(made.values()), "ldn,deepest", search_seeds=1)
