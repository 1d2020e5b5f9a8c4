"""Device memory of this process's allocator, for libraries other than PyTorch. PyTorch is not needed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any

from .. import _enable, _library

# How Python's objects name a stream of the driver, beside the protocol.
_NAMES_OF_HANDLES = ("cuda_stream", "ptr", "handle")


@functools.cache
def engine() -> int:
    """The allocator: PyTorch's if Granule is behind ``torch.cuda``, else the process's own, made from the environment.

    The first call decides, for as long as the process lives: memory goes back where it came from.

    Raises:
        GranuleError: there is no device, or the settings of the environment cannot be read.
    """
    if _enable.is_enabled():
        return _enable.engine()
    address = c_void_p()
    _library.check(_library.load().granule_pluggable_allocator(byref(address)))
    assert address.value is not None
    return address.value


def take(nbytes: int, device: int, stream: int) -> int:
    """The address of memory for work of a stream; 0 for no bytes.

    Raises:
        OutOfMemory: there is none.
    """
    address = c_void_p()
    _library.check(_library.load().granule_malloc(engine(), nbytes, device, stream, byref(address)))
    return address.value or 0


def give(address: int, device: int, stream: int) -> None:
    """Takes memory back, once work that is queued on the stream by now is done."""
    library = _library.load()
    _library.check(library.granule_record_stream(engine(), address, device, stream))
    _library.check(library.granule_free_on(engine(), address, device))


def retire_stream(stream: Any, device: int = 0) -> None:
    """Says that a stream is about to be destroyed: its cached memory serves others then. Call it before.

    Args:
        stream: a stream, or its handle as a number.
        device: the stream's device.
    """
    library, handle = _library.load(), handle_of(stream)
    _library.check(library.granule_retire_stream(engine(), device, handle))
    if pinned := _enable.pinned():
        _library.check(library.granule_host_retire_stream(pinned, device, handle))


def handle_of(stream: Any) -> int:
    """A stream as the driver's handle: a number, or an object with ``__cuda_stream__``, ``cuda_stream``, ``ptr`` or ``handle``.

    Raises:
        TypeError: it is none.
    """
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    protocol: Callable[[], tuple[int, int]] | None = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int(protocol()[1])
    for name in _NAMES_OF_HANDLES:
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise TypeError(f"stream is {stream!r}; it must be a stream of CUDA, its handle as an int, or None for the default stream")


def device_stats(device: int = 0) -> Any:
    """What the allocator holds of a device: see ``granule_device_stats`` in ``granule.h``."""
    stats = _library.DeviceStats.empty()
    _library.check(_library.load().granule_stats(engine(), device, byref(stats)))
    return stats
