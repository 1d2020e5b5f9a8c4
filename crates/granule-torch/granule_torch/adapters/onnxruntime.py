"""Granule as an allocator of ONNX Runtime, for programs that use its C API (from C++, or from Python by ctypes).

ONNX Runtime's Python package has no way to register an allocator. In C, call ``granule_ort_allocator_create`` of ``granule.h``.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from .. import _library
from . import _process


class OrtAllocator:
    """An ``OrtAllocator*``; its address is :attr:`ptr`. Keep the object for as long as ONNX Runtime has it."""

    def __init__(self, memory_info: int, version: int, *, device: int = 0, stream: Any = None, stream_handle: int = 0) -> None:
        """
        Args:
            memory_info: address of the ``OrtMemoryInfo`` that says which memory it is; it outlives this object.
            version: ``ORT_API_VERSION``, 18 or later.
            device: the device's number.
            stream: the stream that sessions compute on (``user_compute_stream``).
            stream_handle: address of ``OrtApi::SyncStream_GetHandle``, where streams are to make a difference.

        Raises:
            GranuleError: ONNX Runtime of that version has another allocator, or an address is missing.
        """
        options = _library.OrtOptions.empty()
        options.version, options.device = version, device
        options.stream = _process.handle_of(stream)
        options.memory_info, options.stream_handle = memory_info, stream_handle
        made = ctypes.c_void_p()
        library = _library.load()
        _library.check(library.granule_ort_allocator_create(_process.engine(), ctypes.byref(options), ctypes.byref(made)))
        assert made.value is not None
        self.ptr: int = made.value
        """Its address."""
        self._end = weakref.finalize(self, library.granule_ort_allocator_destroy, made)
        self._end.atexit = False

    def close(self) -> None:
        """Ends it: ONNX Runtime has let go of it. A second call does nothing."""
        self._end()
