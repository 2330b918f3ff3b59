"""Collects what `harness study` wrote into docs/results.md, so that no number is copied by hand.

`python docs/tools/collect_results.py results`: the argument is the folder that the studies wrote to. A study that has
nothing there keeps the section that it has.
"""

import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent
INTRO = Path(__file__).with_name("results_intro.txt")
ORDER = (
    *("depth_posterior", "max_depth", "functions", "width", "rotation", "train_size", "convergence"),
    *("image_posterior", "image_depths", "calibration", "speedup", "one_shot"),
)


def main(out: Path) -> None:
    page = DOCS / "results.md"
    before = _sections(page.read_text(encoding="utf-8")) if page.exists() else {}
    parts = [INTRO.read_text(encoding="utf-8").rstrip() + "\n"]
    for study in ORDER:
        written = sorted(out.glob(f"studies/*/{study}/section.md"))
        if not written:
            parts.append(before.get(study, f"## {study}\n\nNot run.\n"))
            continue
        images = DOCS / "images" / "studies" / study
        shutil.rmtree(images, ignore_errors=True)
        images.mkdir(parents=True)
        for figure in written[0].parent.glob("*.png"):
            shutil.copy(figure, images)
        section = written[0].read_text(encoding="utf-8").replace("(./", f"(images/studies/{study}/")
        parts.append(re.sub(r" --out \S+", "", section))  # whoever repeats it has a folder of their own
    page.write_text("\n".join(parts), encoding="utf-8")


def _sections(text: str) -> dict[str, str]:
    """By study: a section goes from its heading to that of the next study."""
    found = {}
    for section in re.split(r"\n(?=## \S+(?:: |\n))", text)[1:]:
        name = section.removeprefix("## ").partition("\n")[0].partition(":")[0].replace("\\_", "_")
        found[name] = section if section.endswith("\n") else section + "\n"
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
