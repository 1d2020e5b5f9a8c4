"""The shape of vLLM's sleep mode allocator (``vllm.device_allocator.cumem``)."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterable, Iterator

from .. import _sleep
from .._errors import GranuleError


class CuMemAllocator:
    """Sleeps and wakes like vLLM's class of this name, on Granule's regions.

    Unlike there, growable segments stay on, memory is cached and reused within a tag, and entering a tag again goes on in its
    pool. Call :func:`granule_torch.enable` first.
    """

    default_tag = "default"
    _instance: CuMemAllocator | None = None
    _making = threading.Lock()

    def __init__(self) -> None:
        self._tags: set[str] = set()

    @classmethod
    def get_instance(cls) -> CuMemAllocator:
        """The process's one object."""
        with cls._making:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    @contextlib.contextmanager
    def use_memory_pool(self, tag: str | None = None) -> Iterator[None]:
        """What this thread allocates inside has the tag (none: the default one)."""
        name = self.default_tag if tag is None else tag
        with _sleep.region(_region(name)):
            self._tags.add(name)
            yield

    def sleep(self, offload_tags: tuple[str, ...] | str | None = None) -> None:
        """Puts everything to sleep: contents of these tags are kept in host memory (none: the default tag), others are lost.

        Raises:
            GranuleError: nothing was allocated under one of the tags that were named. Nothing sleeps then.
        """
        kept = self._known({self.default_tag} & self._tags if offload_tags is None else offload_tags)
        lost = self._tags - kept
        if kept:
            _sleep.sleep([_region(tag) for tag in sorted(kept)], backup="pinned")
        if lost:
            _sleep.sleep([_region(tag) for tag in sorted(lost)], backup="discard")
        import torch

        gc.collect()
        torch.cuda.empty_cache()

    def wake_up(self, tags: Iterable[str] | str | None = None) -> None:
        """Wakes these tags, or everything; contents come back where they were kept.

        Raises:
            GranuleError: nothing was allocated under one of the tags.
        """
        wanted = self._known(self._tags if tags is None else tags)
        if wanted:
            _sleep.wake([_region(tag) for tag in sorted(wanted)])

    def _known(self, tags: Iterable[str] | str) -> set[str]:
        wanted = {tags} if isinstance(tags, str) else set(tags)
        if unknown := wanted - self._tags:
            raise GranuleError(f"nothing was allocated under {sorted(unknown)}; the tags are {sorted(self._tags)}")
        return wanted

    def get_current_usage(self) -> int:
        """Bytes in use under all tags, awake or asleep."""
        return _sleep.region_bytes([_region(tag) for tag in self._tags])


def _region(tag: str) -> str:
    return f"vllm/{tag}"
