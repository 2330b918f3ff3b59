"""The curve of a search, read from the records of its trials: the best that was known against what had been spent.

A replay keeps it in its result (`SearchResult.replayed_searches`), a comparison draws it and looks costs up in it.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate

from harness.schema.records import TrialRecord


def rungs_of(trials: Iterable[TrialRecord]) -> frozenset[int]:
    """Epochs at which a scheduler stopped a trial: there it looks at running trials."""
    return frozenset(trial.curve[-1].epoch for trial in trials if trial.stop_reason == "scheduler" and trial.curve)


def incumbents(
    trials: Sequence[TrialRecord],
    rungs: frozenset[int] = frozenset(),
    candidates: Sequence[TrialRecord] | None = None,
) -> list[tuple[float, float]]:
    """What all trials had spent, in device-seconds, and the best validation log-likelihood known by then, in time.

    `candidates`: those of them that can be handed over, where it is not any.

    It changes when a trial ends or reports at a rung; where the depth is learnt, at every report. −∞: none yet. A trial
    spends its device time evenly between start and end, also when a retry left a gap.
    """
    spans = _time_spans(trials)
    moments = []
    for trial, (start, end) in zip(trials, spans, strict=True):
        total = trial.cost.device_seconds
        for spent, value in _gains(trial, rungs) if candidates is None or trial in candidates else []:
            moments.append((start + (spent / total if total else 1.0) * (end - start), value))
    moments.sort(key=lambda moment: moment[0])
    found, best = [], -math.inf
    for at, value in moments:
        best = max(best, value)
        shares = (min(1.0, max(0.0, (at - start) / max(end - start, 1e-12))) for start, end in spans)
        found.append(
            (sum(share * trial.cost.device_seconds for share, trial in zip(shares, trials, strict=True)), best)
        )
    return found


def _time_spans(trials: Sequence[TrialRecord]) -> list[tuple[float, float]]:
    """When each trial held its devices; one after the other where no clock was recorded."""
    if all(trial.ended_at > trial.started_at for trial in trials):
        return [(trial.started_at, trial.ended_at) for trial in trials]
    ends = list(accumulate(trial.cost.held_seconds for trial in trials))
    return [(end - trial.cost.held_seconds, end) for trial, end in zip(trials, ends, strict=True)]


def _gains(trial: TrialRecord, rungs: frozenset[int]) -> list[tuple[float, float]]:
    reports = [
        (point.device_seconds, point.val_log_likelihood)
        for point in trial.curve
        if trial.val is not None and (trial.learns_depth or point.epoch in rungs)
    ]
    return [*reports, (trial.cost.device_seconds, trial.val.log_likelihood if trial.val else -math.inf)]
