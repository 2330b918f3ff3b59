"""Errors that deserve a sentence instead of a traceback: the user can fix them."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in the input. The message names the rule, what was given and what is valid; exit code 2."""


class MachineError(Exception):
    """The machine failed, not the user: a full disk, a dead Ray. One sentence that says how to go on; exit code 1."""


class TrialFailed(Exception):
    """A trial that cannot continue (a non-finite loss). It is recorded as failed, with its cost."""


def nearest(word: str, choices: Iterable[str], prefix: str = "") -> str:
    """`did you mean 'x'?` when a valid choice is close, with `prefix` before the x; else the list of choices."""
    known = sorted(choices)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {prefix + close[0]!r}?" if close else f"valid: {', '.join(known)}"
