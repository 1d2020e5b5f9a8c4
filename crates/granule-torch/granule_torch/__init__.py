"""PyTorch on Granule's memory allocator.

    import granule_torch

    granule_torch.enable()

Importing this never fails for want of a GPU, a driver, or PyTorch: nothing is loaded before it is needed. With
``GRANULE_TORCH=1`` in the environment, ``import torch`` calls :func:`enable` by itself.
"""

from ._enable import configure, enable, is_enabled
from ._errors import CannotEnable, GranuleError, OutOfMemory
from ._pluggable import pluggable
from ._record import Recording, mark_iteration, record, stop_recording
from ._report import ledger, report
from ._sleep import (
    Slept,
    Woken,
    drop_backups,
    drop_region,
    region,
    region_bytes,
    sleep,
    sleeping,
    wake,
)
from .adapters._buffer import Buffer
from .adapters._dlpack import Imported, from_dlpack
from .adapters._process import retire_stream

__version__ = "0.1.0"

__all__ = [
    "Buffer",
    "CannotEnable",
    "GranuleError",
    "Imported",
    "OutOfMemory",
    "Recording",
    "Slept",
    "Woken",
    "configure",
    "drop_backups",
    "drop_region",
    "enable",
    "from_dlpack",
    "is_enabled",
    "ledger",
    "mark_iteration",
    "pluggable",
    "record",
    "region",
    "region_bytes",
    "report",
    "retire_stream",
    "sleep",
    "sleeping",
    "stop_recording",
    "wake",
]


def __getattr__(name: str) -> object:
    """The part that few programs need, imported when it is named."""
    if name == "privateuse1":
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
