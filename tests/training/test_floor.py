"""What needs no network, on the same rows as the networks."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from harness.data.splits import LabelledSet, Pool, TrainingData, training_data
from harness.schema.records import Floor, Measures
from harness.training import final, floor
from harness.training.final import evaluate_on_test
from harness.training.floor import floor_of
from harness.training.train import run_trial
from tests.tiny import config, images, spirals


def _blobs(n: int, seed: int, counts: tuple[int, ...] = (3, 2, 1), apart: float = 6.0) -> tuple[Any, Any]:
    """Classes in the proportions `counts`, each around a corner of its own."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(counts)), [n * count // sum(counts) for count in counts])
    return (apart * np.eye(len(counts))[y] + rng.normal(size=(len(y), len(counts)))).astype(np.float32), y


def _data(n: int = 120, n_val: int = 30, **more: Any) -> tuple[TrainingData, LabelledSet]:
    x, y = _blobs(n, 0, **more)
    rows = np.random.default_rng(1).permutation(len(y))
    pool = Pool(x, y, n_classes=3)
    return training_data(pool, np.sort(rows[n_val:]), np.sort(rows[:n_val])), LabelledSet(*_blobs(600, 2, **more))


def test_guessing_knows_the_frequencies_of_the_training_rows_only() -> None:
    data, test = _data()
    guess = floor_of(data, test).guess
    frequencies = np.bincount(data.y[data.train_rows]) / data.n_train
    expected = sum(share * math.log(p) for share, p in zip((1 / 2, 1 / 3, 1 / 6), frequencies, strict=True))
    assert guess.log_likelihood == pytest.approx(expected)
    assert guess.accuracy == pytest.approx(1 / 2), "the most frequent class"


def test_a_linear_problem_is_solved_and_a_spiral_is_not() -> None:
    assert floor_of(*_data(apart=12.0)).linear.accuracy == 1.0
    trial = config("ddn", 0)
    trained = run_trial(trial, spirals(trial))
    found = evaluate_on_test(trained.network, 0, trial, spirals(trial)).floor
    assert found and found.converged and found.linear.accuracy < 0.75 and found.guess.accuracy == pytest.approx(0.5)


@pytest.mark.parametrize("apart", [0.5, 2.0, 6.0])
def test_the_penalty_is_chosen_on_the_validation_rows(apart: float) -> None:
    data, test = _data(apart=apart)

    def scaled(x: Any) -> Any:
        return (x - data.mean) / data.std

    def fitted(inverse_penalty: float) -> tuple[float, float]:
        model = LogisticRegression(C=inverse_penalty, max_iter=1000)
        model.fit(scaled(data.x[data.train_rows]), data.y[data.train_rows])
        values = []
        for x, y in ((data.x[data.val_rows], data.y[data.val_rows]), (test.x, test.y)):
            values.append(float(model.predict_log_proba(scaled(x))[np.arange(len(y)), y].mean()))
        return values[0], values[1]

    best = max(fitted(inverse_penalty) for inverse_penalty in floor.INVERSE_PENALTIES)
    assert floor_of(data, test).linear.log_likelihood == pytest.approx(best[1], abs=2e-3)


def test_images_are_rows_of_numbers_to_it() -> None:
    data = images()
    found = floor_of(data, LabelledSet(data.x[data.val_rows], data.y[data.val_rows]))
    assert found.linear.accuracy > 0.9, "the classes differ in brightness"


def test_a_solver_at_its_limit_says_so(monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder) -> None:
    monkeypatch.setattr(floor, "MOST_ITERATIONS", 1)
    assert not floor_of(*_data()).converged and not recwarn.list


def test_it_is_outside_all_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds of the final evaluation begin after it."""
    clock = itertools.count()
    monkeypatch.setattr("harness.training.final.time.perf_counter", lambda: float(next(clock)))
    nothing = Measures(accuracy=0, log_likelihood=0, ece=0, brier=0)

    def slow(data: TrainingData, test: LabelledSet) -> Floor:
        for _ in range(10_000):
            next(clock)
        return Floor(linear=nothing, guess=nothing, converged=True, seconds=10_000)

    monkeypatch.setattr(final, "floor_of", slow)
    trial = config("ddn", 1, max_epochs=1)
    trained = run_trial(trial, spirals(trial))
    evaluated = evaluate_on_test(trained.network, 1, trial, spirals(trial))
    assert evaluated.floor and evaluated.floor.seconds == 10_000 and evaluated.seconds < 1_000
