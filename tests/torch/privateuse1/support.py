"""Where things are, and what several tests use."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from granule_torch import _library, privateuse1

ROOT = Path(__file__).resolve().parents[3]
# The sources; what is imported is the package that is installed.
PACKAGE = ROOT / "crates" / "granule-torch"

NAME = "granule"
MIB = 1 << 20
LIBC = ctypes.CDLL(None)
SEMAPHORE_BYTES = 64  # A sem_t is smaller everywhere.


@contextmanager
def held(stream: torch.Stream) -> Iterator[None]:
    """Keeps a stream still: what it was given before is done first, what it is given inside waits for the end."""
    shim = privateuse1._running()
    gate = ctypes.create_string_buffer(SEMAPHORE_BYTES)
    assert LIBC.sem_init(gate, 0, 0) == 0
    # The driver's thread waits in C: a function in Python would need the interpreter's lock to go on.
    _library.check(
        _library.load().granule_stream_launch_host(
            ctypes.c_void_p(shim.granule_torch_privateuse1_allocator()),
            ctypes.c_int32(stream.device_index),
            ctypes.c_uint64(stream.stream_id),
            ctypes.cast(LIBC.sem_wait, ctypes.c_void_p),
            gate,
        )
    )
    try:
        yield
    finally:
        assert LIBC.sem_post(gate) == 0
        stream.synchronize()
