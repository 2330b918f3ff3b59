"""Measures of a predictive distribution, from log-probabilities: pure functions, in float64."""

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.models.one_shot import log_probs_of
from harness.schema.records import ClassMeasures, Measures, ReliabilityBin
from harness.schema.rows import RowValues

ECE_BINS = 15
CLASS_BINS = 10


def accuracy(log_probs: Tensor, y: Tensor) -> float:
    """Share of samples whose most probable class is the right one."""
    return float((log_probs.argmax(dim=-1) == y).double().mean())


def balanced_accuracy(log_probs: Tensor, y: Tensor) -> float:
    """(1/C) Σ_c (share of the samples of class c whose most probable class is c), over the C classes that y has."""
    right = (log_probs.argmax(dim=-1) == y).double()
    count = torch.bincount(y, minlength=log_probs.shape[-1])
    per_class = torch.bincount(y, weights=right, minlength=log_probs.shape[-1]) / count.clamp(min=1)
    return float(per_class[count > 0].mean())


def per_class(log_probs: Tensor, y: Tensor, names: Sequence[str], rows: Sequence[int]) -> tuple[ClassMeasures, ...]:
    """Recall, precision and reliability of every class; `rows` are how many samples of each the data set has."""
    predicted, probs = log_probs.argmax(dim=-1), log_probs.double().exp()
    found = []
    for number, (name, count) in enumerate(zip(names, rows, strict=True)):
        of_it, taken = y == number, predicted == number
        right, n_test, n_taken = (int(mask.sum()) for mask in (of_it & taken, of_it, taken))
        found.append(
            ClassMeasures(
                name=name,
                rows=count,
                n_test=n_test,
                n_predicted=n_taken,
                recall=right / n_test if n_test else None,
                precision=right / n_taken if n_taken else None,
                reliability=_binned(probs[:, number].contiguous(), of_it, CLASS_BINS),
            )
        )
    return tuple(found)


def log_likelihood(log_probs: Tensor, y: Tensor) -> float:
    """(1/N) Σ_n log p(y_n | x_n), in nats."""
    return float(log_probs_of(log_probs[None].double(), y).mean())


def row_values(log_probs: Tensor, y: Tensor) -> RowValues:
    """Of every row: log p(y_n | x_n), and whether its most probable class is the right one."""
    log_probs, y = log_probs.cpu(), y.cpu()
    right = log_probs_of(log_probs[None].double(), y)[0]
    return RowValues(right.float().numpy(), (log_probs.argmax(dim=-1) == y).numpy())


def brier(log_probs: Tensor, y: Tensor) -> float:
    """(1/N) Σ_n Σ_c (p(c | x_n) − [c = y_n])²."""
    probs = log_probs.double().exp()
    right = torch.nn.functional.one_hot(y, probs.shape[-1])
    return float((probs - right).square().sum(dim=-1).mean())


def reliability(log_probs: Tensor, y: Tensor, n_bins: int = ECE_BINS) -> tuple[ReliabilityBin, ...]:
    """Top-label confidence against accuracy in bins (lo, hi] as in Guo et al.; a confidence of 0 is in the first."""
    log_confidence, predicted = log_probs.double().max(dim=-1)
    return _binned(log_confidence.exp(), predicted == y, n_bins)


def class_reliability(log_probs: Tensor, y: Tensor, n_bins: int = CLASS_BINS) -> tuple[ReliabilityBin, ...]:
    """The probability of every class of every sample against how often it is the right one: the paper's diagrams."""
    right = torch.nn.functional.one_hot(y, log_probs.shape[-1])
    return _binned(log_probs.double().exp().flatten(), right.flatten(), n_bins)


def _binned(confidence: Tensor, right: Tensor, n_bins: int) -> tuple[ReliabilityBin, ...]:
    confidence, right = confidence.cpu(), right.cpu()  # a GPU adds a bin's values up in any order
    edges = torch.arange(n_bins + 1, dtype=torch.float64) / n_bins
    bins = torch.bucketize(confidence, edges[1:-1])  # edges[i-1] < confidence <= edges[i]
    count = torch.bincount(bins, minlength=n_bins)
    weight = count.clamp(min=1)
    mean_confidence = torch.bincount(bins, weights=confidence, minlength=n_bins) / weight
    mean_accuracy = torch.bincount(bins, weights=right.double(), minlength=n_bins) / weight
    return tuple(
        ReliabilityBin(lower=lower, upper=upper, count=n, confidence=conf, accuracy=acc)
        for lower, upper, n, conf, acc in zip(
            edges[:-1].tolist(),
            edges[1:].tolist(),
            count.tolist(),
            mean_confidence.tolist(),
            mean_accuracy.tolist(),
            strict=True,
        )
    )


def ece(log_probs: Tensor, y: Tensor, n_bins: int = ECE_BINS) -> float:
    """Expected calibration error: Σ_b (n_b / N) · |accuracy_b − confidence_b|."""
    return ece_of(reliability(log_probs, y, n_bins))


def ece_of(bins: Sequence[ReliabilityBin]) -> float:
    total = sum(bar.count for bar in bins)
    return sum(bar.count / total * abs(bar.accuracy - bar.confidence) for bar in bins)


def measure(log_probs: Tensor, y: Tensor) -> Measures:
    log_probs, y = log_probs.cpu(), y.cpu()  # one wait for a GPU instead of one for every number below
    return Measures(
        accuracy=accuracy(log_probs, y),
        log_likelihood=log_likelihood(log_probs, y),
        ece=ece(log_probs, y),
        brier=brier(log_probs, y),
        balanced_accuracy=balanced_accuracy(log_probs, y),
    )


def exact_posterior(log_likelihood_per_depth: Tensor, log_beta: Tensor) -> tuple[Tensor, float]:
    """For fixed weights: log of q*_i ∝ β_i Π_n p(y_n | x_n, d=i), and the log evidence log Σ_i β_i Π_n p(...).

    `log_likelihood_per_depth` is Σ_n log p(y_n | x_n, d=i). The ELBO is concave in q, q* is its maximiser, and the
    log evidence its maximum, so `log evidence − ELBO` tells how far a learnt q is from the best one.
    """
    joint = log_beta.double() + log_likelihood_per_depth.double()
    return torch.log_softmax(joint, dim=0), float(joint.logsumexp(dim=0))
