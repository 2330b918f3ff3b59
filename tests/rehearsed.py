"""Units run with made-up trials, without Ray: what most tests of the runner's parts begin with."""

from pathlib import Path
from typing import Any

from harness.methods import load_method
from harness.methods.base import SearchMethod
from harness.options import RunOptions
from harness.replaying.rehearsal import rehearse, unimodal
from harness.running.result import proposals
from harness.running.runner import make_units
from harness.running.unit import RunningUnit
from harness.schema.settings import SearchSpace
from harness.spaces import parse_space


def small_space(**changes: Any) -> SearchSpace:
    """Seven depths, five reports a trial."""
    values = {
        "name": "small",
        "description": "For tests.",
        "data": {"kind": "spirals", "n_train": 40, "n_val": 20, "n_test": 20},
        "network": {"kind": "fc", "width": 4},
        "depth": {"min": 0, "max": 6},
        "posterior": {"rule": "argmax"},
        "training": {"max_epochs": 50, "patience": 50, "eval_every": 10, "report_every": 10},
    }
    return parse_space({**values, **changes}, source="tests")


def make_unit(
    out: Path, method: str | SearchMethod, space: SearchSpace | None = None, *, seed: int = 0, **options: Any
) -> RunningUnit:
    """A unit in its claimed folder: new, or as a run that continues would make it."""
    name, loaded = load_method(method) if isinstance(method, str) else ("mine", method)
    [unit] = make_units([space or small_space()], {name: loaded}, [seed], RunOptions(out=out, **options))
    unit.folder.claim(unit.plan, fresh=False)
    return unit


def run(out: Path, method: str | SearchMethod, space: SearchSpace | None = None, **more: Any) -> RunningUnit:
    """The unit, rehearsed to its end."""
    rehearsal = {key: more.pop(key) for key in ("value", "slots", "max_steps") if key in more}
    unit = make_unit(out, method, space, **more)
    rehearse([unit], rehearsal.pop("value", unimodal), **rehearsal)
    return unit


def events(unit: RunningUnit) -> list[tuple[str, str]]:
    return [(event.event, getattr(event, "trial", "")) for event in unit.folder.events()]


def depths(unit: RunningUnit) -> list[int]:
    """As proposed, answered ones included."""
    return [depth for depth, _ in proposals(unit.logs)]
