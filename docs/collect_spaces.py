"""Collects how sharp the shipped spaces are into docs/spaces.md, so that no number is copied by hand.

`python docs/collect_spaces.py results/before results/after`: folders of results, each with any of the spaces below.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from harness import api
from harness.comparing.numbers import mean_and_spread, plain, ratio
from harness.comparing.values import Comparison, MethodRow
from harness.measures import ACCURACY

DOCS = Path(__file__).parent
ORDER = ("quickstart", "digits", "mnist_small", "fashion_mnist_small", "svhn_subset")
HEAD = (
    "| space | settings | depths trained | seeds | linear model | best depth | learnt depth | between depths | scatter "
    "| resolution | by chance | told apart |\n"
    "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
)


def main(before: Path, after: Path) -> None:
    lines = [line for space in ORDER for line in _lines(space, before, after)]
    intro = (DOCS / "spaces_intro.md").read_text(encoding="utf-8")
    (DOCS / "spaces.md").write_text(intro.replace("TABLE\n", "\n".join([HEAD, *lines, ""])), encoding="utf-8")


def _lines(space: str, before: Path, after: Path) -> Iterator[str]:
    """A space that was never blunt has one line."""
    blunt = (DOCS.parent / "tests" / "comparing" / "blunt_spaces" / f"{space}.yaml").exists()
    folders = {"before": before, "after": after} if blunt else {"unchanged": after}
    for words, out in folders.items():
        if (out / space).is_dir():
            yield _line(space, words, api.load_results(space, out))
        else:
            yield f"| `{space}` | {words} | not run |" + " |" * 9


def _line(space: str, words: str, results: api.Results) -> str:
    comparison = results.comparison
    floor, found = comparison.floor, comparison.resolution
    assert found is not None, f"{space}: {words} has no two depths that were trained to their end"
    best = _row_of(comparison, comparison.exhaustive)
    depths = sorted({trial.depth for unit in results.finished for trial in unit.trials if not trial.learns_depth})
    cells = (
        f"`{space}`",
        words,
        ", ".join(map(str, depths)) if len(depths) < 7 else f"{depths[0]} to {depths[-1]}",
        str(len(best.seeds)),
        _accuracy(floor.linear) if floor else "–",
        _accuracy(best),
        _accuracy(_row_of(comparison, comparison.reference)),
        plain(found.between_depths, 2),
        plain(found.scatter, 2),
        ratio(found.ratio) if found.ratio is not None else "–",
        ratio(found.by_chance) if found.by_chance is not None else "–",
        "yes" if found.enough else "no",
    )
    return "| " + " | ".join(cells) + " |"


def _row_of(comparison: Comparison, method: str | None) -> MethodRow:
    return next(row for row in comparison.search.rows if row.method == method)


def _accuracy(row: MethodRow) -> str:
    return mean_and_spread(row.values[ACCURACY.key])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
