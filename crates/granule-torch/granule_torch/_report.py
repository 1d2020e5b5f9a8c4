"""What is going on, in words."""

from __future__ import annotations

import json
from ctypes import byref, c_int32, c_uint64
from typing import Any

from . import _enable, _library
from ._errors import GranuleError

OUT_OF_MEMORY = 1
"""`GRANULE_OUT_OF_MEMORY`."""


def report() -> str:
    """A text for people: the allocator's backend and settings, and for each device that was used its memory, how well
    it is used, and the largest block that could be had now; then this thread's last out-of-memory error and its remedies.

    Works everywhere: without a GPU, or while PyTorch's own allocator is in place, it says so, and what Granule would find
    (which asks the drivers, so a process that means to fork should not ask for it first).
    """
    if not _enable.is_enabled():
        return "\n".join(["Granule is not PyTorch's allocator in this process.", *_why_not()])
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "Granule is PyTorch's allocator. CUDA is not initialised yet: nothing was allocated."
    # Before anything else, because a call that fails in here would take its place.
    failure = _last_failure()
    engine = _enable.engine()
    library = _library.load()
    backend: bytes = library.granule_backend_name(engine)
    settings = _library.text("granule_settings_in_force", engine)
    lines = [
        f"Granule {library.granule_version().decode()} is PyTorch's allocator, backend {backend.decode()}.",
        f"Settings: {settings or 'defaults'}",
        *_enable.remarks,
    ]
    count = c_int32()
    _library.check(library.granule_device_count(engine, byref(count)))
    for device in range(count.value):
        lines += _device(engine, device, torch.cuda.get_device_name(device))
    held = c_uint64()
    _library.check(library.granule_backup_bytes(engine, byref(held)))
    if held.value:
        lines.append(f"Backups of sleeping memory: {_bytes(held.value)}")
    return "\n".join(lines + failure)


def ledger(device: int | None = None) -> dict[str, Any]:
    """Whose the memory of a device is, in bytes: ``total``, ``used``, ``ours`` (``live``, ``cached``, ``pending``; ``asleep`` and
    ``views`` take nothing of the device), ``pinned`` (host memory, where that is the device's memory), ``graphs`` (the
    driver's own, beyond their pools), ``process_other``,
    ``other_processes``, ``unaccounted``.

    Other processes with Granule are told apart from the rest where ``publish:True`` is among their settings.

    Args:
        device: none means PyTorch's current device.

    Raises:
        GranuleError: Granule is not PyTorch's allocator, or there is no such device.
    """
    import torch

    engine = _enable.engine()
    index = torch.cuda.current_device() if device is None else device
    found: dict[str, Any] = json.loads(_library.text("granule_ledger_json", engine, c_int32(index)))
    return found


def _device(engine: int, device: int, name: str) -> list[str]:
    library = _library.load()
    stats = _library.DeviceStats.empty()
    _library.check(library.granule_stats(engine, device, byref(stats)))
    if stats.num_device_alloc == 0:
        return [f"Device {device} ({name}): not used."]
    largest = c_uint64()
    _library.check(library.granule_largest_free_block(engine, device, byref(largest)))
    allocated, reserved = stats.allocated_bytes.all, stats.reserved_bytes.all
    lines = [
        f"Device {device} ({name}):",
        f"  allocated {_bytes(allocated.current)}, at most {_bytes(allocated.peak)}",
        f"  reserved  {_bytes(reserved.current)}, at most {_bytes(reserved.peak)}",
        f"  efficiency: {_share(stats.requested_bytes.all.current, reserved.current + stats.asleep_bytes)} of what is held was "
        f"asked for; at the peaks {_share(allocated.peak, reserved.peak)}",
        f"  largest free block {_bytes(largest.value)}",
        f"  waiting for other streams {_bytes(stats.pending_bytes)}, asleep {_bytes(stats.asleep_bytes)}",
        f"  driver calls: {stats.num_device_alloc} for memory, {stats.num_device_free} back; out of memory {stats.num_ooms} times, "
        f"{stats.num_alloc_retries} retries",
    ]
    return lines + _pools(engine, device)


def _pools(engine: int, device: int) -> list[str]:
    lines = []
    for found in sorted(_library.pools_reserved(engine, device), key=lambda found: (found.pool.first, found.pool.second)):
        held, pool = found.reserved_bytes.all.current, found.pool
        stats = _library.PoolStats.empty()
        if held and _library.load().granule_pool_stats(engine, device, pool, byref(stats)) == 0:
            lines.append(
                f"  pool {(pool.first, pool.second)}: reserved {_bytes(held)}, allocated {_bytes(stats.allocated_bytes)}"
            )
    return lines


def _last_failure() -> list[str]:
    failure = json.loads(_library.text("granule_last_error_json") or "{}")
    if failure.get("status") != OUT_OF_MEMORY:
        return []
    report = failure.get("report") or failure
    return ["Last out-of-memory error of this thread:", *(f"  {line}" for line in report["text"].splitlines())]


def _why_not() -> list[str]:
    try:
        backends = json.loads(_library.text("granule_backends_json"))["backends"]
    except GranuleError as error:
        return [str(error)]
    lines = ["Backends on this machine:"]
    for backend in backends:
        lines.append(f"  {backend['name']} ({backend['what']}): {backend['state']}; {backend['reason']}")
        for device in backend["devices"]:
            free, total = _bytes(device["free_bytes"]), _bytes(device["total_bytes"])
            lines.append(f"    device {device['index']}, {device['name']}: {free} of {total} free")
    return lines


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "nothing"
