"""`make lint` checks the documents with docs/tools/check_documents.py; here the checker itself is checked."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.judging import words as verdict_words
from harness.replaying.tables import read_table, shipped_tables
from harness.spaces import SHIPPED

ROOT = Path(__file__).parent.parent

# Every line that ends with a MISTAKE comment must be reported with these words, and no other line.
PLANTED = """\
# A page

[good](good.md), [good](good.md#a-heading), [good](#a-page), [not asked](https://example.com/nothing)
[gone](gone.md) MISTAKE gone.md, which does not exist
[no heading](good.md#no-heading) MISTAKE good.md has no such heading
![no image](images/gone.png) MISTAKE images/gone.png
`harness/spaces.py`, `training/cost.py`, `results/quickstart/report.html`, `search_spaces/<space>.yaml`
`harness/spacecraft.py` MISTAKE `harness/spacecraft.py` does not exist
`harness doctor`, `harness study NAME --scale paper`, `make lint`
`harness study NAME --scale huge` MISTAKE 'huge' is not one of
`make coffee` MISTAKE no target 'coffee'

```sh
harness run quickstart --methods ldn,asha:grace_epochs=20,mine.py --set training.lr=0.05 --debug   # fine
harness run my_space.yaml && make test
harness run quickstart --sedes 0 # MISTAKE No such option '--sedes'
harness run quickstrat # MISTAKE unknown search space 'quickstrat'
harness run digits --set training.lrr=1 # MISTAKE did you mean 'training.lr'?
harness run digits --methods ldn,gird # MISTAKE did you mean 'grid'?
harness run digits --methods asha:grace=1 # MISTAKE 'grace'
harness compare digits --format pdf # MISTAKE 'pdf' is not one of
harness compare # MISTAKE Missing argument 'SPACE'
harness walk digits # MISTAKE there is no command 'walk'
harness study widht # MISTAKE unknown study 'widht'
make coffee # MISTAKE no target 'coffee'
```

```console
$ ray job submit --address http://127.0.0.1:8265 -- \\
    harness run digits --seeds 0,1
$ harness report digits
harness printed --this
$ ray exec cluster.yaml 'harness doctor --storag there' # MISTAKE No such option '--storag'
```

```python
results = [1, 2]
results = [1, 2 # MISTAKE '[' was never closed
```
"""


def _check(*files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "docs/tools/check_documents.py", *map(str, files)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_planted_mistakes_are_found_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("# A heading\n")
    page = tmp_path / "page.md"
    page.write_text(PLANTED, encoding="utf-8")
    done = _check(page)
    reported = re.findall(rf"^{re.escape(str(page))}:(\d+): (.*)$", done.stdout, re.MULTILINE)
    found = {int(number): sentence for number, sentence in reported}
    lines = enumerate(PLANTED.splitlines(), start=1)
    expected = {number: line.partition("MISTAKE ")[2] for number, line in lines if "MISTAKE" in line}
    assert found.keys() == expected.keys(), done.stdout + done.stderr
    for number, said in expected.items():
        assert said in found[number]
    assert done.returncode == 1


def _tool(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "docs" / "tools")
    return importlib.import_module(name)


def test_results_are_collected_and_sections_without_results_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect_results = _tool("collect_results", monkeypatch)
    monkeypatch.setattr(collect_results, "DOCS", tmp_path)
    monkeypatch.setattr(collect_results, "INTRO", tmp_path / "intro.txt")
    intro = "# Results\n\n## Where they differ\n\nNowhere.\n"
    (tmp_path / "intro.txt").write_text(intro)
    kept = "## max\\_depth: Growing\n\n- **held**: 0.20\n"
    (tmp_path / "results.md").write_text(f"# Old\n\n## Where they differ\n\nOld.\n\n{kept}\n## speedup: Old\n\nOld.\n")
    written = tmp_path / "results" / "studies" / "speedup-small" / "speedup"
    written.mkdir(parents=True)
    (written / "section.md").write_text("## speedup: New\n\n![it](./speedup.png)\n")
    (written / "speedup.png").write_bytes(b"drawn")
    collect_results.main(tmp_path / "results")
    text = (tmp_path / "results.md").read_text()
    assert text.startswith(intro) and kept in text and "## width\n\nNot run.\n" in text
    assert "## speedup: New\n\n![it](images/studies/speedup/speedup.png)" in text and "Old" not in text
    assert (tmp_path / "images" / "studies" / "speedup" / "speedup.png").read_bytes() == b"drawn"
    collect_results.main(tmp_path / "results")
    assert (tmp_path / "results.md").read_text() == text, "collecting again changes nothing"


def test_a_line_of_a_space_comes_from_its_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    tool, page = _tool("collect_spaces", monkeypatch), (ROOT / "docs" / "spaces.md").read_text(encoding="utf-8")
    for name, said in (("quickstart", "yes"), ("digits", "hardly")):
        line = tool.line_of(read_table(shipped_tables()[name]))
        assert line in page and line.endswith(f"| {said} |")


def test_every_shipped_space_says_whether_a_search_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the recordings that ship with it say, in its file and on the page; or that nobody has measured it."""
    tool, page = _tool("collect_spaces", monkeypatch), (ROOT / "docs" / "spaces.md").read_text(encoding="utf-8")
    tables = shipped_tables()
    for path in sorted(SHIPPED.glob("*.yaml")):
        _, asked, answer = path.read_text(encoding="utf-8").partition("# Is a search needed? ")
        assert asked, f"{path.name} does not say it"
        if path.stem in tables:
            line = tool.needed_line_of(read_table(tables[path.stem]))
            assert line in page
            assert answer.lower().startswith(line.split("|")[-2].strip()), path.name
        else:
            assert answer.startswith("Not measured") or "grid --seeds" in answer, path.name


def test_the_page_on_verdicts_has_the_one_table_of_words() -> None:
    page = " ".join((ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8").split())
    assert all(" ".join(line.split()) in page for line in (*verdict_words.table(), *verdict_words.terms()))
