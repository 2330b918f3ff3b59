"""Replayed searches against live ones, trial by trial: every search over depths, one trial at a time.

    python -m tests.replay_equals_live quickstart digits          seeds 0, 1, 2

Trains everything twice: once with every search live, once with `replay`. A row of the table is a method on a space; it
says on how many seeds suggestions, reports, stops, epochs, choice, d_opt, TFLOP and test measures are equal to the bit.
"""

import inspect
import sys
import tempfile
from pathlib import Path
from typing import Any

import harness
from harness.methods import RECORDER, load_method, parse_methods
from tests.running.results import ledger, read

SEEDS = (0, 1, 2)


def every_search(folder: Path) -> dict[str, str]:
    """Search → what `methods` takes for its replay. What trains every depth is the recorder: a copy is replayed."""
    searches = {row: row for row, method in parse_methods("all").items() if not method.learns_depth}
    source = inspect.getsource(inspect.getmodule(type(load_method(RECORDER)[1])))  # type: ignore[arg-type]
    trains_all = "exhaustive: ClassVar[bool] = True"
    assert source.count(trains_all) == 1
    copy = folder / "copied.py"
    copy.write_text(source.replace(trains_all, "exhaustive: ClassVar[bool] = False"))
    return {**searches, RECORDER: str(copy)}


def differences(live: Path, replayed: Path, row: str, copy: str, seed: int, space: str) -> list[str]:
    """What is not equal to the bit between a unit that was trained and one that was replayed."""
    ours, theirs = ({**read(out, name, seed, space)} for out, name in ((live, row), (replayed, copy)))
    for unit in (ours, theirs):
        for key in ("plan_hash", "method"):
            del unit["result"][key]
    found = [part for part in ours if ours[part] != theirs[part]]
    if _heard(ledger(live, row, seed, space)) != _heard(ledger(replayed, copy, seed, space)):
        found.append("events")
    return found


def _heard(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What the search was asked and told, in order, up to its choice."""
    heard: list[tuple[Any, ...]] = []
    for event in events:
        report = (event.get("report") or {}).get("progress") or {}
        what = (event.get("task") or {}).get("config", {}).get("depth"), event.get("depth"), event.get("status")
        heard.append((event["event"], event.get("trial"), *what, report.get("epoch"), report.get("val")))
        if event["event"] == "choice":
            return heard
    raise AssertionError("it has chosen nothing")


def compare(space: str, out: Path, seeds: tuple[int, ...] = SEEDS, **settings: Any) -> dict[str, list[str]]:
    """Row → its differences, each with its seed."""
    searches = every_search(out)
    live, replayed = out / "live", out / "replayed"
    harness.run(space, list(searches), seeds, concurrency=1, out=live, progress=False, **settings)
    harness.run(space, list(searches.values()), seeds, replay=True, out=replayed, progress=False, **settings)
    name = Path(space).stem
    return {
        row: [
            f"seed {seed}: {part}"
            for seed in seeds
            for part in differences(live, replayed, row, Path(given).stem, seed, name)
        ]
        for row, given in searches.items()
    }


def main(spaces: list[str]) -> int:
    wrong = 0
    print("| space | method | seeds | equal to the bit |\n| --- | --- | --- | --- |", flush=True)
    for space in spaces:
        with tempfile.TemporaryDirectory() as folder:
            for row, found in compare(space, Path(folder)).items():
                print(f"| {space} | {row} | {', '.join(map(str, SEEDS))} | {'; '.join(found) or 'yes'} |", flush=True)
                wrong += bool(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["quickstart", "digits"]))
