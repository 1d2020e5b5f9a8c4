"""The module ``torch.<name>.memory``: what ``torch.cuda.memory`` has beyond ``torch.accelerator``.

Pools, a device's share of memory, and the history with its snapshots.
"""

from __future__ import annotations

import ctypes
import functools
import pickle
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_bool, c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from typing import Any

import torch
from torch import accelerator

from .. import _library, privateuse1
from .._errors import GranuleError

__all__ = [
    "MemPool",
    "get_per_process_memory_fraction",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]

_CONTEXTS = {None: 0, "state": 1, "alloc": 2, "all": 3}
_ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
    "annotate",
)


def _index(device: Any = None) -> int:
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return accelerator.current_device_index() if index is None else index


def _call(function: str, *arguments: Any) -> None:
    """A function of the C ABI whose first parameter is the allocator."""
    _library.check(getattr(_library.load(), function)(privateuse1._allocator(), *arguments))


def _ask(function: str, *arguments: Any) -> None:
    """A function of the shim that answers what went wrong."""
    asked = getattr(privateuse1._running(), function)
    asked.restype = c_char_p
    problem = asked(*arguments)
    if problem is not None:
        raise GranuleError(problem.decode())


# --- a share of the device --------------------------------------------------------------------------------------------


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limits what the process may hold of a device to a share of its memory; 1.0 lifts the limit.

    Raises:
        TypeError: the fraction is no ``float``.
        ValueError: it is not within 0 and 1.
    """
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _call("granule_set_memory_fraction", c_int32(_index(device)), ctypes.c_double(fraction))


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The share in force."""
    fraction = ctypes.c_double()
    _call("granule_memory_fraction", c_int32(_index(device)), byref(fraction))
    return fraction.value


# --- pools ------------------------------------------------------------------------------------------------------------


class MemPool:
    """A pool of memory of its own, for :func:`use_mem_pool`. It has the interface of ``torch.cuda.MemPool``.

    Args:
        allocator: ``None``. Pools over another source of memory are made through the C ABI (``granule_pool_create``).
        use_on_oom: requests outside the pool that cannot be served otherwise may take what it has cached.
        no_split: it hands its segments out whole.
    """

    def __init__(self, allocator: None = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if allocator is not None:
            raise NotImplementedError(
                "A pool of this device takes its memory from the device: leave `allocator` out, or make a pool with a source of "
                "its own by granule_pool_create of granule.h"
            )
        self._pool = _library.load().granule_pool_fresh()
        #: The device that was current when it was made.
        self.device = accelerator.current_device_index()
        _call("granule_pool_create", c_int32(self.device), self._pool, None)
        # The end of the process gives everything back.
        weakref.finalize(self, _end, self.device, self._pool).atexit = False
        if use_on_oom:
            _call("granule_pool_set_use_on_oom", c_int32(self.device), self._pool, c_bool(True))
        if no_split:
            _call("granule_pool_set_no_split", c_int32(self.device), self._pool)

    @property
    def id(self) -> tuple[int, int]:
        """What snapshots and statistics call it."""
        return (self._pool.first, self._pool.second)

    def use_count(self) -> int:
        """References to it: this one, and those of scopes and graphs."""
        count = c_int32()
        _call("granule_pool_use_count", c_int32(self.device), self._pool, byref(count))
        return count.value

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Its segments on all devices."""
        segments: list[dict[str, Any]] = _pickled(self._pool, include_traces)["segments"]
        return segments


def _end(device: int, pool: _library.PoolId) -> None:
    """Its cached memory goes, as that of a ``torch.cuda.MemPool`` does."""
    _call("granule_pool_release", c_int32(device), pool)
    _call("granule_empty_pool", pool)


@contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """Sends the calling thread's requests on a device to a pool. A graph that the thread captures meanwhile keeps the pool."""
    index = c_int32(_index(device))
    requests = _library.Filter.empty()
    requests.kind = _library.Filter.THIS_THREAD
    _call("granule_pool_begin", index, pool._pool, byref(requests))
    try:
        _ask("granule_torch_privateuse1_retain_pool", pool._pool)
        yield
    finally:
        _call("granule_pool_end", index, pool._pool)
        _call("granule_pool_release", index, pool._pool)


# --- history ----------------------------------------------------------------------------------------------------------


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: Any = None,
    clear_history: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    """Records what is requested and given back, with call stacks: ``torch.cuda.memory._record_memory_history``.

    Args:
        enabled: ``"all"``, ``"state"`` for no more than what is live, or ``None`` to stop and forget.
        context: which operations get a stack: ``"state"`` those of live memory, ``"alloc"`` also requests in the history,
            ``"all"`` also frees, or ``None``.
        stacks: ``"python"``, or ``"all"`` for frames of C++, too.
        max_entries: the newest that are kept, of each device.
        device: all devices are recorded, whatever it says.
        clear_history: forget what was recorded before.
        skip_actions: what is not recorded, such as ``["free_requested"]``.
    """
    for value, allowed in ((enabled, (None, "state", "all")), (context, (*_CONTEXTS,)), (stacks, ("python", "all"))):
        if value not in allowed:
            raise ValueError(f"{value!r} is none of {', '.join(map(repr, allowed))}")
    unknown = set(skip_actions or ()) - set(_ACTIONS)
    if unknown:
        raise ValueError(f"Unknown actions {sorted(unknown)}: there are {', '.join(_ACTIONS)}")
    skip = sum(1 << at for at, action in enumerate(_ACTIONS) if action in (skip_actions or ()))
    _ask(
        "granule_torch_privateuse1_record_history",
        c_bool(enabled is not None),
        c_bool(clear_history),
        c_int32(_CONTEXTS[context]),
        c_bool(stacks == "all"),
        c_uint64(max_entries if enabled == "all" else 1),
        c_uint32(skip),
    )


def _snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """What is held, and the history: ``torch.cuda.memory._snapshot()``."""
    snapshot = _pickled(_library.PoolId(0, 0), True)
    # Of a pool that nobody has: the settings alone.
    nothing = privateuse1._bytes("granule_snapshot_pickle", byref(_library.load().granule_pool_fresh()), c_bool(False))
    snapshot["allocator_settings"] = pickle.loads(nothing)["allocator_settings"]
    if augment_with_fx_traces:
        snapshot = torch.cuda.memory._augment_memory_snapshot_stack_traces(snapshot)
    return snapshot


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Writes :func:`_snapshot` to a file, for https://pytorch.org/memory_viz."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(augment_with_fx_traces=augment_with_fx_traces), file)


def _pickled(pool: _library.PoolId, traces: bool) -> dict[str, Any]:
    at, count = c_void_p(), c_uint64()
    _ask("granule_torch_privateuse1_snapshot", pool, c_bool(traces), byref(at), byref(count))
    snapshot: dict[str, Any] = pickle.loads(ctypes.string_at(at, count.value))
    return snapshot


def answer_torch_accelerator(name: str) -> None:
    """PyTorch 2.15 has ``torch.accelerator.memory._snapshot``, which knows two accelerators. Here it knows this one, too."""
    theirs = getattr(accelerator.memory, "_snapshot", None)
    if theirs is None:
        return

    @functools.wraps(theirs)
    def snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> Any:
        current = accelerator.current_accelerator()
        ours = current is not None and current.type == name
        return (_snapshot if ours else theirs)(device, augment_with_fx_traces)

    accelerator.memory._snapshot = snapshot
