"""Compiles the C++ shims against the PyTorch that is installed.

This module imports nothing of the package: setup.py uses it, too, when PyTorch is there at build time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sysconfig
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Iterable, Iterator

_HERE = Path(__file__).parent


def csrc() -> Path:
    """The C++ sources: beside this file in an installed package, beside the package in a working tree."""
    packaged = _HERE / "csrc"
    return packaged if packaged.is_dir() else _HERE.parent / "csrc"


def shared() -> Path:
    """What the shims share: pinned memory."""
    return csrc() / "host"


def granule_include() -> Path:
    """The directory of granule.h; GRANULE_CAPI_INCLUDE names one that goes with GRANULE_CAPI_LIBRARY."""
    if named := os.environ.get("GRANULE_CAPI_INCLUDE"):
        return Path(named)
    packaged = _HERE / "csrc" / "include"
    return packaged if packaged.is_dir() else _HERE.parent.parent / "granule-capi" / "include"


def cuda_headers() -> list[str]:
    """Where CUDA's API headers are, without a toolkit: in NVIDIA's Python wheels, which PyTorch's CUDA wheels depend on.

    They lack one header that belongs to nvcc; a stand-in is added where it is missing.
    """
    candidates = []
    if home := os.environ.get("CUDA_HOME"):
        candidates.append(Path(home) / "include")
    for name in ("purelib", "platlib"):
        site = Path(sysconfig.get_paths()[name])
        candidates += sorted(site.glob("nvidia/cu*/include")) + sorted(site.glob("nvidia/cuda_runtime/include"))
    candidates += _beside_torch()
    candidates.append(Path("/usr/local/cuda/include"))
    for include in candidates:
        if (include / "cuda_runtime_api.h").is_file():
            complete = (include / "crt" / "host_defines.h").is_file()
            return [str(include)] if complete else [str(include), str(csrc() / "cuda_headers")]
    return []


def _beside_torch() -> list[Path]:
    import torch

    site = Path(torch.__file__).parent.parent
    return sorted(site.glob("nvidia/cu*/include")) + sorted(site.glob("nvidia/cuda_runtime/include"))


def key(sources: Iterable[Path], torch_version: str) -> str:
    """Names a build: two builds of one name are interchangeable."""
    digest = hashlib.sha256(torch_version.encode())
    for source in sorted(sources, key=lambda source: source.name):
        digest.update(source.read_bytes())
    return f"torch-{torch_version}-{digest.hexdigest()[:16]}"


def sources_of(folder: str) -> list[Path]:
    """The C++ files and headers of one shim, those that all share, and granule.h."""
    folders = (csrc() / folder, shared())
    return [*(file for each in folders for kind in ("*.cpp", "*.h") for file in each.glob(kind)), granule_include() / "granule.h"]


def compile_shim(folder: str, into: Path, *, cuda: bool, verbose: bool = False) -> Path:
    """Compiles the shim in csrc/`folder` with PyTorch's extension builder; gives the library's path.

    PyTorch's builder loads what it built, so libgranule_capi must have been loaded with global symbols before. On a ROCm
    build of PyTorch the builder translates the sources to HIP first, beside themselves, so it gets copies.

    Args:
        folder: `cuda` or `privateuse1`.
        into: where the library and everything on the way to it goes.
        cuda: whether the shim is over PyTorch's CUDA (or ROCm) libraries.
        verbose: print the compiler's commands.

    Raises:
        Exception: whatever PyTorch's builder raises; its text has the compiler's output.
    """
    import torch
    from torch.utils import cpp_extension

    into.mkdir(parents=True, exist_ok=True)
    root = csrc() / folder
    hip = cuda and torch.version.hip is not None
    if hip:
        copy = into / folder
        shutil.copytree(root, copy, dirs_exist_ok=True)
        root = copy
    include: list[str] = [str(root), str(shared()), str(granule_include())]
    sources = sorted([*root.glob("*.cpp"), *shared().glob("*.cpp")])
    link = ["-Wl,--as-needed"]
    if not hip:
        sources = [_one_unit(sources, into)]
    if cuda and not hip:
        # Not by `with_cuda`, which demands a toolkit. There is nothing here for nvcc.
        include += cuda_headers()
        link += ["-lc10_cuda", "-ltorch_cuda", *_cuda_runtime()]
    arguments: dict[str, Any] = {
        "name": f"granule_torch_{folder}",
        "sources": [str(source) for source in sources],
        "extra_cflags": ["-O2", "-fvisibility=hidden"],
        "extra_ldflags": link,
        "extra_include_paths": include,
        "build_directory": str(into),
        "with_cuda": hip,
        "is_python_module": False,
        "verbose": verbose,
    }
    with _alone(into), ninja_at_hand():
        cpp_extension.load(**arguments)
    return into / f"granule_torch_{folder}.so"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One build at a time in a folder.

    The system lifts this lock when a build is killed. PyTorch's own is a file, which stays, and the next build waits for ever.
    """
    with (folder / "alone").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (folder / "lock").unlink(missing_ok=True)
        yield


def _installed_ninja() -> list[str]:
    """The folder that its package was installed to, where there is one."""
    try:
        files = metadata.files("ninja") or []
    except metadata.PackageNotFoundError:
        return []
    return [str(Path(str(file.locate())).resolve().parent) for file in files if file.name == "ninja"]


@contextmanager
def ninja_at_hand() -> Iterator[None]:
    """PyTorch's builder looks for ninja in PATH only, where it is not if the environment that has it was never activated."""
    before = os.environ.get("PATH")
    if shutil.which("ninja") is None:
        os.environ["PATH"] = os.pathsep.join([*filter(None, [before]), *_installed_ninja()])
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PATH", None)
        else:
            os.environ["PATH"] = before


def _one_unit(sources: list[Path], into: Path) -> Path:
    """All files as one, which compiles six times faster: nearly all of the work is PyTorch's headers."""
    unit = into / "all.cpp"
    unit.write_text("".join(f'#include "{source}"\n' for source in sources))
    return unit


def _cuda_runtime() -> list[str]:
    """The CUDA runtime that PyTorch brings, by its file: the wheels have no name that the linker would look for."""
    for include in cuda_headers():
        for library in sorted((Path(include).parent / "lib").glob("libcudart.so*")):
            return [f"-L{library.parent}", f"-l:{library.name}"]
        for library in sorted((Path(include).parent / "lib64").glob("libcudart.so*")):
            return [f"-L{library.parent}", f"-l:{library.name}"]
    return []
