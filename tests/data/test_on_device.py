import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.data.on_device import mini_batches, on_device
from harness.data.splits import TrainingData
from tests.tiny import config, images, spirals

CPU = torch.device("cpu")


@given(n=st.integers(2, 60), batch_size=st.integers(2, 70), seed=st.integers(0, 99))
def test_mini_batches_hold_every_row_once_and_never_one_alone(n: int, batch_size: int, seed: int) -> None:
    rows = torch.arange(100, 100 + n)
    batches = mini_batches(rows, batch_size, torch.Generator().manual_seed(seed))
    assert sorted(torch.cat(batches).tolist()) == rows.tolist()
    sizes = [len(batch) for batch in batches]
    assert all(size == batch_size for size in sizes[:-1])
    assert 2 <= sizes[-1] <= batch_size + 1
    if n % batch_size != 1:
        assert len(sizes) == -(-n // batch_size)


@pytest.mark.parametrize(("n", "sizes"), [(9, [4, 5]), (8, [4, 4]), (10, [4, 4, 2]), (5, [5]), (4, [4]), (3, [3])])
def test_a_last_batch_of_one_joins_the_one_before(n: int, sizes: list[int]) -> None:
    batches = mini_batches(torch.arange(n), 4, torch.Generator().manual_seed(0))
    assert [len(batch) for batch in batches] == sizes


def test_each_epoch_has_an_order_of_its_own() -> None:
    order = torch.Generator().manual_seed(0)
    first, second = (torch.cat(mini_batches(torch.arange(40), 8, order)).tolist() for _ in range(2))
    assert first != second


def test_vectors_are_standardised_by_the_training_rows() -> None:
    data = spirals(config())
    rows, train_rows, val_rows = on_device(data, CPU)
    x, y = rows.take(train_rows)
    assert x.mean(dim=0).tolist() == pytest.approx([0, 0], abs=1e-5)
    assert x.std(dim=0, correction=0).tolist() == pytest.approx([1, 1], abs=1e-5)
    assert y.tolist() == data.y[data.train_rows].tolist()
    x_val, _ = rows.take(val_rows)
    np.testing.assert_allclose(x_val.numpy(), (data.x[data.val_rows] - data.mean) / data.std, rtol=1e-5)


def test_images_come_as_channels_first_and_normalised() -> None:
    data = images(n=12, side=6, channels=2)
    rows, train_rows, _ = on_device(data, CPU)
    x, _ = rows.take(train_rows[[3, 1]])
    expected = (data.x[data.train_rows[[3, 1]]].astype(np.float32) - data.mean) / data.std
    np.testing.assert_allclose(x.numpy(), expected.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-6)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert data.sample_shape == tuple(x.shape[1:])


@pytest.mark.parametrize("data", [images(), spirals(config())], ids=["images", "vectors"])
def test_rows_are_the_pool_itself_and_no_copy(data: TrainingData) -> None:
    """Every trial of a node has the same array in shared memory, which is read-only."""
    data.x.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows, train_rows, _ = on_device(data, CPU)
    before, _ = rows.take(train_rows[:1])
    data.x.flags.writeable = True
    data.x[data.train_rows[0]] += 1
    after, _ = rows.take(train_rows[:1])
    expected = np.broadcast_to((1 / data.std).reshape(-1, *[1] * (after.dim() - 2)), after.shape[1:])
    np.testing.assert_allclose((after - before)[0].numpy(), expected, rtol=1e-4, atol=1e-6)


def test_chunks_keep_the_order() -> None:
    data = spirals(config())
    rows, train_rows, _ = on_device(data, CPU)
    parts = list(rows.chunks(train_rows, size=7))
    assert torch.equal(torch.cat([x for x, _ in parts]), rows.take(train_rows)[0])
    assert [len(y) for _, y in parts] == [7] * 7 + [1]
