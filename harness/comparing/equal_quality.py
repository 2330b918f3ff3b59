"""Cost at equal quality: how soon one method reaches what the other ended with, both ways."""

from collections.abc import Sequence

from harness.comparing.anytime import rungs_of, trajectory
from harness.comparing.finished import Finished
from harness.comparing.stages import paired
from harness.comparing.values import EqualQuality, Reached
from harness.statistics import ratio_interval


def equal_quality(reference: Sequence[Finished], baseline: Sequence[Finished], margin: float) -> EqualQuality | None:
    """Targets are final validation log-likelihoods minus `margin`; None without a common seed."""
    pairs = paired(reference, baseline)
    if not pairs:
        return None
    seeds = tuple(ours.seed for ours, _ in pairs)
    baseline_costs = _costs_to_reach([(theirs, ours) for ours, theirs in pairs], rungs_of(baseline), margin)
    reference_costs = _costs_to_reach(pairs, rungs_of(reference), margin)
    reached = [cost for cost in baseline_costs if cost is not None]
    whole = [ours.result.cost.device_seconds for ours, _ in pairs]
    # A ratio over only those seeds that reached the target would flatter the baseline.
    all_reached = len(reached) == len(pairs) and min((*reached, *whole)) > 0
    return EqualQuality(
        baseline=baseline[0].method,
        baseline_reaches=Reached(seeds=seeds, device_seconds=baseline_costs),
        reference_reaches=Reached(seeds=seeds, device_seconds=reference_costs),
        speed_up=ratio_interval(reached, whole) if all_reached else None,
    )


def _costs_to_reach(
    pairs: Sequence[tuple[Finished, Finished]], rungs: frozenset[int], margin: float
) -> tuple[float | None, ...]:
    """Per seed: the first unit's cost at which it came within the margin of the second unit's final value."""
    return tuple(
        trajectory(runner, rungs).cost_to_reach(other.result.val.log_likelihood - margin) for runner, other in pairs
    )
