"""The 1,797 handwritten digits that scikit-learn carries: real images without a download."""

import numpy as np

from harness.data.splits import Array, LabelledSet, Pool, stratified_rows
from harness.schema.settings import DigitsData
from harness.seeds import numpy_generator


def _load(settings: DigitsData) -> tuple[Array, Array, Array, Array]:
    """Inputs, labels, and the rows outside and inside the test set, which is the same for all seeds."""
    from sklearn.datasets import load_digits  # takes a second to import

    digits = load_digits()
    x = digits.images[..., None].astype(np.uint8) if settings.as_images else digits.data.astype(np.float32)
    y = digits.target.astype(np.int64)
    pool_rows, test_rows = stratified_rows(y, settings.test_fraction, numpy_generator(0, "test"))
    return x, y, pool_rows, test_rows


def load_pool(settings: DigitsData) -> Pool:
    x, y, rows, _ = _load(settings)
    return Pool(x[rows], y[rows], n_classes=10)


def load_test(settings: DigitsData) -> LabelledSet:
    x, y, _, rows = _load(settings)
    return LabelledSet(x[rows], y[rows])
