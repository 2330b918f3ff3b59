"""Would AWS allow it? A small judge of IAM policies: Allow statements, wildcards, StringEquals and Bool. A mock of AWS.

Written from the documented rules: an action is allowed where one statement allows it on every resource that it touches,
and a condition on a key that the request does not have is not met. Statements of other kinds are refused here, so that
none is overlooked.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any


def allows(policies: Sequence[Mapping[str, Any]], action: str, resource: str, **context: str) -> bool:
    """`context`: keys of the request, `__` for `:` and `_` for `-` and `/`, as `aws__RequestTag_ray_cluster_name`."""
    asked = {_plain(key): value for key, value in context.items()}
    statements = [each for policy in policies for each in policy["Statement"]]
    return any(_matches(each, action, resource, asked) for each in statements)


def _matches(statement: Mapping[str, Any], action: str, resource: str, asked: Mapping[str, str]) -> bool:
    assert statement["Effect"] == "Allow" and set(statement) <= {"Sid", "Effect", "Action", "Resource", "Condition"}
    return (
        any(fnmatchcase(action, pattern) for pattern in _listed(statement["Action"]))
        and any(fnmatchcase(resource, pattern) for pattern in _listed(statement["Resource"]))
        and all(
            asked.get(_plain(key)) in [str(value).lower() if test == "Bool" else value for value in _listed(wanted)]
            for test, conditions in statement.get("Condition", {}).items()
            for key, wanted in _known(test, conditions).items()
        )
    )


def _known(test: str, conditions: Mapping[str, Any]) -> Mapping[str, Any]:
    assert test in ("StringEquals", "Bool"), f"the judge does not know {test}"
    return conditions


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _plain(key: str) -> str:
    return key.replace("__", ":").replace("/", "_").replace("-", "_").lower()
