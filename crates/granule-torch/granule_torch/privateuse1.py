"""A PyTorch device over any Granule backend.

For an accelerator that has no PyTorch runtime of its own, and for the simulated one::

    import granule_torch.privateuse1
    granule_torch.privateuse1.enable("openreg")
    x = torch.ones(10, device="granule")
    torch.accelerator.memory_allocated()   # 512

The device has memory, streams, events, copies, pinned host memory and random numbers; other operators run on the CPU,
with copies. ``torch.accelerator`` and the module ``torch.granule`` work on it, ``torch.autocast("granule")`` does, and
``torch.distributed`` with gloo, which works on copies in the host's memory.

A vendor who has a runtime needs none of this, only the two allocators: see ``csrc/privateuse1/privateuse1.h``.
"""

from __future__ import annotations

import ctypes
import pickle
from ctypes import byref, c_bool, c_char_p, c_int32, c_void_p
from types import ModuleType
from typing import Any

import torch

from . import _library, _shim
from ._errors import GranuleError

__all__ = [
    "backend_name",
    "configure",
    "device_count",
    "device_name",
    "enable",
    "host_memory_stats",
    "memory_snapshot",
    "memory_summary",
    "settings",
]

_shim_library: ctypes.CDLL | None = None
_enabled: tuple[str | int | None, str] | None = None


def enable(backend: str | int | None = None, name: str = "granule", settings: str | None = None) -> ModuleType:
    """Makes the devices of a Granule backend available as ``name``; answers the module ``torch.<name>``.

    PyTorch has room for one such device per process, and keeps it for ever.

    Args:
        backend: the name of a backend that is compiled in (``"openreg"``, ``"cuda"``, ``"hip"``), or the address of a
            vendor's ``granule_backend_table``. ``None`` takes what the variable
            ``GRANULE_BACKEND`` names, else the first real one.
        name: what the device is called: ``torch.empty(10, device=name)``.
        settings: text as in ``PYTORCH_ALLOC_CONF``; ``None`` takes the environment's.

    Raises:
        GranuleError: the backend does not start (the process cannot enable another one then), something else is enabled
            already, or the shim cannot be built here.
    """
    global _enabled, _shim_library
    if _enabled is not None:
        if _enabled != (backend, name):
            raise GranuleError(f"the device {_enabled[1]!r} over {_enabled[0]!r} is enabled already; a process has one")
        module: ModuleType = getattr(torch, name)
        return module
    shim = ctypes.CDLL(str(_shim.build("privateuse1", cuda=False)))
    start = shim.granule_torch_privateuse1_enable
    start.restype, start.argtypes = c_char_p, (c_char_p, c_void_p, c_char_p)
    shim.granule_torch_privateuse1_allocator.restype = c_void_p
    shim.granule_torch_privateuse1_pinned.restype = c_void_p

    torch.utils.rename_privateuse1_backend(name)
    is_table = isinstance(backend, int)
    problem = start(
        backend.encode() if isinstance(backend, str) else None,
        backend if is_table else None,
        None if settings is None else settings.encode(),
    )
    if problem is not None:
        raise GranuleError(problem.decode())
    _shim_library = shim

    from ._privateuse1 import device

    torch._register_device_module(name, device)
    device.memory.answer_torch_accelerator(name)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    if torch.distributed.is_available():
        from ._privateuse1 import distributed

        distributed.serve(name)
    _enabled = (backend, name)
    return device


def backend_name() -> str:
    """What the backend calls itself; ``"vendor"`` for a table that gives itself no name."""
    name: bytes = _library.load().granule_backend_name(_allocator())
    return name.decode()


def device_count() -> int:
    """How many devices the backend has."""
    count = c_int32()
    _library.check(_library.load().granule_device_count(_allocator(), byref(count)))
    return count.value


def device_name(device: int) -> str:
    """What the driver calls a device."""
    return _bytes("granule_device_name", c_int32(device)).decode()


def configure(settings: str) -> None:
    """Changes settings of the running allocator: text as in ``PYTORCH_ALLOC_CONF``, or Granule's own options.

    Raises:
        GranuleError: the text cannot be honoured; nothing was changed.
    """
    _library.check(_library.load().granule_configure(_allocator(), settings.encode()))


def settings() -> str:
    """The settings text that was given last."""
    return _library.text("granule_settings", _allocator())


def memory_snapshot(traces: bool = True) -> dict[str, Any]:
    """The state of the allocator on all devices, in the form of ``torch.cuda.memory._snapshot()``: what
    ``torch.cuda._memory_viz`` and https://pytorch.org/memory_viz read."""
    snapshot: dict[str, Any] = pickle.loads(_bytes("granule_snapshot_pickle", None, c_bool(traces)))
    return snapshot


def memory_summary(device: int, abbreviated: bool = False) -> str:
    """What a device's memory is used for, as a table for people, laid out as ``torch.cuda.memory_summary()`` is."""
    return _bytes("granule_memory_summary", c_int32(device), c_bool(abbreviated)).decode()


def host_memory_stats() -> dict[str, int]:
    """What pinned host memory holds: the figures of ``torch.cuda.host_memory_stats()``, and Granule's own."""
    stats = _library.HostStats.empty()
    pinned = c_void_p(_running().granule_torch_privateuse1_pinned())
    _library.check(_library.load().granule_host_stats(pinned, byref(stats)))
    flat: dict[str, int] = {}
    for name, *_ in _library.HostStats._fields_[1:]:
        value = getattr(stats, name)
        if isinstance(value, ctypes.Structure):
            flat.update((f"{name}.{part}", getattr(value, part)) for part, *_ in value._fields_)
        else:
            flat[name] = value
    return flat


def _running() -> ctypes.CDLL:
    if _shim_library is None:
        raise GranuleError("call granule_torch.privateuse1.enable() first")
    return _shim_library


def _allocator() -> c_void_p:
    return c_void_p(_running().granule_torch_privateuse1_allocator())


def _bytes(function: str, *arguments: Any) -> bytes:
    """Calls a function of the C ABI whose first parameter is the allocator and whose last is a `granule_bytes`."""
    library = _library.load()
    result = _library.Bytes()
    _library.check(getattr(library, function)(_allocator(), *arguments, byref(result)))
    try:
        return ctypes.string_at(result.data, result.len)
    finally:
        library.granule_bytes_free(byref(result))
