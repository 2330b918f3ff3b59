"""From a study's results to its figures, its verdicts and its page."""

from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError, full_disk_told
from harness.options import RunOptions
from harness.running.runner import checkpoint_root
from harness.studies.claims import Judgement, judge
from harness.studies.definition import Study
from harness.studies.figures import draw_figures
from harness.studies.page import as_markdown, build_page
from harness.studies.results import read_results
from harness.text.files import write_atomically


@dataclass(frozen=True)
class Concluded:
    judgements: list[Judgement]
    page: Path  # its figures are in the same folder


def conclude(study: Study, options: RunOptions, command: str) -> Concluded:
    """Draws and judges whatever is complete, and writes page, figures and a section of Markdown."""
    results = read_results(study, options.out)
    if not results.cells:
        raise UserError(f"study {study.name} has no complete network to draw in {options.out}")
    judgements = judge(results)
    drawings = draw_figures(results, checkpoint_root(options))
    folder = options.out / study.name
    with full_disk_told(folder):
        for drawing in drawings:
            write_atomically(folder / f"{drawing.name}.svg", drawing.standalone_svg)
            write_atomically(folder / f"{drawing.name}.png", drawing.png)
        write_atomically(folder / "page.html", build_page(results, judgements, drawings, command))
        write_atomically(folder / "section.md", as_markdown(results, judgements, drawings, command))
    return Concluded(judgements, folder / "page.html")
