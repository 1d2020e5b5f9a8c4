"""Memory between live tensors, given back: their addresses and contents stay as they are."""

from __future__ import annotations

from ctypes import byref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import _enable, _library

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Compacted:
    """What :func:`compact` did, in bytes, and how long it took."""

    moved: int
    """Contents copied on the device."""
    gained: int
    """Device memory given back, besides what was cached."""
    seconds: float
    """How long the device had to be quiet."""


def compact(device: int | None = None) -> Compacted:
    """Gives back what a device has cached, and then the memory between live tensors.

    No tensor changes its address. Call it where the program is quiet: while it runs, no thread may launch anything on the
    device, also none of autograd's or of a data loader that copies. It waits for the device first.

    Args:
        device: the device's number; the current one where it is left out.

    Raises:
        GranuleError: Granule is not enabled, or nothing can be compacted now; the message says why.
    """
    engine = _enable.engine()
    if device is None:
        import torch

        device = torch.cuda.current_device()
    if not isinstance(device, int):
        raise TypeError(f"device is {device!r}; it must be an int")
    report = _library.CompactionReport.empty()
    _library.check(_library.load().granule_compact(engine, device, byref(report)))
    return Compacted(report.moved, report.gained, report.pause_ns / 1e9)


def pin_physical(tensor: Tensor) -> None:
    """The memory of a tensor is never moved by :func:`compact` as long as it lives: for memory that a library or a network card
    knows.

    Args:
        tensor: one that begins where its memory does, as every tensor that is no view of another.

    Raises:
        GranuleError: Granule is not enabled, or the tensor does not begin where a block of memory does.
    """
    engine = _enable.engine()
    _library.check(_library.load().granule_pin_physical(engine, tensor.untyped_storage().data_ptr()))
