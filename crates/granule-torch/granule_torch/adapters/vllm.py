"""The shape of vLLM's sleep mode allocator (``vllm.device_allocator.cumem``), on Granule's regions.

With vLLM itself there is nothing to call: :mod:`granule_torch.adapters.vllm_plugin` puts this class in its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .. import _enable, _library, _sleep
from .._errors import GranuleError

BACKUP_VARIABLE = "GRANULE_VLLM_BACKUP"
"""Where contents wait that are kept: ``pinned`` (the default), ``pinned-keep``, or a directory."""

_GRAPHS = "cudagraph"
# The tags that vLLM names whether it has allocated under them or not. Any other name without memory is a slip of the pen.
_USUAL_TAGS = frozenset({"default", "weights", "kv_cache", "workspace", "runtime", _GRAPHS})


@dataclass(frozen=True)
class AllocationData:
    """What :attr:`CuMemAllocator.pointer_to_data` says of an allocation."""

    handle: tuple[int, int, int, None]
    """Device, bytes, address; Granule's handles of the driver are its own."""
    tag: str
    is_asleep: bool
    cpu_backup_tensor: None = None
    """Backups are no tensors here."""


class CuMemAllocator:
    """Sleeps and wakes like vLLM's class of this name, on Granule's regions.

    Unlike there, growable segments stay on, a wake that finds no room gives cached memory back first, and memory of captured
    graphs is always kept. Call :func:`granule_torch.enable` first.

    Args:
        backup: where contents wait that are kept, as for :func:`granule_torch.sleep`; not ``"discard"``.
    """

    default_tag = "default"
    deferrable_tags = ("weights", "kv_cache")
    """A wake that names tags leaves others of these asleep; all that has another tag wakes with any of them."""
    instance: CuMemAllocator | None = None
    _making = threading.Lock()

    def __init__(self, backup: str | os.PathLike[str] = "pinned") -> None:
        self.backup = backup
        self.current_tag = self.default_tag
        self._tags: set[str] = set()

    @classmethod
    def get_instance(cls) -> CuMemAllocator:
        """The process's one object, with the backup that GRANULE_VLLM_BACKUP names.

        Raises:
            ValueError: the variable names no backup.
        """
        with cls._making:
            if cls.instance is None:
                cls.instance = cls(backup_of_environment())
            return cls.instance

    @contextlib.contextmanager
    def use_memory_pool(self, tag: str | None = None) -> Iterator[None]:
        """What this thread allocates inside has the tag (none: the default one).

        What was freed inside goes back to the device at the end, so that the next tag can have it.
        """
        with self._current(self.default_tag if tag is None else tag) as name, _sleep.region(_region(name), keep=False):
            yield

    @contextlib.contextmanager
    def cudagraph_pool(self) -> Iterator[tuple[int, int]]:
        """Yields the id of the pool for captures. Its memory sleeps, too, and always comes back with its contents."""
        with self._current(_GRAPHS) as name:
            # Kept: to replay a graph takes all that its captures had, also what is free between two of them.
            yield _sleep.pool_of(_region(name)).id

    @contextlib.contextmanager
    def _current(self, tag: str) -> Iterator[str]:
        self._tags.add(tag)
        before, self.current_tag = self.current_tag, tag
        try:
            yield tag
        finally:
            self.current_tag = before

    def sleep(self, offload_tags: Iterable[str] | str | None = None) -> None:
        """Puts everything to sleep: contents of these tags are kept (none: the default tag), others are lost.

        Contents of graphs' memory are kept in any case. What sleeps already stays as it is, with its backup or without.

        Raises:
            GranuleError: nothing was ever allocated under one of the tags, and then nothing sleeps; or not everything could
                sleep, and then what sleeps keeps its contents, and the call can be made again.
        """
        named = self._named({self.default_tag} if offload_tags is None else offload_tags)
        there = self._there()
        kept = there & (named | {_GRAPHS})
        if kept:
            _sleep.sleep(_regions(kept), backup=self.backup)
        if there - kept:
            _sleep.sleep(_regions(there - kept), backup="discard")
        import torch

        gc.collect()
        torch.accelerator.empty_cache()

    def discard(self, tags: Iterable[str] | str) -> None:
        """Puts these tags to sleep without their contents. What sleeps already keeps its backup.

        Raises:
            GranuleError: captured graphs have their memory under one of the tags, or nothing was ever allocated under one.
        """
        named = self._named(tags)
        if lost := self._there() & named:
            if _GRAPHS in lost:
                raise GranuleError(
                    f"{_GRAPHS!r} is the memory of captured graphs, which would replay on what is gone: leave it out, or "
                    "sleep() keeps its contents"
                )
            _sleep.sleep(_regions(lost), backup="discard")

    def wake_up(self, tags: Iterable[str] | str | None = None) -> None:
        """Wakes everything, or these tags and all that are not :attr:`deferrable_tags`; kept contents come back.

        Raises:
            GranuleError: there is not enough memory: what woke is awake, the rest sleeps on with its contents, and the call can
                be made again. Or nothing was ever allocated under one of the tags.
        """
        named = None if tags is None else self._named(tags)
        gc.collect()
        there = self._there()
        if wanted := {tag for tag in there if named is None or tag in named or tag not in self.deferrable_tags}:
            _sleep.wake(_regions(wanted))

    def tags_asleep(self) -> set[str]:
        """The tags of which some memory sleeps."""
        return self._of_engine(_sleep.tags_asleep(_enable.engine())) if self._tags else set()

    def get_current_usage(self) -> int:
        """Bytes in use under all tags, awake or asleep."""
        return _sleep.region_bytes(_regions(self._tags)) if self._tags else 0

    @property
    def pointer_to_data(self) -> dict[int, AllocationData]:
        """The allocations as they are now, by address."""
        if not self._tags:
            return {}
        import torch

        found = {}
        engine = _enable.engine()
        asleep = ctypes.c_bool()
        for tag, device, pool, _ in _sleep.tagged_pools(engine):
            for name in self._of_engine({tag}):
                for segment in torch.cuda.memory_snapshot(pool):  # type: ignore[no-untyped-call]
                    for block in segment["blocks"]:
                        if block["state"] == "active_allocated":
                            at, size = block["address"], block["size"]
                            _library.check(_library.load().granule_is_asleep(engine, at, ctypes.byref(asleep)))
                            found[at] = AllocationData((device, size, at, None), name, asleep.value)
        return found

    def release_pools(self) -> None:
        """Lets go of the pools: each gives its memory back once the last tensor or graph in it is gone."""
        for tag in self._tags:
            _sleep.release_pools(_region(tag))

    close = release_pools

    def _named(self, tags: Iterable[str] | str) -> set[str]:
        named = {tags} if isinstance(tags, str) else set(tags)
        if unknown := named - self._tags - _USUAL_TAGS:
            raise GranuleError(f"nothing was allocated under {sorted(unknown)}; the tags are {sorted(self._tags)}")
        return named

    def _there(self) -> set[str]:
        """The tags under which there is memory."""
        if not self._tags:
            return set()
        return self._of_engine({tag for tag, *_ in _sleep.tagged_pools(_enable.engine())})

    def _of_engine(self, regions: set[str]) -> set[str]:
        return {tag for tag in self._tags if _region(tag) in regions}


def backup_of_environment() -> str:
    """What GRANULE_VLLM_BACKUP says.

    Raises:
        ValueError: it names no backup.
    """
    named = os.environ.get(BACKUP_VARIABLE) or "pinned"
    if named not in ("pinned", "pinned-keep") and not os.path.isdir(named):
        raise ValueError(
            f"{BACKUP_VARIABLE} is {named!r}: neither 'pinned' nor 'pinned-keep' nor a directory that exists. vLLM says which "
            "contents are given up."
        )
    return named


def _regions(tags: Iterable[str]) -> list[str]:
    return [_region(tag) for tag in sorted(tags)]


def _region(tag: str) -> str:
    return f"vllm/{tag}"
