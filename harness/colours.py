"""One colour per method, the same in the terminal, the report and MLflow; safe for colour-blind readers."""

import hashlib
from typing import Final

# Okabe & Ito's palette; its yellow is left out, too pale for lines on white.
BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
GREEN: Final = "#009E73"
PURPLE: Final = "#CC79A7"
ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"

# Shades for methods that declare none: apart from the above in lightness, so they differ without colour vision too.
OTHER_COLOURS: Final = ("#000000", "#777777", "#00425F", "#7A3600", "#005C43", "#7D3A5D")


def colour_of(method: str, declared: str | None) -> str:
    """`#rrggbb`: what the method declares, else a shade by its name, the same in every run and on every machine.

    A row with other options than the default ones is a darker shade of its method's.
    """
    by_name = hashlib.sha256(method.encode()).digest()[0]
    if declared is None:
        return OTHER_COLOURS[by_name % len(OTHER_COLOURS)]
    if ":" not in method:
        return declared
    kept = 0.4 + 0.4 * by_name / 255
    return "#" + "".join(f"{round(kept * int(declared[at : at + 2], 16)):02X}" for at in (1, 3, 5))
