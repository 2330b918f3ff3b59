"""Do all nodes of a cluster file get the same, exact versions? Reads the `pip install` commands."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.cluster.checks import Check, verdict
from harness.text.files import read_text

_RAY_DEFAULTED = ("setup_commands", "head_start_ray_commands", "worker_start_ray_commands")


def check_pins(config: Mapping[str, Any], commands: Iterable[str], constraints: Path) -> Check:
    """Every `pip install` takes exact versions, and Ray's is the one in constraints.txt."""
    problems = []
    docker = config.get("docker") or {}
    for key in ("image", "head_image", "worker_image"):
        image = docker.get(key)
        if image and (":" not in image or image.endswith((":latest", ":nightly"))):
            problems.append(f"docker.{key} {image!r} has no version")
    installs = [words for command in commands for words in _pip_installs(command)]
    ray_versions = set()
    for words in installs:
        loose, ray_version = _loose_requirements(words)
        problems += [f"`pip install {item}` takes any version" for item in loose]
        ray_versions |= {ray_version} if ray_version else set()
    if not ray_versions and not docker.get("image"):
        problems.append("no setup command installs `ray==…`, so a node takes whatever Ray it finds")
    wanted = pinned_ray(constraints)
    if wanted and ray_versions - {wanted}:
        problems.append(f"Ray {', '.join(sorted(ray_versions))} here, {wanted} in {constraints.name}")
    missing = [key for key in _RAY_DEFAULTED if config["provider"]["type"] == "aws" and key not in config]
    if missing:
        problems.append(f"without {', '.join(missing)} Ray fills in its own, which install a nightly build")
    fine = f"Ray {', '.join(sorted(ray_versions))}" if ray_versions else "by the container image"
    remedy = f"let a setup command run `pip install -c constraints.txt 'ray[default,tune]=={wanted or 'VERSION'}' .`"
    return verdict("versions", problems, fine, remedy)


def pinned_ray(constraints: Path) -> str | None:
    """Ray's version in a constraints file; None when there is no such file or line."""
    if not constraints.is_file():
        return None
    match = re.search(r"^ray(?:\[[^\]]*\])?==(\S+)", read_text(constraints, "constraints"), re.MULTILINE)
    return match.group(1) if match else None


def _pip_installs(command: str) -> Iterator[list[str]]:
    """The arguments after each `pip install` of a shell command."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # an unbalanced quote: the shell will complain
        words = command.split()
    for index, word in enumerate(words):
        if word == "install" and index and re.search(r"(^|/)(pip[\d.]*)$|^uv$", words[index - 1].removesuffix(" ")):
            end = next((i for i in range(index, len(words)) if set(words[i]) <= set(";&|()")), len(words))
            yield words[index + 1 : end]


def _loose_requirements(words: list[str]) -> tuple[list[str], str | None]:
    """Requirements without an exact version, and the version of Ray if it is exact."""
    constrained = any(word in ("-c", "--constraint") or word.startswith("--constraint=") for word in words)
    takes_value = {"-c", "--constraint", "-r", "--requirement", "-i", "--index-url", "--extra-index-url", "-e"}
    loose, ray_version, skip = [], None, False
    for word in words:
        if skip or word.startswith("-"):
            skip = not skip and word in takes_value - {"-e"}
            continue
        name = re.split(r"[\[=<>!~@ ;]", word)[0]
        if word.startswith((".", "/", "~", "$")):  # a local project: its dependencies need the constraints
            loose += [] if constrained else [f"{word} (no -c constraints.txt)"]
        elif exact := re.search(r"==([^*,;\s]+)$", word):
            ray_version = exact.group(1) if name == "ray" else ray_version
        elif name == "ray" or not constrained:
            loose.append(word)
    return loose, ray_version
