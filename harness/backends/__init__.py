"""What trials run on. So far that is Ray: `ray_door` holds all that is private of it, and here is which one fits.

This file imports no Ray, so that one outside the range is refused before it is imported.
"""

import re
from importlib import metadata

from harness.errors import UserError

RAY = "ray>=2.60,<2.61"  # as in pyproject.toml: tried with every private name that is used
ON_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0"  # Ray's setting, read when it is imported: as on a Mac


def installed_ray() -> str:
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        raise UserError(f"Ray must be installed, and there is none; pip install 'ray[default,tune]{RAY[3:]}'") from None


def check_ray_version() -> None:
    """Raises UserError for a Ray that this harness was not tried with."""
    here = installed_ray()
    if not _version(RAY.split(">=")[1]) <= _version(here) < _version(RAY.split("<")[1]):
        raise UserError(
            f"this harness works with {RAY}, and Ray {here} is installed; pip install 'ray[default,tune]{RAY[3:]}'"
        )


def _version(text: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)
