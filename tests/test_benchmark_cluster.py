"""The benchmark's arithmetic: utilisation as the issue defines it."""

import pytest

from benchmarks.cluster import Held, filling


def test_no_gap_is_full_use() -> None:
    trials = [Held("a", 0, 5), Held("b", 0, 5), Held("a", 5, 10), Held("b", 5, 10), Held("a", 10, 15)]
    found = filling(trials, gpus=2)
    assert found.utilisation == 1.0 and found.idle_per_trial == 0.0
    assert found.window == 10, "the tail, when the queue is empty, does not count"


def test_gaps_count() -> None:
    # a: 0-5, 6-11; b: 1-6, 7-12. Both taken at 1, queue empty at 7: offered 12, held 4 + 1 + 5 = 10.
    found = filling([Held("a", 0, 5), Held("b", 1, 6), Held("a", 6, 11), Held("b", 7, 12)], gpus=2)
    assert found.full_after == 1 and found.window == 6
    assert found.utilisation == pytest.approx(10 / 12)
    assert found.idle_per_trial == pytest.approx(2 / 2)


@pytest.mark.parametrize("gpus", [2, 3])
def test_too_few_trials_are_an_error(gpus: int) -> None:
    with pytest.raises(ValueError, match=r"used 2 of 3 GPUs|none waited"):
        filling([Held("a", 0, 5), Held("b", 1, 6)], gpus)
