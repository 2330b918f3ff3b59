"""Runs the command line on Rays in which names are called otherwise, as a later Ray's might be.

`python -m tests.backends.renamed FOLDER` reads `cases.json` there: for each case what is renamed, [file or "", name]
pairs, and the words of a command. Each case has a process of its own, forked from one that has imported everything but
Ray; its exit code, what it printed and which names it missed are left in `<case>.json`.
"""

import importlib.util
import json
import os
import re
import sys
import sysconfig
import types
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path
from typing import Any

RAY = Path(sysconfig.get_paths()["purelib"]) / "ray"
Renames = list[tuple[str, str]]  # the file in which a name is another; "": in all of Ray's


def install(renames: Renames) -> None:
    """From here on Ray's modules are imported from sources with other names; what is on disk stays as it is."""

    class Renaming(SourceFileLoader):
        def get_code(self, fullname: str) -> types.CodeType | None:
            names = [name for file, name in renames if file in ("", self.path)]
            source = Path(self.path).read_text(encoding="utf-8") if names else ""
            pattern = re.compile(rf"\b({'|'.join(names)})\b")
            if not names or not pattern.search(source):
                return super().get_code(fullname)
            return compile(pattern.sub(r"\1_renamed", source), self.path, "exec", dont_inherit=True)

    def finder(path: str) -> FileFinder:
        if not Path(path).is_relative_to(RAY):
            raise ImportError(path)
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (Renaming, [".py"]))

    assert "ray" not in sys.modules
    sys.path_hooks.insert(0, finder)
    sys.path_importer_cache.clear()


def without_native(names: list[str]) -> None:
    """Names of Ray's compiled module, which no source spells, are gone once it is imported."""
    if names:
        import ray

        native: Any = ray._raylet
        for name in names:
            setattr(native, name, type(name, (), {}))


def run(folder: Path, case: str, renames: Renames, native: list[str], words: list[str]) -> None:
    with (folder / f"{case}.out").open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    install(renames)
    without_native(native)
    from harness.backends.ray_door import NAMES, is_there
    from harness.cli import main

    (folder / f"{case}.missed").write_text(json.dumps([str(each) for each in NAMES if not is_there(each)]))
    try:
        main(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def main(folder: Path) -> None:
    from tests.warm import OF_RAY

    for module in (*OF_RAY, "harness.cli", "harness.training.final", "harness.training.train"):
        importlib.import_module(module)
    for case, (renames, native, words) in json.loads((folder / "cases.json").read_text()).items():
        pid = os.fork()
        if pid == 0:
            code: Any = 70
            try:
                run(folder, case, [(file, name) for file, name in renames], native, words)
            except SystemExit as exit_:
                code = exit_.code or 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        said = (folder / f"{case}.out").read_text()
        missed = json.loads((folder / f"{case}.missed").read_text())
        (folder / f"{case}.json").write_text(json.dumps([os.waitstatus_to_exitcode(status), said, missed]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
