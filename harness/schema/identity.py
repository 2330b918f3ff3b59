"""What makes two results the same: a hash over settings that outlives new settings.

A field that a later version adds is marked `Later(before=…)`, with what the program did before there was such a field.
That value is frozen: it never changes, whatever becomes of the field's default. While a field has it,

- the field is left out of every hash, so plans, trials and recordings of earlier versions keep theirs;
- a record without the field, which an earlier version wrote, is read as having it.

What a person leaves out gets the default instead (`NEW`).
"""

import ast
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)

NEW: Final = "new"  # validation context of what a person gave; without it JSON is a record
_HASHED: Final = "hashed"  # serialization context


class Frozen(BaseModel):
    """A value object: typed strictly, checked once in the constructor, never changed, to and from JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Later:
    """Marks a field that came after results were written without it."""

    before: Any  # the value that stands for how the program behaved then


class Identified(Frozen):
    """A value that is part of what identifies a result."""

    @model_validator(mode="after")
    def _as_it_was(self, info: ValidationInfo) -> Self:
        if info.mode == "json" and info.context != NEW:
            for name in _came_later(type(self)).keys() - self.model_fields_set:
                self.__dict__[name] = _came_later(type(self))[name]  # frozen from here on
        return self

    @model_serializer(mode="wrap")
    def _without_what_came_later(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        values: dict[str, Any] = dump(self)
        if info.context != _HASHED:
            return values
        unchanged = {name for name, before in _came_later(type(self)).items() if getattr(self, name) == before}
        return {name: value for name, value in values.items() if name not in unchanged}


@functools.cache
def _came_later(model: type[BaseModel]) -> Mapping[str, Any]:
    """Field → what it was before it existed."""
    return {
        name: mark.before
        for name, field in model.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, Later)
    }


def hashed(value: Identified) -> dict[str, Any]:
    """What of it goes into a hash, as JSON values."""
    return value.model_dump(mode="json", context=_HASHED)


def digest(value: Identified, exclude: Any = None) -> str:
    """16 hexadecimal digits of everything in it that an earlier version would have written."""
    return hashlib.sha256(value.model_dump_json(exclude=exclude, context=_HASHED).encode()).hexdigest()[:16]


def code_digest(source: bytes) -> str:
    """16 hexadecimal digits of what a Python file says: comments, docstrings and layout change nothing.

    The syntax tree is written out here, since `ast.dump` writes it differently from version to version of Python.
    """
    told = hashlib.sha256()
    waiting: list[object] = [ast.parse(source)]
    while waiting:  # no recursion: a sum of a thousand terms is a tree as deep
        match waiting.pop():
            case ast.AST() as node:
                told.update(f"{type(node).__name__}(".encode())
                fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
                waiting.append(_END)
                for name, value in reversed(fields):
                    waiting += [value, _Written(f"{name}=")]
            case list() as nodes:
                waiting.append(_END)
                waiting += reversed([node for node in nodes if not _is_text(node)])
            case _Written() as text:
                told.update(text.encode())
            case value:
                told.update(f"{value!r},".encode())
    return told.hexdigest()[:16]


class _Written(str):
    """Goes into a hash as it is."""


_END: Final = _Written(")")


def _is_text(node: object) -> bool:
    """A string that stands by itself, as docstrings do."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
