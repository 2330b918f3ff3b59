"""Recordings as one file: the same replays on another machine, and a sentence for every table that is not right."""

import gzip
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.cli import main
from harness.errors import UserError
from harness.methods import parse_methods
from harness.replaying.recorded import Recorded
from harness.replaying.searches import replay_searches
from harness.replaying.tables import read_table, shipped_tables, write_table
from harness.schema.records import Progress
from harness.spaces import load_space
from harness.text.shown import markdown_text
from tests.rehearsed import run
from tests.replaying.test_searches import record


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("recorded"))


def written(path: Path, recorded: Recorded) -> Path:
    write_table(path / "small.json.gz", recorded)
    return path / "small.json.gz"


def test_a_table_replays_as_the_folder_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "results")
    for name in ("one.json.gz", "two.json.gz"):
        with pytest.raises(SystemExit) as exit_:
            main(["export", "small", str(tmp_path / name), "--out", str(tmp_path / "results")])
        assert exit_.value.code == 0 and capsys.readouterr().out == f"{tmp_path / name}\n"
    assert (tmp_path / "one.json.gz").read_bytes() == (tmp_path / "two.json.gz").read_bytes()
    asked: dict[str, Any] = {"methods": "asha,optuna_tpe", "search_seeds": 2, "devices": (1, 2)}
    travelled = harness.replay(tmp_path / "one.json.gz", **asked)
    stayed = harness.replay("small", **asked, out=tmp_path / "results")
    assert travelled.model_copy(update={"recordings": stayed.recordings}) == stayed
    assert (travelled.recordings, stayed.recordings) == (str(tmp_path / "one.json.gz"), str(tmp_path / "results/small"))
    assert [each.method for each in travelled.methods] == ["ldn", "asha", "optuna_tpe"]


def test_a_table_names_no_machine_but_says_what_it_was_made_with(tmp_path: Path, recorded: Recorded) -> None:
    read = read_table(written(tmp_path, recorded))
    assert {each.facts.host for each in read.recordings} == {""} != {each.facts.host for each in recorded.recordings}
    assert [each.facts.environment for each in read.recordings] == [
        each.facts.environment for each in recorded.recordings
    ]
    kept = [[_without_phases(told) for told in each.progress] for each in recorded.recordings]
    assert [list(each.progress) for each in read.recordings] == kept  # every number of every report, to the bit
    assert read.space == recorded.space


def _without_phases(told: Progress) -> Progress:
    return told.model_copy(update={"cost": told.cost.model_copy(update={"phases": {}})})


def test_a_report_without_measures_survives_the_packing(tmp_path: Path, recorded: Recorded) -> None:
    """As of a trial whose loss failed: its last report is not shaped like the others."""
    failed = recorded.recordings[0]
    last = failed.progress[-1].model_copy(update={"stop_reason": "failed", "val": None, "point": None, "error": "nan"})
    changed = failed.model_copy(update={"progress": (*failed.progress[:-1], last)})
    odd = recorded.model_copy(update={"recordings": (changed, *recorded.recordings[1:])})
    assert list(read_table(written(tmp_path, odd)).recordings[0].progress) == [
        _without_phases(told) for told in changed.progress
    ]


def test_no_changed_byte_goes_unnoticed(tmp_path: Path, recorded: Recorded) -> None:
    path = written(tmp_path, recorded)
    whole = path.read_bytes()
    text = gzip.decompress(whole)
    draw, refused = random.Random(0), 0
    for _ in range(100):
        at = draw.randrange(len(whole) - 8, len(whole)) if draw.random() < 0.1 else draw.randrange(10, len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << draw.randrange(8))]) + whole[at + 1 :])
        try:
            read_table(path)
        except UserError as error:
            assert "small.json.gz" in str(error)
            refused += 1
        else:  # a few bits of gzip can be either way
            assert gzip.decompress(path.read_bytes()) == text
    assert refused > 90
    # And packed again by somebody who means well: all of the header, some of the rest.
    for at in [*range(text.index(b"\n") + 1), *(draw.randrange(len(text) - 1) for _ in range(100))]:
        path.write_bytes(gzip.compress(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]))
        with pytest.raises(UserError, match=r"small\.json\.gz"):
            read_table(path)
    path.write_bytes(whole[:-100])
    with pytest.raises(UserError, match="is damaged: it cannot be unpacked; get it again from where it came"):
        read_table(path)


def packed(path: Path, version: int, body: dict[str, Any]) -> Path:
    text = json.dumps(body)
    header = json.dumps({"table": version, "sha256": hashlib.sha256(text.encode()).hexdigest()})
    path.write_bytes(gzip.compress(f"{header}\n{text}\n".encode()))
    return path


def test_a_table_that_is_not_right_is_one_sentence(
    tmp_path: Path, recorded: Recorded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    header_and_body = gzip.decompress(written(tmp_path, recorded).read_bytes()).splitlines()
    body = json.loads(header_and_body[1])
    newer = packed(Path("newer.json.gz"), 3, body)
    other = packed(Path("fields.json.gz"), 1, {**body, "space": {}})
    first, *others = body["recordings"]
    curve = {**first, "progress": {**first["progress"], "epoch": [10]}}
    torn = packed(Path("torn.json.gz"), 1, {**body, "recordings": [curve, *others]})
    unended = {**first, "progress": {**first["progress"], "stop_reason": [None] * len(first["progress"]["epoch"])}}
    endless = packed(Path("unended.json.gz"), 1, {**body, "recordings": [unended, *others]})
    silent = packed(Path("silent.json.gz"), 1, {**body, "recordings": [{**first, "progress": []}, *others]})
    lacking = packed(Path("lacking.json.gz"), 1, {**body, "recordings": body["recordings"][:-1]})
    schedule = {**body["space"], "training": {**body["space"]["training"], "lr": 0.5}}
    foreign = packed(Path("foreign.json.gz"), 1, {**body, "space": schedule})
    Path("text.json.gz").write_text("no gzip")
    Path("json.json.gz").write_bytes(gzip.compress(b"[1, 2]\n"))
    before = sorted(tmp_path.rglob("*"))
    for table, said in {
        "nowhere.json.gz": "there is no table nowhere.json.gz; `harness export` writes one",
        "text.json.gz": "the table text.json.gz is damaged: it cannot be unpacked",
        "json.json.gz": "json.json.gz is no table of recordings",
        str(newer): "was written by a newer version of the harness (format 3, this one reads 2)",
        str(other): "is damaged: ",
        str(torn): "is damaged: it is not built like a table",
        str(endless): "is damaged: 1 invalid fields",
        str(silent): "is damaged: 1 invalid fields",
        str(lacking): "seed 1 of small has no recording of depth 4",
        str(foreign): "was made with other settings than small has",
    }.items():
        with pytest.raises(SystemExit) as exit_:
            main(["replay", table, "--methods", "grid", "--search-seeds", "1"])
        error = capsys.readouterr().err
        assert exit_.value.code == 2 and said in error and error.count("\n") == 1, error
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(UserError, match="seed 5 has no recordings of small; recorded are seeds 0, 1"):
        harness.replay(written(tmp_path, recorded), "grid", seeds=[5])


def test_a_table_with_impossible_numbers_is_refused_though_its_hash_is_right(
    tmp_path: Path, recorded: Recorded
) -> None:
    whole = json.loads(gzip.decompress(written(tmp_path, recorded).read_bytes()).splitlines()[1])
    progress = whole["recordings"][0]["progress"]

    def refused(change: dict[str, Any], said: str) -> None:
        first = {**whole["recordings"][0], "progress": {**progress, **change}}
        table = packed(tmp_path / "crafted.json.gz", 1, {**whole, "recordings": [first, *whole["recordings"][1:]]})
        with pytest.raises(UserError, match=f"crafted.json.gz is damaged: seed 0, depth 0: {said}"):
            read_table(table)

    read_table(packed(tmp_path / "as_it_is.json.gz", 1, whole))
    val, cost = progress["val"], progress["cost"]
    refused({"val": {**val, "log_likelihood": [99.0] * len(val["log_likelihood"])}}, "a log-likelihood of classes is")
    refused({"val": {**val, "accuracy": [1.5] * len(val["accuracy"])}}, "accuracy lies in 0…1, and here it is 1.5")
    refused({"cost": {**cost, "held_seconds": cost["held_seconds"][::-1]}}, "its held seconds become less")
    refused({"epoch": progress["epoch"][::-1]}, "its epochs are not in order")


def test_what_cannot_be_exported_leaves_no_file(tmp_path: Path, recorded: Recorded) -> None:
    incomplete = recorded.model_copy(update={"recordings": recorded.recordings[1:]})
    with pytest.raises(UserError, match="seed 0 of small has no recording of depth 0"):
        write_table(tmp_path / "table.json.gz", incomplete)
    with pytest.raises(UserError, match=r"a table's name ends in .json.gz; got 'table.txt'"):
        write_table(tmp_path / "table.txt", recorded)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_table(tmp_path / "file" / "table.json.gz", recorded)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# --- the tables that ship -------------------------------------------------------------------------------------------


def test_a_newcomer_replays_the_table_that_ships(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without results, or with results in which no depth was trained by itself; and it says so."""
    asked = ["replay", "quickstart", "--methods", "random_search", "--search-seeds", "1", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as exit_:
        main([*asked, "--format", "md"])
    assert exit_.value.code == 0
    said = f"Recordings: the table that ships with the harness, as {tmp_path} has none."
    assert markdown_text(said) in capsys.readouterr().out
    run(tmp_path, "ldn", load_space("quickstart", ["training.report_every=500", "training.eval_every=500"]))
    assert harness.replay("quickstart", "grid", search_seeds=1, out=tmp_path).seeds
    with pytest.raises(UserError, match="a replay needs a finished search over fixed depths that was trained"):
        harness.export("quickstart", tmp_path / "table.json.gz", out=tmp_path)  # of one's own results only


def test_the_table_that_ships_is_not_taken_for_another_space_of_its_name(tmp_path: Path) -> None:
    own = load_space("quickstart", ["training.lr=0.5"])
    with pytest.raises(UserError, match="was made with other settings than quickstart has"):
        harness.replay(own, "grid", search_seeds=1, out=tmp_path)


@pytest.mark.parametrize("name", shipped_tables())
def test_a_table_that_ships_is_whole_small_and_of_the_space_as_it_is(name: str) -> None:
    path = shipped_tables()[name]
    assert path.stat().st_size < 300_000
    recorded = read_table(path).model_copy(update={"space": load_space(name)})
    assert recorded.seeds == list(range(max(3, len(recorded.seeds)))) == list(recorded.by_seed())
    assert {each.facts.host for each in recorded.recordings} == {""}
    replay = replay_searches(recorded.with_seeds([0, 1]), parse_methods("random_search"), 2, [1])
    assert replay.regret_on == "test" and "ldn" in {each.method for each in replay.methods if each.trained}


def test_the_small_spaces_whose_data_we_have_ship_a_table() -> None:
    assert set(shipped_tables()) == {"quickstart", "digits", "mnist_small", "fashion_mnist_small"}
    assert len(read_table(shipped_tables()["quickstart"]).seeds) == 10
