"""Collects whether the shipped spaces can tell depths apart into docs/spaces.md, so that no number is copied by hand.

`python docs/collect_spaces.py` reads the recordings that ship with the harness (search_spaces/tables).
"""

from pathlib import Path

from harness.comparing.numbers import plain, ratio
from harness.comparing.yardsticks import resolution_of
from harness.replaying.recorded import Recorded
from harness.replaying.tables import read_table, shipped_tables

DOCS = Path(__file__).parent
HEAD = (
    "| space | depths | seeds | depths differ by | networks scatter by | resolution | by chance | best depth "
    "of each seed | can it tell depths apart? |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"
)


def main() -> None:
    lines = [line_of(read_table(path)) for path in shipped_tables().values()]
    intro = (DOCS / "spaces_intro.md").read_text(encoding="utf-8")
    (DOCS / "spaces.md").write_text(intro.replace("TABLE\n", "\n".join([HEAD, *lines, ""])), encoding="utf-8")


def line_of(recorded: Recorded) -> str:
    values = {
        (each.seed, each.depth): val.log_likelihood
        for each in recorded.recordings
        if (val := each.progress[-1].val) is not None
    }
    found = resolution_of(values, None, recorded.space)
    assert found and found.ratio and found.by_chance, f"{recorded.space.name}: fewer than two seeds or depths"
    depths = recorded.space.depth.values
    said = "yes" if found.enough else "hardly" if found.ratio > found.by_chance else "no"
    cells = (
        f"`{recorded.space.name}`",
        f"{depths[0]} to {depths[-1]}",
        str(len(recorded.seeds)),
        plain(found.between_depths, 2),
        plain(found.scatter, 2),
        ratio(found.ratio),
        ratio(found.by_chance),
        ", ".join(map(str, found.best_depths)),
        said,
    )
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
