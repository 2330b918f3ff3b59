"""The borders of design.md: who may import what, and who may open the test set."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import harness
from harness.methods import known_methods

ROOT = Path(harness.__file__).parent
VOCABULARY = ("spaces", "options", "measures", "keys", "seeds", "statistics", "errors", "scratch")
CORE = ("schema", "networks", "models", "data", "training", *VOCABULARY, "cli")
# Which package may import which, beside the schema. Data flows down: no package knows one that comes later.
MAY_IMPORT: dict[str, set[str]] = {
    "text": set(),
    "schema": set(),
    "networks": {"text"},
    "models": {"networks"},
    "data": {"text"},
    "methods": {"models", "text"},
    "training": {"backends", "networks", "models", "data", "methods", "text"},
    "backends": {"text"},
    "cluster": {"backends", "networks", "data", "training", "text"},
    "running": {"backends", "networks", "models", "data", "methods", "training", "cluster", "text"},
    "judging": set(),
    "comparing": {"judging", "text"},
    "reporting": {"comparing", "judging", "text"},
    "replaying": {"networks", "models", "data", "methods", "training", "running", "comparing", "text"},
    "tracking": {"comparing", "networks", "data", "models", "replaying", "running", "training", "cluster", "text"},
    "studies": {
        "schema",
        "networks",
        "models",
        "data",
        "methods",
        "training",
        "running",
        "judging",
        "comparing",
        "reporting",
        "tracking",
        "text",
    },
    "terminal": {"comparing", "networks", "methods", "training", "running", "studies", "text"},
}
PACKAGES = {*MAY_IMPORT, "api"}  # which stands on top of all of them


def _sources(*names: str) -> list[Path]:
    """The files of the named modules and packages below harness/."""
    return [path for name in names for path in (*ROOT.glob(f"{name}.py"), *(ROOT / name).rglob("*.py"))]


@functools.cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def _imports(path: Path) -> set[str]:
    """Every dotted name that a file imports, wherever in the file it does; `from a import b` gives a and a.b."""
    found = set()
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _packages(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in _imports(path)}


def _named(path: Path, name: str) -> bool:
    return any(getattr(node, "id", getattr(node, "attr", None)) == name for node in _nodes(path)) or any(
        imported.endswith(f".{name}") for imported in _imports(path)
    )


def test_the_core_is_where_it_is_looked_for() -> None:
    assert [name for name in CORE if not _sources(name)] == []


def test_a_folder_shows_a_role() -> None:
    """Every package is named here, and only the vocabulary stands beside them."""
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == PACKAGES
    assert len(list(ROOT.glob("*.py"))) <= 12
    one_thing_each = {"methods", "networks"}  # a file per method, as many as there are
    assert all(len(list((ROOT / package).glob("*.py"))) <= 18 for package in PACKAGES - one_thing_each)


def test_what_goes_into_a_model_of_mlflows_imports_nothing_of_this_package() -> None:
    for path in (ROOT / "schema" / "identity.py", ROOT / "tracking" / "depth_search_classifier.py"):
        assert "harness" not in _packages(path)
    for path in (ROOT / "networks").glob("[a-z]*.py"):
        ours = {name for name in _imports(path) if name.startswith("harness.")}
        assert all(name.startswith(("harness.schema.identity", "harness.networks.base")) for name in ours), path


def test_tests_mirror_the_packages() -> None:
    folders = {path.parent.name for path in Path(__file__).parent.glob("*/__init__.py")}
    assert folders == {*PACKAGES, "fuzz", "deploy"}, "these look at the program from outside"


@pytest.mark.parametrize("path", _sources(*CORE), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_knows_neither_ray_nor_mlflow(path: Path) -> None:
    assert not _packages(path) & {"ray", "mlflow", "optuna"}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_data_flows_down(package: str) -> None:
    """Imports inside functions and for types count too; the command line and the API are nobody's to import."""
    imported = {
        name.split(".")[1] for path in _sources(package) for name in _imports(path) if name.startswith("harness.")
    }
    everybodys = set() if package == "text" else {"schema"}
    assert imported & {*MAY_IMPORT, "api", "cli"} <= MAY_IMPORT[package] | {package} | everybodys


def test_only_the_tracking_imports_mlflow() -> None:
    allowed = set((ROOT / "tracking").rglob("*.py"))
    assert {path for path in ROOT.rglob("*.py") if "mlflow" in _packages(path)} <= allowed


def test_compare_and_report_read_records_only() -> None:
    trainers = ("harness.training", "harness.models", "harness.data", "harness.running")
    for path in _sources("comparing", "reporting"):
        assert not {name for name in _imports(path) if name.startswith(trainers)}
        assert "torch" not in _packages(path)


def test_no_method_is_known_by_its_name() -> None:
    """What is true of a method is declared in its file and read from the plan; a list of names goes stale."""
    names = set(known_methods())
    outside = [path for path in ROOT.rglob("*.py") if (ROOT / "methods") not in path.parents]
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.value!r}"
        for path in outside
        for node in _nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and names & set(node.value.split(","))
    ]
    assert sorted(found) == []


def test_measures_and_keys_are_plain_values() -> None:
    for path in _sources("measures", "keys", "colours"):
        assert not _packages(path) & {"torch", "numpy", "ray", "mlflow"}


def test_the_test_set_is_opened_in_one_place() -> None:
    outside = [path for path in ROOT.rglob("*.py") if (ROOT / "data") not in path.parents]
    assert [path for path in outside if _named(path, "load_test")] == [ROOT / "training" / "final.py"]
    calls = [
        function.name
        for function in _nodes(ROOT / "training" / "final.py")
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "load_test"
    ]
    assert calls == ["evaluate_on_test"]
    assert not [path for path in _sources("models", "data") if _named(path, "evaluate_on_test")]


def test_nothing_prints_but_the_command_line() -> None:
    def prints(path: Path) -> bool:
        calls = [node for node in _nodes(path) if isinstance(node, ast.Call)]
        return any(getattr(call.func, "id", None) == "print" for call in calls)

    assert [path for path in ROOT.rglob("*.py") if prints(path)] == []


def test_what_leaves_the_program_is_escaped_in_one_place() -> None:
    """Another way to escape would forget the control characters; another console would obey markup."""
    users = {path for path in ROOT.rglob("*.py") if {"html.escape", "rich.markup"} & _imports(path)}
    assert users == {ROOT / "text" / "shown.py"}
    consoles = {path for path in ROOT.rglob("*.py") if "rich.console.Console" in _imports(path)}
    assert consoles <= {ROOT / "terminal" / "console.py", ROOT / "terminal" / "live_table.py"}, "a type, and the class"
    readers = {path for path in ROOT.rglob("*.py") if "yaml" in _packages(path)}
    assert readers <= {ROOT / "text" / "strict_yaml.py", ROOT / "cluster" / "nodes.py"}, "nodes: by value, on a node"


@pytest.mark.slow
def test_training_loads_neither_ray_nor_mlflow_nor_a_compiler() -> None:
    """Also not through somebody else's import: a trial in this process must start fast, and a worker too."""
    modules = ", ".join(f"harness.{name}" for name in CORE)
    program = f"""
import sys, torch, {modules}
from harness.training.one_trial import run_one
from tests.tiny import config
for kind in ("ldn", "ddn"):
    run_one(config(kind, max_epochs=1), device=torch.device("cpu"), test=True)
print(sorted({{"ray", "mlflow", "optuna", "matplotlib", "torch._dynamo"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=ROOT.parent, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_spaces_and_networks_are_shown_without_torch() -> None:
    """Options of networks are read from their files, since importing one takes seconds."""
    program = """
import sys
from harness.schema.networks import known_networks
from harness.spaces import known_spaces, load_space
from harness.terminal.settings import shown_network, shown_space
spaces = [load_space(name) for name in known_spaces()]
shown = [shown_space(name) for name in known_spaces()], [list(shown_network(kind)) for kind in known_networks()]
print("torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=ROOT.parent, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_the_command_line_starts_without_torch() -> None:
    program = "import sys, harness.cli; print(sorted({'torch', 'ray', 'mlflow', 'numpy'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=ROOT.parent, check=True
    )
    assert done.stdout.strip() == "[]"
