"""One colour per search method, in MLflow and in the report alike: Okabe and Ito's, safe for colour-blind readers."""

import hashlib
from typing import Final

_KNOWN: Final[dict[str, str]] = {
    "ldn": "#D55E00",
    "grid": "#0072B2",
    "random_search": "#56B4E9",
    "optuna_tpe": "#009E73",
    "asha": "#E69F00",
    "optuna_asha": "#CC79A7",
    "golden_section": "#999999",
}
_OTHERS: Final = tuple(colour for method, colour in _KNOWN.items() if method != "ldn")  # the LDN's stays its own


def colour_of(method: str) -> str:
    """A method's colour as `#RRGGBB`; one we do not know gets the same one every time, by its name's hash."""
    digest = hashlib.sha256(method.encode()).digest()
    return _KNOWN.get(method) or _OTHERS[digest[0] % len(_OTHERS)]
