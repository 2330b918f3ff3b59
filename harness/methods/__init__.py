"""Search methods, found by file name: `harness/methods/<name>.py`, or a path to your own file."""

import ast
import hashlib
import importlib
import importlib.util
import json
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import ValidationError

from harness.errors import UserError, blaming, brief, nearest
from harness.schema.identity import code_digest
from harness.schema.upgrade import let_old_imports_work
from harness.spaces import explain, known_spaces
from harness.text.files import checked_path
from harness.text.own_file import only_class_in
from harness.text.strict_yaml import parse_yaml

if TYPE_CHECKING:  # importing a method imports Ray, which `harness trial` does not need
    from harness.methods.base import OneShotMethod, SearchMethod
    from harness.schema.records import MethodFacts

DEFAULT = "ldn,grid"  # what a run compares when nothing else is asked for
RECORDER = "grid"  # trains every depth of a space: its trials are what other searches are replayed from
LONGEST_ROW = 120  # characters; a file system takes 255

_FOLDER = Path(__file__).parent
_own: dict[str, type["SearchMethod"]] = {}  # by name: users' own, once their file was loaded or a worker received it
_own_code: dict[str, dict[str, str]] = {}  # by name: the file of a user's own, and the hash of what it said when loaded


def known_methods() -> list[str]:
    """Names of the methods that come with the harness; the learnt-depth network first."""
    names = sorted(path.stem for path in _FOLDER.glob("*.py") if path.stem not in {"__init__", "base"})
    return sorted(names, key=lambda name: name != "ldn")


def is_method(name: str) -> bool:
    """Whether a name that may be a space's or a method's is a method's: one of ours, or somebody's own file."""
    source = name.partition(":")[0]
    if source.endswith(".py") or source in known_methods():
        return True
    if source.endswith((".yaml", ".yml")) or source in known_spaces():
        return False
    raise UserError(
        f"there is no space and no method {brief(name)!r} ({nearest(source, [*known_spaces(), *known_methods()])}); "
        "or give a .yaml or .py file"
    )


def first_sentence(name: str) -> str:
    """What a method is, read from its source: importing it would import Ray."""
    docs = [ast.get_docstring(node) or "" for node in _classes_in_source(name)]
    return docs[-1].split("\n\n")[0].replace("\n", " ")


def facts_of(name: str) -> "MethodFacts | None":
    """What one of our methods declares; None: it is none of ours."""
    return load_method(name)[1].facts() if name in known_methods() else None


def full_name(name: str) -> str | None:
    """What one of our methods declares as that, read from its source too."""
    if name not in known_methods():
        return None
    for line in (line for node in _classes_in_source(name) for line in node.body):
        if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == "full_name" and line.value:
            return str(ast.literal_eval(line.value))
    return None


def _classes_in_source(name: str) -> list[ast.ClassDef]:
    tree = ast.parse((_FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, ast.ClassDef)]


def parse_methods(text: str) -> dict[str, "SearchMethod"]:
    """`ldn,grid,asha:grace_epochs=20,path/to/mine.py` → row and method, in the order given; `all` for every one."""
    items = known_methods() if text == "all" else [item.strip() for item in text.split(",")]
    methods: dict[str, SearchMethod] = {}
    for item in items:
        row, method = _row(*load_method(item))
        if row in methods:
            raise UserError(f"method {row!r} is given twice; it may stand there again with other options")
        methods[row] = method
    return methods


def _row(name: str, method: "SearchMethod") -> tuple[str, "SearchMethod"]:
    """A method's name in results: with the options that are not the default ones, so that each has its own folder."""
    changed = method.model_dump(mode="json", exclude_defaults=True)
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in changed.items()}
    row = ":".join([name, *(f"{key}={quote(value, safe='+')}" for key, value in values.items())])
    return (row if len(row) <= LONGEST_ROW else f"{name}:{hashlib.sha256(row.encode()).hexdigest()[:16]}"), method


def load_method(text: str) -> tuple[str, "SearchMethod"]:
    """One method with its options: `name` or `path.py`, then `:option=value` as often as needed."""
    source, *options = text.split(":")
    own = source.endswith(".py")
    if own:
        checked_path(source, "a method file")
    method_class = _only_method_in(_load_file(Path(source)) if own else _load_known(source), source)
    if own:
        register(Path(source).stem, method_class)
    values = {}
    for option in options:
        key, separator, value = option.partition("=")
        if not separator:
            raise UserError(f"a method's option is written name=value; got {option!r} in {text!r}")
        if key in values:
            raise UserError(f"option {key!r} is given twice in {text!r}")
        values[key] = parse_yaml(value, f"the value of option {key!r}, {brief(value)!r},")
    with blaming(f"method {source} does not take its options", method_class):
        method = _validated(text, method_class, values)
        method.model_dump(mode="json")  # they go into the plan
    return Path(source).stem, method


def _validated(text: str, method_class: type["SearchMethod"], values: Mapping[str, Any]) -> "SearchMethod":
    try:
        return method_class.model_validate(values)
    except ValidationError as error:
        raise UserError(f"method {text!r}: {explain(error, method_class)}") from None


def one_shot_method(name: str, options: Mapping[str, Any]) -> "OneShotMethod":
    """The method that makes the network of a trial of kind `name`: one of ours, or a user's own that is known here."""
    from harness.methods.base import OneShotMethod

    method_class = _own.get(name) or _only_method_in(_load_known(name), name)
    if not issubclass(method_class, OneShotMethod):
        raise UserError(f"method {name!r} searches over fixed depths; it has no network that learns its depth")
    return method_class.model_validate_json(json.dumps(dict(options)))  # recorded: not as a person gives them


def register(name: str, method_class: type["SearchMethod"]) -> None:
    """Makes a user's own method known in this process: a worker has the class, but not the file."""
    _own[name] = method_class


def code_of(name: str) -> dict[str, str]:
    """For a plan: the file of a user's own method, with the hash of what it said when it was loaded here."""
    return _own_code.get(name, {})


def _load_known(name: str) -> ModuleType:
    if name not in known_methods():
        hint = nearest(name, known_methods())
        raise UserError(f"unknown method {name!r} ({hint}); a method of your own is given as a path ending in .py")
    return importlib.import_module(f"harness.methods.{name}")


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"method file {path} does not exist")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", path.stem) or path.stem in known_methods():
        raise UserError(
            f"a method file's name becomes the method's name: lower-case letters, digits and _, and none of "
            f"{', '.join(known_methods())}; got {path.name!r}"
        )
    module_name = f"harness_method_{path.stem}"
    let_old_imports_work()
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # pydantic and pickle look a class's module up here
    try:
        with blaming(f"method file {path} does not import"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Field name .* shadows")  # a fact with a type; `_check_facts` says it
            source = path.read_bytes()  # not what Python keeps compiled: that goes by time and size
            exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
            _own_code[path.stem] = {f"method {path.name}": code_digest(source)}
    except UserError:
        del sys.modules[module_name]
        raise
    return module


def _only_method_in(module: ModuleType, source: str) -> type["SearchMethod"]:
    from harness.methods.base import SearchMethod

    return only_class_in(module, SearchMethod, source, _check_facts)  # type: ignore[type-abstract]


def _check_facts(method_class: type["SearchMethod"], source: str) -> None:
    """A fact that is annotated like an option would become one, and nobody would read it."""
    from harness.schema.records import MethodFacts

    if mistaken := sorted(set(method_class.model_fields) & set(MethodFacts.model_fields)):
        raise UserError(
            f"{source}: {', '.join(mistaken)} must be declared without a type, or as ClassVar, as in "
            f"`{mistaken[0]} = …`: a fact is true of the class, and an annotated field is an option"
        )
    try:
        MethodFacts(**{name: getattr(method_class, name) for name in MethodFacts.model_fields})
    except ValidationError as error:
        raise UserError(f"{source}: {explain(error, MethodFacts)}") from None
