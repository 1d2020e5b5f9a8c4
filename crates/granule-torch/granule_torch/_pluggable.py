"""Granule as a ``CUDAPluggableAllocator``: level 1, without statistics, for PyTorch releases that the full class does not know."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from . import _library, _shim
from ._errors import GranuleError

if TYPE_CHECKING:
    from torch.cuda.memory import CUDAPluggableAllocator

_C_HOOKS = {
    "set_init_fn": "granule_pluggable_init",
    "set_reset_fn": "granule_pluggable_reset",
    "set_memory_fraction_fn": "granule_pluggable_set_memory_fraction",
    "set_base_alloc_fn": "granule_pluggable_base_allocation",
    "set_record_stream_fn": "granule_pluggable_record_stream",
}

# Their parameters are C++ types, so they live in the shim.
_CXX_HOOKS = {
    "set_begin_allocate_to_pool": "granule_torch_pluggable_begin_pool",
    "set_end_allocate_to_pool_fn": "granule_torch_pluggable_end_pool",
    "set_release_pool": "granule_torch_pluggable_release_pool",
}


def pluggable() -> CUDAPluggableAllocator:
    """Granule as PyTorch's pluggable allocator, for ``torch.cuda.memory.change_current_allocator``.

    Backend and settings come from the environment (``GRANULE_BACKEND``, ``PYTORCH_CUDA_ALLOC_CONF`` and so on). All of
    PyTorch's hooks are set; those of pools (CUDA graphs) need the C++ shim and stay unset where it does not compile.
    PyTorch gives a pluggable allocator no statistics and no snapshots, and does not notice that an allocation failed: the tensor is
    there, without memory, and only Granule's log says so. Prefer :func:`enable`.

    Raises:
        GranuleError: libgranule_capi is missing.
    """
    from torch.cuda.memory import CUDAPluggableAllocator

    library = _library.load()
    allocator = CUDAPluggableAllocator(
        str(_library.path()), "granule_pluggable_malloc", "granule_pluggable_free"
    )
    handle: Any = allocator.allocator()  # type: ignore[no-untyped-call]
    for setter, function in _C_HOOKS.items():
        getattr(handle, setter)(_address(library, function))
    try:
        shim = _shim.load()
    except GranuleError:
        return allocator
    for setter, function in _CXX_HOOKS.items():
        getattr(handle, setter)(_address(shim, function))
    return allocator


def _address(library: ctypes.CDLL, function: str) -> int:
    address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
    if address is None:
        raise GranuleError(f"{library} has no {function}.")
    return address
