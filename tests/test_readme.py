"""Every command of the README is run here, with fewer epochs and depths, as a reader would type it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.data.tiny_files import write_idx

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
# What a command is given beyond the README's words: less work, nothing that changes what it does.
QUICK = ("training.max_epochs=20", "training.report_every=20", "training.eval_every=20", "depth.max=4")
IMAGES = ("training.max_epochs=1", "data.n_train=300", "data.n_test=50", "depth.max=2")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[str]:
    lines = [line.partition("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def test_the_make_targets_exist() -> None:
    targets = [line.split()[1] for line in commands() if line.startswith("make ")]
    assert targets == ["compare", "ui"]
    for target in targets:
        # Nothing is installed or run: make says what it would do.
        made = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True)
        assert "harness " in made.stdout


def test_every_command_is_known() -> None:
    """A command that neither this file nor the make targets run would go untested."""
    assert {line.split()[0] for line in commands()} == {"make", "harness"}


@pytest.mark.slow
def test_every_harness_command_works(tmp_path: Path) -> None:
    for source in (*blocks("python"), *blocks("yaml")):
        name = re.match(r"# (\S+\.(py|yaml))\n", source)
        assert name, "the README's file begins with a comment that holds its name"
        (tmp_path / name[1]).write_text(source, encoding="utf-8")
    (tmp_path / "ray_cluster.yaml").write_text((ROOT / "ray_cluster.yaml").read_text(encoding="utf-8"))
    (tmp_path / "constraints.txt").write_text((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    images = np.random.default_rng(0).integers(0, 256, (600, 12, 12, 3), dtype=np.uint8)  # smaller ones than SVHN's
    np.savez(tmp_path / "svhn_subset.npz", x_train=images, y_train=np.arange(600) % 10)
    write_idx(tmp_path / "data", "FashionMNIST", n_train=600, n_test=100)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "110", "HARNESS_DATA_DIR": str(tmp_path / "data")}
    for line in (line for line in commands() if line.startswith("harness ")):
        words = line.split()[1:]
        if words[0] in {"run", "trial", "study"}:
            less = IMAGES if {"my_space.yaml", "fashion_mnist_small"} & set(words) else QUICK
            words += [word for setting in less for word in ("--set", setting)]
        done = subprocess.run(
            [sys.executable, "-m", "harness", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
        )
        # The cluster file as shipped still has the values that its owner must fill in, and the doctor says so.
        expected = 2 if words[0] == "doctor" else 0
        assert done.returncode == expected, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert (tmp_path / "results" / "quickstart" / "every_other" / "seed-1" / "result.json").exists()
    assert (tmp_path / "results" / "digits" / "report.html").exists()
    assert (tmp_path / "results" / "my_space" / "report.html").exists()
    assert (tmp_path / "results" / "studies" / "functions-small" / "functions" / "page.html").exists()
