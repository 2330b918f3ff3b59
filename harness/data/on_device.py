"""Batches of rows on the device. The pool stays as it is, an array in shared memory; batches are normalised."""

import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

from harness.data.splits import Array, TrainingData

EVAL_BATCH = 2048


class DeviceRows:
    """`x`, `y` of one pool. On the CPU `x` is the given array itself, so that all trials of a node hold it once."""

    def __init__(self, x: Array, y: Array, mean: Array, std: Array, device: torch.device) -> None:
        self.device = device
        with warnings.catch_warnings():
            # Ray's shared arrays are read-only, which torch warns about; nothing here writes to them.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            rows, labels = torch.from_numpy(x), torch.from_numpy(y)
        self._images = rows.dim() == 4
        shape = (-1, 1, 1) if self._images else (-1,)
        self._mean, self._std = (torch.from_numpy(v).reshape(shape).to(device) for v in (mean, std))
        if device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            # Leave half of the memory to the network; a larger pool stays where it is and is copied batch by batch.
            if rows.nbytes < free // 2:
                rows = rows.to(device)
        self._x = rows
        self.y = labels.to(device)

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs as the network wants them and their labels, for the given row numbers (on the device)."""
        x = self._x[rows.to(self._x.device)]
        if x.device.type != self.device.type:
            x = x.pin_memory().to(self.device, non_blocking=True)
        if self._images:
            # (N, H, W, C) in memory, seen as (N, C, H, W): `channels_last` without a copy
            x = x.permute(0, 3, 1, 2).float()
        return (x - self._mean) / self._std, self.y[rows]

    def chunks(self, rows: Tensor, size: int = EVAL_BATCH) -> Iterator[tuple[Tensor, Tensor]]:
        """Large batches in row order, for evaluation."""
        for part in rows.split(size):
            yield self.take(part)


def on_device(data: TrainingData, device: torch.device) -> tuple[DeviceRows, Tensor, Tensor]:
    """The pool's rows and the row numbers for training and for validation."""
    rows = DeviceRows(data.x, data.y, data.mean, data.std, device)
    return rows, torch.from_numpy(data.train_rows).to(device), torch.from_numpy(data.val_rows).to(device)


def mini_batches(rows: Tensor, batch_size: int, order: torch.Generator) -> tuple[Tensor, ...]:
    """A new order of the rows, cut into batches; a last batch of one sample is joined to the one before it.

    The whole set in one batch needs no order: its objective does not depend on it.
    """
    if len(rows) <= batch_size:
        return (rows,)
    shuffled = rows[torch.randperm(len(rows), generator=order).to(rows.device)]
    batches: tuple[Tensor, ...] = shuffled.split(batch_size)
    if len(batches[-1]) == 1:
        batches = (*batches[:-2], torch.cat(batches[-2:]))
    return batches
