"""How often verdicts are wrong, and how often they decide: simulated studies whose truth is known.

Every study is judged by the program's own `judge`. A claim is wrong when its word says something that is not true; an
"undecided" never is. Differences are Gaussian, or exponential (skewed either way), of standard deviation 1; those of a
family share half of their variance, as differences to one baseline do. ± is two Monte Carlo standard errors.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from harness.statistics import Question, Verdict, judge, level_of_look, mean_interval

LOOKS = (5, 10, 20, 40)
FIXED = 20  # seeds, to compare the looks with
PAIRS, MEASURES, SEEDS = 6, 4, 10  # as in `make compare`: seven methods; cost and three qualities
MARGIN = 1.0  # in standard deviations of a difference
STUDIES = 4000
INSIDE = ("better", "as good", "slightly worse")  # what is claimed of something that is not worse by the margin
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
NOISE: dict[str, Draw] = {
    "Gaussian": lambda rng, shape: rng.standard_normal(shape),
    "exponential": lambda rng, shape: rng.standard_exponential(shape) - 1,
    "exponential, mirrored": lambda rng, shape: 1 - rng.standard_exponential(shape),
}


def is_wrong(outcome: str, truth: float, margin: float | None) -> bool:
    """Whether a word claims what is not true of a mean: each claims a sign, a side of the margin, or both."""
    at_margin = -math.inf if margin is None else -margin
    match outcome:
        case "better" | "cheaper":
            return truth <= 0
        case "as good":
            return truth <= at_margin
        case "slightly worse":
            return truth >= 0 or truth <= at_margin
        case "worse" | "dearer":
            return truth >= 0
        case "worse beyond the margin":
            return truth >= at_margin
        case _:
            return False


def family_error(noise: Draw, truths: tuple[float, ...], studies: int, looks: tuple[int, ...] = ()) -> float:
    """The share of studies that make any wrong claim, at any look before all is decided.

    A study has PAIRS × MEASURES questions; pairs take the truths in turn, and the first measure of each, its cost, has
    no margin.
    """
    rng = np.random.default_rng(1)
    margins = [None if measure == 0 else MARGIN for _ in range(PAIRS) for measure in range(MEASURES)]
    true = [truths[pair % len(truths)] for pair in range(PAIRS) for _ in range(MEASURES)]
    wrong = 0
    for _ in range(studies):
        n = max(looks, default=SEEDS)
        shared, own = noise(rng, (MEASURES, n)), noise(rng, (PAIRS, MEASURES, n))
        data = ((shared + own) / math.sqrt(2)).reshape(PAIRS * MEASURES, n) + np.array(true)[:, None]
        wrong += any(
            any(
                is_wrong(said.outcome, *known)
                for said, known in zip(verdicts, zip(true, margins, strict=True), strict=True)
            )
            for verdicts in _until_decided(data, margins, looks or (n,), looks)
        )
    return wrong / studies


def _until_decided(
    data: np.ndarray, margins: list[float | None], looks: tuple[int, ...], declared: tuple[int, ...]
) -> Iterator[list[Verdict]]:
    """The verdicts of each look that is taken; rows of `data` are questions."""
    for n in looks:
        verdicts = judge(
            [Question(tuple(row[:n]), margin) for row, margin in zip(data, margins, strict=True)], declared
        )
        yield verdicts
        if all(verdict.is_decided for verdict in verdicts):
            return


def until_verdict(
    noise: Draw, truth: float, studies: int, looks: tuple[int, ...], declared: bool = True
) -> tuple[float, float]:
    """Of studies of one question: the share that ends inside the margin, and the mean number of seeds."""
    rng = np.random.default_rng(2)
    inside = seeds = 0
    for row in noise(rng, (studies, max(looks))) + truth:
        *_, last = zip(looks, _until_decided(row[None], [MARGIN], looks, looks if declared else ()), strict=False)
        seeds += last[0]
        inside += last[1][0].outcome in INSIDE
    return inside / studies, seeds / studies


def coverage(noise: Draw, studies: int, looks: tuple[int, ...]) -> tuple[list[float], float]:
    """The share of intervals that hold the truth, 0: at each look, and at all of them together."""
    data = noise(np.random.default_rng(3), (studies, max(looks)))
    level = level_of_look(looks)
    held = []
    for n in looks:
        intervals = [mean_interval(row[:n], level) for row in data.tolist()]
        held.append(
            [found.low is not None and found.high is not None and found.low < 0 < found.high for found in intervals]
        )
    return [float(np.mean(row)) for row in held], float(np.mean(np.all(held, axis=0)))


def _share(value: float, studies: int) -> str:
    return f"{100 * value:.1f} ± {200 * math.sqrt(max(value, 1 / studies) * (1 - value) / studies):.1f} %"


def main() -> Iterator[str]:
    named = ", ".join(map(str, LOOKS))
    yield f"any wrong claim in a family of {PAIRS * MEASURES} verdicts (Holm; promised: at most 5 %), {SEEDS} seeds:"
    mixed = (0.0, -MARGIN, -MARGIN / 2)
    truths = {"all equal": (0.0,), "all on the margin": (-MARGIN,), "a third each, and half-way": mixed}
    for name, noise in NOISE.items():
        for what, truth in truths.items():
            yield f"  {name}, {what}: {_share(family_error(noise, truth, STUDIES), STUDIES)}"
    few = STUDIES // 4
    for name, noise in NOISE.items():
        yield f"  {name}, a third each, looks {named}: {_share(family_error(noise, mixed, few, LOOKS), few)}"
    yield f"inside the margin is said of what is on it (promised: 2.5 %), looks {named}:"
    for name, noise in NOISE.items():
        wrong, undeclared = (until_verdict(noise, -MARGIN, STUDIES, LOOKS, declared)[0] for declared in (True, False))
        yield f"  {name}: {_share(wrong, STUDIES)}; had the looks not been declared: {_share(undeclared, STUDIES)}"
    yield f"inside the margin is said of what is inside it, and the seeds it takes; against {FIXED} seeds at once:"
    for distance in (0.5, 0.75, 1.0):
        found, seeds = until_verdict(NOISE["Gaussian"], distance - MARGIN, STUDIES, LOOKS)
        fixed, _ = until_verdict(NOISE["Gaussian"], distance - MARGIN, STUDIES, (FIXED,))
        yield (
            f"  {distance:g} standard deviations from the margin: {_share(found, STUDIES)} with {seeds:.1f} seeds on "
            f"average; {_share(fixed, STUDIES)} with {FIXED}"
        )
    level = 100 * (1 - level_of_look(LOOKS))
    yield f"intervals that hold the truth (promised: {level:.2f} % at each look, 95 % at all of them together):"
    for name, noise in NOISE.items():
        each, together = coverage(noise, STUDIES, LOOKS)
        listed = ", ".join(f"{100 * share:.1f} % at {n}" for share, n in zip(each, LOOKS, strict=True))
        yield f"  {name}: {listed}; at all looks {_share(together, STUDIES)}"
