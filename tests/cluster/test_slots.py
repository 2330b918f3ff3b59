"""How many trials a cluster holds: counted on made-up machines. Real ones: tests/running/test_two_nodes.py."""

from typing import Any

import pytest

from harness.cluster.slots import check_resources

GPU_AUTOSCALER = {
    "provider": {"type": "aws"},
    "max_workers": 4,
    "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"CPU": 0}, "max_workers": 0},
        "gpu_worker": {"resources": {"CPU": 4, "GPU": 1}, "max_workers": 4},
    },
}
OWN_MACHINES = {"provider": {"type": "local", "head_ip": "10.0.0.1", "worker_ips": ["10.0.0.2", "10.0.0.3"]}}
TWO_KINDS = {  # 4 × 1 GPU each; one has 4 CPUs, the other 8
    **GPU_AUTOSCALER,
    "max_workers": 8,
    "available_node_types": {
        "small": {"resources": {"CPU": 4, "GPU": 1}, "max_workers": 4},
        "large": {"resources": {"CPU": 8, "GPU": 1}, "max_workers": 4},
    },
}
HEAD = "node:__internal_head__"


@pytest.mark.parametrize(
    ("nodes", "autoscaler", "gpus", "cpus", "ok", "words"),
    [
        ([{"CPU": 2}], None, 0, 1, True, "1 CPU per trial: 2 at once now"),
        ([{"CPU": 2}], None, 1, 1, False, "asks for 1 GPU and 1 CPU"),
        ([{"CPU": 4, "GPU": 1}], None, 0.1, 0.1, True, "10 at once now"),
        ([{"CPU": 4, "GPU": 1}, {"CPU": 4, "GPU": 1}], None, 2, 1, False, "no machine ever has that"),
        ([{"GPU": 1}, {"CPU": 8}], None, 1, 1, False, "largest now: 1 GPU, 8 CPU"),
        ([{"CPU": 0}], GPU_AUTOSCALER, 1, 1, True, "0 at once now, up to 4 with new machines"),
        ([{"CPU": 0}], GPU_AUTOSCALER, 0.25, 1, True, "up to 16 with new machines"),
        ([{"CPU": 0}], GPU_AUTOSCALER, 2, 1, False, "gpu_worker, up to 4: 1 GPU, 4 CPU"),
        ([{"CPU": 0}], {**GPU_AUTOSCALER, "max_workers": 0}, 1, 1, False, "no machine ever has that"),
        ([{"CPU": 0}], TWO_KINDS, 1, 1, True, "up to 8 with new machines"),
        ([{"CPU": 0}], {**TWO_KINDS, "max_workers": 6}, 1, 1, True, "up to 6 with new machines"),
        ([{"CPU": 0}], {**TWO_KINDS, "max_workers": 6}, 0.5, 1, True, "up to 12 with new machines"),
        ([{"CPU": 0}], TWO_KINDS, 0, 1, True, "up to 48 with new machines"),
        ([{"CPU": 0}], {**TWO_KINDS, "max_workers": 5}, 0, 1, True, "up to 36 with new machines"),
        ([{"CPU": 2, HEAD: 1.0}], TWO_KINDS, 0, 1, True, "2 at once now, up to 50 with new machines"),
        ([{"CPU": 2}], OWN_MACHINES, 0, 1, True, "2 at once now, up to 6 with new machines"),
        ([{"CPU": 2}] * 3, OWN_MACHINES, 0, 1, True, "1 CPU per trial: 6 at once now"),
    ],
)
def test_resources(nodes: Any, autoscaler: Any, gpus: float, cpus: float, ok: bool, words: str) -> None:
    check = check_resources(nodes, autoscaler, gpus, cpus)
    assert check.ok is ok and words in check.detail


def test_machines_of_ones_own_that_are_not_up_are_waited_for() -> None:
    assert check_resources([{"CPU": 2}], OWN_MACHINES, 1, 1).remedy.startswith("wait for the 2 machine(s)")
