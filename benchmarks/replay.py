"""Replays: how many searches a second, and what `run --replay` trains beyond grid and the one-shot network.

Searches are replayed on made-up recordings of quickstart, eleven depths of fifty reports each, so nothing is trained
for them; then six methods on all seeds of the table that ships with the harness. Processor time is shown, since a busy
neighbour slows a clock on the wall. The last part is a real run of quickstart with every search over depths: what it
trained, what was trained again for choices that a scheduler had stopped, and what the searches were charged, which is
what they would have trained by themselves.
"""

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import harness
from harness.methods import parse_methods
from harness.options import RunOptions
from harness.replaying.recorded import recorded_in
from harness.replaying.rehearsal import rehearse
from harness.replaying.searches import replay_searches
from harness.replaying.tables import read_table, shipped_tables
from harness.running.ledger import Died, Ended, Event, Interrupted, Reported, Started, Suggested, TrialLog
from harness.running.messages import RetrainTask
from harness.running.runner import make_units
from harness.running.store import UnitFolder
from harness.spaces import load_space

SEARCHES = 100
SIX = "grid,random_search,golden_section,asha,optuna_tpe,optuna_asha"
SEARCH_SEEDS = 200  # on each training seed


def main() -> Iterator[str]:
    searches = {row: method for row, method in parse_methods("all").items() if not method.learns_depth}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        units = make_units([load_space("quickstart")], parse_methods("grid"), [0], RunOptions(out=out))
        for unit in units:
            unit.folder.claim(unit.plan, fresh=False)
        rehearse(units)
        recorded = recorded_in(out, "quickstart")
        for row, method in searches.items():
            replay_searches(recorded, {row: method}, 1, [1])  # imports
            began, wall = time.process_time(), time.perf_counter()
            replay_searches(recorded, {row: method}, SEARCHES, [1])
            spent, waited = time.process_time() - began, time.perf_counter() - wall
            yield (
                f"{row}: {SEARCHES} searches in {spent:.2f} s of processor time ({waited:.2f} s on the wall), "
                f"{SEARCHES / spent:.0f} a second"
            )
    yield _many_on_a_table()
    with tempfile.TemporaryDirectory() as folder:
        yield from _trained(Path(folder), ["ldn", *searches])


def _many_on_a_table() -> str:
    recorded, methods = read_table(shipped_tables()["quickstart"]), parse_methods(SIX)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, wall = time.process_time(), time.perf_counter()
    replay_searches(recorded, methods, SEARCH_SEEDS, [1])
    spent, waited = time.process_time() - began, time.perf_counter() - wall
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return (
        f"{len(methods)} methods × {len(recorded.seeds)} training seeds × {SEARCH_SEEDS} search seeds from the table "
        f"that ships: {spent:.0f} s of processor time ({waited:.0f} s on the wall; goal: under 120), memory grew by "
        f"{grown:.0f} MB"
    )


def _trained(out: Path, methods: list[str]) -> Iterator[str]:
    results = harness.run("quickstart", methods, replay=True, out=out, progress=False)
    live = [unit for unit in results.finished if not unit.plan.replayed]
    replayed = [unit for unit in results.finished if unit.plan.replayed]
    trained = sum(unit.result.cost.device_seconds for unit in live if unit.result)
    charged = sum(unit.result.cost.device_seconds for unit in replayed if unit.result)
    again = sum(
        _retrained_seconds(UnitFolder(out, "quickstart", unit.plan.method, unit.plan.seed).events()) * unit.plan.devices
        for unit in replayed
    )
    names = " + ".join(unit.plan.method for unit in live)
    yield (
        f"run --replay with {len(replayed)} searches trained {trained + again:.1f} device-seconds, {names} alone "
        f"{trained:.1f}: {(trained + again) / trained:.3f}× (goal: at most 1.05×)"
    )
    yield f"the searches were charged {charged:.1f}: all live, it would be {(trained + charged) / trained:.2f}×"


def _retrained_seconds(events: Iterator[Event]) -> float:
    """What was trained again for the choice; it is charged to nobody."""
    log: TrialLog | None = None
    for event in events:
        if isinstance(event, Suggested) and isinstance(event.task, RetrainTask):
            log = TrialLog(event.trial, event.task, event.time)
        elif log and isinstance(event, Started | Reported | Died | Interrupted | Ended) and event.trial == log.name:
            log.apply(event)
    return log.held_seconds() if log else 0.0
