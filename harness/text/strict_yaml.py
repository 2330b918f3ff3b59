"""YAML as people write settings in it: mappings, lists, numbers and words, within bounds that are stated here.

What YAML has beyond that is refused in one sentence: tags (`!!int x`), keys given twice, aliases that contain
themselves or multiply into millions of values, nesting that no settings need. A date is a word like any other.
"""

import re
from typing import Any

import yaml

from harness.errors import UserError, brief

LONGEST = 1_000_000  # characters of a text
DEEPEST = 50  # mappings and lists inside each other
MOST_VALUES = 100_000  # with every alias written out
MOST_DIGITS = 30  # of a whole number


def parse_yaml(text: str, source: str) -> Any:
    """The value that the text stands for; `source` says in an error where the text came from."""
    if len(text) > LONGEST:
        raise UserError(f"{source} must have at most {LONGEST:,} characters; it has {len(text):,}")
    try:
        _check_bounds(text)
        return yaml.load(text, _StrictLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise UserError(f"{source} is not valid YAML: {where}{brief(problem, longest=300)}") from None


def _check_bounds(text: str) -> None:
    """Goes through the text's events, which need no memory for what aliases multiply to, before anything is built."""
    open_parts = [_Part(None)]
    known: dict[str | None, _Part] = {}
    for event in yaml.parse(text, _StrictLoader):
        if getattr(event, "tag", None) is not None:
            raise _refused(event, f"tags such as {event.tag!r} are not used in settings")
        if isinstance(event, yaml.ScalarEvent):
            part = _Part(event.anchor, values=1, height=0)
        elif isinstance(event, yaml.AliasEvent):
            if any(event.anchor == each.anchor for each in open_parts):
                raise _refused(event, f"alias {event.anchor!r} stands inside what it is an alias of")
            part = known.get(event.anchor, _Part(event.anchor, values=1, height=0))
        elif isinstance(event, yaml.CollectionStartEvent):
            open_parts.append(_Part(event.anchor, values=1, height=1))
            part = _Part(None)
        elif isinstance(event, yaml.CollectionEndEvent):
            part = open_parts.pop()
        else:
            continue
        if part.anchor is not None:
            known[part.anchor] = part
        open_parts[-1].add(part)
        if len(open_parts) - 1 + part.height > DEEPEST:
            raise _refused(event, f"at most {DEEPEST} mappings and lists may stand inside each other")
        if open_parts[-1].values > MOST_VALUES:
            raise _refused(event, f"at most {MOST_VALUES:,} values are read, aliases written out")


class _Part:
    """A value with everything in it: how many values that is, and how many levels."""

    def __init__(self, anchor: str | None, values: int = 0, height: int = 0) -> None:
        self.anchor, self.values, self.height = anchor, values, height

    def add(self, other: "_Part") -> None:
        self.values += other.values
        self.height = max(self.height, other.height + 1)


def _refused(event: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses duplicate keys, knows no dates, and reads `1e-4` as a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            try:
                twice = key in seen
            except TypeError:
                break  # a list or a mapping as a key: PyYAML itself says so
            if twice:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        try:
            if len(node.value) > MOST_DIGITS:
                raise ValueError
            return int(super().construct_yaml_int(node))
        except ValueError:
            problem = f"a whole number has digits, at most {MOST_DIGITS}; got {node.value[:MOST_DIGITS]!r}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


# Resolvers are kept by the first letter of a word. Without those of dates, 2026-02-30 is a word and not a crash.
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_yaml_int)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
