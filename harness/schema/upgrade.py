"""Finished results of an earlier version, brought up to date when they are read. The only compatibility code.

A field that an earlier version did not have needs nothing here: `Later` (identity.py) says what it was, or its default
is None. Here stands what was written in another form.
"""

import re
import sys
from collections.abc import Callable
from typing import Any

from harness.errors import UserError
from harness.schema import records
from harness.schema.records import VERSION, MethodFacts, TrialConfig


def upgraded_plan(
    plan: dict[str, Any], full_name: Callable[[str], str | None], facts: Callable[[str], MethodFacts | None]
) -> dict[str, Any]:
    """Version 1 did not write down what is true of the method: our file of that name says it.

    Of a user's own method nothing is known any more, so it gets the careful defaults. A plan may also be
    older than the fact of what a method's name is short for.
    """
    method, version = str(plan.get("method")), plan.get("version")
    if isinstance(version, int) and version > VERSION:
        raise UserError(
            f"it was written by a newer version of the harness (records of version {version}, this one reads up to "
            f"{VERSION}); install that version, or give another --out"
        )
    if "version" in plan:
        known = plan.get("facts")
        if isinstance(known, dict) and "full_name" not in known:
            return {**plan, "facts": {**known, "full_name": full_name(method.partition(":")[0])}}
        return plan
    return {**plan, "facts": (facts(method) or MethodFacts()).model_dump(mode="json"), "version": 1}


def upgraded_event(line: str) -> str:
    """A line of a ledger: tasks used to say whether a scheduler may stop their trial."""
    return re.sub(r',"may_be_stopped":(?:true|false)', "", line) if '"may_be_stopped"' in line else line


def upgraded_model(content: dict[str, Any], config: TrialConfig) -> dict[str, Any]:
    """The values of a model.pt: it did not always say how its classes and columns are called."""
    unsaid = {
        "averages_depths": config.learns_depth,
        "class_names": [str(number) for number in range(content["n_classes"])],
        "columns": [],
    }
    return {**unsaid, **content}


def let_old_imports_work() -> None:
    """Of users' own method files: `harness.records` is where records used to be."""
    sys.modules.setdefault("harness.records", records)
