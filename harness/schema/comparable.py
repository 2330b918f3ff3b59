"""Which units may stand in one comparison: their settings, methods, data and the user's own files are the same.

Asked before a run, which must not train what could never be compared, and whenever results are compared.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from harness.schema.records import UnitPlan


def difference(plans: Sequence[UnitPlan]) -> str | None:
    """The first two plans of a space that cannot be compared, and in what they differ; None: all can.

    Of data and files, a plan of an earlier version knows no hash: there is nothing to hold against it.
    """
    seen: dict[str, tuple[UnitPlan, Any]] = {}
    for plan in plans:
        for what, value in _must_be_equal(plan):
            first, wanted = seen.setdefault(what, (plan, value))
            if found := [f"{name}: {one!r} / {other!r}" for name, one, other in unequal(wanted, value)]:
                names = " and ".join(f"{each.method} seed {each.seed}" for each in (first, plan))
                return f"{names} differ in {'; '.join(found)}"
    return None


def _must_be_equal(plan: UnitPlan) -> Iterator[tuple[str, Any]]:
    yield "space", plan.space.model_dump(exclude={"description", "margins", "choice_within"})
    if plan.data_hash:
        yield "data", {"the bytes of the data files": plan.data_hash}
    # No comparison reads `seeded`, and older plans do not say it.
    facts = plan.facts.model_dump(exclude={"colour", "full_name", "seeded"})
    yield f"method {plan.method}", {"options": plan.options, "facts": facts}
    for file, code in plan.code.items():
        yield f"code of {file}", {f"the code of {file}": code}


def unequal(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """`training.lr`, and its value in each, for everything in which two groups of settings differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from unequal(one.get(name), other.get(name), f"{path}.{name}".lstrip("."))
    elif one != other:
        yield path, one, other
