"""Finished results of an earlier version, brought up to date when they are read. The only compatibility code."""

from typing import Any

from harness.methods import full_name, known_methods, load_method
from harness.records import MethodFacts


def upgraded_plan(plan: dict[str, Any]) -> dict[str, Any]:
    """Version 1 did not write down what is true of the method: our file of that name says it.

    Of a user's own method nothing is known any more, so it gets the careful defaults. A plan may also be
    older than the fact of what a method's name is short for.
    """
    name = plan.get("method")
    if "version" in plan:
        facts, file = plan.get("facts"), str(name).partition(":")[0]
        if isinstance(facts, dict) and "full_name" not in facts and file in known_methods():
            return {**plan, "facts": {**facts, "full_name": full_name(file)}}
        return plan
    facts = load_method(str(name))[1].facts() if name in known_methods() else MethodFacts()
    return {**plan, "facts": facts.model_dump(mode="json"), "version": 1}
