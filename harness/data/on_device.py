"""Batches of rows on the device. The pool is copied there if it fits, else it stays as it is; batches are scaled."""

import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

from harness.data.splits import Array, TrainingData

EVAL_BATCH = 2048


class DeviceRows:
    """`x`, `y` of one pool. On the CPU `x` is the given array itself, so that all trials of a node hold it once.

    Row numbers are wherever the rows are: `on_device` puts them there.
    """

    def __init__(self, x: Array, y: Array, mean: Array, std: Array, device: torch.device) -> None:
        self.device = device
        with warnings.catch_warnings():
            # Ray's shared arrays are read-only, which torch warns about; nothing here writes to them.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            rows, labels = torch.from_numpy(x), torch.from_numpy(y)
        self._images = rows.dim() == 4
        shape = (-1, 1, 1) if self._images else (-1,)
        self._mean, self._std = (torch.from_numpy(v).reshape(shape).to(device) for v in (mean, std))
        # Half of the memory is left to the network; a larger pool stays where it is and is sent batch by batch.
        fits = device.type == "cpu" or rows.nbytes < _room(device) // 2
        self.at = device if fits else torch.device("cpu")  # where the rows are
        self.y = labels.to(device)
        self._x, self._y = rows.to(self.at), self.y if fits else labels

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs as the network wants them and their labels, for the given row numbers."""
        if self.at == self.device:
            x, y = self._x[rows], self._y[rows]
        else:
            x, y = self._sent(self._x, rows), self._sent(self._y, rows)
        if self._images:
            # (N, H, W, C) in memory, seen as (N, C, H, W): `channels_last` without a copy
            x = x.permute(0, 3, 1, 2).float()
        return (x - self._mean) / self._std, y

    def _sent(self, host: Tensor, rows: Tensor) -> Tensor:
        """Through memory that the device itself can read: the host gathers the next batch while the device is at this
        one, and nobody waits. Torch keeps such memory until it was read, and uses it again."""
        staged = torch.empty((len(rows), *host.shape[1:]), dtype=host.dtype, pin_memory=True)
        torch.index_select(host, 0, rows, out=staged)
        return staged.to(self.device, non_blocking=True)

    def labels(self, rows: Tensor) -> Tensor:
        return self.y[rows.to(self.device)]

    def chunks(self, rows: Tensor, size: int = EVAL_BATCH) -> Iterator[tuple[Tensor, Tensor]]:
        """Large batches in row order, for evaluation."""
        for part in rows.split(size):
            yield self.take(part)


def sent(host: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on the device, without waiting for it: through memory that the device itself can read."""
    if device.type == "cpu":
        return host
    return torch.empty(host.shape, dtype=host.dtype, pin_memory=True).copy_(host).to(device, non_blocking=True)


def _room(device: torch.device) -> int:
    """Bytes of a GPU that are free, and no more than the share of it that this process may take."""
    backend = torch.get_device_module(device)
    free, total = backend.mem_get_info(device)
    share = getattr(backend, "get_per_process_memory_fraction", lambda _: 1.0)(device)  # an older torch cannot tell
    return min(int(free), int(share * total))


def on_device(data: TrainingData, device: torch.device) -> tuple[DeviceRows, Tensor, Tensor]:
    """The pool's rows and the row numbers for training and for validation."""
    rows = DeviceRows(data.x, data.y, data.mean, data.std, device)
    return rows, torch.from_numpy(data.train_rows).to(rows.at), torch.from_numpy(data.val_rows).to(rows.at)


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
