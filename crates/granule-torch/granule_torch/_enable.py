"""Putting Granule in the place of PyTorch's CUDA allocator, and its settings from then on."""

from __future__ import annotations

import functools
import os
import re
import warnings
from ctypes import byref, c_int32, c_uint64
from typing import Any

from . import _library, _selftest, _shim
from ._errors import CannotEnable, GranuleError

# The first release whose interface the shim knows, and those on which all end-to-end programs ran. Others have to pass the
# self-test.
OLDEST = (2, 11)
TESTED = ((2, 11), (2, 14), (2, 15))

# What a report says of the release.
remarks: list[str] = []

# The release in a version such as 2.15.0a0+git or 2.14.1+cu130.
_RELEASE = re.compile(r"[0-9]+(\.[0-9]+){0,2}")


def enable(backend: str | None = None, settings: str | None = None, *, pinned: bool = True) -> None:
    """Makes Granule the allocator behind ``torch.cuda``. Call it before anything uses CUDA.

    Everything of ``torch.cuda.memory`` then speaks to Granule: statistics, snapshots, pools, graphs, sharing between
    processes, ``OutOfMemoryError``. The devices are touched when PyTorch initialises CUDA, not now, so a program
    may still fork. Calling it again without arguments does nothing. The first call on a machine compiles the C++ shim, which takes
    some seconds, unless the package was built where PyTorch was installed.

    Args:
        backend: ``"cuda"`` on CUDA builds of PyTorch, ``"hip"`` or ``"hip-as-cuda"`` on ROCm builds. Default:
            ``GRANULE_BACKEND`` if it is set, else ``"cuda"`` or ``"hip"``.
        settings: settings of PyTorch or Granule, such as ``"expandable_segments:True,segments_ipc:False"``, or
            ``"policy:granule"`` for Granule's own way to place memory, which stays for the life of the process.
            Default: those of the environment (``PYTORCH_CUDA_ALLOC_CONF`` and so on).
        pinned: whether pinned host memory (``pin_memory=True``) is Granule's, too. ``False`` leaves PyTorch's allocator for it, whose
            options belong in the environment.

    Raises:
        CannotEnable: PyTorch goes on with the allocator that it had; the text says why.
        GranuleError: Granule is enabled already, and arguments were given.
    """
    _check_types(backend, settings, pinned)
    if os.environ.get(_selftest.VARIABLE):
        raise CannotEnable("This process is part of granule_torch's self-test.")
    if is_enabled():
        if backend is not None or settings is not None or not pinned:
            raise GranuleError(
                "Granule is PyTorch's allocator already: enable() was called before (or GRANULE_TORCH is set). Use "
                "granule_torch.configure() to change settings."
            )
        return
    torch = _torch_with_cuda()
    untested = _is_untested(torch)
    current: str = torch.cuda.get_allocator_backend()
    if torch.cuda.is_initialized():
        raise CannotEnable(
            "PyTorch has initialised CUDA already, and its allocator holds memory: call granule_torch.enable() before "
            "the first use of torch.cuda (or set GRANULE_TORCH=1).",
            left=current,
        )
    if current != "native":
        raise CannotEnable(
            f"PyTorch's allocator is {current!r} already: remove the backend option from PYTORCH_CUDA_ALLOC_CONF, or the call "
            "of change_current_allocator.",
            left=current,
        )
    if torch.cuda.device_count() == 0:
        raise CannotEnable("PyTorch sees no device: there is no GPU or no driver here, or CUDA_VISIBLE_DEVICES hides it.")
    backend = _backend_of(torch, backend)
    try:
        library = _library.load()
        _library.check(library.granule_check_settings(None if settings is None else settings.encode()))
        _library.check(library.granule_check_backend(backend.encode()))
        if untested:
            _try(torch, backend)
        install(backend, settings, pinned=pinned)
    except GranuleError as error:
        raise CannotEnable(_sentence(str(error))) from error


def _sentence(text: str) -> str:
    """The text with a capital letter, unless a name is first, and a full stop after a word; a question keeps its mark."""
    if re.match("[a-z]+ ", text):
        text = text[0].upper() + text[1:]
    return text + ("." if re.search(r"""[\w'")`]$""", text) else "")


def install(backend: str, settings: str | None, *, pinned: bool = True) -> None:
    """Puts Granule in place, in a process that may have it.

    Raises:
        GranuleError: it cannot be; PyTorch's allocator is where it was.
    """
    import torch

    shim = _shim.load()
    built_for = shim.granule_torch_built_for().decode()
    # A build of a day or of a vendor has more in its version than its headers say.
    found = _RELEASE.match(str(torch.__version__))
    if found is None or found[0] != built_for:
        raise GranuleError(
            f"The C++ shim was built for torch {built_for}, and this is torch {torch.__version__}: install granule_torch again"
        )
    if not shim.granule_torch_install(backend.encode(), None if settings is None else settings.encode(), pinned):
        raise GranuleError(shim.granule_torch_problem().decode())
    if pinned and not shim.granule_torch_pins():
        remarks.append(f"torch {torch.__version__} lets nobody replace its allocator of pinned memory, which stays in place")
        warnings.warn(remarks[-1], RuntimeWarning, stacklevel=3)
    _answer_mem_get_info(torch)


def _answer_mem_get_info(torch: Any) -> None:
    """Has ``torch.cuda.mem_get_info`` ask Granule. PyTorch asks the driver, which on a device that shares the host's memory counts
    the page cache as taken. For other devices the answer is the driver's, as before.
    """
    native = torch.cuda.memory.mem_get_info
    if hasattr(native, "__wrapped__"):
        return

    @functools.wraps(native)
    def mem_get_info(device: Any = None) -> tuple[int, int]:
        address = engine()
        index: int = torch.cuda._utils._get_device_index(device, optional=True)
        free, total = c_uint64(), c_uint64()
        library = _library.load()
        _library.check(library.granule_device_memory_info(address, c_int32(index), byref(free), byref(total)))
        return free.value, total.value

    torch.cuda.memory.mem_get_info = torch.cuda.mem_get_info = mem_get_info


def _check_types(backend: object, settings: object, pinned: object) -> None:
    for name, value in (("backend", backend), ("settings", settings)):
        if not isinstance(value, (str, type(None))):
            raise TypeError(f"{name} is {value!r}; it must be a str or None")
    if not isinstance(pinned, bool):
        raise TypeError(f"pinned is {pinned!r}; it must be a bool")


def _backend_of(torch: Any, asked: str | None) -> str:
    """The backend under PyTorch's devices. Another one's memory would be foreign to every kernel of this PyTorch."""
    fitting = ("hip", "hip-as-cuda") if torch.version.hip else ("cuda",)
    named = asked or os.environ.get("GRANULE_BACKEND") or fitting[0]
    if named in fitting:
        return named
    whose = "The argument backend" if asked else "GRANULE_BACKEND"
    hint = " For the simulated device, use granule_torch.privateuse1.enable(\"openreg\")." if named == "openreg" else ""
    raise CannotEnable(
        f"{whose} names {named!r}, and this PyTorch's devices are served by {' or '.join(fitting)}.{hint}"
    )


def is_enabled() -> bool:
    """Whether PyTorch's current CUDA allocator is Granule. Builds and loads nothing."""
    return _shim.load.cache_info().currsize > 0 and bool(_shim.load().granule_torch_is_installed())


def engine() -> int:
    """The address of the allocator behind ``torch.cuda``, for calls of Granule's C ABI. Initialises CUDA.

    Raises:
        GranuleError: Granule is not enabled, or finds no device.
    """
    if not is_enabled():
        raise GranuleError("Granule is not PyTorch's allocator in this process: call granule_torch.enable() first.")
    import torch

    torch.cuda.init()  # type: ignore[no-untyped-call]
    shim = _shim.load()
    address: int | None = shim.granule_torch_engine()
    if address is None:
        raise GranuleError(shim.granule_torch_problem().decode())
    return address


def configure(settings: str) -> None:
    """Changes settings of the allocator behind ``torch.cuda``, PyTorch's options or Granule's own.

    ``torch._C._accelerator_setAllocatorSettings`` and ``torch.cuda.memory._set_allocator_settings`` reach Granule, too,
    but PyTorch's parser refuses options that PyTorch does not have. As there, each text resets ``max_split_size_mb``,
    ``roundup_power2_divisions``, ``garbage_collection_threshold`` and ``max_non_split_rounding_mb`` first.

    Args:
        settings: such as ``"segments_ipc:False"``.

    Raises:
        GranuleError: the text cannot be honoured; nothing was changed.
    """
    engine()
    shim = _shim.load()
    if not shim.granule_torch_configure(settings.encode()):
        raise GranuleError(shim.granule_torch_problem().decode())


def pinned() -> int | None:
    """The address of the allocator of pinned memory behind ``torch.cuda``; none where nothing was pinned yet, or PyTorch's serves."""
    address: int | None = _shim.load().granule_torch_pinned() if is_enabled() else None
    return address


def _torch_with_cuda() -> Any:
    try:
        import torch
    except ImportError as error:
        raise CannotEnable(f"PyTorch is not installed ({error}).") from error
    if torch.version.cuda is None and torch.version.hip is None:
        raise CannotEnable(
            f"This is torch {torch.__version__} without CUDA or ROCm: its wheels with a device are on pytorch.org."
        )
    return torch


def _is_untested(torch: Any) -> bool:
    """Whether the release is not among those that were tested."""
    if os.environ.get("GRANULE_TORCH_UNTESTED"):
        warnings.warn(
            "GRANULE_TORCH_UNTESTED has no effect any more and can be removed: a release that was not tested is used if it "
            "passes a self-test. GRANULE_TORCH_STRICT=1 refuses it.",
            FutureWarning,
            stacklevel=3,
        )
    public = str(torch.__version__).partition("+")[0]
    release = tuple(int(part) for part in public.split(".")[:2])
    # What is not a release of its own, such as 2.15.0a0, may have any interface.
    if release in TESTED and _RELEASE.fullmatch(public):
        return False
    if release < OLDEST:
        raise CannotEnable(
            f"granule_torch fits torch {_dotted(OLDEST)} and later, and this is torch {torch.__version__}. Install a newer one."
        )
    if _is_set("GRANULE_TORCH_STRICT"):
        said = f"granule_torch is tested with torch {_tested('and')}, and this is torch {torch.__version__}. GRANULE_TORCH_STRICT=1"
        if _is_set("GRANULE_TORCH_ANYWAY"):
            raise CannotEnable(f"{said} refuses that, and GRANULE_TORCH_ANYWAY=1 wants it: remove one of the two variables.")
        raise CannotEnable(f"{said} allows no other: install a tested release, or remove the variable.")
    return True


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")


def _tested(word: str) -> str:
    """The tested releases, with this word before the last."""
    *first, last = (_dotted(release) for release in TESTED)
    return f"{', '.join(first)} {word} {last}"


def _dotted(release: tuple[int, int]) -> str:
    return ".".join(str(part) for part in release)


def _try(torch: Any, backend: str) -> None:
    """Has a release that was not tested pass the self-test, unless it has before, or the user goes on all the same."""
    # Here, so that what a compiler says reaches the user.
    _shim.build("cuda", cuda=True)
    file = _shim.selftest_answer("cuda", backend)
    cause = None
    try:
        differs, is_new = _selftest.answer(backend, file)
        kept = f". This answer is kept: remove {file} to have it tried again" if _selftest.kept(file) is not None else ""
        remedy = f"Install torch {_tested('or')}, or a granule_torch that knows this release{kept}"
    except _selftest.NotTried as error:
        differs, is_new, remedy, cause = str(error), True, "Mend that, and try again", error
    said = f"granule_torch was not tested with torch {torch.__version__}"
    if not differs:
        said += "; its self-test passes there. GRANULE_TORCH_STRICT=1 refuses such releases."
    elif _is_set("GRANULE_TORCH_ANYWAY"):
        said += f", and goes on because of GRANULE_TORCH_ANYWAY=1: {differs}."
    else:
        raise GranuleError(f"{said}: {differs}. {remedy}. GRANULE_TORCH_ANYWAY=1 goes on all the same") from cause
    remarks[:] = [said]
    if is_new or differs:
        warnings.warn(said, RuntimeWarning, stacklevel=3)
