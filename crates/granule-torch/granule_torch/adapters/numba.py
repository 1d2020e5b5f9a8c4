"""Granule as the memory manager of Numba-CUDA.

    from granule_torch.adapters import numba as granule_numba

    granule_numba.enable()         # before the first use of a device

``NUMBA_CUDA_MEMORY_MANAGER=granule_torch.adapters.numba`` in the environment does the same.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from ctypes import byref, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from .. import _library
from .._errors import GranuleError
from . import _process, _releases

_cuda: Any = _releases.imported(
    "numba.cuda", "numba-cuda", "0.20", ("HostOnlyCUDAMemoryManager", "GetIpcHandleMixin", "MemoryPointer", "MemoryInfo")
)

if TYPE_CHECKING:
    _Base = object
else:

    class _Base(_cuda.GetIpcHandleMixin, _cuda.HostOnlyCUDAMemoryManager):
        """Numba's own part."""


# Numba names no stream: its memory is the default stream's, which waits for all of Numba's streams, as they do for it.
_STREAM = 0
# Python may collect garbage, and so give memory back, while memory is given back.
_turn = threading.RLock()
# What the driver did not let be given back. It is tried again with what comes next.
_refused: list[tuple[int, int]] = []


def enable() -> None:
    """Has Numba take device memory from the process's allocator: PyTorch's where Granule is behind it. Pinned and managed memory stay
    Numba's.

    Raises:
        GranuleError: there is no device, the settings of the environment cannot be read, or Numba has used a device already.
    """
    _process.engine()
    chosen = getattr(_cuda.cudadrv.driver, "_memory_manager", None)
    if chosen not in (None, GranuleMemoryManager):
        raise GranuleError(f"Numba's memory manager is {chosen.__name__} already: call enable() before the first use of a device.")
    _cuda.set_memory_manager(GranuleMemoryManager)


class GranuleMemoryManager(_Base):
    """Memory of one context from the process's allocator.

    Memory that is freed is used again in the order of Numba's streams; no thread waits. Streams that were made non-blocking
    elsewhere are waited for by whoever uses them.
    """

    # Numba sets it.
    context: Any

    def initialize(self) -> None:
        """Numba calls it when a context is made."""
        _process.engine()

    def memalloc(self, size: int) -> Any:
        """Memory for Numba's streams. Blocks only where the cache has no fit.

        Raises:
            OutOfMemory: there is no memory.
        """
        device = int(self.context.device.id)
        address = _process.take(size, device, _STREAM)
        give = functools.partial(_give, address, device)
        return _cuda.MemoryPointer(weakref.proxy(self.context), c_void_p(address), size, finalizer=give)

    def get_memory_info(self) -> Any:
        """Free and total bytes of the device."""
        free, total = c_uint64(), c_uint64()
        device = int(self.context.device.id)
        _library.check(_library.load().granule_device_memory_info(_process.engine(), device, byref(free), byref(total)))
        return _cuda.MemoryInfo(free=free.value, total=total.value)

    @property
    def interface_version(self) -> int:
        """Of Numba's interface."""
        return 1


def _give(address: int, device: int) -> None:
    """Takes memory back for work that any of Numba's streams is given from now on: it comes after all that they have been given."""
    if not address:
        return
    with _turn:
        waiting = [*_refused, (address, device)]
        _refused.clear()
        try:
            while waiting:
                address, device = waiting[-1]
                _order(device)
                waiting.pop()
                _process.give(address, device, _STREAM)
        finally:
            _refused.extend(waiting)


def _order(device: int) -> None:
    """The default stream waits for the others before it waits for an event, and they wait for it."""
    library, engine = _library.load(), _process.engine()
    event = _fence(device)
    _library.check(library.granule_event_record(engine, device, event, _STREAM))
    _library.check(library.granule_stream_wait_event(engine, device, _STREAM, device, event))


@functools.cache
def _fence(device: int) -> int:
    event = c_uint64()
    _library.check(_library.load().granule_event_create(_process.engine(), device, False, byref(event)))
    return event.value


# What Numba looks for in the module that NUMBA_CUDA_MEMORY_MANAGER names.
_numba_memory_manager: Callable[..., Any] = GranuleMemoryManager
