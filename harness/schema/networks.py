"""Settings of networks: options of those in harness/networks/, read from their files, and of users' own.

A network's file imports torch, which takes seconds, and a space must load without. So the options of a shipped network
are read from its source. A user's own file is imported when a space is parsed (harness/networks/), which has its
options checked by its class; results are read without that file.
"""

import ast
import functools
import operator
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, SerializeAsAny, Tag, create_model

from harness.schema.identity import Identified, Later

FOLDER = Path(__file__).parent.parent / "networks"
_NO_NETWORKS = {"__init__", "base"}
_VOCABULARY = {"Annotated": Annotated, "Literal": Literal, "Field": Field, "Later": Later}  # of the options' types
_OWN = "own"


class NetworkSettings(Identified):
    """Which network, and its options."""

    kind: str


class OwnNetwork(NetworkSettings):
    """A network of a user's own: its file's name and hash, and all of its options."""

    model_config = ConfigDict(extra="allow")

    source: str


def known_networks() -> list[str]:
    """Kinds that come with the harness: the names of their files."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in _NO_NETWORKS)


def networks_for(images: bool) -> list[str]:
    """Those that suit such samples best; one for rows would take the pixels of an image one by one."""
    return [kind for kind in known_networks() if (_takes(kind) == "images") == images]


def _takes(kind: str) -> str:
    node = network_class_in(ast.parse((FOLDER / f"{kind}.py").read_text(encoding="utf-8")))
    lines = node.body if node else []
    said = [line.value for line in lines if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == "takes"]
    return str(ast.literal_eval(said[0])) if said and said[0] else "any"


def network_class_in(tree: ast.Module, bases: Iterable[str] = ("Network",)) -> ast.ClassDef | None:
    """The first class in a source that says it is a `Network`, or another of `bases`."""
    known = set(bases)
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return next((node for node in classes if known & {ast.unparse(base).split(".")[-1] for base in node.bases}), None)


def _settings_of(kind: str) -> type[NetworkSettings]:
    """The fields of a shipped network's class, with the sentences below them."""
    node = network_class_in(ast.parse((FOLDER / f"{kind}.py").read_text(encoding="utf-8")))
    assert node is not None
    fields: dict[str, Any] = {"kind": (Literal[kind], ...)}
    for line, below in pairwise([*node.body, ast.Pass()]):
        if isinstance(line, ast.AnnAssign) and line.value and not ast.unparse(line.annotation).startswith("ClassVar"):
            annotation, default = (eval(ast.unparse(part), _VOCABULARY) for part in (line.annotation, line.value))
            sentence = ast.literal_eval(below.value) if isinstance(below, ast.Expr) else ""
            fields[ast.unparse(line.target)] = (Annotated[annotation, Field(description=sentence)], default)
    doc = ast.get_docstring(node)
    return create_model(node.name, __base__=NetworkSettings, __doc__=doc, __module__=__name__, **fields)


SHIPPED = {kind: _settings_of(kind) for kind in known_networks()}


def _which(value: Any) -> Any:
    given = value if isinstance(value, dict) else vars(value) if isinstance(value, NetworkSettings) else {}
    return _OWN if "source" in given else given.get("kind")


if TYPE_CHECKING:
    AnyNetwork = NetworkSettings
else:
    _tagged = [Annotated[each, Tag(kind)] for kind, each in (*SHIPPED.items(), (_OWN, OwnNetwork))]
    AnyNetwork = SerializeAsAny[Annotated[functools.reduce(operator.or_, _tagged), Discriminator(_which)]]


def network_settings(kind: str, **options: Any) -> NetworkSettings:
    """Of a shipped network; options that are not given have their defaults."""
    return SHIPPED[kind](kind=kind, **options)
