"""What a storage has of the results: at every moment enough to continue from, on a machine that has nothing else.

Trials are made up, and a run is killed between any two steps; moto's server stands in for S3.
"""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import api
from harness.backends.one_writer import Writer, only_writer
from harness.backends.storage import Storage
from harness.errors import MachineError, UserError
from harness.replaying.rehearsal import rehearse
from harness.running import mirror
from harness.running.ledger import Reported
from harness.running.messages import MODEL, ROWS
from harness.running.mirror import Mirror, fetch, kept_spaces
from harness.running.store import UnitFolder, declare_looks, note_looks, read_looks, read_units
from harness.running.unit import RunningUnit
from harness.text.files import write_atomically
from tests import s3
from tests.rehearsed import make_unit, run

SPACE, METHOD = "small", "asha"
UNIT = f"{SPACE}/{METHOD}/seed-0"


@pytest.fixture(autouse=True)
def noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.backends.one_writer.NOTICE_SECONDS", 0.0)


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "folder":
        yield Storage(f"file://{tmp_path}/storage")
    else:
        with s3.bucket() as bucket:
            yield Storage(bucket.uri)


class Driver:
    """A machine with a folder of its own that runs the unit, told when to send, and killed when the test says so."""

    def __init__(self, out: Path, storage: Storage, *, fresh: bool = False) -> None:
        self.told: list[str] = []
        self.arrived = fetch(storage, out, [SPACE], skip=[UNIT] if fresh else [])
        self.unit: RunningUnit = make_unit(out, METHOD)
        if fresh:
            self.unit.folder.claim(self.unit.plan, fresh=True)
        self.mirror = Mirror(storage, out, Writer(False, self.told.append), self.told.append)
        self.mirror.follow(self.unit.folder, self.arrived)

    def go_on(self, max_steps: int | None = None) -> int:
        return rehearse([self.unit], max_steps=max_steps)

    def send(self) -> None:
        self.mirror.look(all_of_it=True)
        assert self.told == []


def seen(out: Path) -> dict[str, Any]:
    """All that a comparison reads of the unit, without the times of the machine and its random ids."""
    [unit], problems = read_units(out, SPACE)
    assert problems == [] and unit.result
    records = [trial.model_dump(exclude={"started_at", "ended_at", "attempts", "cost"}) for trial in unit.trials]
    for record in records:
        record["curve"] = [{**point, "device_seconds": 0.0} for point in record["curve"]]
    return {"plan": unit.plan.hash, "trials": records, "choice": (unit.result.chosen_trial, unit.result.d_opt)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int]:
    """The result, and in how many steps it comes."""
    out = tmp_path_factory.mktemp("undisturbed")
    unit = make_unit(out, METHOD)
    return (seen(out), steps) if (steps := rehearse([unit])) else ({}, 0)


def ledger(folder: Path) -> bytes:
    return (folder / UNIT / "ledger.jsonl").read_bytes()


def segments(storage: Storage) -> list[str]:
    return [key for key in storage.files(SPACE) if "/ledger." in key]


# --- a run that continues from the storage alone --------------------------------------------------------------------


def test_all_of_it_is_there_when_the_unit_has_ended(tmp_path: Path, storage: Storage) -> None:
    first = Driver(tmp_path / "first", storage)
    first.go_on()
    first.unit.folder.model_path.write_bytes(b"a network")
    first.unit.folder.rows_path.write_bytes(b"rows")
    first.send()
    pulled = fetch(storage, tmp_path / "third")
    assert pulled[UNIT].is_complete and pulled[UNIT].id == first.unit.folder.id
    there, here = tmp_path / "first" / UNIT, tmp_path / "third" / UNIT
    files = {path.name for path in there.iterdir()}
    assert files == {"plan.json", "ledger.jsonl", "trials.jsonl", "result.json", "model.pt", "rows.bin"}
    assert {name: (here / name).read_bytes() for name in files} == {name: (there / name).read_bytes() for name in files}
    assert seen(tmp_path / "third") == seen(tmp_path / "first")


@pytest.mark.parametrize("not_sent", [0, 1, 4])
def test_killed_after_any_step_with_any_of_it_sent(
    tmp_path: Path, undisturbed: tuple[dict[str, Any], int], not_sent: int
) -> None:
    """Before a line is written, between that and its upload, between two segments: a start of the ledger is there."""
    whole, steps = undisturbed
    assert steps > 12
    for killed_after in range(not_sent, steps, 3):
        base = tmp_path / str(killed_after)
        storage = Storage(f"file://{base}/storage")
        half = (killed_after - not_sent) // 2
        for number, is_sent in ((half, True), (killed_after - not_sent - half, True), (not_sent, False)):
            first = Driver(base / "first", storage)
            first.go_on(number)
            if is_sent:
                first.send()
        second = Driver(base / "second", storage)
        second.go_on()
        second.send()
        assert seen(base / "second") == whole, f"killed after {killed_after} steps, {not_sent} of them not sent"
        assert seen_from(storage, base / "third") == whole


def seen_from(storage: Storage, out: Path) -> dict[str, Any]:
    fetch(storage, out)
    return seen(out)


def test_from_host_to_host(tmp_path: Path, storage: Storage, undisturbed: tuple[dict[str, Any], int]) -> None:
    whole, steps = undisturbed
    for host in range(3):
        driver = Driver(tmp_path / str(host), storage)
        driver.go_on(steps // 4)
        driver.send()
    last = Driver(tmp_path / "0", storage)  # the first one again, which has less than the storage
    assert ledger(tmp_path / "0") == ledger(tmp_path / "2")
    last.go_on()
    last.send()
    assert seen(tmp_path / "0") == whole == seen_from(storage, tmp_path / "laptop")


@pytest.mark.parametrize("file", ["trials.jsonl", MODEL, ROWS, "result.json"])
def test_killed_between_the_files_of_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: tuple[dict[str, Any], int], file: str
) -> None:
    storage = Storage(f"file://{tmp_path}/storage")
    first = Driver(tmp_path / "first", storage)
    first.go_on()
    first.unit.folder.model_path.write_bytes(b"a network")
    first.unit.folder.rows_path.write_bytes(b"rows")
    write = Storage.write

    def killed(storage: Storage, key: str, content: bytes) -> None:
        if key.endswith(f"/{file}"):
            raise KeyboardInterrupt
        write(storage, key, content)

    monkeypatch.setattr(Storage, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        first.mirror.look(all_of_it=True)
    monkeypatch.undo()
    assert not fetch(storage, tmp_path / "pulled")[UNIT].is_complete
    assert not UnitFolder(tmp_path / "pulled", SPACE, METHOD, 0).is_complete
    again = Driver(tmp_path / "first", storage)  # the same command on the same machine sends the rest
    again.send()
    assert seen_from(storage, tmp_path / "pulled") == undisturbed[0]
    assert (tmp_path / "pulled" / UNIT / "model.pt").read_bytes() == b"a network"


def test_a_result_in_the_storage_has_all_else_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, written = Storage(f"file://{tmp_path}/storage"), []
    put = Storage.put

    def noted(storage: Storage, key: str, content: bytes) -> None:
        written.append(key.rpartition("/")[2])
        put(storage, key, content)

    driver = Driver(tmp_path / "first", storage)
    driver.go_on()
    driver.unit.folder.model_path.write_bytes(b"a network")
    monkeypatch.setattr(Storage, "put", noted)
    driver.send()
    assert written == ["plan.json", "current", "ledger.000000001.jsonl", MODEL, "trials.jsonl", "result.json"]


# --- segments -------------------------------------------------------------------------------------------------------


def test_segments_end_where_lines_end_and_are_never_written_again(tmp_path: Path, storage: Storage) -> None:
    before: dict[str, bytes | None] = {}
    driver = Driver(tmp_path / "first", storage)
    for step in range(6):
        driver = Driver(tmp_path / "first", storage) if step else driver
        driver.go_on(2)
        with (tmp_path / "first" / UNIT / "ledger.jsonl").open("ab") as file:
            file.write(b'{"event":"torn')
        driver.send()
        now = {key: storage.read(key) for key in segments(storage)}
        assert {key: now[key] for key in before} == before and len(now) > len(before)
        assert all(content and content.endswith(b"\n") for content in now.values())
        before = now
    whole = b"".join(content or b"" for content in before.values())
    assert ledger(tmp_path / "first").startswith(whole)


def test_what_goes_with_a_checkpoint_is_sent_at_once_and_the_rest_within_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = [0.0]
    monkeypatch.setattr("harness.running.mirror.time.monotonic", lambda: passed[0])
    storage = Storage(f"file://{tmp_path}/storage")
    driver = Driver(tmp_path / "first", storage)
    driver.go_on(3)
    driver.mirror.look()
    assert len(segments(storage)) == 1, "a unit that begins is there at once"
    report = next(event for event in driver.unit.folder.events() if isinstance(event, Reported))

    def report_comes(saved: bool) -> None:
        told = report.report.model_copy(update={"saved": saved})
        driver.unit.folder.append(report.model_copy(update={"report": told}))

    report_comes(saved=False)
    driver.mirror.look()
    passed[0] += mirror.LATEST_SECONDS - 2 * mirror.LOOK_SECONDS
    driver.mirror.look()
    assert len(segments(storage)) == 1
    passed[0] += mirror.LOOK_SECONDS
    driver.mirror.look()
    assert len(segments(storage)) == 2
    report_comes(saved=True)
    driver.mirror.look()
    assert len(segments(storage)) == 3


def three_segments(out: Path, storage: Storage) -> list[str]:
    driver = Driver(out, storage)
    for step in range(3):
        driver = Driver(out, storage) if step else driver
        driver.go_on(4)
        driver.send()
    return segments(storage)


def test_a_torn_last_segment_did_not_happen(
    tmp_path: Path, storage: Storage, undisturbed: tuple[dict[str, Any], int]
) -> None:
    """A file system without atomic writes can tear it; the next one begins with the line that is not whole."""
    *_, last = three_segments(tmp_path / "first", storage)
    content = storage.read(last) or b""
    storage.write(last, content[: content.rstrip(b"\n").rindex(b"\n") + 20])
    second = Driver(tmp_path / "second", storage)
    assert ledger(tmp_path / "first").startswith(ledger(tmp_path / "second"))
    second.go_on()
    second.send()
    assert seen_from(storage, tmp_path / "third") == undisturbed[0]


def test_a_missing_last_segment_did_not_happen(
    tmp_path: Path, storage: Storage, undisturbed: tuple[dict[str, Any], int]
) -> None:
    storage.remove(three_segments(tmp_path / "first", storage)[-1])
    second = Driver(tmp_path / "second", storage)
    second.go_on()
    second.send()
    assert seen_from(storage, tmp_path / "third") == undisturbed[0]


def test_a_torn_or_missing_segment_in_the_middle_is_refused(tmp_path: Path, storage: Storage) -> None:
    _, middle, last = three_segments(tmp_path / "first", storage)
    content = storage.read(middle) or b""
    storage.write(middle, content[:-5])
    sentence = (
        rf"{UNIT}.* is damaged: its ledger has \d+ lines before {last.rpartition('/')[2]}.*; put it back, or use --fr"
    )
    with pytest.raises(UserError, match=sentence):
        fetch(storage, tmp_path / "second")
    storage.remove(middle)
    with pytest.raises(UserError, match=sentence):
        fetch(storage, tmp_path / "second")
    assert not (tmp_path / "second" / UNIT).exists()


def test_a_foreign_or_changed_segment_is_refused(tmp_path: Path, storage: Storage) -> None:
    _, middle, _ = three_segments(tmp_path / "first", storage)
    other = run(tmp_path / "other", METHOD, max_steps=12)
    lines = (other.folder.path / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    ours = (storage.read(middle) or b"").splitlines()
    number = int(middle[-15:-6])
    storage.write(middle, b"".join(lines[number - 1 : number - 1 + len(ours)]))
    with pytest.raises(UserError, match=rf"the ledger of {UNIT} in the storage .* line {number} is damaged"):
        fetch(storage, tmp_path / "second")
    assert not (tmp_path / "second" / UNIT).exists()


@pytest.mark.parametrize("content", [b"", b"../../etc", b"\xff"])
def test_a_damaged_pointer_is_refused(tmp_path: Path, content: bytes) -> None:
    storage = Storage(f"file://{tmp_path}/storage")
    three_segments(tmp_path / "first", storage)
    storage.write(f"{UNIT}/current", content)
    with pytest.raises(UserError, match="is damaged: its file `current` names no search"):
        fetch(storage, tmp_path / "second")


def test_names_that_leave_the_folder_are_no_units(tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}/storage")
    for name in ("../asha/seed-0", "small/.hidden/seed-0", "small/asha/seed-x"):
        storage.write(f"x/{name}/current", b"12345678")
    assert fetch(Storage(storage.root, "x"), tmp_path / "out") == {} and not (tmp_path / "out").exists()


# --- two writers, two runs ------------------------------------------------------------------------------------------


def test_another_run_in_the_storage_is_refused_and_fresh_starts_over(tmp_path: Path, storage: Storage) -> None:
    three_segments(tmp_path / "first", storage)
    run(tmp_path / "other", METHOD, max_steps=3)
    with pytest.raises(UserError, match=rf"{UNIT} in the storage .* is another search than .*; give another --out"):
        Driver(tmp_path / "other", storage)
    fresh = Driver(tmp_path / "other", storage, fresh=True)
    fresh.go_on()
    fresh.send()
    assert fetch(storage, tmp_path / "third")[UNIT].id == fresh.unit.folder.id
    with pytest.raises(UserError, match="is another search"):
        Driver(tmp_path / "first", storage)


def test_two_runs_that_went_on_differently_are_refused(tmp_path: Path, storage: Storage) -> None:
    three_segments(tmp_path / "first", storage)
    second = Driver(tmp_path / "second", storage)
    Driver(tmp_path / "first", storage).go_on(2)
    second.unit.clock = lambda: 1e9
    second.go_on(2)
    second.send()
    with pytest.raises(UserError, match=r"went on differently after the same beginning: two runs wrote to them"):
        Driver(tmp_path / "first", storage)


def test_a_writer_that_finds_anothers_segment_stops(tmp_path: Path, storage: Storage) -> None:
    three_segments(tmp_path / "first", storage)
    first, second = Driver(tmp_path / "first", storage), Driver(tmp_path / "second", storage)
    second.go_on(4)  # further than the first: on a simulated clock both write the same lines
    second.send()
    theirs = {key: storage.read(key) for key in segments(storage)}
    first.go_on(2)
    first.mirror.look(all_of_it=True)
    with pytest.raises(MachineError, match=r"another run wrote .*/ledger\.\d+\.jsonl to the storage"):
        first.mirror._writer.check()
    assert {key: storage.read(key) for key in segments(storage)} == theirs


def test_nothing_is_sent_once_another_writes(tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}/storage")
    driver = Driver(tmp_path / "first", storage)
    driver.go_on(5)
    driver.mirror._writer.lost = "another run has taken over"
    driver.mirror.look(all_of_it=True)
    assert storage.files() == []


def test_no_line_is_written_once_another_writes(tmp_path: Path) -> None:
    with only_writer() as first:
        first.hold(str(tmp_path), SPACE)
        unit = make_unit(tmp_path, METHOD)
        unit.folder.may_write = first.check
        rehearse([unit], max_steps=3)
        before = ledger(tmp_path)
        with only_writer(take_over=True) as second:
            second.hold(str(tmp_path), SPACE)
            with pytest.raises(MachineError, match="has taken over"):
                rehearse([make_unit_of(unit, first)], max_steps=3)
        assert ledger(tmp_path) == before


def make_unit_of(unit: RunningUnit, writer: Writer) -> RunningUnit:
    again = make_unit(unit.folder.path.parents[2], METHOD)
    again.folder.may_write = writer.check
    return again


# --- what goes wrong, and what else is there ------------------------------------------------------------------------


def test_a_storage_that_is_away_ends_nothing_and_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(f"file://{tmp_path}/storage")
    driver = Driver(tmp_path / "first", storage)
    driver.go_on(5)

    def away(*_: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(Storage, "put", away)
    driver.mirror.look(all_of_it=True)
    driver.mirror.look(all_of_it=True)
    [sentence] = driver.told
    assert "cannot be written: no route to host; the run goes on" in sentence
    monkeypatch.undo()
    driver.mirror.look(all_of_it=True)
    assert len(driver.told) == 1 and len(segments(storage)) == 1


def test_looks_of_all_machines_are_kept(tmp_path: Path, storage: Storage) -> None:
    three_segments(tmp_path / "first", storage)
    declare_looks(tmp_path / "first", SPACE, (4, 8))
    note_looks(tmp_path / "first", SPACE, 5)
    Driver(tmp_path / "first", storage).send()
    note_looks(tmp_path / "second", SPACE, 6)
    fetch(storage, tmp_path / "second")
    assert read_looks(tmp_path / "second", SPACE).declared == (4, 8)
    assert read_looks(tmp_path / "second", SPACE).taken == (5, 6)


def test_pull_brings_results_and_says_what_there_is(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/storage"
    driver = Driver(tmp_path / "first", Storage(uri))
    driver.go_on()
    driver.send()
    study = Driver(tmp_path / "study", Storage(uri, "studies/max_depth-small"))
    study.go_on(3)
    study.send()
    assert kept_spaces(Storage(uri)) == [("", SPACE), ("studies/max_depth-small", SPACE)]
    for _ in range(2):
        found = api.pull(uri, out=tmp_path / "laptop")
        assert [(each.space, each.out, each.searches, each.complete) for each in found] == [
            (SPACE, tmp_path / "laptop", 1, 1),
            (SPACE, tmp_path / "laptop" / "studies/max_depth-small", 1, 0),
        ]
    assert seen(tmp_path / "laptop") == seen(tmp_path / "first")
    with pytest.raises(UserError, match=r"has no results of smal \(it has small\)"):
        api.pull(uri, ["smal"], out=tmp_path / "laptop")
    with pytest.raises(UserError, match=r"has no results \(it has none of any space\)"):
        api.pull(f"file://{tmp_path}/nothing", out=tmp_path / "laptop")
    with pytest.raises(UserError, match=r"a folder as --storage holds the results itself"):
        api.pull(str(tmp_path / "storage"), out=tmp_path / "laptop")


def test_a_laptop_that_is_full_is_told_and_the_same_command_brings_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"file://{tmp_path}/storage"
    driver = Driver(tmp_path / "first", Storage(uri))
    driver.go_on()
    driver.send()
    write = write_atomically

    def full(path: Path, content: str | bytes) -> None:
        if path.name == "trials.jsonl":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    monkeypatch.setattr("harness.running.mirror.write_atomically", full)
    with pytest.raises(MachineError, match=r"the disk that holds .*laptop is full .* the same command again"):
        api.pull(uri, out=tmp_path / "laptop")
    assert not UnitFolder(tmp_path / "laptop", SPACE, METHOD, 0).is_complete
    monkeypatch.undo()
    api.pull(uri, out=tmp_path / "laptop")
    assert seen(tmp_path / "laptop") == seen(tmp_path / "first")


def test_the_files_of_the_plan_are_those_of_the_folder(tmp_path: Path, storage: Storage) -> None:
    three_segments(tmp_path / "first", storage)
    fetch(storage, tmp_path / "second")
    plan = (tmp_path / "second" / UNIT / "plan.json").read_bytes()
    assert plan == (tmp_path / "first" / UNIT / "plan.json").read_bytes()
    assert json.loads(plan)["space"]["name"] == SPACE
