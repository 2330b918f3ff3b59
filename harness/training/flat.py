"""A network's tensors in one buffer for each kind of number: kept, saved and restored in one copy.

A network of 50 blocks has 2,700 tensors. To copy or save them one by one takes far longer than their few megabytes.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from harness.errors import UserError

ALIGNMENT_BYTES = 64  # of torch's own allocations: kernels sum in another order where a tensor begins elsewhere


def flatten(network: nn.Module) -> list[Tensor]:
    """Moves all parameters and buffers of a network into one buffer per dtype, in place; returns the buffers."""
    check_plain(network)
    tensors = _tensors(network)
    buffers = [torch.zeros(n, dtype=dtype, device=tensors[0].device) for dtype, n in _sizes(tensors).items()]
    for tensor, view in zip(tensors, views(buffers, tensors), strict=True):
        view.copy_(tensor.detach())
        tensor.data = view
    return buffers


def check_plain(network: nn.Module) -> None:
    """Raises UserError for what has no place in a buffer; one of our networks has nothing of the kind."""
    parameters = {name for name, _ in network.named_parameters(remove_duplicate=False)}
    for name, tensor in network.state_dict(keep_vars=True).items():
        if is_lazy(tensor):
            wrong = "has no shape before the first rows come; give the layer its size"
        elif name in parameters and tensor.dtype != torch.float32:
            wrong = f"is {tensor.dtype}, and parameters are torch.float32"
        elif not _is_dense(tensor):
            wrong = f"shares or skips memory (shape {tuple(tensor.shape)}, strides {tensor.stride()}); clone it"
        else:
            continue
        raise UserError(f"{name} of the network {wrong}")


def _is_dense(tensor: Tensor) -> bool:
    """Whether its elements fill a stretch of memory, in whatever order."""
    filled = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != filled:
            return False
        filled *= size
    return True


def unflatten(network: nn.Module) -> None:
    """Gives every tensor memory of its own again: a part of the network must not keep, or save, all of it."""
    for tensor in _tensors(network):
        tensor.data = tensor.detach().clone()


def load(buffers: Sequence[Tensor], network: nn.Module) -> None:
    """Copies what `flatten` gave of an equal network into this one."""
    tensors = _tensors(network)
    for tensor, view in zip(tensors, views(buffers, tensors), strict=True):
        tensor.detach().copy_(view)


def look_into(buffers: Sequence[Tensor], network: nn.Module, part: nn.Module, prefix: str) -> None:
    """Makes `part`, a copy of the network's part of that name, show what lies in these buffers, now and later."""
    own = network.state_dict(keep_vars=True)
    shown = dict(zip(own, views(buffers, list(own.values())), strict=True))
    for name, tensor in part.state_dict(keep_vars=True).items():
        tensor.data = shown[prefix + name]


def views(buffers: Sequence[Tensor], tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """What lies in the buffers for each of the tensors, in its shape and memory format."""
    by_dtype = {buffer.dtype: buffer for buffer in buffers}
    used = dict.fromkeys(by_dtype, 0)
    for tensor in tensors:
        yield by_dtype[tensor.dtype].as_strided(tensor.shape, tensor.stride(), used[tensor.dtype])
        used[tensor.dtype] += _room(tensor)


def zeros_like(tensors: Iterable[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """One buffer of zeros, and a view into it for each of the tensors, which all are of one dtype."""
    given = list(tensors)
    [(dtype, n)] = _sizes(given).items()
    buffer = torch.zeros(n, dtype=dtype, device=given[0].device)
    return buffer, list(views([buffer], given))


def _tensors(network: nn.Module) -> list[Tensor]:
    return list(network.state_dict(keep_vars=True).values())


def _sizes(tensors: Sequence[Tensor]) -> dict[torch.dtype, int]:
    sizes: dict[torch.dtype, int] = {}
    for tensor in tensors:
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + _room(tensor)
    return sizes


def _room(tensor: Tensor) -> int:
    """Elements that a tensor takes up, with what is left free behind it."""
    step = ALIGNMENT_BYTES // tensor.element_size()
    return -(-tensor.numel() // step) * step
