"""`python -m tests.fuzz`: makes inputs, judges each, and prints a table by group."""

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.fuzz.crafted import CRAFTED
from tests.fuzz.inputs import GROUPS as MALFORMED
from tests.fuzz.inputs import WARM_UP
from tests.fuzz.judge import GOOD, Case, Judgement, Verdict, judge, quiet_machine

GROUPS = {**MALFORMED, "crafted": (30, CRAFTED)}
COLUMNS: dict[str, tuple[Verdict, ...]] = {
    "refused": ("refused",),
    "accepted": ("accepted",),
    "tracebacks": ("traceback",),
    "hangs": ("hang",),
    "accepted wrongly": ("accepted wrongly",),
    "refused wrongly": ("refused wrongly",),
    "badly said": ("badly said",),
}
MEMORY = 8 * 2**30  # bytes of address space for this process: what would swallow the machine is an error instead


@dataclass
class Tally:
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[tuple[str, Case, Judgement]] = field(default_factory=list)
    slowest: float = 0.0

    def add(self, group: str, number: int, case: Case, judgement: Judgement) -> None:
        self.counts.setdefault(group, Counter())[judgement.verdict] += 1
        self.slowest = max(self.slowest, judgement.seconds)
        if judgement.verdict not in GOOD:
            self.faults.append((f"{group}:{number}", case, judgement))

    def table(self) -> str:
        rows = [("group", "tried", *COLUMNS)]
        total: Counter[str] = Counter()
        for group, counts in [*self.counts.items(), ("all", total)]:
            total += counts if group != "all" else Counter()
            rows.append((group, str(sum(counts.values())), *(str(sum(counts[v] for v in c)) for c in COLUMNS.values())))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def cases(strategy: SearchStrategy[Case], inputs: int, number: int) -> list[Case]:
    """The first `inputs` that hypothesis makes from this seed; the same ones every time."""
    made: list[Case] = []

    @seed(number)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(case: Case) -> None:
        made.append(case)

    collect()
    return made[:inputs]


def fuzz(inputs: int, number: int, only: str | None = None) -> Tally:
    """So many inputs over all groups, in the groups' proportions."""
    tally = Tally()
    parts = sum(weight for weight, _ in GROUPS.values())
    with tempfile.TemporaryDirectory(prefix="fuzz-") as home, quiet_machine(Path(home)):
        for case in WARM_UP:  # what is imported once is not the first input's to pay for
            with _folder(keep=False) as folder:
                judge(case, folder, seconds=300)
        for group, (weight, strategy) in GROUPS.items():
            if only and only.partition(":")[0] != group:
                continue
            for index, case in enumerate(cases(strategy, max(1, round(inputs * weight / parts)), number)):
                if only in (None, group, f"{group}:{index}"):
                    with _folder(keep=only is not None) as folder:
                        tally.add(group, index, case, judge(case, folder))
    return tally


class _folder:  # noqa: N801 - used like a function
    def __init__(self, keep: bool) -> None:
        self._keep = keep

    def __enter__(self) -> Path:
        self._path = Path(tempfile.mkdtemp(prefix="fuzz-"))
        return self._path

    def __exit__(self, *_: object) -> None:
        if not self._keep:
            shutil.rmtree(self._path, ignore_errors=True)


def _lines(tally: Tally) -> Iterator[str]:
    for name, case, judgement in tally.faults:
        yield f"\n{name} {judgement.verdict}: harness {' '.join(repr(arg[:200]) for arg in case.args)}"
        yield f"  files: { {file: content[:1000] for file, content in case.files.items()} }"
        yield f"  {judgement.why[-2500:]}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="a group, or one input of it, as space:17; folders are kept")
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    began = time.monotonic()
    tally = fuzz(asked.inputs, asked.seed, asked.only)
    print("\n".join(_lines(tally)))
    print(
        f"\nseed {asked.seed}, {time.monotonic() - began:.0f} s, slowest input {tally.slowest:.1f} s\n{tally.table()}"
    )
    sys.exit(1 if tally.faults else 0)


if __name__ == "__main__":
    main()
