"""What is reached without a network, on the same rows: a linear model, and guessing the class frequencies."""

import time
import warnings
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from harness.data.splits import Array, LabelledSet, TrainingData
from harness.schema.records import Floor
from harness.training.evaluate import log_likelihood, measure

INVERSE_PENALTIES: Final = (0.01, 0.1, 1.0)  # scikit-learn's C; the strongest penalty first
MOST_ITERATIONS: Final = 100  # of the solver, for each penalty


def floor_of(data: TrainingData, test: LabelledSet) -> Floor:
    """Fits to the training rows, chooses the penalty on the validation rows as a search chooses its depth, and
    measures on the test rows. No row is left out. It costs nobody anything: its seconds are its own.
    """
    began = time.perf_counter()
    linear, converged = _linear_log_probs(data, test)
    frequencies = np.bincount(data.y[data.train_rows], minlength=data.n_classes) / data.n_train
    guess = torch.from_numpy(np.log(frequencies)).expand(len(test.y), -1)
    y = torch.from_numpy(test.y)
    return Floor(
        linear=measure(linear, y),
        guess=measure(guess, y),
        converged=converged,
        seconds=time.perf_counter() - began,
    )


def _linear_log_probs(data: TrainingData, test: LabelledSet) -> tuple[Tensor, bool]:
    """Of the penalty with the best validation log-likelihood; weaker ones are tried as long as that improves.

    Also whether the solver came to its end before its limit of iterations.
    """
    from sklearn.exceptions import ConvergenceWarning  # takes a second to import
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits  # scikit-learn brings it

    x_train, x_val, x_test = (_inputs(x, data) for x in (data.x[data.train_rows], data.x[data.val_rows], test.x))
    y_train, y_val = data.y[data.train_rows], torch.from_numpy(data.y[data.val_rows])
    best: tuple[float, Tensor, bool] | None = None
    model = LogisticRegression(max_iter=MOST_ITERATIONS, warm_start=True)
    # One thread: more of them wait for each other on a busy machine, and sums come out differently.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # said in `converged`
        for inverse_penalty in INVERSE_PENALTIES:
            model.set_params(C=inverse_penalty).fit(x_train, y_train)
            value = log_likelihood(_log_probs(model, x_val), y_val)
            if best and value <= best[0]:
                break
            best = value, _log_probs(model, x_test), bool(model.n_iter_.max() < MOST_ITERATIONS)
    assert best is not None
    return best[1:]


def _inputs(x: Array, data: TrainingData) -> Array:
    """As the networks see them, one row of numbers each."""
    scaled: Array = ((x.astype(np.float32) - data.mean) / data.std).reshape(len(x), -1)
    return scaled


def _log_probs(model: Any, x: Array) -> Tensor:
    """From the scores, not from probabilities: the logarithm of one that rounds to 0 is no number."""
    scores = torch.from_numpy(np.asarray(model.decision_function(x), dtype=np.float64))
    if scores.ndim == 1:  # two classes have one score
        scores = torch.stack([torch.zeros_like(scores), scores], dim=1)
    return torch.log_softmax(scores, dim=-1)
