"""The module ``torch.<name>`` of a device that :func:`granule_torch.privateuse1.enable` made.

Most of it is ``torch.accelerator``'s, under the names of ``torch.cuda``.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Event, Generator, Stream, accelerator
from torch.accelerator import (
    current_device_index as current_device,
)
from torch.accelerator import (
    empty_cache,
    empty_host_cache,
    get_device_capability,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_stream,
)
from torch.accelerator import (
    get_memory_info as mem_get_info,
)

from .. import privateuse1
from ..privateuse1 import host_memory_stats, memory_snapshot
from . import memory
from .memory import (
    MemPool,
    get_per_process_memory_fraction,
    set_per_process_memory_fraction,
    use_mem_pool,
)

__all__ = [
    "Event",
    "Generator",
    "MemPool",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "empty_host_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "host_memory_stats",
    "init",
    "initial_seed",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_stream",
    "stream",
    "synchronize",
    "use_mem_pool",
]

_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)


def _index(device: Any = None) -> int:
    """The number of a device, the current one for ``None``."""
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return accelerator.current_device_index() if index is None else index


def device_count() -> int:
    """How many devices there are."""
    return privateuse1.device_count()


def is_available() -> bool:
    """Whether there is a device."""
    return device_count() > 0


def init() -> None:
    """Nothing is left to do after ``enable``."""


_lazy_init = init


def is_initialized() -> bool:
    return not _forked


def _is_in_bad_fork() -> bool:
    return _forked


class device(accelerator.device_index):
    """Makes a device the current one for a ``with`` block; ``None`` changes nothing."""

    def __init__(self, device: Any) -> None:
        super().__init__(None if device is None else _index(device))


def set_device(device: Any) -> None:
    """Makes a device the calling thread's current one."""
    accelerator.set_device_index(_index(device))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types that ``torch.autocast`` may use."""
    return [torch.float16, torch.bfloat16]


def get_device_name(device: Any = None) -> str:
    return privateuse1.device_name(_index(device))


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """What the device's memory is used for, as a table for people."""
    return privateuse1.memory_summary(_index(device), abbreviated)


def synchronize(device: Any = None) -> None:
    """Waits for all work of the device."""
    accelerator.synchronize(_index(device))


def current_stream(device: Any = None) -> Stream:
    """The calling thread's stream on the device."""
    return accelerator.current_stream(_index(device))


def default_stream(device: Any = None) -> Stream:
    """The stream that is current in a thread that chose none."""
    kind = current_stream(device).device_type
    return Stream(stream_id=0, device_index=_index(device), device_type=kind)


def stream(stream: Stream) -> Stream:
    """Makes a stream the current one for a ``with`` block (streams do that themselves)."""
    return stream


# --- random numbers ---------------------------------------------------------------------------------------------------


def _generator(device: Any = None) -> Generator:
    return torch._C._accelerator_getDefaultGenerator(_index(device))


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator."""
    _generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices; ``torch.manual_seed`` does, too."""
    for index in range(device_count()):
        _generator(index).manual_seed(seed)


def initial_seed() -> int:
    return _generator().initial_seed()


def get_rng_state(device: Any = None) -> torch.Tensor:
    return _generator(device).get_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    _generator(device).set_state(state)
