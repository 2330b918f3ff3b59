"""The conformance kit: what every search method must keep to, checked without Ray and without the space's data.

And what every result must keep to: it says what its ledger says.
"""

import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle

from harness.errors import UserError
from harness.methods import known_methods
from harness.methods.base import OneShotMethod, SearchMethod
from harness.options import RunOptions
from harness.replaying.method_rules import MethodRule, NotKept, NotTried, method_rules
from harness.replaying.method_rules import require as _require
from harness.replaying.rehearsal import MADE_UP, made_up_progress, rehearse
from harness.running.messages import packed_method, unpacked_method
from harness.running.result import contradictions, named, proposals
from harness.running.runner import make_unit
from harness.running.search import plan_of
from harness.running.store import SEALED_SINCE, UnitFolder
from harness.running.unit import RunningUnit
from harness.schema.identity import hashed
from harness.schema.records import FIXED_DEPTH, Measures, TrialConfig, TrialRecord
from harness.schema.settings import SearchSpace
from harness.schema.stage import Stage
from harness.text.shown import counted

SEED = 3
SEEDS = (3, 4, 5)  # of a search that is said not to depend on it
PLAN_SECONDS = 1.0
REPORTS = 12  # of a made-up trial, at most
STOPS = 6  # moments at which the driver is "killed"


@dataclass(frozen=True)
class RuleCheck:
    """One rule, whether the method keeps it, and what was seen."""

    name: str
    ok: bool | None  # None: not tried, since a rule that it builds on is broken, or it does not apply
    detail: str


def check_results(folder: Path) -> list[RuleCheck]:
    """Every unit below a folder: are its files whole, and do its records say what its ledger says?"""
    plans = [path for path in sorted(folder.resolve().rglob("plan.json")) if ".moved-" not in path.parent.name]
    if not plans:
        raise UserError(f"there are no results in {folder}; give a results folder, or a part of one")
    return [_check_unit(path.parent) for path in plans]


def _check_unit(path: Path) -> RuleCheck:
    out, space, method, seed = path.parents[2], path.parts[-3], path.parts[-2], path.name.removeprefix("seed-")
    name = f"{space}/{method}/seed-{seed}"
    try:
        folder = UnitFolder(out, space, method, int(seed))
        unit = folder.read()
        if unit.plan.version < SEALED_SINCE:
            return RuleCheck(name, None, "it was written by an earlier version, whose ledgers have no checksums")
        events = list(folder.events())
        if unit.result is None:
            return RuleCheck(name, None, f"unfinished; {counted(len(events), 'line')} of its ledger are whole")
        model = folder.model(unit.result)
        if not events:
            return RuleCheck(name, None, "it has no ledger to be checked against")
        found = list(contradictions(unit, events))
    except (UserError, ValueError, OSError, LookupError) as error:
        return RuleCheck(name, False, " ".join(str(error).split()))
    if found:
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        return RuleCheck(name, False, "; ".join(found[:3]) + more)
    return RuleCheck(
        name, True, f"as its ledger of {len(events)} lines says{'' if model else '; its model.pt is gone'}"
    )


def check_method(name: str, method: SearchMethod, space: SearchSpace) -> list[RuleCheck]:
    """Every rule in turn. One cause breaks one rule: those that build on it are not tried."""
    space = _with_few_reports(space)

    def rule(
        says: str, test: Callable[[str, SearchMethod, SearchSpace], str], builds_on: MethodRule | None = None
    ) -> MethodRule:
        return MethodRule(says, lambda: test(name, method, space), builds_on.name if builds_on else "")

    plans = rule("plan is quick and starts no Ray", _plan_is_quick)
    selects = rule("select returns one of the given trials", _selects_one, plans)
    inside = rule("every configuration lies in the space", _inside_the_space, selects)
    planned = rule("no more trials than planned", _no_more_than_planned, inside)
    same = rule("same seed, same configurations", _same_configurations, planned)
    rules = [
        plans,
        rule("it pickles", _pickles, plans),
        selects,
        rule("select ignores failed and non-finite trials", _ignores_unusable, selects),
        rule("select says what is wrong when no trial is left", _says_none_is_left, selects),
        *(inside, planned, same),
        rule("a stopped search continues as if nothing had happened", _continues, same),
    ]
    if not method.seeded:
        rules.append(rule("any seed, same configurations", _any_seed, same))
    if isinstance(method, OneShotMethod):
        rules.append(rule("what follows its training continues as if nothing had happened", _stages_continue, same))
        rules += method_rules(name, method, space)
        if name not in known_methods():
            rules.append(rule("its code reaches a worker", _reaches_a_worker))
    return tried(rules)


def tried(rules: Sequence[MethodRule]) -> list[RuleCheck]:
    """Every rule in turn; those that build on a broken one are not tried."""
    checks: dict[str, RuleCheck] = {}
    for each in rules:
        below = checks.get(each.builds_on)
        checks[each.name] = _try(each) if below is None or below.ok else RuleCheck(each.name, None, "not tried")
    return list(checks.values())


def closing(checks: Sequence[RuleCheck]) -> str:
    """`All 25 rules hold.`; `23 rules hold, 2 were not tried.`; `2 of 25 rules do not hold, 3 were not tried.`"""
    broken, untried = (sum(each.ok is ok for each in checks) for ok in (False, None))
    more = f", {untried} {'was' if untried == 1 else 'were'} not tried" if untried else ""
    if broken:
        return f"{broken} of {len(checks)} rules {'does' if broken == 1 else 'do'} not hold{more}."
    held = len(checks) - untried
    return f"{counted(held, 'rule')} {'holds' if held == 1 else 'hold'}{more}." if more else f"All {held} rules hold."


def _try(rule: MethodRule) -> RuleCheck:
    try:
        return RuleCheck(rule.name, True, rule.test())
    except NotTried as error:
        return RuleCheck(rule.name, None, str(error))
    except (NotKept, UserError) as error:
        return RuleCheck(rule.name, False, str(error))
    except (Exception, SystemExit) as error:
        return RuleCheck(rule.name, False, f"it raised {type(error).__name__}: {error}")


# --- the plan -----------------------------------------------------------------------------------------------------


def _plan_is_quick(name: str, method: SearchMethod, space: SearchSpace) -> str:
    had_ray = ray.is_initialized()
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        plan_of(name, method, space, SEED)
        seconds.append(time.perf_counter() - began)
        _require(ray.is_initialized() == had_ray, "plan started Ray")
    median = statistics.median(seconds)
    _require(median < PLAN_SECONDS, f"plan took {median:.1f} s; less than {PLAN_SECONDS:g} s is asked for")
    return f"{1000 * median:.1f} ms"


def _pickles(name: str, method: SearchMethod, space: SearchSpace) -> str:
    copy = cloudpickle.loads(cloudpickle.dumps(method))
    _require(copy == method, "a copy through pickle is not equal")
    planned = [plan_of(name, each, space, SEED).n_trials for each in (method, copy)]
    _require(planned[0] == planned[1], f"a copy through pickle plans {planned[1]} trials instead of {planned[0]}")
    return "equal after a round trip"


def _reaches_a_worker(name: str, method: SearchMethod, space: SearchSpace) -> str:
    """In a new process that stands elsewhere, as a worker does: it has the packages, but not the user's files."""
    module, function = unpacked_method.__module__, unpacked_method.__name__
    program = f"import sys; from {module} import {function} as unpack; unpack(sys.argv[1], sys.stdin.buffer.read())"
    packed, command = packed_method(name, type(method)), [sys.executable, "-c", program, name]
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(command, input=packed, capture_output=True, cwd=elsewhere)
    said = done.stderr.decode(errors="replace").strip().splitlines()
    _require(done.returncode == 0, said[-1].partition("UserError: ")[2] or said[-1] if said else "a new process died")
    return "unpacked in a new process"


# --- the search ---------------------------------------------------------------------------------------------------


def _inside_the_space(name: str, method: SearchMethod, space: SearchSpace) -> str:
    with _unit(name, method, space) as make:
        unit = _run(make())
        return f"{len(_proposals(unit))} proposals"


def _no_more_than_planned(name: str, method: SearchMethod, space: SearchSpace) -> str:
    with _unit(name, method, space) as make:
        unit = _run(make())
        proposed, planned = len(_proposals(unit)), unit.plan.trials
        _require(proposed <= planned, f"{counted(proposed, 'trial')} proposed where the plan states {planned}")
        return f"{proposed} of {planned}"


def _same_configurations(name: str, method: SearchMethod, space: SearchSpace) -> str:
    runs = []
    for _ in range(2):
        with _unit(name, method, space) as make:
            runs.append(_proposals(_run(make())))
    _require(runs[0] == runs[1], f"two runs with seed {SEED} proposed {_shown(runs[0])} and {_shown(runs[1])}")
    return _shown(runs[0])


def _any_seed(name: str, method: SearchMethod, space: SearchSpace) -> str:
    """As `seeded = False` says."""
    proposed = {}
    for seed in SEEDS:
        with _unit(name, method, space, seed) as make:
            proposed[seed] = _proposals(_run(make()))
    for seed, others in proposed.items():
        first = proposed[SEEDS[0]]
        _require(
            others == first,
            f"it declares seeded = False, yet seed {SEEDS[0]} proposed {_shown(first)}, seed {seed} {_shown(others)}",
        )
    return f"seeds {', '.join(map(str, SEEDS))}"


def _stages_continue(name: str, method: SearchMethod, space: SearchSpace) -> str:
    """Each stage that it takes, killed as above; and whatever follows it, its own trial is the same."""
    assert isinstance(method, OneShotMethod)
    seen, trials = [], set()
    for then in ("retrain", "finetune", "top") if method.ranks_depths else ("retrain", "finetune"):
        options = {option: value for option, value in hashed(method).items() if option not in Stage.model_fields}
        followed = type(method).model_validate({**options, "then": then})
        _continues(name, followed, space)
        with _unit(name, followed, space) as make:
            unit = _run(make())
            kinds = [record.learns_depth for record in unit.records()]
            expected = [True, *[False] * followed.most_trials]
            _require(kinds == expected, f"then={then} trained {counted(len(kinds), 'trial')}, not {len(expected)}")
            trials.add(unit.records()[0].config_hash)
        seen.append(then)
    _require(len(trials) == 1, "what follows its training changes the trial that it follows")
    return ", ".join(seen)


def _continues(name: str, method: SearchMethod, space: SearchSpace) -> str:
    """Killed at moments spread over the run, in the middle of trials too, then continued from the ledger alone."""
    with _unit(name, method, space) as make:
        steps = rehearse([undisturbed := make()])
        _require_result(undisturbed)
    stops = sorted({round(steps * k / (STOPS + 1)) for k in range(1, STOPS + 1)} | {steps - 1})
    for stop in stops:
        with _unit(name, method, space) as make:
            rehearse([make()], max_steps=stop)
            unit = _run(make())
            same = (_proposals(unit), _choice(unit)) == (_proposals(undisturbed), _choice(undisturbed))
            _require(
                same,
                f"stopped at step {stop} of {steps} it proposed {_shown(_proposals(unit))}, undisturbed "
                f"{_shown(_proposals(undisturbed))}",
            )
    return f"stopped at {len(stops)} of {steps} steps"


def _run(unit: RunningUnit) -> RunningUnit:
    rehearse([unit])
    _require_result(unit)
    return unit


def _require_result(unit: RunningUnit) -> None:
    _require(unit.result is not None, unit.failure or "the search ended without a result")


def _proposals(unit: RunningUnit) -> list[tuple[int, int]]:
    return proposals(unit.logs)


def _choice(unit: RunningUnit) -> tuple[str, int] | None:
    return (unit.choice.chosen, unit.choice.d_opt) if unit.choice else None


def _shown(proposed: list[tuple[int, int]]) -> str:
    return "depths " + ", ".join(named(*each) for each in proposed)


class _unit:  # noqa: N801 - used like a function
    """A results folder for the time of a check, and a function that makes the unit in it: anew, as a new run would."""

    def __init__(self, name: str, method: SearchMethod, space: SearchSpace, seed: int = SEED) -> None:
        self._name, self._method, self._space, self._seed = name, method, space, seed

    def __enter__(self) -> Callable[[], RunningUnit]:
        self._folder = tempfile.TemporaryDirectory()
        return self._make

    def _make(self) -> RunningUnit:
        options = RunOptions(out=Path(self._folder.name), concurrency=1)
        unit = make_unit(self._space, self._name, self._method, self._seed, options)
        unit.folder.claim(unit.plan, fresh=False)
        return unit

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def _with_few_reports(space: SearchSpace) -> SearchSpace:
    """The same epochs in fewer reports: thousands of made-up ones would show nothing more."""
    training = space.training
    every = max(1, math.ceil(training.max_epochs / REPORTS / training.report_every)) * training.report_every
    return space.model_copy(update={"training": training.model_copy(update={"report_every": every})})


# --- the choice ---------------------------------------------------------------------------------------------------


def _selects_one(name: str, method: SearchMethod, space: SearchSpace) -> str:
    trials = list(_trials(name, method, space))
    chosen = method.select(trials)
    _require(any(chosen is trial for trial in trials), "what select returned is none of the trials it was given")
    return f"chose trial {trials.index(chosen) + 1} of {len(trials)}"


def _ignores_unusable(name: str, method: SearchMethod, space: SearchSpace) -> str:
    good, other, third, *_ = _trials(name, method, space)
    no_number = other.model_copy(
        update={"val": Measures.model_construct(accuracy=0.9, log_likelihood=math.nan, ece=0.0, brier=0.0)}
    )
    infinite = third.model_copy(
        update={"val": Measures.model_construct(accuracy=0.9, log_likelihood=math.inf, ece=0.0, brier=0.0)}
    )
    failed = third.model_copy(
        update={"status": "failed", "val": Measures(accuracy=1.0, log_likelihood=0.0, ece=0.0, brier=0.0)}
    )
    silent = third.model_copy(update={"status": "failed", "val": None})
    for trials in ([no_number, failed, infinite, silent, good], [good, silent, infinite, failed, no_number]):
        chosen = method.select(trials)
        _require(chosen is good, f"select chose a trial with status {chosen.status} and measures {chosen.val}")
    return "chose the one that was left"


def _says_none_is_left(name: str, method: SearchMethod, space: SearchSpace) -> str:
    failed = [trial.model_copy(update={"status": "failed", "val": None}) for trial in _trials(name, method, space)]
    said = ""
    for trials in ([], failed):
        try:
            method.select(trials)
        except UserError as error:
            said = str(error)
            _require(bool(said) and "\n" not in said, f"select must say in one sentence what is wrong; got {said!r}")
        except Exception as error:
            raise NotKept(f"select raised {type(error).__name__}: {error}; a UserError is asked for") from error
        else:
            raise NotKept(f"select returned a trial although all {len(trials)} had failed")
    return said


def _trials(name: str, method: SearchMethod, space: SearchSpace) -> Iterator[TrialRecord]:
    """A finished record per depth of the space, of the kind of network that the method trains; three at least."""
    kind = name if method.learns_depth else FIXED_DEPTH
    depths: list[Any] = [*space.depth.values, space.depth.max, space.depth.max]
    for number, depth in enumerate([space.depth.max] * 3 if method.learns_depth else depths):
        config = TrialConfig.of(space, kind, depth, SEED)
        last = made_up_progress(method.learns_depth, depth, space.training.max_epochs, -1.0 - 0.1 * number, "cap")
        yield TrialRecord.of(f"t{number:03d}", config, "made up", last, MADE_UP)
