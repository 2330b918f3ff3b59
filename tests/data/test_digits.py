import numpy as np

from harness.data import load_pool, load_test, load_training_data
from harness.schema.settings import DigitsData


def test_test_rows_are_a_stratified_fifth_apart_from_the_pool() -> None:
    settings = DigitsData(kind="digits")
    pool = load_pool(settings)
    test, same = (load_test(settings, seed, load_training_data(settings, seed, pool)) for seed in (0, 5))
    assert pool is not None and len(pool.y) + len(test.y) == 1797
    assert np.array_equal(test.x, same.x), "one test set for all seeds"
    total = np.bincount(np.concatenate([pool.y, test.y]))
    assert (np.abs(np.bincount(test.y) - 0.2 * total) <= 0.5).all()
    assert not {row.tobytes() for row in pool.x} & {row.tobytes() for row in test.x}


def test_as_images_holds_the_same_pixels() -> None:
    vectors, images = (load_pool(DigitsData(kind="digits", as_images=flag)) for flag in (False, True))
    assert vectors is not None and images is not None
    assert images.x.shape[1:] == (8, 8, 1) and images.x.dtype == np.uint8
    assert np.array_equal(images.x.reshape(-1, 64), vectors.x)
