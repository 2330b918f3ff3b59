"""What the install line of the cluster files brings to a machine with Linux x86-64 and Python 3.12: torch with CUDA.

There is no registry in a test. torch_wheel.txt holds what the wheel of the pinned version says there of itself; it must
be renewed with the pin. The torch that is installed here may be another build, without CUDA.
"""

import re
import shlex
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from harness.cluster.cluster_file import commands, read_cluster_file

ROOT = Path(__file__).parents[2]
ON_THE_CLUSTER = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "implementation_name": "cpython",
    "python_version": "3.12",
    "python_full_version": "3.12.3",
    "extra": "",
}


def pins() -> dict[str, str]:
    lines = [line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines()]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in lines}


def wheel() -> list[tuple[str, str]]:
    lines = (ROOT / "tests" / "cluster" / "torch_wheel.txt").read_text().splitlines()
    return [(key, value) for key, _, value in (line.partition(": ") for line in lines if not line.startswith("#"))]


def needed() -> dict[str, Requirement]:
    """What torch asks for there."""
    asked = [Requirement(value) for key, value in wheel() if key == "Requires-Dist"]
    return {each.name: each for each in asked if each.marker is None or each.marker.evaluate(ON_THE_CLUSTER)}


def test_the_pinned_torch_comes_with_cuda() -> None:
    assert dict(wheel())["Version"] == pins()["torch"], "the pin has changed: renew torch_wheel.txt as it says"
    assert {"cuda-toolkit", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "triton"} <= set(needed())


def test_no_pin_stands_in_its_way() -> None:
    pinned = {name: pins()[name] for name in needed() if name in pins()}
    assert {"filelock", "sympy", "networkx"} <= set(pinned)
    assert [name for name, version in pinned.items() if version not in needed()[name].specifier] == []


@pytest.mark.parametrize("name", ["ray_cluster.yaml", "ray_cluster_local.yaml"])
def test_nothing_leads_to_another_torch(name: str) -> None:
    """Neither another registry, which would bring a build for processors, nor a build named in a pin."""
    installs = [command for command in commands(read_cluster_file(ROOT / name)) if "pip install" in command]
    [line] = [shlex.split(command) for command in installs]
    assert "constraints.txt" in line
    assert [word for word in line if "index" in word or "find-links" in word or word == "-f"] == []
    assert "+" not in pins()["torch"] + pins()["torchvision"]


def test_the_file_names_the_driver_that_this_cuda_asks_for() -> None:
    [toolkit] = needed()["cuda-toolkit"].specifier
    release, major = toolkit.version.rpartition(".")[0], toolkit.version.partition(".")[0]
    assert major == "13", "another CUDA asks for another driver: look it up in its release notes"
    for text in ((ROOT / "ray_cluster.yaml").read_text(), (ROOT / "docs" / "cluster" / "aws.md").read_text()):
        assert re.search(rf"driver 580 or later.*\n?.*CUDA {re.escape(release)}", text)
