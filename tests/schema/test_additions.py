"""A setting, a data option, a method option and a measure, added as CONTRIBUTING says: results outlive them.

The program is copied and the lines are written into the copy, as somebody would who adds them. Results in version_3
were written by the commit 66fdf0a, those in version_1 by 0.1.0, and the tables that ship by versions in between. One
number was asked to change: the regret of the replayed ldn is what its own network loses, not what one alone does.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import harness

HERE = Path(__file__).parent
ROOT = Path(harness.__file__).parent.parent
SETTINGS = ("training.max_epochs=40", "depth.max=3", "training.eval_every=20")  # of version_1 and version_3
ADDED = {  # file → (after this line, these lines)
    "schema/settings.py": (
        ('    """Learning rate."""\n', "    dampening: Annotated[float, Later(before=0.0)] = 0.0\n"),
        (
            '    """How far an arm turns: the more, the harder."""\n',
            "    thickness: Annotated[float, Later(before=0.0)] = 0.0\n",
        ),
        (
            '    """How much lower the test accuracy may be."""\n',
            "    top2: Annotated[float, Later(before=0.01)] = 0.01\n",
        ),
    ),
    "schema/records.py": (("    brier: float\n", "    top2: float | None = None\n"),),
    "training/evaluate.py": (
        (
            "    return Measures(\n",
            "        top2=(log_probs.topk(2).indices == y[:, None]).any(1).double().mean().item(),\n",
        ),
    ),
    "measures.py": (
        (
            "    LOG_LIKELIHOOD,\n",
            '    _quality("top2", "top 2", "higher", "Among two.", margin="top2"),\n',
        ),
    ),
    "methods/asha.py": (
        (
            '    """At each rung the best one in so many goes on; the next rung is so many times later."""\n',
            "    brackets: Annotated[int, Later(before=1)] = 2\n",  # its default is not what was done before
        ),
        ("from harness.methods.base", "from harness.schema.identity import Later\n"),
    ),
    "methods/ldn.py": (
        ('    colour: ClassVar[str] = "#D55E00"\n', "    annealing: Annotated[float, Later(before=0.0)] = 0.0\n"),
        ("from harness.methods.base", "from typing import Annotated\nfrom harness.schema.identity import Later\n"),
    ),
}


@pytest.fixture(scope="module")
def later_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a program with these lines."""
    folder = tmp_path_factory.mktemp("later")
    for part in ("harness", "search_spaces"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name, additions in ADDED.items():
        text = (folder / "harness" / name).read_text()
        for after, lines in additions:
            assert text.count(after) >= 1, f"{name} has no {after!r} any more"
            before, _, rest = text.partition(after)
            text = before + (lines + after if after.startswith("from ") else after + lines) + rest
        (folder / "harness" / name).write_text(text)
    return folder


def _run(program: Path, *args: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "harness", *args],
        env={**os.environ, "PYTHONPATH": str(program), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("version", ["version_1", "version_3"])
def test_old_results_are_compared_reported_and_synced_as_before(
    later_version: Path, tmp_path: Path, version: str
) -> None:
    shutil.copytree(HERE / version / "quickstart", tmp_path / "out" / "quickstart")
    words = ["quickstart", "--out", "out"]
    reference = ["--reference", "ldn"] if version == "version_1" else []
    compared = json.loads(_run(later_version, "compare", *words, *reference, "--format", "json", cwd=tmp_path))
    expected = json.loads((HERE / version / "compared.json").read_text())
    for row in compared["search"]["rows"]:
        known = expected["rows"][row["method"]]
        assert {key: row["values"][key]["mean"] for key in known} == known
        assert "test_top2" not in row["values"]
    assert "top 2" not in _run(later_version, "compare", *words, "--format", "md", cwd=tmp_path)
    _run(later_version, "compare", *words, cwd=tmp_path)
    _run(later_version, "report", *words, cwd=tmp_path)
    written = len(list((tmp_path / "out").glob("quickstart/*/seed-*/result.json")))
    assert f"{written} searches written" in _run(later_version, "sync", *words, cwd=tmp_path)
    assert f"{written} were there already" in _run(later_version, "sync", *words, cwd=tmp_path)


@pytest.mark.slow
def test_old_recordings_and_the_table_that_ships_are_replayed_as_before(later_version: Path, tmp_path: Path) -> None:
    shutil.copytree(HERE / "version_3" / "quickstart", tmp_path / "out" / "quickstart")
    expected = json.loads((HERE / "version_3" / "compared.json").read_text())["replayed"]
    words = ["replay", "quickstart", "--search-seeds", "5", "--format", "json"]
    searches = ",".join(method for method in expected if method != "ldn")  # which stands beside them unasked
    replayed = json.loads(_run(later_version, *words, "--methods", searches, "--out", "out", cwd=tmp_path))
    assert {method["method"] for method in replayed["methods"]} == set(expected)
    for method in replayed["methods"]:
        on = method["on"][0]
        known = {"device_seconds": on["device_seconds"]["mean"]["mean"], "regret": on["regret"]["mean"]["mean"]}
        assert {**known, "depths": on["depths"]} == expected[method["method"]]
    shipped = [json.loads(_run(program, *words, cwd=tmp_path)) for program in (later_version, ROOT)]
    assert shipped[0] == shipped[1] and "the table that ships" in shipped[0]["recordings"]


@pytest.mark.slow
def test_a_run_of_before_resumes(later_version: Path, tmp_path: Path) -> None:
    """Grid's ledger is cut after its second trial; the later program trains the rest, and no trial again."""
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    words = ["run", "quickstart", "--methods", "grid", "--concurrency", "1", "--out", "out", *settings]
    _run(ROOT, *words, cwd=tmp_path)
    unit = tmp_path / "out" / "quickstart" / "grid" / "seed-0"
    finished = json.loads((unit / "result.json").read_text())
    for file in ("result.json", "trials.jsonl"):
        (unit / file).unlink()
    lines = (unit / "ledger.jsonl").read_text().splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if '"event":"end"' in line]
    (unit / "ledger.jsonl").write_text("".join(lines[: ends[1] + 1]))
    _run(later_version, *words, cwd=tmp_path)
    resumed = json.loads((unit / "result.json").read_text())
    assert resumed["final"]["chosen"].pop("top2") is not None, "what is evaluated now has the new measure"
    assert resumed["final"]["chosen"] == finished["final"]["chosen"]
    assert [resumed[key] for key in ("plan_hash", "d_opt", "trials")] == [
        finished[key] for key in ("plan_hash", "d_opt", "trials")
    ]
    events = [json.loads(line) for line in (unit / "ledger.jsonl").read_text().splitlines()]
    starts = [event["trial"] for event in events if event["event"] == "start"]
    assert len(starts) == len(set(starts)), "no trial was trained twice"
