"""Networks, found by file name: `harness/networks/<kind>.py`, or a path to your own file. See `Network` in base.py.

Nothing here imports torch before a network is asked for.
"""

import ast
import hashlib
import importlib
import json
import linecache
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harness.errors import UserError, blaming, brief
from harness.schema.networks import (
    FOLDER,
    SHIPPED,
    NetworkSettings,
    OwnNetwork,
    known_networks,
    network_class_in,
    network_settings,
)
from harness.text.files import checked_path, read_text
from harness.text.own_file import only_class_in

if TYPE_CHECKING:
    from harness.networks.base import Network

SOURCE = "network.py"  # beside a model.pt
_own: dict[str, tuple[str, type["Network"]]] = {}  # users' own that are known here: source and class, by hash


def is_network(name: str) -> bool:
    """Whether a name is that of one of our networks, or of a user's own file that defines one, as its source says."""
    if not name.endswith(".py"):
        return name in known_networks()
    try:
        tree = ast.parse(Path(name).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, MemoryError, RecursionError):  # whoever loads it says what is wrong
        return False
    ours = (settings.__name__ for settings in SHIPPED.values())  # named after the class of each file
    return network_class_in(tree, ("Network", *ours)) is not None


def network_of(settings: NetworkSettings) -> "Network":
    """The network with its options."""
    options = settings.model_dump(mode="json", exclude={"kind", "source"})
    return _class_of(settings).model_validate_json(json.dumps(options))


def _class_of(settings: NetworkSettings) -> type["Network"]:
    if not isinstance(settings, OwnNetwork):
        return _only_network_in(importlib.import_module(f"harness.networks.{settings.kind}"), settings.kind)
    if settings.source not in _own:
        raise UserError(
            f"the network {settings.kind} is a user's own, and the file that it was made with (hash {settings.source}) "
            "is not loaded here; give the space that names the file"
        )
    return _own[settings.source][1]


def own_network(given: Mapping[str, Any]) -> tuple[type["Network"], str, str] | None:
    """Of a space's `network`, as a person writes it: its class, name and hash; None where it is one of ours."""
    kind = given.get("kind")
    if not isinstance(kind, str) or (kind in known_networks() and "source" not in given):
        return None
    if kind.endswith(".py"):
        kind, source = load_network_file(Path(kind))
    else:
        source = str(given.get("source"))
    if source not in _own:
        raise UserError(
            f"network.kind must be one of {', '.join(map(repr, known_networks()))}, or a path to your own .py file; "
            f"got {brief(repr(kind))}"
        )
    return _own[source][1], kind, source


def load_network_file(path: Path) -> tuple[str, str]:
    """Makes a user's own file known in this process; its name and the hash of its source."""
    checked_path(str(path), "a network file")
    if not path.is_file():
        raise UserError(f"network file {path} does not exist")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", path.stem) or path.stem in known_networks():
        raise UserError(
            "a network file's name becomes the network's kind: lower-case letters, digits and _, and none of "
            f"{', '.join(known_networks())}; got {path.name!r}"
        )
    return path.stem, register(path.stem, read_text(path, "a network file"))


def register(kind: str, text: str) -> str:
    """Makes a user's own network known in this process, from its source, which is executed; returns its hash."""
    source = hash_of(text)
    if source not in _own:
        name = f"harness_network_{kind}_{source}"
        module = ModuleType(name)
        module.__file__ = f"<{name}>"
        linecache.cache[module.__file__] = (len(text), None, text.splitlines(keepends=True), module.__file__)
        sys.modules[name] = module  # pydantic and pickle look a class's module up here
        try:
            with blaming(f"network file {kind}.py does not import"):
                exec(compile(text, module.__file__, "exec"), vars(module))
            _own[source] = text, _only_network_in(module, f"{kind}.py")
        except UserError:
            del sys.modules[name]
            raise
    return source


def make_known(
    settings: OwnNetwork, model: Path, trust_code: bool = False, network_class: type["Network"] | None = None
) -> None:
    """A user's own network of a model.pt: by its class, or by the code beside it if that may be run."""
    if network_class is not None:
        _own[settings.source] = _own.get(settings.source, ("", network_class))[0], network_class
    if settings.source in _own:
        return
    if not trust_code:
        raise UserError(
            f"the network of {model} is somebody's own code, {settings.kind}.py, which is run only if you say so: "
            f"give trust_code=True to run the {SOURCE} beside it, or the class itself as network=…"
        )
    register(settings.kind, source_beside(settings, model))


def source_beside(settings: OwnNetwork, model: Path) -> str:
    """The source of a model's network, as it lies beside the model.pt; nothing is run."""
    path = model.with_name(SOURCE)
    if not path.is_file():
        raise UserError(f"the network of {model} is a user's own, and its code is not beside it: there is no {path}")
    text = read_text(path, "the code of a network")
    if hash_of(text) != settings.source:
        raise UserError(
            f"{path} is not the code that {model} was made with: its hash is {hash_of(text)}, and must be "
            f"{settings.source}"
        )
    return text


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def small_network(kind: str) -> NetworkSettings:
    """A shipped network in a small size, for checks."""
    return network_settings(kind, **_class_of(network_settings(kind)).small)


def known_source(settings: NetworkSettings) -> str:
    """The text of a network's file, ours or a user's own that is known in this process."""
    _class_of(settings)
    if isinstance(settings, OwnNetwork):
        return _own[settings.source][0]
    return (FOLDER / f"{settings.kind}.py").read_text(encoding="utf-8")


def own_sources(networks: Iterable[NetworkSettings]) -> list[tuple[str, str]]:
    """Kind and source of users' own among them, each once."""
    return list(dict.fromkeys((each.kind, known_source(each)) for each in networks if isinstance(each, OwnNetwork)))


def _only_network_in(module: ModuleType, source: str) -> type["Network"]:
    from harness.networks.base import Network

    return only_class_in(module, Network, source, _check_options)  # type: ignore[type-abstract]


def _check_options(network_class: type["Network"], source: str) -> None:
    if reserved := sorted({"kind", "source"} & set(network_class.model_fields)):
        raise UserError(f"{source}: {reserved[0]} is no name for an option: a space says by it which network it is")
