"""Where the device time of a method went, and whether the parts add up."""

from collections.abc import Sequence

from harness.comparing.finished import Finished
from harness.comparing.values import Phases
from harness.schema.records import PHASES
from harness.text.shown import counted

LARGEST_OTHER = 0.03  # of held time, for trials of more than LONG_SECONDS
LONG_SECONDS = 10.0


def phases_of(method: str, units: Sequence[Finished]) -> Phases:
    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    refits = [unit.result.refit.cost.device_seconds for unit in units if unit.result.refit is not None]
    return Phases(
        method=method,
        device_seconds={phase: mean([_phase(unit, phase) for unit in units]) for phase in PHASES},
        total=mean([unit.result.cost.device_seconds for unit in units]),
        worker_start=mean([unit.result.worker_start_device_seconds for unit in units]),
        final_eval=mean([unit.result.final.seconds for unit in units]),
        refit=mean(refits) if len(refits) == len(units) else None,
        driver_seconds=mean([unit.result.driver_seconds for unit in units]),
        queue_seconds=mean([sum(trial.queue_seconds for trial in unit.trials) for unit in units]),
    )


def unexplained(units: Sequence[Finished]) -> list[str]:
    """Sentences about records whose parts do not sum to their whole."""
    faults = []
    for unit in units:
        name = f"{unit.method} seed {unit.seed}"
        total = unit.result.cost.device_seconds
        parts = sum(trial.cost.device_seconds for trial in unit.trials)
        if abs(total - parts) > 0.001 * max(total, parts):
            faults.append(f"{name}: its trials add up to {parts:.4g} device-seconds, its result says {total:.4g}")
        long = [trial for trial in unit.trials if trial.cost.held_seconds > LONG_SECONDS]
        leaky = [
            trial for trial in long if trial.cost.phases.get("other", 0.0) > LARGEST_OTHER * trial.cost.held_seconds
        ]
        if leaky:
            of = f"{len(leaky)} of {counted(len(long), 'long trial')} {'has' if len(leaky) == 1 else 'have'}"
            faults.append(f"{name}: {of} more than 3 % unexplained time")
    return faults


def _phase(unit: Finished, phase: str) -> float:
    return sum(trial.cost.phases.get(phase, 0.0) * trial.cost.devices for trial in unit.trials)
