"""From a study's results to its figures, its verdicts and its page."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError, full_disk_told
from harness.options import RunOptions
from harness.running.runner import checkpoint_root
from harness.studies.across import Across, across_cells
from harness.studies.claims import Judgement, judge
from harness.studies.definition import Study
from harness.studies.figures import draw_figures
from harness.studies.figures.across import draw_across
from harness.studies.page import as_markdown, build_page
from harness.studies.results import read_results
from harness.text.files import write_atomically


@dataclass(frozen=True)
class Concluded:
    judgements: list[Judgement]
    across: Across | None  # the verdict across spaces; None where it is no question
    page: Path  # its figures are in the same folder


def conclude(study: Study, options: RunOptions, command: str, failures: Mapping[str, str]) -> Concluded:
    """Draws and judges whatever is complete, and writes page, figures, a section of Markdown and the view over spaces.

    `failures`: space or unit → why it is not there."""
    results = read_results(study, options.out, failures)
    if not results.cells:
        raise UserError(f"study {study.name} has no complete network to draw in {options.out}")
    judgements, over_spaces = judge(results), across_cells(results)
    drawings = draw_figures(results, checkpoint_root(options))
    if over_spaces:
        drawings.append(draw_across(over_spaces, results))
    folder = options.out / study.name
    with full_disk_told(folder):
        for drawing in drawings:
            write_atomically(folder / f"{drawing.name}.svg", drawing.standalone_svg)
            write_atomically(folder / f"{drawing.name}.png", drawing.png)
        write_atomically(folder / "page.html", build_page(results, judgements, drawings, command, over_spaces))
        write_atomically(folder / "section.md", as_markdown(results, judgements, drawings, command, over_spaces))
        if over_spaces:
            write_atomically(folder / "across.json", over_spaces.model_dump_json(indent=2) + "\n")
    return Concluded(judgements, over_spaces, folder / "page.html")
