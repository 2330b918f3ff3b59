"""Every command of the README and of the pages that need no cluster is run here, as a reader would type it.

They get fewer epochs and depths. The commands of the other documents are parsed: docs/tools/check_documents.py.
"""

import ast
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow import MlflowClient

from harness.comparing.costs import leading_cost
from harness.comparing.recommendation import Known, recommend
from harness.spaces import load_space
from tests.data.tiny_files import write_idx
from tests.running.results import command

ROOT = Path(__file__).parent.parent
README = "README.md"
# What a command is given beyond the document's words: less work, nothing that changes what it does.
NO_DROP = "training.lr_drop_epoch=null"  # it would come after the last epoch
QUICK = ("training.max_epochs=20", "training.report_every=20", "training.eval_every=20", "depth.max=4", NO_DROP)
IMAGES = ("training.max_epochs=1", "data.n_train=300", "data.n_test=50", "depth.max=2", NO_DROP)
VIT = ("training.max_epochs=2", "training.warmup_epochs=1", "depth.max=1")
LESS = {"my_space.yaml": IMAGES, "fashion_mnist_small": IMAGES, "vit.yaml": VIT}
# What the commands of a document must leave behind.
LEFT_BEHIND = {
    README: ("handwriting/report.html",),
    "docs/fashion.md": ("fashion_mnist_small/asha/seed-1/result.json",),
    "docs/index.md": ("quickstart/report.html",),
    "docs/own_data.md": ("flights/report.html", "my_space/report.html"),
    "docs/own_network.md": ("vit/report.html", "vit/ldn/seed-1/network.py"),
    "docs/own_one_shot.md": (
        "quickstart/geometric/seed-1/result.json",
        "quickstart/few_depths:draws=2/seed-1/result.json",
    ),
    "docs/own_search.md": ("quickstart/every_other:stride=3/seed-1/result.json",),
    "docs/replay.md": (),
    "docs/settings.md": (),
    "docs/spirals.md": (),
}


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(document: str) -> list[str]:
    lines = [line.partition("#")[0].strip() for block in blocks(document, "sh") for line in block.splitlines()]
    return [line for line in lines if line]


def test_the_make_targets_exist() -> None:
    targets = [line.split()[1] for line in commands(README) if line.startswith("make ")]
    assert targets == ["compare", "test", "ui"]
    for target in targets:
        # Nothing is installed or run: make says what it would do.
        made = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True)
        assert ("pytest " if target == "test" else "harness ") in made.stdout


@pytest.mark.parametrize("document", LEFT_BEHIND)
def test_every_command_is_known(document: str) -> None:
    """A command that neither this file nor the make targets run would go untested."""
    assert {line.split()[0] for line in commands(document)} <= {"make", "harness", "python"}


def test_the_python_lines_are_explained_on_their_page() -> None:
    """The page's own example is run by a test."""
    (lines,) = [block for block in blocks(README, "python") if block.startswith("import harness\n")]
    used = {node.attr for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Attribute)}
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert used == {"run", "recommendation", "frame", "model"}
    assert all(f".{name}(" in page for name in used)


def test_the_page_on_searches_says_which_schedulers_fit() -> None:
    text = " ".join((ROOT / "docs" / "own_search.md").read_text(encoding="utf-8").split())
    assert "any scheduler" not in text
    assert "One that pauses trials (HyperBand, PBT) is refused" in text


# --- the answer in the README ---------------------------------------------------------------------------------------


def tool() -> Any:
    path = ROOT / "docs" / "tools" / "collect_readme.py"
    spec = importlib.util.spec_from_file_location("collect_readme", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_is_one_screen_and_a_half() -> None:
    assert len((ROOT / README).read_text(encoding="utf-8").split()) <= 900


def test_the_readmes_answer_is_the_recorded_run_word_for_word() -> None:
    """When either changes: `python docs/tools/collect_readme.py RESULTS`, of a `make compare`."""
    made, run = tool(), tool().first_run()
    text = (ROOT / README).read_text(encoding="utf-8")
    assert made.block(run) in text
    assert run.space == made.space() and sorted(run.methods) == sorted(made.methods()), "what `make compare` runs"
    assert run.seeds == tuple(range(12)) and not run.missing
    assert " ".join(run.recommendation.sentence.split()) in " ".join(text.split())


def test_the_recorded_answer_follows_from_the_recorded_verdicts() -> None:
    """Words that changed since are not those that a reader's first run prints."""
    run = tool().first_run()
    known = Known(
        needed=run.headroom,
        exhaustive=run.exhaustive,
        stage=run.search,
        one_shots=run.one_shots,
        cost=leading_cost(run.contamination),
        margins=run.margins,
        depths=load_space(run.space).depth.values,
        spread=run.depth_spread,
        seconds_per_seed=None,
    )
    without_the_clock = re.sub(r", about [\d.]+ \w+,", "", run.recommendation.sentence)
    assert recommend(known).sentence == without_the_clock


def test_it_says_no_more_than_the_first_run() -> None:
    """Whatever the README says of a method stands in the block that was printed."""
    text = (ROOT / README).read_text(encoding="utf-8")
    outside = re.sub(r"<!-- first run -->.*?<!-- end of first run -->", "", text, flags=re.DOTALL)
    assert not re.findall(r"\d[.,]\d+ (?:of|×|nats)|as good|matches|worse in|better in|cheaper", outside)


@pytest.mark.slow
@pytest.mark.parametrize("document", LEFT_BEHIND)
def test_every_harness_command_works(
    one_ray: None, document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_the_readers_files(document, tmp_path)
    monkeypatch.setenv("HARNESS_DATA_DIR", str(tmp_path / "data"))
    for line in (line for line in commands(document) if not line.startswith("make ")):
        if line.startswith("python "):
            subprocess.run([sys.executable, *shlex.split(line)[1:]], cwd=tmp_path, check=True)
            continue
        words = re.sub(r"--seeds 0-[1-9]", "--seeds 0,1", line).split()[1:]
        words += ["--search-seeds", "5"] * (words[0] == "replay" and "--search-seeds" not in words)
        if words[0] in {"run", "trial", "study"}:
            less = LESS.get(words[1], QUICK)
            words += [word for setting in less for word in ("--set", setting)]
            words += ["--workers", "1"] * (
                words[0] != "trial" and "--workers" not in words
            )  # each imports torch, for a second of training
        done = command(tmp_path, *words)
        # The cluster file as shipped still has the values that its owner must fill in, and the doctor says so.
        expected = 2 if words[0] == "doctor" else 0
        assert done.returncode == expected, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    for name in LEFT_BEHIND[document]:
        assert (tmp_path / "results" / name).exists()
    if document == "docs/own_one_shot.md":
        command(tmp_path, "report", "quickstart")  # with the figures that a run's own report lacks here
        _geometric_is_in_every_view(tmp_path / "results")


def _geometric_is_in_every_view(results: Path) -> None:
    """Of the page's first one-shot network: its weights over depths in the report, and as a curve in MLflow."""
    assert "weights_geometric" in (results / "quickstart" / "report.html").read_text(encoding="utf-8")
    uri = f"sqlite:///{results / 'mlflow.db'}"
    client = MlflowClient(uri, registry_uri=uri)
    experiment = client.get_experiment_by_name("depth-search/quickstart")
    assert experiment
    found = client.search_runs([experiment.experiment_id], "tags.kind = 'search' and tags.search = 'geometric'")
    assert {run.data.tags["seed"] for run in found} == {"0", "1"}
    for run in found:
        assert run.data.metrics["posterior_gap_nats"] >= 0
        q = client.get_metric_history(run.info.run_id, "depth/posterior")
        assert sum(point.value for point in q) == pytest.approx(1, abs=0.01)


def _write_the_readers_files(document: str, folder: Path) -> None:
    """What the document tells its reader to write (its first line holds the file's name), and what they have."""
    for source in (*blocks(document, "python"), *blocks(document, "yaml")):
        if named := re.match(r"# (\S+\.(py|yaml))\n", source):
            (folder / named[1]).write_text(source, encoding="utf-8")
    for path in (ROOT / "ray_cluster.yaml", ROOT / "constraints.txt", *(ROOT / "docs" / "examples").iterdir()):
        if path.is_file() and not (folder / path.name).exists():
            shutil.copy(path, folder)
    images = np.random.default_rng(0).integers(0, 256, (600, 12, 12, 3), dtype=np.uint8)  # smaller ones than SVHN's
    np.savez(folder / "svhn_subset.npz", x_train=images, y_train=np.arange(600) % 10)
    write_idx(folder / "data", "FashionMNIST", n_train=600, n_test=100)
