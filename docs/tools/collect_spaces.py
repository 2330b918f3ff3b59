"""Collects whether the shipped spaces can tell depths apart, and need a search, into docs/spaces.md: no number by hand.

`python docs/tools/collect_spaces.py` reads the recordings that ship with the harness (search_spaces/tables).
"""

from pathlib import Path

from harness.comparing.headroom import DEEPEST, RANDOM, headroom
from harness.comparing.numbers import loss, plain, ratio
from harness.comparing.yardsticks import resolution_of
from harness.measures import LOG_LIKELIHOOD
from harness.methods import RECORDER
from harness.replaying.recorded import Recorded
from harness.replaying.tables import read_table, shipped_tables

DOCS = Path(__file__).parent.parent
INTRO = Path(__file__).with_name("spaces_intro.txt")
HEAD = (
    "| space | depths | seeds | depths differ by | networks scatter by | resolution | by chance "
    "| best depth of each seed | can it tell depths apart? |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"
)
NEEDED_HEAD = (
    f"| space | seeds | {RECORDER} − {DEEPEST} | its share of the cost | {RECORDER} − {RANDOM} "
    "| is a search needed? |\n"
    "| --- | ---: | ---: | ---: | ---: | --- |"
)


def main() -> None:
    tables = [read_table(path) for path in shipped_tables().values()]
    page = INTRO.read_text(encoding="utf-8")
    page = page.replace("TABLE\n", "\n".join([HEAD, *map(line_of, tables), ""]))
    page = page.replace("NEEDED\n", "\n".join([NEEDED_HEAD, *map(needed_line_of, tables), ""]))
    (DOCS / "spaces.md").write_text(page, encoding="utf-8")


def needed_line_of(recorded: Recorded) -> str:
    found = headroom(recorded.all_depths(), RECORDER, recorded.space.margins, within=recorded.space.choice_within)
    assert found, f"{recorded.space.name}: not every depth is there"
    losses = {pair.method: loss(pair.verdicts[LOG_LIKELIHOOD.key].advantage) for pair in found.stage.pairs}
    cells = (
        f"`{recorded.space.name}`",
        str(len(recorded.seeds)),
        losses[DEEPEST],
        ratio(found.cost_shares[DEEPEST]),
        losses[RANDOM],
        found.outcome,
    )
    return "| " + " | ".join(cells) + " |"


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
