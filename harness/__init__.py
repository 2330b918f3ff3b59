"""Does one learnt-depth run replace a search over depths? A harness that measures it.

    import harness

    results = harness.run("quickstart", seeds=range(3))
    results.frame()

See docs/python.md.
"""

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.api import (
        UserError,
        compare,
        export,
        init,
        load_results,
        load_space,
        pull,
        replay,
        replay_across,
        report,
        run,
    )

__version__ = "0.2.0"
__all__ = [
    "UserError",
    "compare",
    "export",
    "init",
    "load_results",
    "load_space",
    "pull",
    "replay",
    "replay_across",
    "report",
    "run",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # a library logs; whether that shows is the caller's


def __getattr__(name: str) -> Any:
    """The API is loaded when it is first used: a worker that imports one module of the harness needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harness import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
