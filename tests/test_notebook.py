"""docs/python.md is run as a reader would run it, with less work; its notebook from the wheel: test_wheel."""

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
FEWER = re.compile(r"epochs=\d+")
QUICK = "epochs=40, workers=1, set={'depth.max': 4}"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(encoding="utf-8"), flags=re.DOTALL)


def test_every_run_of_the_page_says_its_epochs() -> None:
    """Or the test below would train for as long as the space says."""
    calls = [call for block in blocks() for call in re.findall(r"harness\.run\(.*", block) if "gird" not in call]
    assert len(calls) == 2 and all(FEWER.search(call) for call in calls)


@pytest.mark.slow
def test_the_page_runs(
    one_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page: dict[str, Any] = {"__name__": "__main__"}
    exec(FEWER.sub(QUICK, "\n".join(blocks())), page)
    assert len(page["results"].frame()) == 4 and set(page["other"].trials().depth) == {0, 1, 2, 3, 4}
    assert page["page"].exists()
    headline, mistake = capsys.readouterr().out.splitlines()  # the page prints two lines, the harness none
    assert "ot decided" in headline and headline.endswith(".")
    assert mistake.startswith("unknown method 'gird' (did you mean 'grid'?)")
