"""Memory that gives its device memory up and keeps its addresses: regions, sleep, wake; and memory between live tensors."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import _enable, _library
from ._errors import GranuleError

if TYPE_CHECKING:
    from torch.cuda import MemPool

_BACKUPS = {
    "discard": _library.BACKUP_DISCARD,
    "pinned": _library.BACKUP_PINNED,
    "pinned-keep": _library.BACKUP_PINNED_KEEP,
}


@dataclass(frozen=True)
class Slept:
    """What :func:`sleep` did, in bytes, and how long it took."""

    slept: int
    """Memory that sleeps now: its addresses are kept."""
    uncached: int
    """Cached memory of the regions that went with it."""
    freed: int
    """Device memory given back."""
    backed_up: int
    """Contents copied, to be restored by :func:`wake`."""
    backup_held: int
    """All that backups hold now."""
    kept: int
    """Memory that could not leave, because other processes or the device still use it."""
    seconds: float
    """How long the call took."""

    @property
    def gigabytes_per_second(self) -> float:
        """How fast contents were copied, over the whole call; 0 where none were."""
        return self.backed_up / self.seconds / 1e9 if self.backed_up else 0.0


@dataclass(frozen=True)
class Woken:
    """What :func:`wake` did, in bytes, and how long it took."""

    woken: int
    """Memory that is there again."""
    restored: int
    """Contents brought back; the rest has whatever the device's new memory has."""
    dropped: int
    """Memory that did not wake, because all tensors in it were freed meanwhile."""
    backup_held: int
    """All that backups hold now."""
    seconds: float
    """How long the call took."""

    @property
    def gigabytes_per_second(self) -> float:
        """How fast contents came back, over the whole call; 0 where there were none."""
        return self.restored / self.seconds / 1e9 if self.restored else 0.0


# One pool per tag, priority and device, for as long as the program lives or until drop_region: a pool that is entered
# again goes on in the memory it has.
_pools: dict[tuple[str, int, int], MemPool] = {}
# Pools that PyTorch has let go of: tag, device and id. They keep their tag as long as memory from them is there.
_released: set[tuple[str, int, tuple[int, int]]] = set()
_lock = threading.Lock()


@contextlib.contextmanager
def region(tag: str = "default", priority: int = 0, *, keep: bool = True) -> Iterator[MemPool]:
    """What this thread allocates inside, on any device, sleeps and wakes with its tag.

    The memory comes from growable segments, whatever the settings say. Entering a region of the same tag again goes on in the
    same pool; while that sleeps, in new memory. Like PyTorch's pools, regions hold for the thread that entered them only.

    A device that comes into use while the region is open is left out. A warning names it.

    Args:
        tag: what :func:`sleep` and :func:`wake` name it by.
        priority: regions of higher priority wake first.
        keep: ``False`` takes a pool for this block only. What is free in it at the end goes back to the device; else it stays
            for the next entry.

    Yields:
        The :class:`torch.cuda.MemPool` behind it on the current device.

    Raises:
        GranuleError: Granule is not enabled.
    """
    if not isinstance(tag, str) or not tag:
        raise TypeError(f"tag is {tag!r}; it must be a str that is not empty")
    if not isinstance(priority, int):
        raise TypeError(f"priority is {priority!r}; it must be an int")
    take = pool_of if keep else _passing_pool
    with entered(lambda: take(tag, priority)) as pools:
        import torch

        current = torch.cuda.current_device()
        yield pools[current]
        late = [device for device in devices_in_use() if device not in pools and torch.cuda.memory_reserved(device)]
    for device in late:
        warnings.warn(
            f"cuda:{device} came into use while the region {tag!r} was open, which was entered on cuda:{current}: what the region "
            f"allocated on cuda:{device} does not sleep. Use the device before the region is entered.",
            RuntimeWarning,
            stacklevel=3,
        )


@contextlib.contextmanager
def entered(take: Callable[[], MemPool]) -> Iterator[dict[int, MemPool]]:
    """This thread allocates from a pool on each device in use: a scope of PyTorch's concerns one. ``take`` gives the current device's."""
    _enable.engine()
    import torch

    pools = {}
    with contextlib.ExitStack() as scopes:
        for device in sorted({torch.cuda.current_device(), *devices_in_use()}):
            with torch.cuda.device(device):
                pools[device] = take()
            scopes.enter_context(torch.cuda.use_mem_pool(pools[device], device))
        yield pools


def devices_in_use() -> list[int]:
    """Those whose driver holds something for this process. Asking makes none of them one."""
    import torch

    return [device for device in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(device)]


def pool_of(tag: str, priority: int = 0) -> MemPool:
    """The pool of a region on the current device, without entering it: a capture goes to a pool by its id."""
    engine = _enable.engine()
    import torch

    device = torch.cuda.current_device()
    with _lock:
        pool = _pools.get((tag, priority, device))
        if pool is None:
            pool = _pools[(tag, priority, device)] = _tagged_pool(engine, device, tag, priority)
        return pool


def _passing_pool(tag: str, priority: int) -> MemPool:
    """A pool that goes with its last user."""
    engine = _enable.engine()
    import torch

    device = torch.cuda.current_device()
    pool = _tagged_pool(engine, device, tag, priority)
    with _lock:
        _released.add((tag, device, pool.id))
    return pool


def _tagged_pool(engine: int, device: int, tag: str, priority: int) -> MemPool:
    import torch

    pool = torch.cuda.MemPool()
    _library.check(_library.load().granule_set_sleep_tag(engine, device, _pool_id(pool), tag.encode(), priority))
    return pool


def drop_region(tag: str) -> None:
    """Forgets the pools of a tag: each gives its memory back once its last tensor is gone and the cache is emptied."""
    release_pools(tag)
    with _lock:
        _released.difference_update([pool for pool in _released if pool[0] == tag])


def drop_backups() -> None:
    """Gives back the host memory that ``sleep(backup="pinned-keep")`` kept, where nothing is asleep in it."""
    _library.check(_library.load().granule_drop_backups(_enable.engine()))


def release_pools(tag: str) -> None:
    """Lets go of the pools of a tag. What is allocated in them keeps the tag, and still sleeps and wakes."""
    with _lock:
        dropped = {name: _pools.pop(name) for name in list(_pools) if name[0] == tag}
        _released.update((name[0], name[2], pool.id) for name, pool in dropped.items())
    # Outside the lock: a pool's destructor calls the allocator.
    del dropped


def sleep(tags: str | Sequence[str] | None = None, backup: str | os.PathLike[str] = "pinned") -> Slept:
    """Gives the device memory of regions back to the device. Tensors keep their addresses and must not be used.

    It waits for the devices first. Tensors may be freed while they sleep. What sleeps already stays as it is.

    Args:
        tags: one tag or several; none means every tag.
        backup: ``"pinned"`` copies contents to pinned host memory until they wake (``torch.cuda.host_memory_stats()``
            counts it), ``"pinned-keep"`` keeps that memory for the next time, ``"discard"`` keeps no contents; anything else is a directory for files.

    Raises:
        ValueError: there is no such backup, or no such directory.
        GranuleError: no region has such a tag, or not everything could sleep; the text says what and why. What sleeps
            keeps its contents.
    """
    engine = _enable.engine()
    names, count = _tags(engine, tags)
    kind, directory = _backup(backup)
    if kind in (_library.BACKUP_PINNED, _library.BACKUP_PINNED_KEEP):
        import torch

        # Makes the allocator of pinned memory, if nothing did yet: backups come from there, and are in its figures.
        torch.empty(0, device="cpu", pin_memory=True)
    report = _library.SleepReport.empty()
    _library.check(_library.load().granule_sleep(engine, names, count, kind, directory, byref(report)))
    return Slept(
        report.slept,
        report.uncached,
        report.freed,
        report.backed_up,
        report.backup_held,
        report.kept,
        report.took_ns / 1e9,
    )


def wake(tags: str | Sequence[str] | None = None) -> Woken:
    """Gives sleeping regions device memory again, at the same addresses, and restores backed-up contents.

    Args:
        tags: one tag or several; none means every tag.

    Raises:
        GranuleError: no region has such a tag, or there is not enough memory. What sleeps keeps its contents; what woke
            before stays awake.
    """
    engine = _enable.engine()
    names, count = _tags(engine, tags)
    report = _library.WakeReport.empty()
    _library.check(_library.load().granule_wake(engine, names, count, byref(report)))
    return Woken(report.woken, report.restored, report.dropped, report.backup_held, report.took_ns / 1e9)


@contextlib.contextmanager
def sleeping(tags: str | Sequence[str] | None = None, backup: str | os.PathLike[str] = "pinned") -> Iterator[Slept]:
    """Sleeps for the length of a block: :func:`sleep` at its start, :func:`wake` at its end, also after an exception."""
    slept = sleep(tags, backup)
    try:
        yield slept
    finally:
        wake(tags)


def region_bytes(tags: str | Sequence[str] | None = None) -> int:
    """Bytes in use by tensors of regions, awake or asleep.

    Args:
        tags: one tag or several; none means every tag.
    """
    engine = _enable.engine()
    wanted = None if tags is None else {tags} if isinstance(tags, str) else set(tags)
    return sum(
        stats.allocated_bytes for tag, _, _, stats in tagged_pools(engine) if wanted is None or tag in wanted
    )


def tags_asleep(engine: int) -> set[str]:
    """The tags of which some memory sleeps."""
    found = set()
    for tag, device, pool, _ in tagged_pools(engine):
        asleep = ctypes.c_bool()
        _library.check(_library.load().granule_is_pool_asleep(engine, device, _library.PoolId(*pool), byref(asleep)))
        if asleep.value:
            found.add(tag)
    return found


def tagged_pools(engine: int) -> list[tuple[str, int, tuple[int, int], _library.PoolStats]]:
    """The pools with a tag: tag, device, id, and what they hold. Those that were let go of and are empty are forgotten."""
    with _lock:
        kept = [(tag, device, pool.id) for (tag, _, device), pool in _pools.items()]
        released = sorted(_released)
    found, gone = [], []
    for tag, device, pool in kept + released:
        stats = _library.PoolStats.empty()
        status = _library.load().granule_pool_stats(engine, device, _library.PoolId(*pool), byref(stats))
        if status == _library.UNKNOWN_POOL:
            gone.append((tag, device, pool))
            continue
        _library.check(status)
        found.append((tag, device, pool, stats))
    with _lock:
        _released.difference_update(gone)
    return found


def _pool_id(pool: MemPool) -> _library.PoolId:
    return _library.PoolId(*pool.id)


def _tags(engine: int, tags: str | Sequence[str] | None) -> tuple[ctypes.Array[ctypes.c_char_p] | None, int]:
    if tags is None:
        return None, 0
    names = [tags] if isinstance(tags, str) else list(tags)
    known = sorted({tag for tag, *_ in tagged_pools(engine)})
    for name in names:
        if name not in known:
            raise GranuleError(
                f"no region has the tag {name!r} (there are: {', '.join(map(repr, known)) or 'none'}); "
                f"memory gets it in `with granule_torch.region({name!r})`"
            )
    return (ctypes.c_char_p * len(names))(*[name.encode() for name in names]), len(names)


def _backup(backup: str | os.PathLike[str]) -> tuple[int, bytes | None]:
    kind = _BACKUPS.get(backup) if isinstance(backup, str) else None
    if kind is not None:
        return kind, None
    if not os.fspath(backup) or not os.path.isdir(backup):
        raise ValueError(f"backup is {backup!r}: neither {', '.join(map(repr, _BACKUPS))} nor a directory that exists")
    return _library.BACKUP_FILE, os.fsencode(backup)
