"""Collects what `harness study` wrote into docs/results.md, so that no number is copied by hand.

`python docs/collect_results.py results`: the argument is the folder that the studies wrote to.
"""

import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ORDER = (
    *("depth_posterior", "max_depth", "functions", "width", "rotation", "train_size", "convergence"),
    *("image_posterior", "image_depths", "calibration", "speedup"),
)


def main(out: Path) -> None:
    parts = [(DOCS / "results_intro.md").read_text(encoding="utf-8").rstrip() + "\n"]
    for study in ORDER:
        written = sorted(out.glob(f"studies/*/{study}/section.md"))
        if not written:
            parts.append(f"## {study}\n\nNot run.\n")
            continue
        images = DOCS / "images" / "studies" / study
        shutil.rmtree(images, ignore_errors=True)
        images.mkdir(parents=True)
        for figure in written[0].parent.glob("*.png"):
            shutil.copy(figure, images)
        parts.append(written[0].read_text(encoding="utf-8").replace("(./", f"(images/studies/{study}/"))
    (DOCS / "results.md").write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
