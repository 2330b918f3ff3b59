import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.models.depth_posterior import DepthPosterior, choose_depth, log_prior
from harness.schema.settings import ExplicitPrior, ExponentialPrior, UniformPrior

logit_lists = st.lists(st.floats(-8, 8), min_size=2, max_size=12)


def test_exponential_prior() -> None:
    beta = log_prior(ExponentialPrior(kind="exponential", gamma=0.85), max_depth=4).exp()
    weights = np.array([0.85 ** (1 + i) for i in range(5)])
    assert beta.numpy() == pytest.approx(weights / weights.sum(), rel=1e-6)


def test_uniform_and_explicit_priors() -> None:
    assert log_prior(UniformPrior(kind="uniform"), 3).exp().tolist() == pytest.approx([0.25] * 4)
    explicit = ExplicitPrior(kind="explicit", probabilities=(0.5, 0.3, 0.2))
    assert log_prior(explicit, 2).exp().tolist() == pytest.approx([0.5, 0.3, 0.2])


@pytest.mark.parametrize(
    ("q", "argmax", "threshold", "expected"),
    [
        ([0.1, 0.2, 0.4, 0.3], 2, 2, 2),  # Σ i·q = 1.9
        ([0.05, 0.30, 0.05, 0.25, 0.35], 4, 4, 3),  # 0.30 < 0.95 · 0.35; Σ i·q = 2.55
        ([0.0, 0.32, 0.02, 0.33, 0.33], 3, 1, 3),  # 0.32 ≥ 0.95 · 0.33 although 3 is the largest
        ([0.0, 0.31, 0.04, 0.32, 0.33], 4, 3, 3),  # 0.31 < 0.95 · 0.33, and 0.32 is not
        ([1.0, 0.0, 0.0], 0, 0, 0),
    ],
)
def test_rules_on_hand_worked_cases(q: list[float], argmax: int, threshold: int, expected: int) -> None:
    chosen = [choose_depth(torch.tensor(q, dtype=torch.float64), rule) for rule in ("argmax", "threshold", "expected")]
    assert chosen == [argmax, threshold, expected]


def test_threshold_includes_its_own_bound() -> None:
    assert choose_depth(torch.tensor([0.95, 1.0], dtype=torch.float64), "threshold") == 0


@given(logits=logit_lists)
def test_kl_is_the_sum_and_never_negative(logits: list[float]) -> None:
    log_beta = log_prior(ExponentialPrior(kind="exponential"), len(logits) - 1)
    kl = float(DepthPosterior(log_beta, torch.tensor(logits)).kl().detach())
    q = np.exp(logits) / np.exp(logits).sum()
    assert kl == pytest.approx(float((q * (np.log(q) - log_beta.numpy())).sum()), abs=1e-5)
    assert kl >= -1e-6


def test_starts_uniform() -> None:
    posterior = DepthPosterior(log_prior(ExponentialPrior(kind="exponential"), 4))
    assert posterior.log_q().exp().tolist() == pytest.approx([0.2] * 5)


@given(logits=logit_lists, data=st.data())
def test_pruning_folds_the_tail_into_the_last_depth(logits: list[float], data: st.DataObject) -> None:
    depth = data.draw(st.integers(0, len(logits) - 1))
    posterior = DepthPosterior(log_prior(UniformPrior(kind="uniform"), len(logits) - 1), torch.tensor(logits))
    q = posterior.log_q().exp().tolist()
    pruned = posterior.pruned(depth)
    assert pruned.log_q().exp().tolist() == pytest.approx([*q[:depth], math.fsum(q[depth:])], abs=1e-6)
    assert float(pruned.log_beta.exp().sum()) == pytest.approx(1.0, abs=1e-6)
