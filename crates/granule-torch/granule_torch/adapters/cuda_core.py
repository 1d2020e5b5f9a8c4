"""Granule as a memory resource of cuda.core (NVIDIA's Python interface to CUDA).

    from granule_torch.adapters.cuda_core import GranuleMemoryResource

    buffer = GranuleMemoryResource().allocate(1 << 20, stream=stream)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _process, _releases

_core: Any = _releases.imported("cuda.core", "cuda-core", "1.0", ("MemoryResource", "Buffer"))

if TYPE_CHECKING:
    _Base = object
else:
    _Base = _core.MemoryResource


class GranuleMemoryResource(_Base):
    """Memory of one device from the process's allocator: PyTorch's where Granule is behind it.

    Buffers are given back in the order of the stream that closes them.
    """

    def __init__(self, device: int = 0) -> None:
        """
        Args:
            device: the device's number.

        Raises:
            GranuleError: there is no device, or the settings of the environment cannot be read.
        """
        _process.engine()
        self._device = device

    def allocate(self, size: int, *, stream: Any) -> Any:
        """A ``cuda.core.Buffer`` for work of a stream. Blocks only where the cache has no fit.

        Raises:
            OutOfMemory: there is no memory.
        """
        handle = _process.handle_of(stream)
        address = _process.take(size, self._device, handle)
        try:
            return _core.Buffer.from_handle(address, size, mr=self, stream=stream)
        except BaseException:
            _process.give(address, self._device, handle)
            raise

    def deallocate(self, ptr: Any, size: int, *, stream: Any) -> None:
        """Takes memory back, once work that is queued on the stream by now is done."""
        _process.give(int(ptr), self._device, _process.handle_of(stream))

    @property
    def is_device_accessible(self) -> bool:
        """It is."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """It is not."""
        return False

    @property
    def is_managed(self) -> bool:
        """It is not: it stays on its device."""
        return False

    @property
    def device_id(self) -> int:
        """The device's number."""
        return self._device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GranuleMemoryResource) and other._device == self._device

    def __hash__(self) -> int:
        return hash((GranuleMemoryResource, self._device))
