"""deploy/Dockerfile: its steps in a fresh environment, as far as they go without a container.

Not tried here: the base image, `apt-get`, `useradd`, USER and COPY as Docker does them, and torch with CUDA. Installing
takes minutes (493 s on a busy 2-core machine), so that test runs where it is asked for: HARNESS_FRESH_INSTALL=1.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import __version__

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """(RUN, …), continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", FILE.read_text(), flags=re.MULTILINE).replace("\\\n", "")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def given(word: str) -> list[str]:
    return [rest for name, rest in instructions() if name == word]


def health_check() -> str:
    [check] = given("HEALTHCHECK")
    return check.partition("CMD ")[2]


def test_it_is_pinned_and_not_root() -> None:
    names = [word for word, _ in instructions()]
    assert given("USER") == ["1000"] and names.index("USER") > max(i for i, name in enumerate(names) if name == "RUN")
    assert names.index("USER") < names.index("CMD") and "useradd --uid 1000" in given("RUN")[0]
    [install] = [run for run in given("RUN") if "pip install" in run]
    assert "-c constraints.txt" in install and ":latest" not in FILE.read_text()
    assert given("ARG")[1:] == ["DEVICE=cpu", "TORCH_INDEX="] and re.fullmatch(
        r"BASE=python:3\.1[123]\S+", given("ARG")[0]
    )
    assert not any("://" in rest for _, rest in instructions()), "an address would tie it to one registry"
    assert f"depth-search-harness:{__version__}-cpu" in FILE.read_text(), (
        "another version: renew the tags, here and in deploy/"
    )


def test_the_image_takes_what_the_package_needs_and_nothing_else() -> None:
    copied = {name for each in given("COPY") for name in each.split()[:-1]}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.slow
@pytest.mark.skipif("HARNESS_FRESH_INSTALL" not in os.environ, reason="takes minutes: HARNESS_FRESH_INSTALL=1")
def test_its_steps_in_a_fresh_environment(tmp_path: Path) -> None:
    """Copied files, the install line, the check of the device, the health check, a trial."""
    context, fresh = tmp_path / "context", tmp_path / "fresh"
    for each in given("COPY"):
        *names, target = each.split()
        for name in names:
            source, place = ROOT / name, context / (target if (ROOT / name).is_dir() else name)
            place.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, place)
    subprocess.run([sys.executable, "-m", "venv", str(fresh)], check=True)
    [install] = [run for run in given("RUN") if "pip install" in run]
    variables = {**os.environ, "PATH": f"{fresh}/bin:{os.environ['PATH']}", "DEVICE": "cpu", "TORCH_INDEX": ""}
    variables = {name: value for name, value in variables.items() if name not in ("PYTHONPATH", "RAY_ADDRESS")}
    began = time.monotonic()
    done = subprocess.run(["sh", "-c", install], cwd=context, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"the install line took {time.monotonic() - began:.0f} s")
    check = "python -c " + install.partition("&& python -c ")[2]
    other = subprocess.run(["sh", "-c", check], cwd=context, env=variables | {"DEVICE": "cuda"}, capture_output=True)
    assert other.returncode == 1 and b"got cuda with torch for cpu" in other.stderr

    as_set = dict(pair.split("=", 1) for line in given("ENV") for pair in line.split())
    assert as_set["HARNESS_DATA_DIR"] == "/home/harness/data"
    home = tmp_path / "home"
    home.mkdir()
    env = {**variables, **as_set, "HOME": str(home), "HARNESS_DATA_DIR": str(home / "data")}

    def in_it(command: str) -> "subprocess.CompletedProcess[str]":
        words = ["sh", "-c", command]
        return subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, timeout=300)

    healthy = in_it(health_check().replace("/proc/[0-9]*/comm", "/dev/null"))  # other Rays may run on this machine
    assert healthy.returncode == 0 and __version__ in healthy.stdout
    trained = in_it("harness trial quickstart --depth 1 --epochs 2 --json")
    assert trained.returncode == 0, trained.stderr
    assert json.loads(trained.stdout)["record"]["status"] == "finished"
    ill = in_it(f"RAY_ADDRESS=127.0.0.1:1; {health_check().replace('grep -qsx raylet /proc/[0-9]*/comm', 'true')}")
    assert ill.returncode != 0, "no Ray answers, and it is called healthy"
