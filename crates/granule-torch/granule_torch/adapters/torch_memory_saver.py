"""torch_memory_saver's interface on Granule's regions, and Granule in the place of that library.

    from granule_torch.adapters import torch_memory_saver

    torch_memory_saver.install()      # or GRANULE_TORCH_MEMORY_SAVER=1 beside GRANULE_TORCH=1

From then on ``from torch_memory_saver import torch_memory_saver`` gives the object below. Nothing is preloaded, so growable segments may
stay on, and the hook modes of the library are alike: what a captured graph allocated can be paused in both.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _enable, _library, _sleep
from .._errors import GranuleError
from . import _releases

if TYPE_CHECKING:
    from torch import Tensor

VARIABLE = "GRANULE_TORCH_MEMORY_SAVER"
"""Where it is set, ``GRANULE_TORCH=1`` also installs this adaptor."""

_DEFAULT_TAG = "default"
_HOOK_MODES = ("preload", "torch", "granule")
_CPU_BACKUPS = ("pinned", "mmap")


@dataclass(frozen=True)
class _Kind:
    """What becomes of a region's contents while it is paused."""

    name: str

    def backup(self, saver: TorchMemorySaver) -> str:
        if self == _DISK:
            return saver.disk_backup_dir
        if self == _CPU or self == _GRAPH:
            return "pinned-keep" if saver.retain_cpu_backup else "pinned"
        return "discard"


_DISCARD, _CPU, _DISK, _GRAPH = (_Kind(name) for name in ("discard", "backup", "disk", "graph"))


class TorchMemorySaver:
    """Pauses and resumes like the library's object of this class (0.0.10), on Granule's regions.

    Call :func:`granule_torch.enable` first.
    """

    def __init__(self) -> None:
        self._regions: dict[str, set[_Kind]] = {}
        self._lock = threading.Lock()
        self._depth = threading.local()
        self._mode = "granule"
        self._margin = 0
        self._retain = os.environ.get("TMS_RETAIN_CPU_BACKUP", "0") not in ("", "0")
        self._directory = os.environ.get("TMS_DISK_BACKUP_DIR", "")

    @property
    def enabled(self) -> bool:
        """Memory can be paused."""
        return True

    @property
    def hook_mode(self) -> str:
        """Taken as the library takes it. No mode makes a difference here."""
        return self._mode

    @hook_mode.setter
    def hook_mode(self, mode: str) -> None:
        if mode not in _HOOK_MODES:
            raise ValueError(f"hook_mode is {mode!r}; there are {', '.join(map(repr, _HOOK_MODES))}")
        self._mode = mode

    @property
    def memory_margin_bytes(self) -> int:
        """What allocations leave free of the device, as set. The library has a setter only."""
        return self._margin

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        """Limits what PyTorch may hold, so that at least so many bytes of each device in use stay free; 0 ends that.

        The limit stands in place of ``memory_limit`` and ``memory_soft_limit``. What others hold is looked at here, at each region
        and at each :meth:`resume`. What they take afterwards comes from the margin.
        """
        self._margin = value
        self._keep_margin()

    def _keep_margin(self) -> None:
        import torch

        for device in {torch.cuda.current_device(), *_sleep.devices_in_use()}:
            room = torch.cuda.memory_reserved(device) + torch.cuda.mem_get_info(device)[0] - self._margin
            hard = max(1, room) if self._margin else _library.NO_LIMIT
            _library.check(
                _library.load().granule_set_memory_limits(_enable.engine(), device, hard, _library.NO_LIMIT)
            )

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether host memory of backups is kept for the next pause. Its contents can be read while memory is paused."""
        return self._retain

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        self._retain = bool(value)
        if not value:
            _library.check(_library.load().granule_drop_backups(_enable.engine()))

    @property
    def disk_backup_dir(self) -> str:
        """Where contents of regions with ``enable_disk_backup`` wait."""
        if not self._directory:
            raise GranuleError("a disk backup needs a directory: set_disk_backup_dir(path), or the variable TMS_DISK_BACKUP_DIR")
        return self._directory

    def set_disk_backup_dir(self, path: str) -> None:
        """Names that directory, which is made if need be."""
        os.makedirs(path, exist_ok=True)
        self._directory = path

    @contextlib.contextmanager
    def region(
        self,
        tag: str = _DEFAULT_TAG,
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: str | None = None,
    ) -> Iterator[None]:
        """What this thread allocates inside is paused with its tag.

        Args:
            tag: its name.
            enable_cpu_backup: contents wait in host memory; else they are lost.
            enable_disk_backup: contents wait in a file.
            cpu_backup_backend: ``"pinned"`` or ``"mmap"``. Granule's host memory is pinned in either case.
        """
        kind = _kind(enable_cpu_backup, enable_disk_backup, cpu_backup_backend)
        if kind == _DISK:
            _ = self.disk_backup_dir
        if self._margin:
            self._keep_margin()
        with _sleep.region(_region(tag, kind)), self._inside():
            self._note(tag, kind)
            yield

    @contextlib.contextmanager
    def cuda_graph(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = _DEFAULT_TAG,
        enable_cpu_backup: bool | None = None,
        cpu_backup_backend: str | None = None,
    ) -> Iterator[None]:
        """Like ``torch.cuda.graph``; what the graph allocates is paused with the tag, and always keeps its contents.

        Args:
            pool: the library captures into that pool; here the tag's own serves, and another one is refused.
            enable_cpu_backup: unset or ``True``; ``False`` is refused.

        Raises:
            ValueError: contents were to be discarded, or a pool was named that is not the tag's.
        """
        import torch

        if enable_cpu_backup is False:
            raise ValueError(
                "enable_cpu_backup=False would discard what the graph left in its memory, which its next replay may read: garbage "
                "or a crash. Leave it out; contents of graphs are kept"
            )
        _check_backend(True, cpu_backup_backend)
        own = _sleep.pool_of(_region(tag, _GRAPH))
        if pool is not None and tuple(pool) != tuple(own.id):
            raise ValueError(
                f"pool is {pool}, which has no tag, so that its memory cannot be paused: leave pool out, and graphs of one tag share a pool"
            )
        pool = own.id
        with torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
            self._note(tag, _GRAPH)
            yield

    @contextlib.contextmanager
    def disable(self, dispose_mem_pool_after_use: bool = True) -> Iterator[None]:
        """Within a region: what is allocated inside is not paused.

        Raises:
            GranuleError: this thread is in no region.
        """
        import torch

        if not dispose_mem_pool_after_use:
            raise ValueError("dispose_mem_pool_after_use must be True, as in the library")
        if not getattr(self._depth, "regions", 0):
            raise GranuleError("disable() is for the inside of a region, and this thread is in none")
        with _sleep.entered(torch.cuda.MemPool):
            yield

    def pause(self, tag: str | None = None) -> None:
        """Gives the device memory of a tag back, or of all tags. What is paused stays so."""
        for kind, names in self._named(tag).items():
            _sleep.sleep(names, backup=kind.backup(self))

    def resume(self, tag: str | None = None) -> None:
        """Gives a tag its memory again, or all tags, at the same addresses."""
        names = [name for names in self._named(tag).values() for name in names]
        if self._margin:
            self._keep_margin()
        if names:
            _sleep.wake(names)

    def get_cpu_backup(self, x: Tensor, zero_copy: bool = False) -> Tensor | None:
        """The contents of a paused tensor that has a backup, on the host; none where it has none or is not paused.

        Args:
            x: the tensor, contiguous and on a device.
            zero_copy: taken for compatibility: contents are always copied.
        """
        import torch

        if not x.is_cuda or not x.is_contiguous():
            raise ValueError(f"a contiguous tensor on a device is due, and this one is on {x.device} with strides {x.stride()}")
        copy = torch.empty(x.shape, dtype=x.dtype, device="cpu")
        found = ctypes.c_bool()
        _library.check(
            _library.load().granule_read_backup(
                _enable.engine(), x.data_ptr(), copy.nbytes, copy.data_ptr(), ctypes.byref(found)
            )
        )
        return copy if found.value else None

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        self._depth.regions = getattr(self._depth, "regions", 0) + 1
        try:
            yield
        finally:
            self._depth.regions -= 1

    def _note(self, tag: str, kind: _Kind) -> None:
        with self._lock:
            self._regions.setdefault(tag, set()).add(kind)

    def _named(self, tag: str | None) -> dict[_Kind, list[str]]:
        """The regions of a tag, or of all, by what becomes of their contents."""
        found: dict[_Kind, list[str]] = {}
        with self._lock:
            if tag is not None and tag not in self._regions:
                raise GranuleError(f"no region has the tag {tag!r}; the tags are {sorted(self._regions)}")
            for name, kinds in sorted(self._regions.items()):
                for kind in kinds if tag in (None, name) else ():
                    found.setdefault(kind, []).append(_region(name, kind))
        return found


def _kind(cpu: bool, disk: bool, backend: str | None) -> _Kind:
    if cpu and disk:
        raise ValueError("enable_cpu_backup and enable_disk_backup exclude each other")
    _check_backend(cpu, backend)
    return _CPU if cpu else _DISK if disk else _DISCARD


def _check_backend(cpu: bool, backend: str | None) -> None:
    if backend is None:
        return
    if not cpu:
        raise ValueError("cpu_backup_backend requires enable_cpu_backup=True")
    if backend not in _CPU_BACKUPS:
        raise ValueError(f"cpu_backup_backend is {backend!r}; there are {', '.join(map(repr, _CPU_BACKUPS))}")


def _region(tag: str, kind: _Kind) -> str:
    return f"torch_memory_saver/{kind.name}/{tag}"


torch_memory_saver = TorchMemorySaver()
"""The process's one object, as the library offers it."""


@contextlib.contextmanager
def configure_subprocess() -> Iterator[None]:
    """Processes that are started inside have Granule in the library's place, too. Nothing is preloaded."""
    wanted = {"GRANULE_TORCH": "1", VARIABLE: "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_REPLACED = ("torch_memory_saver", "TorchMemorySaver", "configure_subprocess")


def install() -> None:
    """Puts Granule in the place of the library in this process: its object, its class, and ``configure_subprocess``.

    Call it before other modules import names from the library. A second call does nothing.

    Raises:
        GranuleError: Granule is not PyTorch's allocator, the library is missing or of another shape, or it has begun to hold memory.
            Nothing was changed.
    """
    if not _enable.is_enabled():
        raise GranuleError("Granule is not PyTorch's allocator in this process: call granule_torch.enable() first.")
    library = _releases.imported("torch_memory_saver", "torch_memory_saver", "0.0", _REPLACED)
    if library.torch_memory_saver is torch_memory_saver:
        return
    if os.environ.get("TMS_INIT_ENABLE", "0") not in ("", "0"):
        raise GranuleError(
            "TMS_INIT_ENABLE puts all memory of a process into a region, which Granule does not: remove the variable, and open a region "
            "where memory is to be paused."
        )
    if getattr(library.torch_memory_saver, "_impl", None) is not None:
        raise GranuleError("torch_memory_saver holds memory already: install Granule in its place before the first region.")
    for name in _REPLACED:
        setattr(library, name, globals()[name])


def autoload() -> None:
    """:func:`install` where GRANULE_TORCH_MEMORY_SAVER asks for it. Where that is not possible, warns."""
    if os.environ.get(VARIABLE, "0") in ("", "0"):
        return
    try:
        install()
    except GranuleError as error:
        warnings.warn(f"{VARIABLE} is set, but: {error}", RuntimeWarning, stacklevel=2)
