import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from sklearn.metrics import balanced_accuracy_score, precision_score, recall_score

from harness.training.evaluate import (
    accuracy,
    balanced_accuracy,
    brier,
    class_reliability,
    ece,
    log_likelihood,
    measure,
    per_class,
    reliability,
)


def _logs(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def _reference(log_probs: np.ndarray, y: np.ndarray, n_bins: int = 15) -> tuple[float, float, float, float]:
    """Accuracy, log-likelihood, ECE and Brier score, sample by sample in float64."""
    right = log_lik = squares = 0.0
    bins: list[list[tuple[float, float]]] = [[] for _ in range(n_bins)]
    for row, label in zip(np.asarray(log_probs, dtype=np.float64), y, strict=True):
        p = np.exp(row)
        top = int(np.argmax(row))
        right += top == label
        log_lik += row[label]
        squares += sum((p[c] - (c == label)) ** 2 for c in range(len(p)))
        place = next((b for b in range(n_bins) if p[top] <= (b + 1) / n_bins), n_bins - 1)
        bins[place].append((p[top], float(top == label)))
    n = len(y)
    gaps = [abs(sum(a for _, a in b) - sum(c for c, _ in b)) / n for b in bins if b]
    return right / n, log_lik / n, math.fsum(gaps), squares / n


# --- cases worked by hand -----------------------------------------------------------------------------------------


def test_hand_worked_case() -> None:
    log_probs = _logs([[0.7, 0.3], [0.2, 0.8], [0.6, 0.4], [0.5, 0.5]])
    y = torch.tensor([0, 1, 1, 0])
    # predictions 0, 1, 0, 0: three of four right
    assert accuracy(log_probs, y) == 0.75
    assert log_likelihood(log_probs, y) == pytest.approx(math.log(0.7 * 0.8 * 0.4 * 0.5) / 4, abs=1e-12)
    # 0.5 is in (7/15, 8/15], 0.6 in (8/15, 9/15], 0.7 in (10/15, 11/15], 0.8 in (11/15, 12/15]: a bin for each
    assert ece(log_probs, y) == pytest.approx((0.3 + 0.2 + 0.6 + 0.5) / 4, abs=1e-12)
    assert brier(log_probs, y) == pytest.approx((2 * 0.09 + 2 * 0.04 + 2 * 0.36 + 2 * 0.25) / 4, abs=1e-12)


def test_samples_of_one_bin_are_averaged_before_the_difference() -> None:
    log_probs = _logs([[0.95, 0.05], [0.97, 0.03], [0.99, 0.01], [0.96, 0.04]])
    y = torch.tensor([0, 0, 0, 1])  # all in the last bin: confidence 0.9675, accuracy 0.75
    assert ece(log_probs, y) == pytest.approx(0.2175, abs=1e-12)
    bars = reliability(log_probs, y)
    assert [bar.count for bar in bars] == [0] * 14 + [4]
    assert (bars[-1].confidence, bars[-1].accuracy) == (pytest.approx(0.9675), 0.75)


def test_confidence_one_is_in_the_last_bin() -> None:
    log_probs = torch.tensor([[0.0, -math.inf], [0.0, -200.0]], dtype=torch.float64)
    assert reliability(log_probs, torch.tensor([0, 1]))[-1].count == 2
    assert ece(log_probs, torch.tensor([0, 1])) == 0.5
    assert ece(log_probs, torch.tensor([0, 0])) == 0.0
    assert log_likelihood(log_probs, torch.tensor([0, 1])) == -100.0


def test_rounding_above_one_stays_in_the_last_bin() -> None:
    assert reliability(torch.tensor([[1e-7, -16.0]]), torch.tensor([0]))[-1].count == 1


def test_confidence_zero_is_in_the_first_bin() -> None:
    log_probs = torch.tensor([[-800.0, -801.0]], dtype=torch.float64)  # exp gives 0; no distribution, a boundary
    assert reliability(log_probs, torch.tensor([0]))[0].count == 1
    assert ece(log_probs, torch.tensor([0])) == 1.0


def test_an_edge_belongs_to_the_bin_below_it() -> None:
    # Four bins have edges that are exact: a confidence of 0.5 is in (0.25, 0.5], of 0.75 in (0.5, 0.75].
    log_probs = torch.tensor([[0.5, 0.5], [0.75, 0.25], [np.nextafter(0.5, 1), 0.5]], dtype=torch.float64).log()
    bars = reliability(log_probs, torch.tensor([0, 0, 0]), n_bins=4)
    assert [bar.count for bar in bars] == [0, 1, 2, 0]
    assert [(bar.lower, bar.upper) for bar in bars] == [(0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1)]


def test_ece_of_a_certain_and_wrong_classifier_is_one() -> None:
    log_probs = torch.tensor([[0.0, -50.0]] * 3)
    assert ece(log_probs, torch.tensor([1, 1, 1])) == pytest.approx(1.0, abs=1e-12)


# --- against NumPy ------------------------------------------------------------------------------------------------


@given(
    logits=arrays(
        np.float64,
        array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=30),
        elements=st.floats(-40, 40, width=32) | st.just(0.0),
    ),
    seed=st.integers(0, 2**16),
    single=st.booleans(),
)
def test_agrees_with_numpy(logits: np.ndarray, seed: int, single: bool) -> None:
    log_probs = torch.log_softmax(torch.from_numpy(logits), dim=1)
    if single:
        log_probs = log_probs.float()  # what a network gives
    y = np.random.default_rng(seed).integers(0, logits.shape[1], len(logits))
    got = measure(log_probs, torch.from_numpy(y))
    expected = _reference(log_probs.numpy(), y)
    assert (got.accuracy, got.log_likelihood, got.ece, got.brier) == pytest.approx(expected, abs=1e-6)


@given(seed=st.integers(0, 2**16), n_bins=st.integers(1, 20))
def test_bins_hold_every_sample_once(seed: int, n_bins: int) -> None:
    rng = np.random.default_rng(seed)
    log_probs = torch.from_numpy(np.log(rng.dirichlet(np.full(3, 0.3), 40) + 1e-300))
    bars = reliability(log_probs, torch.from_numpy(rng.integers(0, 3, 40)), n_bins)
    assert len(bars) == n_bins
    assert sum(bar.count for bar in bars) == 40
    for bar in bars:
        assert not bar.count or bar.lower < bar.confidence <= bar.upper + 1e-12


def test_class_reliability_counts_every_class_of_every_sample() -> None:
    rng = np.random.default_rng(1)
    probs = rng.dirichlet(np.ones(4), 60)
    y = rng.integers(0, 4, 60)
    bars = class_reliability(torch.from_numpy(np.log(probs)), torch.from_numpy(y))
    assert sum(bar.count for bar in bars) == 240 and len(bars) == 10
    for bar in bars:
        inside = [
            (p, c == label)
            for row, label in zip(probs, y, strict=True)
            for c, p in enumerate(row)
            if bar.lower < p <= bar.upper
        ]
        assert bar.count == len(inside)
        if inside:
            assert bar.confidence == pytest.approx(np.mean([p for p, _ in inside]))
            assert bar.accuracy == pytest.approx(np.mean([hit for _, hit in inside]))


# --- classes --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 40))
def test_classes_are_measured_as_scikit_learn_measures_them(seed: int, n_classes: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    log_probs = torch.log_softmax(torch.from_numpy(rng.normal(size=(n, n_classes))), dim=-1)
    y = torch.from_numpy(rng.integers(0, n_classes, n))
    predicted = log_probs.argmax(dim=-1)
    names = [f"c{number}" for number in range(n_classes)]
    found = per_class(log_probs, y, names, [7] * n_classes)
    recalls = recall_score(y, predicted, labels=range(n_classes), average=None, zero_division=np.nan)
    precisions = precision_score(y, predicted, labels=range(n_classes), average=None, zero_division=np.nan)
    assert [each.name for each in found] == names and {each.rows for each in found} == {7}
    assert [np.nan if each.recall is None else each.recall for each in found] == pytest.approx(recalls, nan_ok=True)
    assert [np.nan if each.precision is None else each.precision for each in found] == pytest.approx(
        precisions, nan_ok=True
    )
    assert balanced_accuracy(log_probs, y) == pytest.approx(np.nanmean(recalls))
    assert measure(log_probs, y).balanced_accuracy == balanced_accuracy(log_probs, y)
    if len(np.unique(y)) == n_classes:
        assert balanced_accuracy(log_probs, y) == pytest.approx(balanced_accuracy_score(y, predicted))


@pytest.mark.filterwarnings("error")  # torch warns once in a process, and a user would see it
def test_the_reliability_of_all_classes_is_that_of_each_put_together() -> None:
    rng = np.random.default_rng(0)
    log_probs = torch.log_softmax(torch.from_numpy(rng.normal(size=(50, 3))), dim=-1)
    y = torch.from_numpy(rng.integers(0, 3, 50))
    together, each = class_reliability(log_probs, y), per_class(log_probs, y, "abc", [1, 1, 1])
    for number, bar in enumerate(together):
        assert bar.count == sum(one.reliability[number].count for one in each)
        right = sum(one.reliability[number].accuracy * one.reliability[number].count for one in each)
        assert bar.accuracy * bar.count == pytest.approx(right)
