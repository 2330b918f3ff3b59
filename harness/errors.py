"""The errors a person can cause, and that deserve a sentence instead of a traceback."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in the input. The message names the rule, what was given and what is valid; exit code 2."""


class TrialFailed(Exception):
    """A trial that cannot go on (a non-finite loss). It becomes a FAILED record with its cost, never a result."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """`; did you mean 'x'?` when a valid choice is close, else the list of choices."""
    known = sorted(choices)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"valid: {', '.join(known)}"
