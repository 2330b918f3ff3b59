"""Errors that deserve a sentence instead of a traceback: the user can fix them."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in the input. The message names the rule, what was given and what is valid; exit code 2."""


class TrialFailed(Exception):
    """A trial that cannot continue (a non-finite loss). It is recorded as failed, with its cost."""


def brief(text: str, longest: int = 100) -> str:
    """A value that somebody gave, cut where it is too long for a sentence."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def brief_repr(value: object) -> str:
    """Any value as Python writes it; numbers of thousands of digits it refuses to write."""
    try:
        return brief(repr(value))
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too large to show"


def nearest(word: str, choices: Iterable[str], prefix: str = "") -> str:
    """`did you mean 'x'?` when a valid choice is close, with `prefix` before the x; else the list of choices."""
    known = sorted(choices)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {prefix + close[0]!r}?" if close else f"valid: {', '.join(known)}"
