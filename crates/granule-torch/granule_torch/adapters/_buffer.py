"""Device memory as an object, and its exchange with other libraries by DLPack and the CUDA array interface."""

from __future__ import annotations

import math
import weakref
from ctypes import byref, c_int64, c_void_p
from typing import Any

from .. import _library
from .._errors import GranuleError
from . import _dlpack, _process


class Buffer:
    """Device memory from Granule, seen as a contiguous array.

    The memory goes back when this object and everything that was made of it by DLPack are gone, once the streams that were named are
    done with it.

        buffer = granule_torch.Buffer((1024, 1024), "float32", stream=stream)
        tensor = torch.from_dlpack(buffer)
    """

    def __init__(self, shape: int | tuple[int, ...], dtype: str = "uint8", *, device: int = 0, stream: Any = None) -> None:
        """Asks for memory. Blocks only where the cache has no fit.

        Args:
            shape: how long each dimension is.
            dtype: what an element is, such as ``"float32"``, ``"bfloat16"``, ``"uint8"``, ``"bool"``.
            device: its number.
            stream: the stream that uses the memory first, or its handle; none is the default stream.

        Raises:
            OutOfMemory: there is no memory.
            ValueError: there is no such shape or type.
        """
        self._handle = c_void_p()
        self.shape: tuple[int, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(length < 0 for length in self.shape):
            raise ValueError(f"shape is {self.shape}; no length may be negative")
        self.dtype = dtype
        self._type = _dlpack.type_of(dtype)
        self.nbytes: int = math.prod(self.shape) * self._type.bits // 8
        """Its length in bytes."""
        self.device = device
        self.stream: int = _process.handle_of(stream)
        """The stream it was asked for, as the driver's handle."""
        library = _library.load()
        engine = _process.engine()
        _library.check(library.granule_buffer_create(engine, self.nbytes, device, self.stream, byref(self._handle)))
        self.ptr: int = library.granule_buffer_ptr(self._handle) or 0
        """Its address; 0 for no bytes."""
        self._end = weakref.finalize(self, library.granule_buffer_destroy, self._handle)
        # What is left at exit goes with the process.
        self._end.atexit = False

    def record_stream(self, stream: Any) -> None:
        """Says that work of another stream uses it: its memory is not reused before that work is done."""
        handle = _process.handle_of(stream)
        _library.check(_library.load().granule_buffer_record_stream(self._open(), self.device, handle))

    def close(self) -> None:
        """Lets go of the memory now. What was made of it by DLPack stays good. A second call does nothing."""
        self._end()

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's number for the kind of device, and the device's."""
        return _dlpack.device_type(_process.engine()), self.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A tensor for another library. Its stream waits for this buffer's, and the memory waits for its stream.

        Args:
            stream: the consumer's stream as DLPack numbers it; -1 for a consumer that sees to the order itself.
            max_version: the newest version that the consumer knows.
            dl_device: where the tensor should be; nowhere but here.
            copy: a copy cannot be had.
        """
        if copy:
            raise BufferError("Granule's memory is handed over as it is: copy it on the other side")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the memory is on the device {self.__dlpack_device__()}, and {tuple(dl_device)} was asked for")
        consumer = _dlpack.consumer(stream, self.__dlpack_device__()[0])
        described = _library.Tensor.empty()
        described.dimensions = len(self.shape)
        described.shape = (c_int64 * len(self.shape))(*self.shape)
        described.code, described.bits = self._type.code, self._type.bits
        described.versioned = max_version is not None and max_version[0] >= 1
        described.has_consumer, described.consumer = consumer is not None, consumer or 0
        made = c_void_p()
        _library.check(_library.load().granule_buffer_to_dlpack(self._open(), byref(described), byref(made)))
        assert made.value is not None
        return _dlpack.capsule(made.value, described.versioned)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For libraries without DLPack. They keep this object, and order their work behind its stream."""
        self._open()
        if self._type.typestr is None:
            raise AttributeError(f"the CUDA array interface has no type {self.dtype}; DLPack has")
        return {
            "shape": self.shape,
            "typestr": self._type.typestr,
            "data": (self.ptr, False),
            "strides": None,
            # 0 is not allowed there; 1 is the same stream.
            "stream": self.stream or 1,
            "version": 3,
        }

    def __repr__(self) -> str:
        there = "closed" if not self._end.alive else f"at {self.ptr:#x}"
        return f"Buffer({self.shape}, {self.dtype!r}, device={self.device}, stream={self.stream:#x}), {there}"

    def _open(self) -> c_void_p:
        if not self._end.alive:
            raise GranuleError("the buffer was closed: its memory is gone")
        return self._handle
