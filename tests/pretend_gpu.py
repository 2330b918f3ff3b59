"""A GPU that is pretended: a device of its own whose numbers this processor computes.

It refuses what CUDA refuses (tensors of two devices in one operation, a generator of another device) and counts what
costs time there: operations, each of which is a launch, and waits, at which the host stands still until the device
has caught up.
"""

import contextlib
import functools
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "pretend"
# Views of a tensor launch nothing.
VIEWS = {
    *("alias", "as_strided", "detach", "diagonal", "expand", "lift_fresh", "narrow", "permute", "reshape", "select"),
    *("slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unsqueeze", "view"),
    *("_reshape_alias", "_unsafe_view"),
}
# The size of the result, or the result itself, is needed on the host.
READ_BY_THE_HOST = {
    *("_local_scalar_dense", "_unique2", "bincount", "equal", "is_nonzero", "item", "masked_select", "nonzero"),
    *("unique_consecutive", "unique_dim"),
}


@dataclass
class Seen:
    """What was asked of the device."""

    device: torch.device
    total_bytes: int = 2**34
    free_bytes: int | None = None  # instead of what is left of them
    share: float = 1.0  # of them that this process may take
    held: dict[int, list[int]] = field(default_factory=dict)  # memory → its bytes, and how many tensors are in it
    held_bytes: int = 0
    peak_bytes: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)

    def take(self) -> tuple[Counter[str], Counter[str]]:
        """Operations and waits since the last call."""
        taken = self.operations, self.waits
        self.operations, self.waits = Counter(), Counter()
        return taken

    def hold(self, tensor: "OnDevice") -> None:
        """Counts its memory until the last tensor in it is gone."""
        storage = tensor.numbers.untyped_storage()
        memory = self.held.setdefault(storage.data_ptr(), [storage.nbytes(), 0])
        if memory[1] == 0:
            self.held_bytes += memory[0]
            self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        memory[1] += 1
        tensor.let_go = weakref.finalize(tensor, self._release, storage.data_ptr())

    def _release(self, key: int) -> None:
        self.held[key][1] -= 1
        if self.held[key][1] == 0:
            self.held_bytes -= self.held.pop(key)[0]


class OnDevice(Tensor):
    """A tensor of the pretended device; `numbers` has its numbers."""

    numbers: Tensor
    let_go: Callable[[], None]  # of its memory

    @staticmethod
    def __new__(cls, numbers: Tensor) -> "OnDevice":
        made: OnDevice = Tensor._make_wrapper_subclass(
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=_registered(),
            requires_grad=False,
        )
        made.numbers = numbers
        _seen().hold(made)
        return made

    def __init__(self, numbers: Tensor) -> None: ...

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _run(func, args, kwargs or {})

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, given: Tensor) -> None:
        """What stands for another tensor's memory from now on, as `x.data = y` has it."""
        assert isinstance(given, OnDevice) and given.shape == self.shape and given.stride() == self.stride()
        self.let_go()
        self.numbers = given.numbers
        _seen().hold(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        made = self.detach().clone().requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            made = torch.nn.Parameter(made, self.requires_grad)
        memo[id(self)] = made
        return made

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """In a file: through the host, as every device's."""
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, (
            self.cpu(),
            self.dtype,
            str(self.device),
            self.requires_grad,
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"OnDevice({tuple(self.shape)}, {self.dtype})"


class _Backend(backend_registration._DummyBackendModule):
    """`torch.pretend`, what `torch.cuda` is for CUDA."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def get_rng_state(self, device: Any = None) -> Tensor:
        """Its random numbers are the CPU's."""
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def manual_seed_all(self, seed: int) -> None: ...

    def _is_in_bad_fork(self) -> bool:
        return False

    def synchronize(self, device: Any = None) -> None:
        _seen().waits["synchronize"] += 1

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        seen = _seen()
        free = seen.total_bytes - seen.held_bytes if seen.free_bytes is None else seen.free_bytes
        return free, seen.total_bytes

    def get_device_properties(self, device: Any = None) -> SimpleNamespace:
        return SimpleNamespace(total_memory=_seen().total_bytes)

    def get_device_name(self, device: Any = None) -> str:
        return "a pretended GPU"

    def empty_cache(self) -> None: ...

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        _seen().peak_bytes = _seen().held_bytes

    def max_memory_reserved(self, device: Any = None) -> int:
        return _seen().peak_bytes

    def set_per_process_memory_fraction(self, share: float, device: Any = None) -> None:
        _seen().share = share

    def get_per_process_memory_fraction(self, device: Any = None) -> float:
        return _seen().share


_using: list[Seen] = []


def _seen() -> Seen:
    return _using[-1] if _using else Seen(_registered())


@functools.cache
def _registered() -> torch.device:
    """Once in a process; torch has room for one such device."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
    torch.serialization.register_package(  # its tensors come from files through the host
        5, lambda storage: None, lambda storage, location: storage if location.startswith(NAME) else None
    )
    return torch.device(NAME, 0)


@contextlib.contextmanager
def pretend_gpu() -> Iterator[Seen]:
    """The device, for the time of the block."""
    seen = Seen(_registered())
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # a parameter cannot change its class
    _using.append(seen)
    try:
        # Inference mode cannot make views of tensors of a class of one's own.
        # The threads of autograd are made when a process first needs them, for the devices that it then has.
        one_thread = torch.autograd.set_multithreading_enabled(False)
        with pytest.MonkeyPatch.context() as patch, one_thread, _Everything():
            patch.setattr(torch, "inference_mode", torch.no_grad)
            yield seen
    finally:
        _using.pop()
        torch.__future__.set_overwrite_module_params_on_conversion(before)


class _Everything(TorchDispatchMode):
    """Sees operations too that have no tensor of the device yet: those that make one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would import its compiler to tell it to stay away."""
        return False


def _is_ours(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def _numbers(value: Any) -> Any:
    return value.numbers if isinstance(value, OnDevice) else value


def _map(change: Callable[[Any], Any], value: Any) -> Any:
    """Of what operations take and give: values and lists of them. torch has its own, which looks for much more."""
    if isinstance(value, list | tuple):
        return type(value)([_map(change, each) for each in value])
    return change(value)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = func.overloadpacket.__name__
    tensors = [*_tensors(args), *_tensors(kwargs.values())]
    ours = [tensor for tensor in tensors if isinstance(tensor, OnDevice)]
    if name == "_to_copy":
        return _copied(args[0], dict(kwargs))
    if not ours and not _is_ours(kwargs.get("device")):
        if kwargs.get("pin_memory"):  # this processor's own memory is as good
            kwargs = kwargs | {"pin_memory": False}
        return func(*args, **kwargs)
    seen = _seen()
    if name == "copy_":
        _note_crossing(args[0], args[1], blocking=not (args[2:] and args[2]) and not kwargs.get("non_blocking"))
    elif any(tensor.dim() > 0 for tensor in tensors if not isinstance(tensor, OnDevice)) or (
        func._schema.is_mutable and isinstance(args[0], Tensor) and not isinstance(args[0], OnDevice)
    ):  # one number of the CPU may be read by an operation, not written
        shapes = [(str(tensor.device), tuple(tensor.shape)) for tensor in tensors]
        raise RuntimeError(f"Expected all tensors to be on the same device; {func} got {shapes}")
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type != NAME:
        raise RuntimeError(f"Expected a {NAME!r} device type for generator but found {generator.device.type!r}: {func}")
    by_mask = name == "index" and any(each is not None and each.dtype == torch.bool for each in args[1])
    if name in READ_BY_THE_HOST or by_mask:
        seen.waits[name] += 1
    if name not in VIEWS:
        seen.operations[name] += 1
    on_cpu = {"device": torch.device("cpu")} if _is_ours(kwargs.get("device")) else {}
    given = {key: _map(_numbers, value) for key, value in (kwargs | on_cpu).items()}
    result = func(*_map(_numbers, args), **given)
    in_place = {id(tensor.numbers): tensor for tensor in ours}  # what an operation wrote to stays the tensor it was
    return _map(lambda each: in_place[id(each)] if id(each) in in_place else _wrapped(each), result)


def _wrapped(value: Any) -> Any:
    return OnDevice(value) if isinstance(value, Tensor) and not isinstance(value, OnDevice) else value


def _copied(source: Tensor, kwargs: dict[str, Any]) -> Tensor:
    """`x.to(…)`, within a device or between two."""
    asked = kwargs.pop("device", None)
    non_blocking = kwargs.pop("non_blocking", False)
    kwargs.pop("pin_memory", None)
    to_ours = isinstance(source, OnDevice) if asked is None else _is_ours(asked)
    copy: Tensor = torch.ops.aten._to_copy.default(_numbers(source), **kwargs)
    result = OnDevice(copy) if to_ours else copy
    _note_crossing(result, source, blocking=not non_blocking)
    if to_ours or isinstance(source, OnDevice):
        _seen().operations["_to_copy"] += 1
    return result


def _note_crossing(target: Tensor, source: Tensor, blocking: bool) -> None:
    """From the device the host waits for the bytes; to the device it waits unless it was told not to."""
    if isinstance(source, OnDevice) and not isinstance(target, OnDevice):
        _seen().waits["to the host"] += 1
    elif isinstance(target, OnDevice) and not isinstance(source, OnDevice) and blocking and source.dim() > 0:
        _seen().waits["to the device"] += 1
