"""The C++ shim for PyTorch's CUDA allocator interface: found, or built on first use."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import sys
import tempfile
from ctypes import c_bool, c_char_p, c_double, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from . import _build, _library, _own
from ._errors import GranuleError

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "granule_torch_built_for": (c_char_p, []),
    "granule_torch_problem": (c_char_p, []),
    "granule_torch_install": (c_bool, [c_char_p, c_char_p, c_bool]),
    "granule_torch_is_installed": (c_bool, []),
    "granule_torch_pins": (c_bool, []),
    "granule_torch_configure": (c_bool, [c_char_p]),
    "granule_torch_engine": (c_void_p, []),
    "granule_torch_pinned": (c_void_p, []),
    "granule_torch_current_allocator": (c_void_p, []),
    "granule_torch_displaced_allocator": (c_void_p, []),
    "granule_torch_current_pinned": (c_void_p, []),
    "granule_torch_displaced_pinned": (c_void_p, []),
    "granule_torch_prepare": (None, [c_void_p, c_int]),
    "granule_torch_make_current": (None, [c_void_p]),
    "granule_torch_time_data_ptr": (c_double, [c_void_p, c_size_t, c_uint64]),
    "granule_torch_time_raw": (c_double, [c_void_p, c_size_t, c_uint64]),
    "granule_torch_time_pinned": (c_double, [c_void_p, c_size_t, c_bool, c_uint64]),
}


def cache_directory() -> Path:
    """Where shims are kept that were built on first use: GRANULE_TORCH_CACHE, or a folder in the user's cache."""
    if named := os.environ.get("GRANULE_TORCH_CACHE"):
        return Path(named)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "granule_torch"
    try:
        return Path.home() / ".cache" / "granule_torch"
    except RuntimeError as error:
        raise GranuleError(f"There is no folder for a cache: {error} Name one in GRANULE_TORCH_CACHE.") from error


def build(folder: str, *, cuda: bool) -> Path:
    """The library of the shim in csrc/`folder` for the PyTorch that is installed; compiled now if it never was.

    Raises:
        GranuleError: it does not compile here; the text has the compiler's output.
    """
    import torch

    _library.load()
    name = f"granule_torch_{folder}.so"
    version, key = str(torch.__version__), _key(folder)
    shipped = Path(__file__).parent / "shims" / key / name
    if shipped.is_file():
        return shipped
    try:
        kept = _own.folder(_own.folder(cache_directory()) / key) / name
    except OSError as error:
        raise GranuleError(
            f"The C++ shim has to be compiled once, and there is no room for it: {error}. Name a folder in GRANULE_TORCH_CACHE."
        ) from error
    if kept.is_file():
        return kept
    print(f"granule_torch: compiling its C++ shim for torch {version}; this is done once.", file=sys.stderr, flush=True)
    # Built aside and moved into place, so that no other process ever loads half a file.
    with tempfile.TemporaryDirectory(dir=kept.parent) as aside:
        try:
            built = _build.compile_shim(folder, Path(aside), cuda=cuda)
        except Exception as error:
            log = kept.with_suffix(".log")
            log.write_text(str(error))
            raise GranuleError(
                f"The C++ shim cannot be built for torch {version}. It needs ninja, a C++ compiler, and a PyTorch release whose "
                f"allocator interface it knows. All that the builder said is in {log}; what matters most:\n"
                + "\n".join(_complaints(str(error)))
            ) from None
        complete = kept.with_suffix(f".{os.getpid()}")
        shutil.copy2(built, complete)
        complete.replace(kept)
    return kept


def _key(folder: str) -> str:
    """Names the build of the shim in csrc/`folder` for the PyTorch that is installed."""
    import torch

    return _build.key(_build.sources_of(folder), str(torch.__version__))


def selftest_answer(folder: str, backend: str) -> Path:
    """The file that has what the self-test said of this build over a backend with the PyTorch that is installed."""
    library = Path(_library.load()._name)
    made = library.stat()
    selftest = Path(__file__).with_name("_selftest.py").read_bytes()
    build = hashlib.sha256(f"{library} {made.st_size} {made.st_mtime_ns} {backend}".encode() + selftest).hexdigest()
    return cache_directory() / _key(folder) / f"selftest-{build[:16]}.json"


def _complaints(said: str) -> list[str]:
    """Of a builder's output the compiler's first errors; where there are none, the end."""
    lines = [line for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    return errors[:5] or lines[-5:]


@functools.cache
def load() -> ctypes.CDLL:
    """The shim, with signatures.

    Raises:
        GranuleError: it cannot be built or loaded here.
    """
    path = build("cuda", cuda=True)
    try:
        shim = ctypes.CDLL(str(path))
    except OSError as error:
        raise GranuleError(f"The C++ shim {path} cannot be loaded: {error}.") from error
    _library.declare(shim, _SIGNATURES)
    return shim
