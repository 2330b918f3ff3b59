"""A trial that several units of a run would train is trained once: one unit lends it, the others are told its events.

It is charged to each of them as it was to the one that trained it: with the same seconds, those of crashes included.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.running.ledger import Ended, Event, Suggested, TrialEvent, TrialLog
from harness.running.messages import StageTask, TrainTask
from harness.schema.records import TrialConfig

if TYPE_CHECKING:
    from harness.running.unit import RunningUnit


@dataclass(frozen=True)
class Lent:
    """A trial that was trained to its own end."""

    task: TrainTask | StageTask
    suggested_at: float
    events: tuple[TrialEvent, ...]

    def told_to(self, name: str, driver_seconds: float) -> list[TrialEvent]:
        """As events of another unit's trial."""
        own = [event.model_copy(update={"trial": name}) for event in self.events]
        ends = {"driver_seconds": driver_seconds}  # the other unit's
        return [event.model_copy(update=ends) if isinstance(event, Ended) else event for event in own]


class Lender:
    """A unit of the same run and seed, before the borrower in its order, so that nobody waits for who waits for him."""

    def __init__(self, unit: "RunningUnit") -> None:
        self._unit = unit

    def trains(self, config: TrialConfig) -> bool:
        """Whether it is planned: what a forecast must not count twice."""
        plan, depths = self._unit.plan, self._unit.planned_depths or ()
        return config.depth in depths and plan.trial_config(config.depth).hash == config.hash

    def lends(self, config: TrialConfig) -> Lent | None:
        """The trial of this configuration, once it has ended."""
        if self._is_settled:
            return self._all.get(config.hash)
        ended = (log for log in self._unit.search_logs() if log.status and log.depth == config.depth)
        if any(log.config.kind == config.kind and log.config.hash == config.hash for log in ended):
            return dict(_trials(self._unit.folder.events())).get(config.hash)
        return None

    def may_lend(self, config: TrialConfig) -> bool:
        """Whether that trial is still to be waited for."""
        return not self._is_settled and self.lends(config) is None

    @property
    def _is_settled(self) -> bool:
        """It trains nothing more that could be lent."""
        return self._unit.choice is not None or self._unit.is_over or self._unit.folder.is_complete

    @functools.cached_property
    def _all(self) -> dict[str, Lent]:
        """By their configurations' hashes."""
        return dict(_trials(self._unit.folder.events()))


def _trials(events: Iterator[Event]) -> Iterator[tuple[str, Lent]]:
    begun: dict[str, tuple[Suggested, list[TrialEvent]]] = {}
    for event in events:
        if isinstance(event, Suggested) and isinstance(event.task, TrainTask | StageTask):
            begun[event.trial] = event, []
        elif isinstance(event, TrialEvent) and event.trial in begun:
            begun[event.trial][1].append(event)
    for name, (suggested, told) in begun.items():
        task = suggested.task
        assert isinstance(task, TrainTask | StageTask)
        log = TrialLog(name, task, suggested.time)
        for each in told:
            log.apply(each)
        if log.status and log.has_reported_its_end:  # else a scheduler stopped it, or it crashed
            yield task.config.hash, Lent(task, suggested.time, tuple(told))
