"""The fast tests and one small run, in an environment with the lowest, the pinned and the newest versions allowed.

    python -m tests.versions                 all three, one after another
    python -m tests.versions lowest newest   these

Lowest: each `>=` of pyproject.toml as `==`; pinned: constraints.txt; newest: whatever the ranges allow today. What
these packages bring in themselves is the newest that fits. Environments are made with the Python that runs this, stay
in .versions for the next time, and hold several GB each where torch comes with CUDA. Only the standard library is
imported here, so any Python that pyproject.toml allows can make them.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".versions"
TOLD = ("ray", "torch", "torchvision", "optuna", "mlflow", "pydantic", "numpy", "pandas", "scikit-learn")
FAST = ("-m", "pytest", "-q", "-n", "2", "-m", "not slow")
SMALL = ("--methods", "ldn,grid,optuna_tpe,optuna_gp", "--seeds", "0", "--epochs", "40", "--set", "depth.max=3")
LINES_OF_A_FAILURE = 60
_LOWEST = re.compile(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)(?:,<[\w.]+)?")


class Failed(Exception):
    pass


def requirements() -> list[str]:
    """The direct dependencies, those of the extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]


def lowest() -> str:
    """Constraints that take each direct dependency at its lower bound."""
    lines = []
    for requirement in requirements():
        match = _LOWEST.fullmatch(requirement)
        if match is None:
            raise Failed(f"a dependency in pyproject.toml must read name>=1.2 or name>=1.2,<3; got {requirement}")
        lines.append(f"{match[1]}=={match[2]}\n")
    return "".join(lines)


def pinned() -> str:
    return (ROOT / "constraints.txt").read_text()


def newest() -> str:
    return ""


CONSTRAINTS: dict[str, Callable[[], str]] = {"lowest": lowest, "pinned": pinned, "newest": newest}


class Environment:
    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = FOLDER / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
        self.log = self.folder / "log.txt"
        self._python = self.folder / "bin/python"

    def tried(self) -> str:
        """Figures and versions in a few lines; raises `Failed`."""
        took: dict[str, float] = {}
        for step in (self._install, self._test, self._run):
            print(f"{self.folder.name}: {step.__name__.strip('_')} …", flush=True)
            start = time.monotonic()
            step()
            took[step.__name__.strip("_")] = time.monotonic() - start
        seconds = ", ".join(f"{name} {value:.0f} s" for name, value in took.items())
        return f"{self._test_summary()}; {seconds}\n  {self._versions()}"

    def _install(self) -> None:
        if not self._python.exists():
            venv.create(self.folder, with_pip=True)
        constraints = self.folder / "constraints.txt"
        constraints.write_text(CONSTRAINTS[self.name]())
        self.log.write_text("")
        newer = ("--upgrade", "--upgrade-strategy", "eager")
        extras = (*newer, "-c", constraints, "-e", f"{ROOT}[dev,cluster]")
        self._call(self._python, "-m", "pip", "install", "--progress-bar", "off", *extras)
        self._call(self._python, "-m", "pip", "check")

    def _test(self) -> None:
        self._call(self._python, *FAST)

    def _test_summary(self) -> str:
        return str(re.findall(r"^=*\s*(\d+ passed.*?) in [\d.]+s", self.log.read_text(), re.MULTILINE)[-1])

    def _run(self) -> None:
        """A run, its comparison and its report: all succeed, and no library complains to the user."""
        harness = self.folder / "bin/harness"
        with tempfile.TemporaryDirectory(prefix="versions-") as out:
            said = self._call(harness, "run", "quickstart", *SMALL, "--out", out)
            said += self._call(harness, "compare", "quickstart", "--out", out)
            said += self._call(harness, "report", "quickstart", "--out", out)
            if not (Path(out) / "quickstart/report.html").exists():
                raise Failed("`harness report` wrote no report")
        if warnings := [line for line in said.splitlines() if "Warning" in line]:
            raise Failed(f"the small run shows a library's warning: {warnings[0]}")

    def _versions(self) -> str:
        asked = f"import json, importlib.metadata as m; print(json.dumps({{n: m.version(n) for n in {TOLD}}}))"
        versions = json.loads(self._call(self._python, "-c", asked).splitlines()[-1])
        return ", ".join(f"{name} {version}" for name, version in versions.items())

    def _call(self, *command: str | Path) -> str:
        words = [str(word) for word in command]
        # Tests and Ray's workers find programs of the environment by the path.
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        environment = os.environ | {"VIRTUAL_ENV": str(self.folder), "PATH": path}
        done = subprocess.run(
            words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(words)}\n{done.stdout}\n")
        if done.returncode:
            last = "\n".join(done.stdout.splitlines()[-LINES_OF_A_FAILURE:])
            raise Failed(f"exit code {done.returncode} of `{' '.join(words)}`, all of it in {self.log}\n{last}")
        return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*CONSTRAINTS, []]  # Python 3.11 looks for none given among the choices
    parser.add_argument("names", nargs="*", choices=names, metavar="|".join(CONSTRAINTS))
    failed = 0
    for name in parser.parse_args().names or CONSTRAINTS:
        try:
            print(f"{name}: {Environment(name).tried()}")
        except Failed as failure:
            print(f"{name} FAILED: {failure}")
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
