"""A short fuzz, and a judge that sees every fault it is there for."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import judge as judging
from tests.fuzz.__main__ import GROUPS, cases, fuzz
from tests.fuzz.judge import Case, judge


@pytest.mark.slow
def test_malformed_inputs_are_refused_in_one_sentence() -> None:
    tally = fuzz(inputs=45, number=1)
    assert tally.faults == [], tally.table()
    assert sum(counts["refused"] for counts in tally.counts.values()) > 25
    assert sum(counts["accepted"] for counts in tally.counts.values()) > 0, "and not everything is refused"


@pytest.mark.slow
def test_a_seed_makes_the_same_inputs_again() -> None:
    for _, strategy in GROUPS.values():
        made = cases(strategy, 2, number=3)
        assert made == cases(strategy, 2, number=3) != cases(strategy, 2, number=4)


def _say(out: str = "", err: str = "error: no\n", code: int = 2) -> Callable[[list[str]], None]:
    def program(args: list[str]) -> None:
        sys.stdout.write(out)
        sys.stderr.write(err)
        sys.exit(code)

    return program


def _fail(args: list[str]) -> None:
    raise KeyError("a bug")


def _hang(args: list[str]) -> None:
    while True:
        time.monotonic()


def _write(args: list[str]) -> None:
    Path("left").write_text("behind")
    _say()(args)


@pytest.mark.parametrize(
    ("program", "valid", "verdict"),
    [
        (_say(), False, "refused"),
        (_say(), True, "refused wrongly"),
        (_say("fine", "", 0), True, "accepted"),
        (_say("fine", "", 0), False, "accepted wrongly"),
        (_fail, False, "traceback"),
        (_hang, False, "hang"),
        (_write, False, "badly said"),
        (_say(err="error: one\nerror: two\n"), False, "badly said"),
        (_say(err="error: \x1b[31m\n"), False, "badly said"),
        (_say(err="error: s3cret\n"), False, "badly said"),
        (_say(err="error: " + "long" * 1000 + "\n"), False, "badly said"),
        (_say(code=3), False, "badly said"),
        (_say(err=""), False, "badly said"),
    ],
)
def test_the_judge(
    program: Callable[[list[str]], None], valid: bool, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "main", program)
    case = Case(("run",), valid, {"a/b": b"c"}, secrets=("s3cret",))
    assert judge(case, tmp_path, seconds=0.2).verdict == verdict
