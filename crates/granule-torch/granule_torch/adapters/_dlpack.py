"""DLPack as Python has it: types, streams, capsules, and tensors of other libraries."""

from __future__ import annotations

import ctypes
import re
import weakref
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object
from dataclasses import dataclass
from typing import Any

from .. import _library
from .._errors import GranuleError
from . import _process

CUDA, ROCM, EXTERNAL = 2, 10, 12
_DEVICES = {b"cuda": CUDA, b"hip-as-cuda": CUDA, b"hip": ROCM}
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_NEWEST = (1, 1)
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
# A capsule keeps the address of its name, and may outlive whoever gave it.
_USED = {name: c_char_p(b"used_" + name) for name in (_PLAIN, _VERSIONED)}


@dataclass(frozen=True)
class Type:
    """What an element is."""

    code: int
    bits: int

    @property
    def typestr(self) -> str | None:
        """As NumPy writes it; none where NumPy has no such type."""
        kind = _KINDS.get(self.code)
        return None if kind is None else f"{'|' if self.bits == 8 else '<'}{kind}{self.bits // 8}"


def type_of(name: str) -> Type:
    """The type of a name such as float32.

    Raises:
        ValueError: there is none.
    """
    found = re.fullmatch(r"(int|uint|float|bfloat|complex|bool)([0-9]*)", name)
    bits = int(found[2] or (8 if found[1] == "bool" else 0)) if found else 0
    if found is None or bits not in (8, 16, 32, 64, 128):
        raise ValueError(f"dtype is {name!r}; it must be a type and its bits, such as 'float32', 'bfloat16', 'uint8', or 'bool'")
    return Type(_CODES[found[1]], bits)


def device_type(engine: int) -> int:
    """DLPack's number for the devices of an allocator."""
    return _DEVICES.get(_library.load().granule_backend_name(engine), EXTERNAL)


def consumer(stream: int | None, device: int) -> int | None:
    """The handle of a consumer's stream; none where it sees to the order itself.

    Raises:
        ValueError: the number stands for no stream there.
    """
    if stream == -1:
        return None
    if stream is None:
        return 0
    if not isinstance(stream, int):
        raise TypeError(f"stream is {stream!r}; DLPack passes an int or None")
    wrong = (0,) if device == CUDA else (1, 2) if device == ROCM else ()
    if stream in wrong or stream < -1:
        raise ValueError(f"stream is {stream}, which DLPack leaves without a meaning on these devices")
    return stream


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("manager", c_void_p), ("deleter", c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


def _layout(name: bytes) -> Any:
    return _ManagedVersioned if name == _VERSIONED else _Managed


_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", _api))
_name = ctypes.PYFUNCTYPE(c_char_p, py_object)(("PyCapsule_GetName", _api))
_pointer = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, py_object, c_char_p)(("PyCapsule_SetName", _api))
# While a capsule is being destroyed, nothing may count references to it: it is passed as an address.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", _api))
_pointer_at = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _api))


def _end_of(capsule: int) -> None:
    """A capsule that nobody took: its tensor ends with it. One that was taken has another name."""
    for name in (_PLAIN, _VERSIONED):
        if _is_valid(capsule, name):
            _delete(_pointer_at(capsule, name), name)


_destroy = ctypes.PYFUNCTYPE(None, c_void_p)(_end_of)


def _delete(managed: int, name: bytes) -> None:
    deleter = _layout(name).from_address(managed).deleter
    if deleter:
        _Deleter(deleter)(managed)


def capsule(managed: int, versioned: bool) -> Any:
    """A tensor that nobody has yet, as Python hands it over."""
    return _new(managed, _VERSIONED if versioned else _PLAIN, ctypes.cast(_destroy, c_void_p))


class Imported:
    """A tensor of another library, held until this object goes or is closed. Nothing is copied."""

    def __init__(self, tensor: Any, *, stream: Any = None) -> None:
        """Takes it over by DLPack.

        Args:
            tensor: any object with ``__dlpack__``.
            stream: the stream that is going to use it here, or its handle: it waits for the work that makes the tensor. None is the
                default stream.

        Raises:
            TypeError: the object has no DLPack.
            GranuleError: it hands over something that is not described there.
        """
        if not hasattr(tensor, "__dlpack__"):
            raise TypeError(f"{type(tensor).__name__} has no __dlpack__: it cannot be exchanged")
        kind, _ = tensor.__dlpack_device__()
        handle = _process.handle_of(stream)
        # On CUDA, DLPack's number for the default stream is 1.
        asked = {"stream": handle or 1 if kind == CUDA else handle} if kind in (CUDA, ROCM, EXTERNAL) else {}
        try:
            taken = tensor.__dlpack__(**asked, max_version=_NEWEST)
        except TypeError:
            taken = tensor.__dlpack__(**asked)
        name = _name(taken)
        if name not in (_PLAIN, _VERSIONED):
            raise GranuleError(f"{type(tensor).__name__}.__dlpack__ gave {name!r}, and a tensor that nobody has taken was due")
        managed = _pointer(taken, name)
        held = _layout(name).from_address(managed)
        if name == _VERSIONED and held.major > _NEWEST[0]:
            raise GranuleError(f"{type(tensor).__name__} speaks DLPack {held.major}, and 1 was asked for")
        _rename(taken, _USED[name])
        self._end = weakref.finalize(self, _delete, managed, name)
        self._end.atexit = False
        view = held.tensor
        self.ptr: int = (view.data or 0) + view.byte_offset
        """Its first element's address."""
        self.shape: tuple[int, ...] = tuple(view.shape[: view.ndim])
        self.strides: tuple[int, ...] | None = tuple(view.strides[: view.ndim]) if view.strides else None
        """In elements; none where it is contiguous."""
        self.device: tuple[int, int] = (view.device_type, view.device_id)
        """DLPack's number for the kind of device, and the device's."""
        self.type = Type(view.code, view.bits)

    def record_stream(self, stream: Any) -> None:
        """Says that work of a stream uses it, where the memory is Granule's: it is not reused before that work is done.

        Raises:
            GranuleError: it is not.
        """
        handle = _process.handle_of(stream)
        engine = _process.engine()
        _library.check(_library.load().granule_record_stream(engine, self.ptr, self.device[1], handle))

    def close(self) -> None:
        """Gives the tensor back to its library now. A second call does nothing."""
        self._end()


def from_dlpack(tensor: Any, *, stream: Any = None) -> Imported:
    """A tensor of another library as an address, a shape and a type, with its stream ordered before the one named here."""
    return Imported(tensor, stream=stream)
