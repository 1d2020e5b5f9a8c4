"""Granule as a memory resource of RMM's Python package (RAPIDS).

    rmm.mr.set_current_device_resource(granule_torch.adapters.rmm.resource())

In C++ there is ``granule/cuda_resource.hpp``.
"""

from __future__ import annotations

from typing import Any

from . import _process, _releases

_rmm: Any = _releases.imported("rmm", "rmm-cu13", "26.06")


def resource(device: int = 0) -> Any:
    """A ``rmm.mr.CallbackMemoryResource`` over the process's allocator: PyTorch's where Granule is behind it.

    Args:
        device: the device's number.

    Raises:
        GranuleError: there is no device, or the settings of the environment cannot be read.
    """
    _process.engine()

    def allocate(nbytes: int, stream: Any) -> int:
        return _process.take(nbytes, device, _process.handle_of(stream))

    def deallocate(ptr: int, nbytes: int, stream: Any) -> None:
        _process.give(ptr, device, _process.handle_of(stream))

    return _rmm.mr.CallbackMemoryResource(allocate, deallocate)
