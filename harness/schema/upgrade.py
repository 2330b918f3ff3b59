"""Finished results of an earlier version, brought up to date when they are read. The only compatibility code."""

from collections.abc import Callable
from typing import Any

from harness.schema.records import MethodFacts


def upgraded_plan(
    plan: dict[str, Any], full_name: Callable[[str], str | None], facts: Callable[[str], MethodFacts | None]
) -> dict[str, Any]:
    """Version 1 did not write down what is true of the method: our file of that name says it.

    Of a user's own method nothing is known any more, so it gets the careful defaults. A plan may also be
    older than the fact of what a method's name is short for.
    """
    method = str(plan.get("method"))
    if "version" in plan:
        known = plan.get("facts")
        if isinstance(known, dict) and "full_name" not in known:
            return {**plan, "facts": {**known, "full_name": full_name(method.partition(":")[0])}}
        return plan
    return {**plan, "facts": (facts(method) or MethodFacts()).model_dump(mode="json"), "version": 1}
