"""How many trials a cluster holds at once, counted as machines come and go; the first machine is waited for."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.cluster.checks import Check
from harness.cluster.nodes import autoscaler_config
from harness.errors import UserError

LOOK_SECONDS = 1.0  # between two looks at which machines are up

Machine = Mapping[str, float]  # what it has, by Ray's names: CPU, GPU …


@dataclass(frozen=True)
class WorkerType:
    """A kind of machine the autoscaler may still start."""

    name: str
    resources: Machine
    most: int


def worker_types(autoscaler: Mapping[str, Any] | None) -> list[WorkerType]:
    """Those that the file describes. Of `local` machines Ray knows nothing before they are up."""
    config = autoscaler or {}
    most = config.get("max_workers", 0)
    types = config.get("available_node_types", {})
    found = [
        WorkerType(name, kind["resources"], min(most, kind.get("max_workers", most)))
        for name, kind in types.items()
        if kind.get("resources") and name != config.get("head_node_type")
    ]
    return [kind for kind in found if kind.most > 0]


def missing_machines(alive: int, autoscaler: Mapping[str, Any] | None) -> int:
    """How many machines of a `local` file are not up yet; counted, since names cannot be matched with addresses."""
    provider = (autoscaler or {}).get("provider", {})
    return max(0, len(provider.get("worker_ips", [])) + 1 - alive) if provider.get("type") == "local" else 0


@dataclass(frozen=True)
class TrialSlots:
    now: int  # trials that the machines that are up can hold at once
    most: int  # with those that may still start: as many as the autoscaler may have, or all that a `local` file names


def trial_slots(nodes: Sequence[Machine], autoscaler: Mapping[str, Any] | None, gpus: float, cpus: float) -> TrialSlots:
    """One trial runs on one machine, so slots are counted machine by machine."""
    asked = {name: amount for name, amount in (("GPU", gpus), ("CPU", cpus)) if amount > 0}
    now = sum(_fits(node, asked) for node in nodes)
    head = sum(_fits(node, asked) for node in nodes if "node:__internal_head__" in node)
    # A run started right after `ray up` should use machines that join later: assumed to be like the largest one up.
    missing = missing_machines(len(nodes), autoscaler) * max((_fits(node, asked) for node in nodes), default=0)
    return TrialSlots(now, max(now + missing, head + _when_all_are_up(autoscaler, asked)))


def _when_all_are_up(autoscaler: Mapping[str, Any] | None, asked: Machine) -> int:
    """Trials on as many machines as the autoscaler may have at once, the roomiest kinds first."""
    left, slots = (autoscaler or {}).get("max_workers", 0), 0
    for kind in sorted(worker_types(autoscaler), key=lambda kind: -_fits(kind.resources, asked)):
        started = min(left, kind.most)
        slots += started * _fits(kind.resources, asked)
        left -= started
    return slots


def check_resources(nodes: Sequence[Machine], autoscaler: Mapping[str, Any] | None, gpus: float, cpus: float) -> Check:
    """A trial must fit on a machine that is up or that the autoscaler may start; else Ray would wait forever."""
    slots = trial_slots(nodes, autoscaler, gpus, cpus)
    words = _words(gpus, cpus)
    if slots.most:
        scaled = f", up to {slots.most} with new machines" if slots.most > slots.now else ""
        return Check("resources", True, f"{words} per trial: {slots.now} at once now{scaled}")
    coming = "".join(f"; {kind.name}, up to {kind.most}: {_shown(kind.resources)}" for kind in worker_types(autoscaler))
    detail = f"a trial asks for {words}, no machine ever has that (largest now: {_largest(nodes)}{coming})"
    remedy = "lower --gpus-per-trial or --cpus-per-trial, or give the cluster file a larger machine and max_workers > 0"
    if missing := missing_machines(len(nodes), autoscaler):
        remedy = f"wait for the {missing} machine(s) of the cluster file that are not up, or {remedy}"
    return Check("resources", False, detail, remedy)


class ClusterSlots:
    """The trials that the Ray which this process is connected to can hold, now and as machines come and go."""

    def __init__(self, gpus: float, cpus: float, may_grow: bool) -> None:
        """`may_grow`: machines may join that no file announces. A Ray of our own has this machine and no other."""
        self._asked = gpus, cpus
        self._may_grow = may_grow
        self._autoscaler = autoscaler_config() if may_grow else None
        self._looked_at, self._capacity = 0.0, 0

    @property
    def capacity(self) -> int:
        """Trials at once, as far as is known by now; at least one, which then waits for a machine."""
        if time.monotonic() >= self._looked_at + LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._capacity = max(1, trial_slots(_machines(), self._autoscaler, *self._asked).most)
        return self._capacity

    @property
    def is_up(self) -> bool:
        """Whether a machine that holds a trial is up, busy or not."""
        return trial_slots(_machines(), None, *self._asked).now > 0

    def await_first(
        self, seconds: float, tell: Callable[[str], None], given_up: Callable[[], object] = lambda: False
    ) -> None:
        """Until a trial fits on a machine that is up or announced; raises UserError where none came, or none can.

        With an autoscaler's file it is known at once whether one can. Without one (KubeRay, Slurm, machines started by
        hand) it is not: a trial's resources are asked for, which starts a machine where something listens.
        """
        machines = _machines()
        fits = check_resources(machines, self._autoscaler, *self._asked)
        if fits.ok:
            return
        announced = missing_machines(len(machines), self._autoscaler) > 0
        if not self._may_grow or not (self._autoscaler is None or announced) or seconds <= 0:
            raise UserError(f"{fits.detail}; {fits.remedy}")
        tell(
            f"waiting for a machine with {_words(*self._asked)} for a trial, up to {seconds:g} s (--wait); the largest "
            f"that is up has {_largest(machines)}"
        )
        self._wait(seconds, given_up)

    def _wait(self, seconds: float, given_up: Callable[[], object]) -> None:
        from ray.util import placement_group, remove_placement_group

        gpus, cpus = self._asked
        wanted = placement_group([{name: amount for name, amount in (("GPU", gpus), ("CPU", cpus)) if amount > 0}])
        deadline = time.monotonic() + seconds
        try:
            while not (fits := check_resources(_machines(), self._autoscaler, *self._asked)).ok:
                if given_up():
                    return
                if time.monotonic() >= deadline:
                    raise UserError(f"no machine came in {seconds:g} s (--wait): {fits.detail}; {fits.remedy}")
                time.sleep(LOOK_SECONDS)
        finally:
            remove_placement_group(wanted)


def _machines() -> list[Machine]:
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _fits(machine: Machine, asked: Machine) -> int:
    """How many trials fit on a machine at once."""
    slack = 1e-9  # 1 / 0.1 must be 10
    return min((int(machine.get(name, 0) / amount + slack) for name, amount in asked.items()), default=0)


def _words(gpus: float, cpus: float) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in (("GPU", gpus), ("CPU", cpus)) if amount > 0)


def _largest(machines: Sequence[Machine]) -> str:
    return _shown({name: max([0.0, *(machine.get(name, 0) for machine in machines)]) for name in ("GPU", "CPU")})


def _shown(resources: Machine) -> str:
    return ", ".join(f"{resources.get(name, 0):g} {name}" for name in ("GPU", "CPU"))
