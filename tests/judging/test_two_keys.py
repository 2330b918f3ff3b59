"""The two keys of a verdict: by hand, against SciPy, and on simulated studies whose truth is known."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks import verdicts as simulated
from harness.judging import words
from harness.judging.two_keys import (
    MOST_SEEDS,
    Question,
    Verdict,
    fewest_seeds,
    holm,
    holm_adjusted,
    judge,
    keys,
    nominal_mean_level,
    nominal_sign_level,
    over_looks,
    sign_p,
)
from harness.statistics import LEVEL

LOOKS = (12, 20, 40)


def verdict_on(advantages: Sequence[float], margin: float | None = 0.01) -> Verdict:
    return judge([Question(tuple(advantages), margin)]).verdicts[0]


def around(centre: float, spread: float = 0.001, n: int = 8) -> list[float]:
    return [centre + spread * float(step) for step in np.linspace(-1, 1, n)]


@pytest.mark.parametrize(
    ("advantages", "outcome"),
    [
        (around(0.005), "better"),
        (around(0.0, 0.002), "as good"),
        ([0.0] * 8, "as good"),  # a tie is a seed that is not better, and not worse by the margin
        ([0.1] * 8, "better"),
        ([-0.5] * 8, "worse beyond the margin"),
        (around(-0.005), "slightly worse"),
        (around(-0.010, 0.002), "worse"),
        (around(-0.030), "worse beyond the margin"),
        (around(-0.01, 0.02), "undecided"),
        ([*around(0.0, 0.002, 19), -1.0], "as good on most seeds"),
        ([*around(0.005, 0.001, 19), -1.0], "better on most seeds"),
        ([*around(-0.030, 0.001, 19), 1.0], "worse beyond the margin on most seeds"),
        (around(0.005, n=5), "too few seeds"),  # 2 / 32 is more than 5 %
        ([0.5], "too few seeds"),
    ],
)
def test_every_word(advantages: list[float], outcome: str) -> None:
    verdict = verdict_on(advantages)
    assert verdict.outcome == outcome
    assert verdict.is_decided == words.is_plain(outcome)
    assert words.plain_part(outcome) in words.WORDS


@pytest.mark.parametrize(
    ("logs", "outcome"),
    [
        (around(1.0), "cheaper"),
        (around(-1.0), "dearer"),
        (around(0.0), "undecided"),
        ([0.7] * 6, "cheaper"),  # operations are counted, and may be the same on every seed
        ([0.0] * 6, "undecided"),
    ],
)
def test_every_word_on_costs(logs: list[float], outcome: str) -> None:
    assert verdict_on(logs, None).outcome == outcome


def test_both_keys_are_scipys() -> None:
    values = np.random.default_rng(0).normal(0.3, 1.0, 11)
    found = keys(values, (0.0, -1.0))
    for place, boundary in enumerate((0.0, -1.0)):
        above = int((values > boundary).sum())
        assert found.sign.p[place] == pytest.approx(stats.binomtest(above, 11).pvalue)
        assert found.mean.p[place] == pytest.approx(stats.ttest_1samp(values, boundary).pvalue)
        assert found.mean.side[place] == np.sign(values.mean() - boundary)


def test_seeds_that_disagree_with_the_mean_give_no_plain_word() -> None:
    """Most seeds are better, a few are so much worse that the mean is worse for certain of neither."""
    verdict = verdict_on([*around(0.5, 0.01, 18), -40.0, -40.0], 1.0)
    assert verdict.outcome == "better on most seeds" and not verdict.is_decided


def test_fewest_seeds() -> None:
    assert [fewest_seeds(count) for count in (1, 4, 6, 12, 24, 45)] == [6, 8, 8, 9, 10, 11]
    assert fewest_seeds(51, LOOKS) <= 12 < fewest_seeds(52, LOOKS), "twelve seeds decide 51 verdicts at the first look"
    family = judge([Question(tuple(around(0.005, n=8)), 0.01)] * 24)
    assert {verdict.outcome for verdict in family.verdicts} == {"too few seeds"} and family.fewest_seeds == 10
    assert all((verdict.seeds_needed or 99) >= 10 for verdict in family.verdicts)


# --- Holm's procedure -----------------------------------------------------------------------------------------------


def test_a_question_that_is_settled_makes_the_next_one_easier() -> None:
    """One exception of nine: p = 0.039, small enough once the other question is settled."""
    one_against = Question((-1.0, *[1.0] * 8))
    sure, also_open = Question((1.0,) * 9), Question((-1.0, -1.0, *[1.0] * 7))
    assert [v.outcome for v in judge([one_against, sure]).verdicts][1] == "cheaper"
    assert judge([one_against, sure]).verdicts[0].outcome.startswith("cheaper")
    assert judge([one_against, also_open]).verdicts[0].outcome == "undecided"


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from([(), LOOKS]), st.sampled_from([12, 20]))
def test_verdicts_follow_from_the_intervals_that_are_printed(seed: int, looks: tuple[int, ...], n: int) -> None:
    """The words are where both intervals lie; "on most seeds" is where the median's alone does."""
    rng = np.random.default_rng(seed)
    questions = [Question(tuple(rng.normal(rng.uniform(-3, 1), 1.0, n)), 1.0) for _ in range(6)]
    for verdict in judge(questions, looks).verdicts:
        sides = []
        for interval in (verdict.median, verdict.advantage):
            low, high = interval.low, interval.high
            assert low is not None and high is not None
            sides.append([1 if low > c else -1 if high < c else 0 for c in (0.0, -1.0)])
        both = [one if one == other else 0 for one, other in zip(*sides, strict=True)]
        expected = _word(*both)
        if expected == "undecided" and (most := _word(*sides[0])) != "undecided":
            expected = most + " on most seeds"
        assert verdict.outcome == expected


def _word(zero: int, margin: int) -> str:
    if zero > 0:
        return "better"
    if margin < 0:
        return "worse beyond the margin"
    if margin > 0:
        return "slightly worse" if zero < 0 else "as good"
    return "worse" if zero < 0 else "undecided"


# --- interim analyses -----------------------------------------------------------------------------------------------


def test_one_comparison_changes_nothing() -> None:
    assert over_looks(0.03, ()) == over_looks(0.03, (20,)) == 0.03
    assert sign_p(0, 10) == sign_p(0, 10, (10,)) == 2 / 1024
    assert nominal_mean_level(0.05, (20,)) == nominal_sign_level(0.05, (20,)) == 0.05


def test_the_random_walk_against_every_course_of_ten_seeds() -> None:
    """All 2^10 courses of a coin: how many have so small a p after 6 seeds, or after 10?"""
    for exceptions, n in ((0, 6), (0, 10), (1, 10)):
        p = float(2 * stats.binom.cdf(exceptions, n, 0.5))
        reached = 0
        for course in itertools.product((0, 1), repeat=10):
            reached += any(2 * stats.binom.cdf(min(sum(course[:k]), k - sum(course[:k])), k, 0.5) <= p for k in (6, 10))
        assert sign_p(exceptions, n, (6, 10)) == pytest.approx(reached / 2**10)


def test_the_level_of_four_analyses() -> None:
    """0.0145 each at 3, 5, 10 and 20 seeds, as simulated independently of this program."""
    assert nominal_mean_level(0.05, (3, 5, 10, 20)) == pytest.approx(0.0145, abs=0.001)


@given(st.floats(1e-9, 1.0), st.sampled_from([(3, 5), LOOKS]))
def test_comparing_more_often_never_helps_a_claim(p: float, looks: tuple[int, ...]) -> None:
    assert p <= over_looks(p, looks) <= min(1.0, len(looks) * p) * (1 + 1e-12)
    assert over_looks(p / 2, looks) <= over_looks(p, looks)


@pytest.mark.parametrize("level", [0.05, 0.05 / 24])
def test_the_nominal_level_is_the_largest_p_that_passes(level: float) -> None:
    nominal = nominal_mean_level(level, LOOKS)
    assert over_looks(nominal, LOOKS) <= level < over_looks(nominal * 1.02, LOOKS)


# --- how many seeds -------------------------------------------------------------------------------------------------


def test_a_question_that_no_number_of_seeds_settles_is_not_advised() -> None:
    verdict = verdict_on([-1.0, 1.0] * 100, 0.001)
    assert (verdict.outcome, verdict.seeds_needed) == ("undecided", None)
    assert MOST_SEEDS >= 100


@pytest.mark.parametrize("n", [6, 12])
def test_the_advised_number_of_seeds_settles_it_in_four_of_five_cases(n: int) -> None:
    share, advised = simulated.settled_by_forecast(0.75, n, studies=80)
    assert 0.68 <= share <= 0.97 and n < advised < 60


# --- what `python -m benchmarks verdicts` prints, on fewer studies --------------------------------------------------


@pytest.mark.parametrize("law", simulated.LAWS)
@pytest.mark.parametrize("looks", [(), LOOKS])
def test_a_table_is_wrong_about_the_typical_seed_in_one_of_twenty_studies_at_most(
    law: str, looks: tuple[int, ...]
) -> None:
    truths = simulated.TRUTHS["a third each, and half-way"]
    found = simulated.family_errors(simulated.LAWS[law], (6, 4), truths, 12, looks, studies=500)
    assert found.plain <= found.any_word <= 0.05 + 0.01
    if law == "collapse on 10 %":
        assert found.student_of_mean > 0.5, "which is why nothing is promised about the mean"


def test_the_price_is_about_half_as_many_seeds_again() -> None:
    assert simulated.power(1.0, 17, 1)[0] > 0.75 and simulated.power(1.0, 10, 1)[1] > 0.75


# --- the words ------------------------------------------------------------------------------------------------------


def test_every_verdict_has_a_row_in_the_one_table() -> None:
    from typing import get_args

    values = {value for part in get_args(words.Outcome) for value in (get_args(part) or (part,))}
    assert {words.plain_part(value) for value in values} | {words.WITHHELD} == {*words.WORDS}
    assert words.shown("dearer on most seeds") == "more expensive on most seeds"
    assert words.kind_of("as good on most seeds") == "open" and words.kind_of("more expensive") == "bad"


def test_an_adjusted_p_says_what_the_procedure_rejects() -> None:
    """By hand: 0.01 · 3, 0.02 · 2, and 0.03 · 1, which cannot be smaller than the one before."""
    assert holm_adjusted([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm_adjusted([0.9, 0.6]) == [1.0, 1.0] and holm_adjusted([]) == []
    for p in np.random.default_rng(0).uniform(0, 0.06, (200, 5)):
        rejected, _ = holm(p[:, None])
        assert [each <= LEVEL for each in holm_adjusted(p.tolist())] == rejected[:, 0].tolist()
