"""The shape of torch_memory_saver."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from .. import _sleep
from .._errors import GranuleError

_DEFAULT_TAG = "default"


class TorchMemorySaver:
    """Pauses and resumes like the library's object of this class, on Granule's regions.

    No ``LD_PRELOAD``, and growable segments may stay on. Call :func:`granule_torch.enable` first.
    """

    enabled = True

    def __init__(self) -> None:
        self._regions: dict[str, set[bool]] = {}
        self._lock = threading.Lock()
        self.hook_mode: str = "torch"
        """Taken for compatibility; Granule needs no hooks."""

    @contextlib.contextmanager
    def region(self, tag: str = _DEFAULT_TAG, enable_cpu_backup: bool = False) -> Iterator[None]:
        """What this thread allocates inside is paused with its tag, with its contents if there is to be a backup."""
        with _sleep.region(_region(tag, enable_cpu_backup)):
            with self._lock:
                self._regions.setdefault(tag, set()).add(enable_cpu_backup)
            yield

    @contextlib.contextmanager
    def cuda_graph(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = _DEFAULT_TAG,
        enable_cpu_backup: bool = False,
    ) -> Iterator[None]:
        """Like ``torch.cuda.graph``; what the graph allocates is paused with the tag."""
        import torch

        with torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
            with self.region(tag, enable_cpu_backup):
                yield

    @contextlib.contextmanager
    def disable(self, dispose_mem_pool_after_use: bool = True) -> Iterator[None]:
        """Within a region: what is allocated inside is not paused."""
        import torch

        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            yield

    def pause(self, tag: str | None = None) -> None:
        """Gives the device memory of a tag back, or of all tags."""
        for enable_cpu_backup, backup in ((True, "pinned"), (False, "discard")):
            names = self._names(tag, enable_cpu_backup)
            if names:
                _sleep.sleep(names, backup=backup)

    def resume(self, tag: str | None = None) -> None:
        """Gives a tag its memory again, or all tags, at the same addresses."""
        names = self._names(tag, True) + self._names(tag, False)
        if names:
            _sleep.wake(names)

    def _names(self, tag: str | None, enable_cpu_backup: bool) -> list[str]:
        with self._lock:
            if tag is not None and tag not in self._regions:
                raise GranuleError(f"no region has the tag {tag!r}; the tags are {sorted(self._regions)}")
            return [
                _region(name, enable_cpu_backup)
                for name, kinds in sorted(self._regions.items())
                if tag in (None, name) and enable_cpu_backup in kinds
            ]


def _region(tag: str, enable_cpu_backup: bool) -> str:
    return f"torch_memory_saver/{'backup' if enable_cpu_backup else 'discard'}/{tag}"


torch_memory_saver = TorchMemorySaver()
"""The process's one object, as the library offers it."""
