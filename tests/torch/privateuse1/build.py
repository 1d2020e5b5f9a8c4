"""Builds what stands for a vendor: a driver in C (the example backend), and a PyTorch runtime over it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .support import PACKAGE, ROOT

HERE = Path(__file__).resolve().parent
SHIM, PINNED = (PACKAGE / "csrc" / folder for folder in ("privateuse1", "host"))
DRIVER = [ROOT / "tests" / "c-backend" / "example.c", HERE / "vendor" / "driver.c"]
BACKEND_HEADER = ROOT / "crates" / "backend-c" / "include"


def driver(folder: Path) -> Path:
    """The driver as a shared library."""
    library = folder / "libdriver.so"
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", f"-I{BACKEND_HEADER}"]
    subprocess.run([*command, *map(str, DRIVER), "-o", str(library), "-lpthread"], check=True)
    return library


def runtime(folder: Path) -> None:
    """The module `vendor`: the runtime with the allocator shim, as a vendor builds it."""
    from torch.utils import cpp_extension

    from granule_torch import _build, _library

    library = driver(folder)
    sources = [HERE / "vendor" / "runtime.cpp"]
    sources += [SHIM / "registration.cpp", SHIM / "device_allocator.cpp", *sorted(PINNED.glob("*.cpp"))]
    capi = _library.path()
    with _build.ninja_at_hand():
        cpp_extension.load(
            name="vendor",
            sources=[str(source) for source in sources],
            extra_include_paths=[str(_build.granule_include()), str(SHIM), str(PINNED)],
            extra_cflags=["-O1"],
            extra_ldflags=[str(capi), str(library), f"-Wl,-rpath,{capi.parent}:{folder}"],
            build_directory=str(folder),
            with_cuda=False,
        )


if __name__ == "__main__":
    runtime(Path(sys.argv[1]))
