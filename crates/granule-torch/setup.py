"""Builds libgranule_capi with Cargo, adds the C++ sources, and compiles the shim if PyTorch can be imported now."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
from pathlib import Path
from types import ModuleType

from setuptools import Command, setup
from setuptools.command.build import build
from setuptools.command.build_py import build_py
from setuptools_rust import Binding, RustExtension

HERE = Path(__file__).parent
CAPI = HERE.parent / "granule-capi"


def _builder() -> ModuleType:
    """granule_torch/_build.py by itself, from this tree: the package may be installed elsewhere, too."""
    spec = importlib.util.spec_from_file_location("granule_torch_build", HERE / "granule_torch" / "_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildPython(build_py):
    """The Python files, and beside them what the shim is compiled from."""

    def run(self) -> None:
        super().run()
        package = Path(self.build_lib) / "granule_torch"
        shutil.copytree(HERE / "csrc", package / "csrc", dirs_exist_ok=True)
        include = package / "csrc" / "include"
        shutil.copytree(CAPI / "include", include, dirs_exist_ok=True)


class BuildShim(Command):
    """The C++ shim, if PyTorch with CUDA or ROCm can be imported (pip install --no-build-isolation)."""

    user_options: list[tuple[str, str | None, str]] = []

    def initialize_options(self) -> None:
        self.build_lib: str | None = None
        self.build_temp: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_lib", "build_lib"), ("build_temp", "build_temp"))

    def run(self) -> None:
        try:
            import torch
        except ImportError:
            self.announce("no PyTorch here: the C++ shim will be compiled on first use", level=2)
            return
        if torch.version.cuda is None and torch.version.hip is None:
            return
        assert self.build_lib is not None and self.build_temp is not None
        package = Path(self.build_lib) / "granule_torch"
        for library in package.glob("libgranule_capi*.so"):
            ctypes.CDLL(str(library.resolve()), mode=ctypes.RTLD_GLOBAL)
        builder = _builder()
        key = builder.key(builder.sources_of("cuda"), str(torch.__version__))
        built = builder.compile_shim("cuda", (Path(self.build_temp) / key).resolve(), cuda=True)
        into = package / "shims" / key
        into.mkdir(parents=True, exist_ok=True)
        shutil.copy2(built, into)


build.sub_commands.append(("build_shim", lambda _: True))

setup(
    cmdclass={"build_py": BuildPython, "build_shim": BuildShim},
    rust_extensions=[
        RustExtension(
            "granule_torch.libgranule_capi",
            path=os.path.relpath(CAPI / "Cargo.toml", HERE),
            binding=Binding.NoBinding,
            # All backends, which is the library's default: enable() asks for them by name.
            # SETUPTOOLS_RUST_CARGO_PROFILE names a profile that is quicker to build.
            args=["--locked", "--profile", "dist"],
            py_limited_api=True,
            debug=False,
        )
    ],
    zip_safe=False,
)
