"""Granule as CuPy's allocator.

    from granule_torch.adapters import cupy as granule_cupy

    granule_cupy.enable()          # before the first array
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _process, _releases
from ._buffer import Buffer

_cupy: Any = _releases.imported("cupy", "cupy-cuda13x", "13.0")


def enable() -> None:
    """Has CuPy take device memory from the process's allocator from now on: PyTorch's where Granule is behind it.

    Arrays that are there stay where they are. ``cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)`` goes back.

    Raises:
        GranuleError: there is no device, or the settings of the environment cannot be read.
    """
    _process.engine()
    _cupy.cuda.set_allocator(allocator())


def allocator(stream: Any = None, device: int = 0) -> Callable[[int], Any]:
    """A function for ``cupy.cuda.set_allocator`` or ``cupy.cuda.using_allocator``.

    Args:
        stream: the stream that all memory is for; none takes CuPy's current stream and device at each request, as CuPy's own
            pool does.
        device: the number of that stream's device.
    """

    def allocate(nbytes: int) -> Any:
        used, where = (stream, device) if stream is not None else _current()
        buffer = Buffer(nbytes, device=where, stream=used)
        # CuPy destroys a stream with its object: it stays for as long as the memory is in use.
        owner = (buffer, used)
        return _cupy.cuda.MemoryPointer(_cupy.cuda.UnownedMemory(buffer.ptr, nbytes, owner, where), 0)

    return allocate


def _current() -> tuple[Any, int]:
    """The stream and the device on which CuPy works now."""
    return _cupy.cuda.get_current_stream(), int(_cupy.cuda.runtime.getDevice())
