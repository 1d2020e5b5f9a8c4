"""libgranule_capi, Granule's C ABI, by ctypes: only what this package calls itself."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, byref, c_bool, c_char_p, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from . import _figures
from ._errors import GranuleError, OutOfMemory

BACKUP_DISCARD, BACKUP_PINNED, BACKUP_PINNED_KEEP, BACKUP_FILE = range(4)
OUT_OF_MEMORY, REJECTED = 1, 2
"""The statuses where a request found no memory."""
UNKNOWN_POOL = 7
"""The status where no pool has the id, any more."""
NO_LIMIT = 2**64 - 1
"""Bytes where nothing is limited."""


class PoolId(ctypes.Structure):
    """`granule_pool_id`."""

    _fields_ = [("first", c_uint64), ("second", c_uint64)]


class Bytes(ctypes.Structure):
    """`granule_bytes`: owned by the library until `granule_bytes_free`."""

    _fields_ = [("data", c_void_p), ("len", c_uint64), ("owner", c_void_p)]


class _Sized(ctypes.Structure):
    """A struct that may grow: its first field says how much of it the caller knows."""

    @classmethod
    def empty(cls) -> Any:
        value = cls()
        setattr(value, "size", ctypes.sizeof(cls))
        return value


class Stat(ctypes.Structure):
    """`granule_stat`."""

    _fields_ = [(name, c_int64) for name in ("current", "peak", "allocated", "freed")]


class StatArray(ctypes.Structure):
    """`granule_stat_array`."""

    _fields_ = [("all", Stat), ("small_pool", Stat), ("large_pool", Stat)]


class Duration(ctypes.Structure):
    """`granule_duration_stat`."""

    _fields_ = [(name, c_int64) for name in ("total", "max", "min", "count")]


_SHAPES: dict[str, Any] = {"number": c_int64, "stat": Stat, "array": StatArray, "time": Duration}


class DeviceStats(_Sized):
    """`granule_device_stats`."""

    _fields_ = [("size", c_uint32), *[(name, _SHAPES[shape]) for name, shape in _figures.DEVICE_STATS]]


class HostStats(_Sized):
    """`granule_host_stats_t`."""

    _fields_ = [("size", c_uint32), *[(name, _SHAPES[shape]) for name, shape in _figures.HOST_STATS]]


class SleepReport(_Sized):
    """`granule_sleep_report`."""

    _fields_ = [
        ("size", c_uint32),
        ("slept", c_uint64),
        ("uncached", c_uint64),
        ("freed", c_uint64),
        ("device_free_gained", c_int64),
        ("backed_up", c_uint64),
        ("backup_held", c_uint64),
        ("kept", c_uint64),
        ("took_ns", c_uint64),
    ]


class WakeReport(_Sized):
    """`granule_wake_report`."""

    _fields_ = [
        ("size", c_uint32),
        ("woken", c_uint64),
        ("restored", c_uint64),
        ("dropped", c_uint64),
        ("backup_held", c_uint64),
        ("took_ns", c_uint64),
    ]


class PoolStats(_Sized):
    """`granule_pool_stats_t`."""

    _fields_ = [
        ("size", c_uint32),
        ("use_count", c_uint32),
        ("reserved_bytes", StatArray),
        *[
            (name, c_uint64)
            for name in ("allocation", "allocated_bytes", "active_bytes", "requested_bytes", "free_bytes", "segments")
        ],
    ]


class Filter(_Sized):
    """`granule_filter`."""

    _fields_ = [
        ("size", c_uint32),
        ("kind", c_int32),
        ("stream", c_uint64),
        ("user", c_void_p),
        ("accepts", c_void_p),
        ("drop", c_void_p),
    ]

    THIS_THREAD = 1


class Tensor(_Sized):
    """`granule_tensor`."""

    _fields_ = [
        ("size", c_uint32),
        ("dimensions", c_uint32),
        ("shape", POINTER(c_int64)),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("versioned", c_bool),
        ("has_consumer", c_bool),
        ("consumer", c_uint64),
    ]


class PoolReserved(ctypes.Structure):
    """`granule_pool_reserved`."""

    _fields_ = [("pool", PoolId), ("reserved_bytes", StatArray)]


_Tags = POINTER(c_char_p)
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "granule_version": (c_char_p, []),
    "granule_last_error_for_pytorch": (c_char_p, []),
    "granule_last_error_json": (c_int32, [POINTER(Bytes)]),
    "granule_backends_json": (c_int32, [POINTER(Bytes)]),
    "granule_bytes_free": (None, [POINTER(Bytes)]),
    "granule_backend_name": (c_char_p, [c_void_p]),
    "granule_device_count": (c_int32, [c_void_p, POINTER(c_int32)]),
    "granule_check_backend": (c_int32, [c_char_p]),
    "granule_check_settings": (c_int32, [c_char_p]),
    "granule_configure": (c_int32, [c_void_p, c_char_p]),
    "granule_host_retire_stream": (c_int32, [c_void_p, c_int32, c_uint64]),
    "granule_settings": (c_int32, [c_void_p, POINTER(Bytes)]),
    "granule_settings_in_force": (c_int32, [c_void_p, POINTER(Bytes)]),
    "granule_malloc": (c_int32, [c_void_p, c_uint64, c_int32, c_uint64, POINTER(c_void_p)]),
    "granule_free_on": (c_int32, [c_void_p, c_void_p, c_int32]),
    "granule_record_stream": (c_int32, [c_void_p, c_void_p, c_int32, c_uint64]),
    "granule_retire_stream": (c_int32, [c_void_p, c_int32, c_uint64]),
    "granule_buffer_create": (c_int32, [c_void_p, c_uint64, c_int32, c_uint64, POINTER(c_void_p)]),
    "granule_buffer_ptr": (c_void_p, [c_void_p]),
    "granule_buffer_record_stream": (c_int32, [c_void_p, c_int32, c_uint64]),
    "granule_buffer_to_dlpack": (c_int32, [c_void_p, POINTER(Tensor), POINTER(c_void_p)]),
    "granule_buffer_destroy": (c_int32, [c_void_p]),
    "granule_stats": (c_int32, [c_void_p, c_int32, POINTER(DeviceStats)]),
    "granule_ledger_json": (c_int32, [c_void_p, c_int32, POINTER(Bytes)]),
    "granule_largest_free_block": (c_int32, [c_void_p, c_int32, POINTER(c_uint64)]),
    "granule_set_memory_fraction": (c_int32, [c_void_p, c_int32, ctypes.c_double]),
    "granule_set_memory_limits": (c_int32, [c_void_p, c_int32, c_uint64, c_uint64]),
    "granule_memory_fraction": (c_int32, [c_void_p, c_int32, POINTER(ctypes.c_double)]),
    "granule_device_memory_info": (c_int32, [c_void_p, c_int32, POINTER(c_uint64), POINTER(c_uint64)]),
    "granule_pools_reserved": (c_int32, [c_void_p, c_int32, POINTER(PoolReserved), c_uint64, POINTER(c_uint64)]),
    "granule_pool_fresh": (PoolId, []),
    "granule_pool_create": (c_int32, [c_void_p, c_int32, PoolId, c_void_p]),
    "granule_pool_begin": (c_int32, [c_void_p, c_int32, PoolId, POINTER(Filter)]),
    "granule_pool_end": (c_int32, [c_void_p, c_int32, PoolId]),
    "granule_pool_release": (c_int32, [c_void_p, c_int32, PoolId]),
    "granule_pool_use_count": (c_int32, [c_void_p, c_int32, PoolId, POINTER(c_int32)]),
    "granule_pool_set_use_on_oom": (c_int32, [c_void_p, c_int32, PoolId, c_bool]),
    "granule_pool_set_no_split": (c_int32, [c_void_p, c_int32, PoolId]),
    "granule_empty_pool": (c_int32, [c_void_p, PoolId]),
    "granule_pool_stats": (c_int32, [c_void_p, c_int32, PoolId, POINTER(PoolStats)]),
    "granule_set_sleep_tag": (c_int32, [c_void_p, c_int32, PoolId, c_char_p, c_int32]),
    "granule_sleep": (c_int32, [c_void_p, _Tags, c_uint64, c_int32, c_char_p, POINTER(SleepReport)]),
    "granule_wake": (c_int32, [c_void_p, _Tags, c_uint64, POINTER(WakeReport)]),
    "granule_is_pool_asleep": (c_int32, [c_void_p, c_int32, PoolId, POINTER(c_bool)]),
    "granule_is_asleep": (c_int32, [c_void_p, c_void_p, POINTER(c_bool)]),
    "granule_backup_bytes": (c_int32, [c_void_p, POINTER(c_uint64)]),
    "granule_read_backup": (c_int32, [c_void_p, c_void_p, c_uint64, c_void_p, POINTER(c_bool)]),
    "granule_drop_backups": (c_int32, [c_void_p]),
    "granule_record_start": (c_int32, [c_void_p, c_char_p]),
    "granule_record_mark": (c_int32, [c_void_p, c_uint64]),
    "granule_record_flush": (c_int32, [c_void_p]),
    "granule_record_stop": (c_int32, [c_void_p]),
    "granule_record_json": (c_int32, [c_void_p, POINTER(Bytes)]),
    "granule_event_create": (c_int32, [c_void_p, c_int32, c_bool, POINTER(c_uint64)]),
    "granule_event_record": (c_int32, [c_void_p, c_int32, c_uint64, c_uint64]),
    "granule_stream_wait_event": (c_int32, [c_void_p, c_int32, c_uint64, c_int32, c_uint64]),
    "granule_pluggable_allocator": (c_int32, [POINTER(c_void_p)]),
}


def path() -> Path:
    """Where the library is: GRANULE_CAPI_LIBRARY, or the one that came with this package.

    Raises:
        GranuleError: there is none.
    """
    named = os.environ.get("GRANULE_CAPI_LIBRARY")
    if named:
        return Path(named)
    here = Path(__file__).parent
    found = sorted(here.glob("libgranule_capi*.so"))
    if not found:
        raise GranuleError(
            f"There is no libgranule_capi in {here}: install the package (pip install crates/granule-torch), or name a "
            "built library in GRANULE_CAPI_LIBRARY."
        )
    return found[0]


@functools.cache
def load() -> ctypes.CDLL:
    """The library, with signatures. Its symbols are global: the C++ shim finds them there.

    Raises:
        GranuleError: it is missing or cannot be loaded.
    """
    try:
        library = ctypes.CDLL(str(path()), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise GranuleError(f"libgranule_capi cannot be loaded: {error}.") from error
    declare(library, _SIGNATURES)
    return library


def declare(library: ctypes.CDLL, signatures: dict[str, tuple[Any, list[Any]]]) -> None:
    """Gives functions of a library their signatures.

    Raises:
        GranuleError: it lacks one.
    """
    for name, (result, arguments) in signatures.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise GranuleError(f"{library._name} has no {name}: it belongs to another version of this package.") from None
        function.restype = result
        function.argtypes = arguments


def check(status: int) -> None:
    """Raises what the library has just said, unless the call succeeded."""
    if status in (OUT_OF_MEMORY, REJECTED):
        raise OutOfMemory(last_error())
    if status != 0:
        raise GranuleError(last_error())


def last_error() -> str:
    """The text of this thread's last failure; empty if there was none."""
    text: bytes = load().granule_last_error_for_pytorch()
    return text.decode()


def text(function: str, *arguments: Any) -> str:
    """Calls a function whose last parameter is a `granule_bytes` of text."""
    library = load()
    result = Bytes()
    check(getattr(library, function)(*arguments, byref(result)))
    try:
        return ctypes.string_at(result.data, result.len).decode() if result.len else ""
    finally:
        library.granule_bytes_free(byref(result))


def pools_reserved(engine: int, device: int) -> list[PoolReserved]:
    """What each private pool of a device holds. Pools come and go between two calls, so the second may need more room."""
    room, count = 0, c_uint64(16)
    while room < count.value:
        room = count.value
        found = (PoolReserved * room)()
        check(load().granule_pools_reserved(engine, device, found, room, byref(count)))
    return list(found[: count.value])
